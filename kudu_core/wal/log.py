"""The writer's log: one order for everything that happens to a table (protocol W5 to W8, L1 to L3).

``append`` assigns the timestamp and writes the record; ``applied`` says that the stores have it;
``wait_visible`` returns when the caller may answer.  Whoever waits first runs the fsync itself, for
all that was appended until then: handing it to another thread would cost two switches on a path
that is as short as the disk allows.  The log thread does what has no waiter: the intervals of
``group``, and records whose waiter was interrupted.

Words: **A** (``applied_ts``) = every record <= A is applied; **W** (``committed_ts``) = min(A, durable);
**V** (``visible_ts``) = what readers in this process may see: W for ``sync``, A for ``group``, ``none``.

Not known here: what a payload means, tablets, TABLE.  Reading is ``wal.reader``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.format.members import LIMIT
from kudu_core.common.run.clock import time_of
from kudu_core.common.run.gates import Flag, Gates
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.workers import Worker
from kudu_core.errors import (
    Closed,
    Fenced,
    InternalError,
    InvalidArgument,
    KuduError,
    NotSupported,
    Poisoned,
    without_frames,
)
from kudu_core.wal.format import (
    COMMITTED_NAME,
    COMMITTED_STRIDE,
    KIND_CHECKPOINT,
    MAX_RECORD,
    PADDING,
    RECORD_HEADER,
    SEGMENT_HEADER,
    Buffer,
    Checkpoint,
    Committed,
    Segment,
    padded,
    payload_crc,
    record_header,
    total_size,
)
from kudu_core.wal.segments import ActiveSegment, SegmentFiles, SyncFailed

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile
    from kudu_core.wal.reader import LogTail

SMALL_RECORD = 16 << 10
"""Bytes of a payload that is copied together with its header."""

RETRY_S = 0.25
"""After so long the log thread tries again when there was no memory."""

Durability: TypeAlias = Literal["sync", "group", "none"]


class LogClock(Protocol):
    """What the log asks of ``common.run.clock``."""

    def now_hybrid(self) -> int: ...
    def monotonic_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log behaves.

    ``segment_bytes`` is the size at which a segment is full; a larger record gets a segment of its
    own size.  Zeros are written ahead of the records, so that an fsync finds a file whose size and
    blocks need no journal: as much again as the segment holds, between ``first_fill_bytes`` and
    ``fill_bytes``; records above ``fill_record_bytes`` gain nothing from it.  ``file_grace_s``: for
    how long a segment that no checkpoint needs is left as it is before its bytes are used again.
    """

    durability: Durability = "sync"
    group_interval_s: float = 0.05
    segment_bytes: int = 64 << 20
    first_fill_bytes: int = 256 << 10
    fill_bytes: int = 4 << 20
    fill_record_bytes: int = 256 << 10
    file_grace_s: float = 60.0


