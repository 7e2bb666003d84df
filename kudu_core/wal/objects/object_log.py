"""The writer's log in an object store: buffers that become numbered objects (protocol B1 to B3, B5, B8).

Records gather in a buffer.  Whoever waits first for durability seals it and puts it, if that number is not
there; meanwhile the next one fills.  A put that has not succeeded is repeated with the same bytes under the
same number by whoever comes next, however long that takes, and nothing behind it is put before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kudu_core.errors import Corruption, Fenced, InternalError, StoreError
from kudu_core.fs.base import byte_views
from kudu_core.wal.appending import ActiveRoom, AppendingLog
from kudu_core.wal.format import Buffer, Segment, padded
from kudu_core.wal.log_options import LogClock, LogOptions
from kudu_core.wal.objects.log_object import OBJECT_HEADER, LogEnd, LogPlace, ObjectHeader, log_name
from kudu_core.wal.objects.object_tail import LogObject

if TYPE_CHECKING:
    from kudu_core.fs.api import Data
    from kudu_core.objects.api import ObjectStore
    from kudu_core.wal.objects.object_tail import ObjectTail

BUFFER_BYTES: Final = 16 << 20
"""Of a buffer, if no single record is larger."""
GATHER_STEPS, GATHER_STEP_S = 6, 0.0005
"""So often, and for so long, a put waits for the calls that shared the one before."""
PROOF_S: Final = 3600.0
"""A writer whose last proof is older than this looks at TABLE before it acknowledges."""
CHECKPOINT_OBJECTS, CHECKPOINT_BYTES = 256, 64 << 20
"""What a checkpoint must be able to let go of: each object costs an open one GET, and bytes a replay."""


class StoreClock(LogClock, Protocol):
    """What this log asks of ``common.run.clock`` besides."""

    def sleep(self, seconds: float) -> None: ...

    def now_us(self) -> int: ...
    def boottime_s(self) -> float: ...


class _Buffer:
    """The records of an object that is not there yet."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def pwrite(self, data: Data, offset: int) -> None:
        """Behind what is there.  The caller may change its buffers afterwards."""
        pieces = [bytes(view) for view in byte_views(data)]
        if offset != OBJECT_HEADER.size + self._size:
            raise InternalError(f"a record at {offset}, behind {self._size} bytes of records")
        self._pieces += pieces
        self._size += sum(map(len, pieces))

    def cut(self, size: int) -> None:
        """Back to so many bytes."""
        whole = b"".join(self._pieces)[:size]
        self._pieces, self._size = [whole], len(whole)

    def behind(self, header: bytes) -> bytes:
        return b"".join([header, *self._pieces])

    def let_go(self) -> None:
        """Of bytes that somebody else has."""
        self._pieces = []


class BufferRoom(ActiveRoom):
    """The object that takes records, or waits to be put."""

    file: _Buffer
    following: BufferRoom | None
    head_bytes = OBJECT_HEADER.size

    def __init__(self, header: ObjectHeader, root: str, capacity: int) -> None:
        self.header = header
        self.path, self.epoch, self.seq = f"{root}/{log_name(header.n)}", header.epoch, header.n
        self.end = self.filled = OBJECT_HEADER.size
        self.capacity = capacity
        self.last_ts, self.last_lsn = header.prev.ts, header.prev.lsn
        self.file, self.salt, self.following = _Buffer(), header.salt(), None
        self._whole: bytes | None = None

    @property
    def is_empty(self) -> bool:
        return self.end == OBJECT_HEADER.size

    def cut_back(self) -> None:
        self.file.cut(self.end - OBJECT_HEADER.size)

    def whole(self) -> bytes:
        """The bytes of the object, once nothing is appended any more: the same each time."""
        if self._whole is None:
            self._whole = self.file.behind(self.header.pack())
            self.file.let_go()  # not before: an interrupt between the two must leave the records somewhere
        return self._whole

    def as_object(self) -> LogObject:
        end = LogEnd(self.header.put_id, self.last_ts, self.last_lsn)
        return LogObject(self.seq, self.epoch, end, self.end, is_fence=False)


