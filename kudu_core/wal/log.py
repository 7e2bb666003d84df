"""The log of a table in a folder: segments, fsyncs, and COMMITTED, which tells other processes how far it is
(protocol L1 to L3, W5, W8).

Records come from ``wal.appending``, their files are ``wal.segments``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.holding import InFlight
from kudu_core.errors import InternalError, KuduError
from kudu_core.wal.appending import AppendingLog
from kudu_core.wal.format import (
    COMMITTED_NAME,
    COMMITTED_STRIDE,
    RECORD_KIND_CHECKPOINT,
    SEGMENT_HEADER,
    Buffer,
    Checkpoint,
    Committed,
    Segment,
    padded,
)
from kudu_core.wal.log_options import LogClock, LogOptions
from kudu_core.wal.segments import ActiveSegment, SegmentFiles

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile
    from kudu_core.wal.tail import LogTail


class Log(AppendingLog):
    """See the module and ``AppendingLog``."""

    active: ActiveSegment

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
        options = options or LogOptions()
        super().__init__(table_uuid, epoch, clock, options)
        self._fs = fs
        self._directory = directory
        self._fence_check = fence_check
        self._committed_file: WriteFile
        self._committed = Committed(0, 0, 0, epoch)
        self._files = SegmentFiles(
            fs, directory, table_uuid, epoch, clock, options.segment_bytes, options.file_grace_s, self.poison
        )
        self._through = 0
        """Of the last CHECKPOINT."""

    # Beginning and end --------------------------------------------------------------------------

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
        log.last_ts = log.last_record_ts = log.durable_ts = log.applied_ts = last_ts
        log.active = log._files.make(1, last_ts, 0, 0)
        try:
            log._files.begin(log.active)
        except BaseException:
            log.active.file.close()
            raise
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
        log.last_ts = log.last_record_ts = log.durable_ts = log.applied_ts = tail.last_ts
        log.last_lsn = log.durable_lsn = tail.last_lsn
        log._through = tail.through
        log.active = log._files.take_over(tail, keep_segment)
        log._open_committed_or_close(tail.committed.counter)
        return log

    def _append_to_next_segment(
        self, kind: int, schema_version: int, length: int, body_crc: int, buffers: list[Buffer]
    ) -> int:
        size = padded(length)
        with self._sync_lock:
            if not self.active.fits(size) and self.last_lsn > self.durable_lsn:
                self._sync_now()  # the most of it, while others still append
            with self.mutex:
                if self.failure is not None or self.closed:
                    self._refuse()
                if not self.active.fits(size):
                    self._roll(size)
                return self._append(kind, schema_version, length, body_crc, buffers)

    # Checkpoints --------------------------------------------------------------------------------

    def checkpoint(
        self, through: int, edits: Mapping[int, int], marks: Mapping[int, int] | None = None
    ) -> int:
        """Record that replay needs nothing <= ``through`` (protocol T2); returns the record's timestamp.

        ``edits``, ``marks``: by tablet id, what of its manifest is durable (``Checkpoint``).  When the record
        is durable, segments that end at or below ``through`` are dropped, or kept to be recycled.
        An ``OSError`` while dropping leaves them for the next checkpoint.
        """
        if through > self.committed_ts:
            raise InternalError(f"a checkpoint at {through}, beyond the committed {self.committed_ts}")
        through = max(through, self._through)
        parts = [Checkpoint(through, edits, marks or {}).pack()]
        with InFlight(self, RECORD_KIND_CHECKPOINT, 0, parts) as ts:
            pass
        self.wait_durable(ts)
        self._through = through
        with self._sync_lock:
            self._drop_segments(through)
        self._syncing.open()
        return ts

    def note_edits(self, edits: Mapping[int, int], marks: Mapping[int, int]) -> int:
        """A CHECKPOINT that lets go of nothing: from now on the log knows of these edits."""
        return self.checkpoint(self._through, edits, marks)

    def _drop_segments(self, through: int) -> None:
        sealed = self._files.sealed
        if sealed and sealed[0].last_ts <= through:
            self._check_fence()
        while sealed and sealed[0].last_ts <= through:
            self._files.drop_first()

    # Segments -----------------------------------------------------------------------------------

    def roll(self) -> None:
        """Begin a segment, so that a checkpoint can drop what is in the current one, if that is anything.

        An ``OSError`` that does not poison leaves the records as they were.
        """
        with self._sync_lock:
            if self.last_lsn > self.durable_lsn:
                self._sync_now()  # the most of it, while others still append
            with self.mutex:
                if self.failure is not None or self.closed:
                    self._refuse()
                if self.active.end > SEGMENT_HEADER.size:
                    self._roll(0)

    def _roll(self, size: int) -> None:
        """Under both locks: the current segment is durable before the next one exists (protocol L2).

        The next append goes on with one that was interrupted: once ``following`` is set, before there can be
        a header, the current segment takes nothing.
        """
        old = self.active
        self._sync_all()
        try:
            if old.following is None:
                seq = old.seq + 1
                old.following = self._files.make(seq, self.last_record_ts, self.last_lsn, size)
            self._files.begin(old.following)
        except OSError:
            if self.failure is not None:
                self._refuse()
            raise
        self._files.sealed = [*self._files.sealed, old.segment]
        self.active = old.following
        with suppress(OSError):
            old.file.close()

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

    @property
    def segments(self) -> list[Segment]:
        """The segments that hold the log, oldest first; the last one takes the records."""
        with self.mutex:
            return [*self._files.sealed, self.active.segment]

    def is_due(self, through: int) -> bool:
        """A segment is large: always."""
        return True

    # One fsync ----------------------------------------------------------------------------------

    def _sync_now(self) -> None:
        """Under the sync lock, not the mutex: one fsync of all that is appended, then the
        watermarks.  A failure is final: the kernel may have dropped what it could not write."""
        with self.mutex:
            if self.failure is not None or self.closed:
                self._refuse()
            file = self.active.file
            ts, lsn = self.last_record_ts, self.last_lsn
        self._sync_file(file)
        with self.mutex:
            self._durable(ts, lsn)

    def _sync_all(self) -> None:
        """Under both locks: make durable what is appended, and nothing can be meanwhile."""
        if self.last_lsn > self.durable_lsn:
            self._sync_file(self.active.file)
        else:
            self._check_fence()
        self._durable(self.last_record_ts, self.last_lsn)

    def _sync_file(self, file: WriteFile) -> None:
        try:
            file.sync(data_only=True)
        except OSError as error:
            self.poison(error)
            self._refuse()
        self.fsyncs += 1
        self._check_fence()

    def _check_fence(self) -> None:
        """Protocol P2: before anything is acknowledged or deleted."""
        try:
            self._fence_check()
        except (OSError, KuduError) as error:
            self.poison(error)
            self._refuse()

    def _close_files(self) -> None:
        for file in (self.active.file, self._committed_file):
            with suppress(OSError):
                file.close()

    # COMMITTED ----------------------------------------------------------------------------------

    def publish(self, watermark: int) -> None:
        """Under the mutex: tell the other processes, then take the new W."""
        if self.failure is not None:
            return
        slot = Committed(self._committed.counter + 1, watermark, self.durable_lsn, self._epoch)
        try:
            self._committed_file.pwrite(slot.pack(self._uuid), slot.offset())
        except OSError as error:
            self.poison(error)
            self._refuse()
        # Plain stores: a signal cannot come between them.
        self._committed = slot
        self.committed_ts, self.committed_lsn = watermark, slot.lsn

    def _open_committed_or_close(self, counter: int) -> None:
        try:
            self._open_committed(counter)
        except BaseException:
            self.closed = True
            self.active.file.close()
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
            self.publish(self.durable_ts)
        except BaseException:
            file.close()
            raise


__all__ = ["Log"]