class Log:
    """The log of a table that this process holds for writing.  Safe for any number of threads.

    Two locks.  ``_mutex``, the log mutex, guards everything that changes: positions, timestamps in
    flight, watermarks; it is held over write(2) and never over an fsync, but for the last one
    of a segment.  ``_sync_lock`` serialises fsyncs, new segments and their removal, so that no two
    threads can share out one error report of the file; it is taken before ``_mutex``, never after.

    Who needs an fsync while one runs does not queue for the lock: the thread that has just synced would
    take it again before those whom its fsync covered had woken, and they would wait for
    nothing.  They wait at ``_syncing``, which opens for all of them; those still not covered
    compete for the lock.

    Signals may interrupt any method in the main thread.  What the methods rely on: CPython
    runs a handler between bytecodes, never between a failing call and the first plain store of
    the ``except`` that catches it, so a failed fsync is always recorded; and never between taking
    a bare lock and the body of its ``with``.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        table_uuid: bytes,
        epoch: int,
        *,
        clock: LogClock,
        options: LogOptions | None = None,
        fence_check: Callable[[], None] = lambda: None,
    ) -> None:
        """Use ``create`` or ``resume``."""
        self._fs = fs
        self._directory = directory
        self._uuid = table_uuid
        self._epoch = epoch
        self._clock = clock
        self._options = options or LogOptions()
        self._fence_check = fence_check
        self._sync = self._options.durability == "sync"
        self._group = self._options.durability == "group"

        self._mutex = mutex()
        self._sync_lock = mutex()
        self._syncing = Gates()
        self._advancing = Gates()

        self._active: ActiveSegment
        self._committed_file: WriteFile
        self._files = SegmentFiles(
            fs, directory, table_uuid, epoch, clock, self._options.segment_bytes, self._options.file_grace_s
        )

        self._last_ts = 0
        self._last_record_ts = 0
        self._last_lsn = 0
        self._durable_ts = 0
        self._durable_lsn = 0
        self._applied_ts = 0
        self._committed = Committed(0, 0, 0, epoch)
        # Timestamps appended and not yet applied, in the order of the log, and whose they are.
        self._in_flight: dict[int, int] = {}
        self._failure: BaseException | None = None
        self._closed = False
        self._through = 0
        """Of the last CHECKPOINT."""

        self._thread: Worker | None = None
        self._work = Flag()
        self._stop = Flag()

        self.fsyncs = 0
        self.records = 0
        self.bytes_appended = 0

    # Beginning and end ------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        table_uuid: bytes,
        epoch: int,
        *,
        last_ts: int = 0,
        **options: Any,
    ) -> Log:
        """The empty log of a new table; ``directory`` exists and is empty.

        When this returns, the first segment and its name are durable.  The parent directory is
        the caller's to sync.  ``options`` as for the constructor.
        """
        log = cls(fs, directory, table_uuid, epoch, **options)
        log._last_ts = log._last_record_ts = log._durable_ts = log._applied_ts = last_ts
        try:
            log._active = log._files.open_next(1, last_ts, 0, 0)
        except SyncFailed as failed:
            raise failed.error from None
        log._open_committed_or_close(0)
        return log

    @classmethod
    def resume(
        cls,
        fs: FileSystem,
        directory: str,
        table_uuid: bytes,
        epoch: int,
        tail: LogTail,
        *,
        keep_segment: Callable[[str], None] | None = None,
        **options: Any,
    ) -> Log:
        """Continue the log that ``tail`` has read, under the new ``epoch`` (protocol O3, O6).

        The records of the last segment are copied to a segment of the new epoch, which is durable
        under its name before the old one is removed; ``tail`` stays readable.  What no longer
        belongs to the log (a stale writer's segments, unfinished copies) is removed.  Where a record that
        was torn or damaged may follow its last, ``keep_segment`` is given the old one, to put it elsewhere.
        """
        if tail.epoch >= epoch:
            raise InternalError(f"epoch {epoch} of a log that has seen {tail.epoch}: an epoch is used once")
        log = cls(fs, directory, table_uuid, epoch, **options)
        log._last_ts = log._last_record_ts = log._durable_ts = log._applied_ts = tail.last_ts
        log._last_lsn = log._durable_lsn = tail.last_lsn
        log._through = tail.through
        try:
            log._active = log._files.take_over(tail, keep_segment)
        except SyncFailed as failed:
            raise failed.error from None
        log._open_committed_or_close(tail.committed.counter)
        return log

    def close(self) -> int | None:
        """Make the log durable and close it; idempotent.  One that was interrupted is to be called again.

        Returns the last lsn, for TABLE's ``clean_end``, or None if the log is poisoned: then
        nothing more is written, and the next open decides.  Raises ``Poisoned`` or ``Fenced`` if
        the last fsync fails; the files are closed all the same.
        """
        self._stop.set()
        self._work.set()
        with self._mutex:
            thread = self._thread  # none is started any more
        if thread is not None:
            thread.join()
        with self._sync_lock:
            try:
                if not self._closed and self._failure is None and self._last_lsn > self._durable_lsn:
                    self._sync_now()
            except KuduError:
                self._closed = True
                self._close_files()
                raise
            # Not before: a call after one that was interrupted must not take the log for durable.
            self._closed = True
            self._close_files()
            return self._last_lsn if self._failure is None else None

    def abandon(self) -> None:
        """After a fork, in the child: close this process's copies of the files, write nothing."""
        # The locks may be held by threads that do not exist here.
        self._closed = True
        self._thread = None
        self._close_files()

    def _close_files(self) -> None:
        for file in (self._active.file, self._committed_file):
            with suppress(OSError):
                file.close()

    # Appending --------------------------------------------------------------------------------

    def append(self, kind: int, schema_version: int, parts: Sequence[Buffer]) -> int:
        """Write one record and return its timestamp, which is in flight until ``applied``.

        ``parts`` are C-contiguous buffers, written one after the other without a copy; they may
        change again when this returns.

        Raises ``InvalidArgument`` for a record of 4 GiB, ``OSError`` if the write failed and was
        cut back (in both cases nothing happened), ``Poisoned``, ``Fenced`` or ``Closed``.
        Any other exception (an interrupt) leaves the log poisoned if the record is in it.
        """
        if len(parts) == 1 and type(parts[0]) is bytes and len(parts[0]) <= SMALL_RECORD:
            # One row: a copy and one buffer cost less than a list of them.
            length = RECORD_HEADER.size + len(parts[0])
            body = parts[0] + PADDING[-length & 7]
            buffers: list[Buffer] = [body]
            body_crc = crc32c(body, 0)
        else:
            buffers = _as_bytes(parts)
            length = RECORD_HEADER.size + total_size(buffers)
            if length > MAX_RECORD:
                raise InvalidArgument(f"a log record holds at most {MAX_RECORD} bytes, not {length}")
            padding = PADDING[padded(length) - length]
            if padding:
                buffers.append(padding)
            body_crc = payload_crc(buffers)

        ts = 0
        try:
            with self._mutex:
                if self._failure is not None or self._closed:
                    self._refuse()
                if self._active.fits(padded(length)):
                    ts = self._append(kind, schema_version, length, body_crc, buffers)
            if not ts:
                ts = self._append_to_next_segment(kind, schema_version, length, body_crc, buffers)
                self._syncing.open()
            if self._group:
                self._ask_log_thread()
        except (OSError, Poisoned, Fenced, Closed):
            raise
        except BaseException as interrupt:
            if threading.get_ident() in list(self._in_flight.values()):
                self.poison(interrupt)
            raise
        return ts

    def _append(
        self, kind: int, schema_version: int, length: int, body_crc: int, buffers: list[Buffer]
    ) -> int:
        """Under the mutex, in a segment where it fits: assign timestamp and lsn, and write."""
        options = self._options
        active = self._active
        segment = active.segment
        ts = max(self._last_ts + 1, self._clock.now_hybrid())
        if ts >= LIMIT:
            raise NotSupported(
                f"the clock says {time_of(ts)}, and timestamps end before {time_of(LIMIT)}: nothing was "
                "written; set the clock right"
            )
        lsn = self._last_lsn + 1
        header = record_header(
            active.salt, body_crc, length, lsn, ts, self._durable_lsn, schema_version, kind
        )
        end = segment.end + padded(length)
        self._in_flight[ts] = threading.get_ident()
        try:
            if end > active.filled and length <= options.fill_record_bytes:
                active.fill_ahead(end, options.first_fill_bytes, options.fill_bytes)
            if len(buffers) == 1 and type(buffers[0]) is bytes:
                active.file.pwrite(header + buffers[0], segment.end)
            else:
                active.file.pwrite([header, *buffers], segment.end)
        except BaseException as error:
            self._cut_back(active, ts, error)
            raise
        # From here to the return only plain stores: a signal cannot come between them.
        segment.end = end
        segment.last_ts = self._last_ts = self._last_record_ts = ts
        segment.last_lsn = self._last_lsn = lsn
        if end > active.filled:
            active.filled = segment.size = end
        self.records += 1
        self.bytes_appended += length
        return ts

    def _cut_back(self, active: ActiveSegment, ts: int, error: BaseException) -> None:
        """Make a write that failed never have been: its bytes are no record and are not counted."""
        try:
            self._in_flight.pop(ts, None)
            active.cut_back()
        except BaseException:
            self._fail(error)
            raise

    def applied(self, ts: int) -> None:
        """The stores hold the record of ``ts``: it is no longer in flight."""
        with self._mutex:
            del self._in_flight[ts]
            self._advance()

    def _advance(self) -> None:
        """Under the mutex: A and W follow what is in flight and what is durable."""
        applied = next(iter(self._in_flight)) - 1 if self._in_flight else self._last_ts
        if applied > self._applied_ts:
            self._applied_ts = applied
        watermark = self._applied_ts if self._applied_ts < self._durable_ts else self._durable_ts
        if watermark > self._committed.ts or self._durable_lsn > self._committed.lsn:
            self._publish(watermark)
        self._advancing.open()

    def _publish(self, watermark: int) -> None:
        """Under the mutex: tell the other processes, then take the new W."""
        if self._failure is not None:
            return
        slot = Committed(self._committed.counter + 1, watermark, self._durable_lsn, self._epoch)
        try:
            self._committed_file.pwrite(slot.pack(self._uuid), slot.offset())
        except OSError as error:
            self._failure = without_frames(error)
            self._refuse()
        self._committed = slot

    # Waiting ----------------------------------------------------------------------------------

    def wait_visible(self, ts: int) -> None:
        """Return when V covers every record <= ``ts``; raises ``Poisoned`` or ``Fenced`` if it never
        will.  An interrupted wait leaves the record to the log thread."""
        if self.visible_ts >= ts:
            return
        self.raise_if_poisoned()
        ts = min(ts, self._last_record_ts)
        if self._sync:
            self.wait_durable(ts)
        self._wait_while(lambda: self.visible_ts < ts)

    def wait_committed(self, ts: int) -> None:
        """Return when W covers every record <= ``ts``, for other processes to read them: what is durable
        is so a moment before W says it."""
        if self._committed.ts >= ts:
            return
        self.raise_if_poisoned()
        ts = min(ts, self._last_record_ts)
        self.wait_durable(ts)
        self._wait_while(lambda: self._committed.ts < ts)

    def _wait_while(self, behind: Callable[[], bool]) -> None:
        while behind():
            if self._failure is not None or self._closed:
                self._refuse()
            self._advancing.wait(lambda: behind() and self._failure is None)
            if behind():  # whoever was to advance the watermarks may have been interrupted
                with self._mutex:
                    self._advance()

    def wait_durable(self, ts: int) -> None:
        """Return when an fsync covers every record <= ``ts``, and run it if nobody else does.

        The fsync asked for by one waiter covers all that was appended when it began.
        """
        if self._durable_ts >= ts:
            return
        self.raise_if_poisoned()
        try:
            self._wait_or_sync(min(ts, self._last_record_ts))
        except (Poisoned, Fenced, Closed):
            raise
        except BaseException:
            self._ask_log_thread()
            raise

    def _wait_or_sync(self, ts: int) -> None:
        while self._durable_ts < ts:
            if self._sync_lock.locked():
                self._syncing.wait(lambda: self._sync_lock.locked() and self._durable_ts < ts)
                continue
            with self._sync_lock:
                if self._durable_ts < ts:
                    self._sync_now()
            self._syncing.open()

    def _sync_now(self) -> None:
        """Under the sync lock, not the mutex: one fsync of all that is appended, then the
        watermarks.  A failure is final: the kernel may have dropped what it could not write."""
        with self._mutex:
            if self._failure is not None or self._closed:
                self._refuse()
            file = self._active.file
            ts, lsn = self._last_record_ts, self._last_lsn
        self._sync_file(file)
        with self._mutex:
            self._durable(ts, lsn)

    def _sync_file(self, file: WriteFile) -> None:
        try:
            file.sync(data_only=True)
        except OSError as error:
            self._failure = without_frames(error)
            self._fail_and_refuse()
        self.fsyncs += 1
        self._check_fence()

    def _check_fence(self) -> None:
        """Protocol P2, without the mutex: before anything is acknowledged or deleted."""
        try:
            self._fence_check()
        except (OSError, KuduError) as error:
            self._failure = without_frames(error)
            self._fail_and_refuse()

    def _durable(self, ts: int, lsn: int) -> None:
        """Under the mutex: every record <= ``lsn`` is on disk, and this writer is not fenced."""
        if self._failure is not None:
            self._refuse()
        self._durable_ts = max(self._durable_ts, ts)
        self._durable_lsn = max(self._durable_lsn, lsn)
        self._advance()

    # The log thread ---------------------------------------------------------------------------

    def _ask_log_thread(self) -> None:
        """See that what is appended becomes durable although nobody waits for it."""
        if self._failure is not None or self._closed:
            return
        if not self._work.is_set():
            self._work.set()
        if self._thread is None or not self._thread.is_alive:
            self._start_thread()

    def _start_thread(self) -> None:
        with self._mutex:
            if self._stop.is_set() or (self._thread is not None and self._thread.is_alive):
                return
            self._thread = Worker(self._run, "kudu-log")
            self._thread.start()  # one whose start was interrupted is alive, or another will be made

    def _run(self) -> None:
        pause = self._options.group_interval_s if self._group else 0.0
        while True:
            self._work.wait()
            if self._stop.wait(pause):
                return
            self._work.clear()
            try:
                with self._sync_lock:
                    if self._last_lsn > self._durable_lsn:
                        self._sync_now()
                self._syncing.open()
            except (Poisoned, Fenced, Closed):
                return
            except MemoryError:
                self._work.set()  # another time
                self._stop.wait(RETRY_S)

    # Watermarks -------------------------------------------------------------------------------

    @property
    def last_ts(self) -> int:
        """The largest timestamp assigned, or reserved by ``raise_last_ts``."""
        return self._last_ts

    @property
    def last_lsn(self) -> int:
        return self._last_lsn

    @property
    def applied_ts(self) -> int:
        """A: every record <= A is applied, and none will be added."""
        return self._applied_ts

    @property
    def durable_ts(self) -> int:
        """The last record that a finished fsync covers."""
        return self._durable_ts

    @property
    def committed_ts(self) -> int:
        """W, as the other processes can read it."""
        return self._committed.ts

    @property
    def visible_ts(self) -> int:
        """V: what a read in this process may see."""
        return self._committed.ts if self._sync else self._applied_ts

    def cut(self) -> int:
        """The timestamp of the last record.  Under a tablet's mutex: every record <= the cut that
        touches the tablet is applied, every later record has a larger timestamp.

        Never a timestamp that was only reserved: a watermark in a manifest must be one that
        the log can prove after a crash.
        """
        with self._mutex:
            return self._last_record_ts

    def raise_last_ts(self, ts: int) -> int:
        """Reserve the timestamps <= ``ts``: no later record gets one.  Returns the timestamp of the last
        record; when that is visible, so is every record <= ``ts``."""
        with self._mutex:
            if ts > self._last_ts:
                self._last_ts = ts
                self._advance()
            return self._last_record_ts

    # Failure ----------------------------------------------------------------------------------

    @property
    def poisoned(self) -> BaseException | None:
        """What poisoned the log, or None."""
        return self._failure

    def raise_if_poisoned(self) -> None:
        """``Fenced`` or ``Poisoned``, with what did it as the cause; nothing on a sound log."""
        if self._failure is not None:
            self._refuse()

    def poison(self, error: BaseException) -> None:
        """Stop all writing for good.  What is visible stays readable."""
        self._fail(error)
        self._advancing.open()
        self._syncing.open()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = without_frames(error)

    def _fail_and_refuse(self) -> NoReturn:
        """``_failure`` is set: wake whoever waits."""
        self._advancing.open()
        self._refuse()

    def _refuse(self) -> NoReturn:
        cause = self._failure
        if cause is None:
            raise Closed("the log is closed")
        if isinstance(cause, Fenced):
            raise Fenced(*cause.args) from cause
        raise Poisoned(
            f"writing stopped after {type(cause).__name__}: {cause}; what was not acknowledged may or may "
            "not be there; reopen the table to write again"
        ) from cause

    # Checkpoints and segments -----------------------------------------------------------------

    def checkpoint(
        self, through: int, edits: Mapping[int, int], marks: Mapping[int, int] | None = None
    ) -> int:
        """Record that replay needs nothing <= ``through`` (protocol T2); returns the record's timestamp.

        ``edits``, ``marks``: by tablet id, what of its manifest is durable (``Checkpoint``).  When the record
        is durable, segments that end at or below ``through`` are dropped, or kept to be recycled.
        An ``OSError`` while dropping leaves them for the next checkpoint.
        """
        if through > self._committed.ts:
            raise InternalError(f"a checkpoint at {through}, beyond the committed {self._committed.ts}")
        through = max(through, self._through)
        ts = self.append(KIND_CHECKPOINT, 0, [Checkpoint(through, edits, marks or {}).pack()])
        try:
            self.applied(ts)
        except BaseException as error:
            self.poison(error)
            raise
        self.wait_durable(ts)
        self._through = through
        with self._sync_lock:
            self._drop_segments(through)
        self._syncing.open()
        return ts

    def note_edits(self, edits: Mapping[int, int], marks: Mapping[int, int]) -> int:
        """A CHECKPOINT that lets go of nothing: from now on the log knows of these edits."""
        return self.checkpoint(self._through, edits, marks)

    def roll(self) -> None:
        """Begin a segment, so that a checkpoint can drop what is in the current one, if that is anything.

        An ``OSError`` that does not poison leaves the log as it was.
        """
        with self._sync_lock:
            if self._last_lsn > self._durable_lsn:
                self._sync_now()  # the most of it, while others still append
            with self._mutex:
                if self._failure is not None or self._closed:
                    self._refuse()
                if self._active.segment.end > SEGMENT_HEADER.size:
                    self._roll(0)

    @property
    def spare_bytes(self) -> int:
        """Of obsolete segments that wait to be recycled, and could go by now."""
        with self._sync_lock:
            return self._files.spare_bytes

    def drop_spares(self) -> int:
        """Remove them; how many bytes that were.  An ``OSError`` leaves the rest for another time."""
        with self._sync_lock:
            self._check_fence()
            return self._files.drop_spares()

    def _drop_segments(self, through: int) -> None:
        sealed = self._files.sealed
        if sealed and sealed[0].last_ts <= through:
            self._check_fence()
        while sealed and sealed[0].last_ts <= through:
            self._files.drop_first()

    def _append_to_next_segment(
        self, kind: int, schema_version: int, length: int, body_crc: int, buffers: list[Buffer]
    ) -> int:
        size = padded(length)
        with self._sync_lock:
            if not self._active.fits(size) and self._last_lsn > self._durable_lsn:
                self._sync_now()  # the most of it, while others still append
            with self._mutex:
                if self._failure is not None or self._closed:
                    self._refuse()
                if not self._active.fits(size):
                    self._roll(size)
                return self._append(kind, schema_version, length, body_crc, buffers)

    def _roll(self, size: int) -> None:
        """Under both locks: the current segment is durable before the next one exists (protocol L2)."""
        old = self._active
        try:
            if self._last_lsn > self._durable_lsn:
                old.file.sync(data_only=True)
                self.fsyncs += 1
            self._fence_check()
        except (OSError, KuduError) as error:
            self._failure = without_frames(error)
            self._fail_and_refuse()
        self._durable(self._last_record_ts, self._last_lsn)
        seq = old.segment.seq + 1
        try:
            self._active = self._files.open_next(seq, self._last_record_ts, self._last_lsn, size)
        except SyncFailed as failed:
            self._failure = without_frames(failed.error)
            self._fail_and_refuse()
        self._files.sealed.append(old.segment)
        with suppress(OSError):
            old.file.close()

    def _open_committed_or_close(self, counter: int) -> None:
        try:
            self._open_committed(counter)
        except BaseException:
            self._closed = True
            self._active.file.close()
            raise

    def _open_committed(self, counter: int) -> None:
        """COMMITTED exists with both slots' bytes, and says where the log begins."""
        path = f"{self._directory}/{COMMITTED_NAME}"
        exists = self._fs.exists(path)
        self._committed_file = file = self._fs.open_write(path) if exists else self._fs.create(path)
        try:
            if not exists:
                self._fs.sync_dir(self._directory)
            if file.size() < 2 * COMMITTED_STRIDE:
                file.pwrite(bytes(2 * COMMITTED_STRIDE), 0)
            self._committed = Committed(counter, 0, 0, self._epoch)
            self._publish(self._durable_ts)
        except BaseException:
            file.close()
            raise

    @property
    def segments(self) -> list[Segment]:
        """The segments that hold the log, oldest first; the last one takes the records."""
        with self._mutex:
            return [*self._files.sealed, self._active.segment]

    @property
    def bytes_retained(self) -> int:
        """Bytes of the segments' records: what a replay would read."""
        return sum(segment.end for segment in self.segments)


def _as_bytes(parts: Sequence[Buffer]) -> list[Buffer]:
    """The parts as buffers of single bytes, empty ones left out."""
    buffers: list[Buffer] = []
    for part in parts:
        if not isinstance(part, bytes):
            part = memoryview(part)
            if part.nbytes and (part.itemsize != 1 or part.ndim != 1):
                part = part.cast("B")
            if not part.nbytes:
                continue
        buffers.append(part)
    return buffers


__all__ = ["Durability", "Log", "LogClock", "LogOptions"]