class ObjectLog(AppendingLog):
    """The log of a table that this process holds for writing.  Safe for any number of threads.

    The rooms that are not there yet form a chain by ``following``, from ``_oldest`` to ``active``; all but
    the last are sealed.  Under the sync lock; ``active`` under the mutex too.
    """

    active: BufferRoom

    def __init__(
        self,
        store: ObjectStore,
        table_uuid: bytes,
        epoch: int,
        *,
        root: str,
        clock: StoreClock,
        options: LogOptions,
        new_id: Callable[[], bytes],
        prove: Callable[[], None],
        put_checkpoint: Callable[[LogPlace], None],
    ) -> None:
        """Use ``resume``."""
        super().__init__(table_uuid, epoch, clock, options)
        self._store = store
        self._root = root
        self._now = clock
        self._new_id = new_id
        self._prove = prove
        self._put_checkpoint = put_checkpoint
        self._proved = self._clocks()
        self._objects: list[LogObject] = []
        """Those that are there, from the first that TABLE names on.  Under the mutex."""
        self._retired: list[tuple[float, LogObject]] = []
        """Those before it, and when they may be deleted.  Under the mutex."""
        self._shared = 0
        """Records in the object that was put last."""
        self._oldest: BufferRoom
        self.place: LogPlace
        """Where TABLE says that the log begins."""

    @classmethod
    def resume(
        cls,
        store: ObjectStore,
        table_uuid: bytes,
        epoch: int,
        tail: ObjectTail,
        *,
        root: str,
        clock: StoreClock,
        new_id: Callable[[], bytes],
        options: LogOptions | None = None,
        prove: Callable[[], None] = lambda: None,
        put_checkpoint: Callable[[LogPlace], None] = lambda place: None,
    ) -> ObjectLog:
        """Continue the log that ``tail`` has read, to the fence of this epoch (protocol B4).

        Parameters
        ----------
        prove
            Looks at TABLE; ``Fenced`` if another writer has it.
        put_checkpoint
            Puts snapshots and TABLE, which then says that the log begins at that place.
        """
        log = cls(
            store,
            table_uuid,
            epoch,
            root=root,
            clock=clock,
            options=options or LogOptions(),
            new_id=new_id,
            prove=prove,
            put_checkpoint=put_checkpoint,
        )
        log.last_ts = log.last_record_ts = log.durable_ts = log.applied_ts = tail.last_ts
        log.last_lsn = log.durable_lsn = tail.last_lsn
        log.committed_ts, log.committed_lsn = tail.last_ts, tail.last_lsn
        log.place = tail.place
        log._objects = list(tail.objects)
        log.active = log._oldest = log._room(tail.next_number, tail.end)
        return log

    def _room(self, n: int, prev: LogEnd) -> BufferRoom:
        header = ObjectHeader(self._uuid, self._epoch, n, prev, self._new_id())
        return BufferRoom(header, self._root, BUFFER_BYTES)

    # Appending ----------------------------------------------------------------------------------

    def _append_to_next_segment(
        self, kind: int, schema_version: int, length: int, body_crc: int, buffers: list[Buffer]
    ) -> int:
        """At most one buffer waits to be put while another one fills, so that they do not fill memory."""
        size = padded(length)
        with self._sync_lock:
            while True:
                with self.mutex:
                    if self.failure is not None or self.closed:
                        self._refuse()
                    self._go_on()
                    if not self.active.fits(size) and self._oldest is self.active:
                        self._seal()
                    if self.active.fits(size):
                        return self._append(kind, schema_version, length, body_crc, buffers)
                self._put_oldest()

    def _seal(self) -> None:
        """Under both locks: nothing is appended to the active room any more."""
        active = self.active
        end = LogEnd(active.header.put_id, active.last_ts, active.last_lsn)
        active.following = self._room(active.seq + 1, end)
        self._go_on()

    def _go_on(self) -> None:
        """After a seal, also one that was interrupted: the next room takes the records."""
        while self.active.following is not None:
            self.active = self.active.following

    # Putting ------------------------------------------------------------------------------------

    def _sync_now(self) -> None:
        """Under the sync lock, not the mutex: put all that is appended.

        ``StoreError``: what was not put waits, and the next who comes tries again.  ``Fenced``, for good.
        """
        with self.mutex:
            if self.failure is not None or self.closed:
                self._refuse()
            wanted = self.last_lsn
        while self.durable_lsn < wanted:
            if self._oldest is self.active:
                self._gather()
            with self.mutex:
                self._go_on()
                if self._oldest is self.active:
                    self._seal()
            self._put_oldest()

    def _gather(self) -> None:
        """Under the sync lock: where several calls shared the put before, they will come again in a moment,
        and who does not wait for them puts them one round later: 32 threads had 390 calls a second at 40 ms
        a put, in place of 700."""
        room, shared = self.active, self._shared
        for _ in range(GATHER_STEPS if shared > 1 else 0):
            if self.last_lsn - room.header.prev.lsn >= shared:
                return
            self._now.sleep(GATHER_STEP_S)

    def _put_oldest(self) -> None:
        """Under the sync lock: put the oldest room, which is sealed, and acknowledge it."""
        room = self._oldest
        sent = self._clocks()
        try:
            other = self._store.put_if_absent(log_name(room.seq), room.whole(), room.header.put_id)
            if other is None and self._is_stale(self._proved):
                self._prove()
        except (Fenced, Corruption) as error:
            self.poison(error)
            self._refuse()
        except StoreError as error:
            raise type(error)(
                f"{error.args[0]}: what was written since may or may not be there; the next call that "
                "writes or waits tries again",
                True,
            ) from error
        if other is not None:
            self.poison(
                Fenced(
                    f"{room.path} is another writer's: the table was taken over; nothing was acknowledged "
                    "after that"
                )
            )
            self._refuse()
        self._proved = sent
        self.fsyncs += 1
        following = room.following
        assert following is not None
        with self.mutex:
            if self._oldest is room:
                self._shared = room.last_lsn - room.header.prev.lsn
                self._objects.append(room.as_object())
                self._oldest = following
            self._durable(room.last_ts, room.last_lsn)

    def _clocks(self) -> tuple[float, float]:
        return self._now.boottime_s(), self._now.now_us() / 1e6

    def _is_stale(self, proved: tuple[float, float]) -> bool:
        """Whether a writer that slept so long may have been replaced, and its fence be gone (protocol B5)."""
        return any(now - then > PROOF_S for now, then in zip(self._clocks(), proved, strict=True))

    def publish(self, watermark: int) -> None:
        """Under the mutex: what is there is all that other processes ask for (protocol B2)."""
        if self.failure is None:
            self.committed_ts, self.committed_lsn = watermark, self.durable_lsn

    def _close_files(self) -> None:
        """There are none."""

    def _clean_end(self) -> int:
        """The number of the first object that is not there."""
        return self._oldest.seq

    # Checkpoints --------------------------------------------------------------------------------

    def is_due(self, through: int) -> bool:
        """Protocol B8."""
        with self.mutex:
            gone = [one for one in self._objects if one.end.ts <= through]
        return len(gone) > CHECKPOINT_OBJECTS or sum(one.size for one in gone) > CHECKPOINT_BYTES

    def checkpoint(
        self, through: int, edits: Mapping[int, int], marks: Mapping[int, int] | None = None
    ) -> int:
        """Protocol B8.  ``edits``, ``marks``: what is known of the manifests is in their snapshots."""
        if through > self.committed_ts:
            raise InternalError(f"a checkpoint at {through}, beyond the committed {self.committed_ts}")
        with self.mutex:
            place = self._place(max(through, self.place.through))
        self._put_checkpoint(place)
        with self.mutex:
            self.place = place
            ready_s = self.clock.monotonic_s() + self._options.file_grace_s
            gone = [one for one in self._objects if one.n < place.first]
            self._objects = self._objects[len(gone) :]
            # A fence is what keeps a writer out that it has replaced (protocol B5).
            self._retired += [(ready_s, one) for one in gone if not one.is_fence]
        return self.last_record_ts

    def _place(self, through: int) -> LogPlace:
        """Under the mutex: where the log may begin, if ``through`` is in files."""
        prev = self.place.prev
        for one in self._objects:
            if one.end.ts > through:
                return LogPlace(one.n, prev, through)
            prev = one.end
        return LogPlace(self._oldest.seq, prev, through)

    def note_edits(self, edits: Mapping[int, int], marks: Mapping[int, int]) -> int:
        """An edit that is missing leaves a gap in their numbers."""
        return self.last_record_ts

    def roll(self) -> None:
        """Put what is appended."""
        with self._sync_lock:
            if self.last_lsn > self.durable_lsn:
                self._sync_now()
        self._syncing.open()

    @property
    def segments(self) -> list[Segment]:
        """The objects that hold the log, oldest first, and last the one that takes records."""
        with self.mutex:
            found = [one.segment(self._root) for one in self._objects]
            room: BufferRoom | None = self._oldest
            while room is not None:
                found.append(room.segment)
                room = room.following
            return found

    @property
    def spare_bytes(self) -> int:
        now_s = self.clock.monotonic_s()
        with self.mutex:
            return sum(one.size for ready_s, one in self._retired if ready_s <= now_s)

    def drop_spares(self) -> int:
        """Delete objects of before the log, whose grace is over (protocol B12)."""
        now_s = self.clock.monotonic_s()
        with self.mutex:
            ready = [one for ready_s, one in self._retired if ready_s <= now_s]
        if not ready:
            return 0
        self.raise_if_poisoned()
        self._store.delete_many([log_name(one.n) for one in ready])
        numbers = {one.n for one in ready}
        with self.mutex:
            self._retired = [each for each in self._retired if each[1].n not in numbers]
        return sum(one.size for one in ready)


__all__ = ["ObjectLog"]
