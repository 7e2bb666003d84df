"""The writer's log: one order for everything that happens to a table (protocol W5 to W8, L1 to L3).

``append`` assigns the timestamp and writes the record; ``applied`` says that the stores have it;
``wait_visible`` returns when the caller may answer.  The log is three floors of one object: its watermarks
(``wal.watermarks``), what makes it durable (``wal.sync``), and here the records and their segments.

Not known here: what a payload means, tablets, TABLE.  Reading is ``wal.tail``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.holding import InFlight
from kudu_core.common.format.members import LIMIT
from kudu_core.common.run.clock import time_of
from kudu_core.errors import (
    Closed,
    Fenced,
    InternalError,
    InvalidArgument,
    KuduError,
    NotSupported,
    Poisoned,
)
from kudu_core.wal.format import (
    MAX_RECORD,
    PADDING,
    RECORD_HEADER,
    RECORD_KIND_CHECKPOINT,
    SEGMENT_HEADER,
    Buffer,
    Checkpoint,
    Segment,
    as_bytes,
    padded,
    payload_crc,
    record_header,
    total_size,
)
from kudu_core.wal.log_options import LogClock, LogOptions
from kudu_core.wal.segments import ActiveSegment, SegmentFiles
from kudu_core.wal.sync import SyncedLog

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.wal.tail import LogTail


class Log(SyncedLog):
    """The log of a table that this process holds for writing.  Safe for any number of threads.

    Two locks.  ``mutex``, the log mutex, guards everything that changes: positions, timestamps in
    flight, watermarks; it is held over write(2) and never over an fsync, but for the last one
    of a segment.  ``_sync_lock`` serialises fsyncs, new segments and their removal, so that no two
    threads can share out one error report of the file; it is taken before ``mutex``, never after.

    Signals may interrupt any method in the main thread.  What the methods rely on: CPython
    runs a handler between bytecodes, never between a failing call and the first plain store, or the first
    compiled call, of the ``except`` that catches it, so a failed fsync is always recorded (``poison`` is
    compiled, and is called first); and never between taking a bare lock and the body of its ``with``.
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
        options = options or LogOptions()
        super().__init__(fs, directory, table_uuid, epoch, clock, options, fence_check)
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

    def close(self) -> int | None:
        """Make the log durable and close it; idempotent.  One that was interrupted is to be called again.

        Returns the last lsn, for TABLE's ``clean_end``, or None if the log is poisoned: then
        nothing more is written, and the next open decides.  Raises ``Poisoned`` or ``Fenced`` if
        the last fsync fails; the files are closed all the same.
        """
        self._stop.set()
        self._work.set()
        with self.mutex:
            thread = self._thread  # none is started any more
        if thread is not None:
            thread.join()
        with self._sync_lock:
            try:
                if not self.closed and self.failure is None and self.last_lsn > self.durable_lsn:
                    self._sync_now()
            except KuduError:
                self.closed = True
                self._close_files()
                raise
            # Not before: a call after one that was interrupted must not take the log for durable.
            self.closed = True
            self._close_files()
            return self.last_lsn if self.failure is None else None

    def abandon(self) -> None:
        """After a fork, in the child: close this process's copies of the files, write nothing."""
        # The locks may be held by threads that do not exist here.
        self.closed = True
        self._thread = None
        self._close_files()

    # Appending ----------------------------------------------------------------------------------

    def append(self, kind: int, schema_version: int, parts: Sequence[Buffer]) -> int:
        """Write one record and return its timestamp, which is in flight until ``applied``.

        ``parts`` are C-contiguous buffers, written one after the other without a copy; they may
        change again when this returns.

        Raises ``InvalidArgument`` for a record of 4 GiB, ``OSError`` if the write failed and was
        cut back (in both cases nothing happened), ``Poisoned``, ``Fenced`` or ``Closed``.
        Any other exception (an interrupt) leaves the log poisoned if the record is in it.
        """
        ts = 0
        try:
            if len(parts) == 1 and type(parts[0]) is bytes:
                ts = self.append_plain(kind, schema_version, parts[0])
            if not ts:
                ts = self._append_any(kind, schema_version, parts)
            if self.groups:
                self.ask_log_thread()
        except (OSError, Poisoned, Fenced, Closed):
            raise
        except BaseException as interrupt:
            self.poison_if_owed(interrupt)
            raise
        return ts

    def _append_any(self, kind: int, schema_version: int, parts: Sequence[Buffer]) -> int:
        """The long way of ``append``: for every record, and in every state of the log."""
        buffers = as_bytes(parts)
        length = RECORD_HEADER.size + total_size(buffers)
        if length > MAX_RECORD:
            raise InvalidArgument(f"a log record holds at most {MAX_RECORD} bytes, not {length}")
        padding = PADDING[padded(length) - length]
        if padding:
            buffers.append(padding)
        body_crc = payload_crc(buffers)
        with self.mutex:
            if self.failure is not None or self.closed:
                self._refuse()
            if self.active.fits(padded(length)):
                return self._append(kind, schema_version, length, body_crc, buffers)
        ts = self._append_to_next_segment(kind, schema_version, length, body_crc, buffers)
        self._syncing.open()
        return ts

    def _append(
        self, kind: int, schema_version: int, length: int, body_crc: int, buffers: list[Buffer]
    ) -> int:
        """Under the mutex, in a segment where it fits: assign timestamp and lsn, and write."""
        options = self._options
        active = self.active
        ts: int = max(self.last_ts + 1, self.clock.now_hybrid())
        if ts >= LIMIT:
            raise NotSupported(
                f"the clock says {time_of(ts)}, and timestamps end before {time_of(LIMIT)}: nothing was "
                "written; set the clock right"
            )
        lsn = self.last_lsn + 1
        stamp = length, lsn, ts, self.durable_lsn, schema_version, kind
        record = [record_header(active.salt, body_crc, *stamp), *buffers]
        end = active.end + ((length + 7) & ~7)
        self.in_flight[ts] = threading.get_ident()
        try:
            if end > active.filled and length <= options.fill_record_bytes:
                active.fill_ahead(end, options.first_fill_bytes, options.fill_bytes)
            active.file.pwrite(record, active.end)
        except BaseException as error:
            self.cut_back(active, ts, error)
            raise
        # From here to the return only plain stores: a signal cannot come between them.
        active.end = end
        active.last_ts = self.last_ts = self.last_record_ts = ts
        active.last_lsn = self.last_lsn = lsn
        if end > active.filled:
            active.filled = end
        self.records += 1
        self.bytes_appended += length
        return ts

    def cut_back(self, active: ActiveSegment, ts: int, error: BaseException) -> None:
        """Make a write that failed never have been: its bytes are no record and are not counted."""
        try:
            self.in_flight.pop(ts, None)
            active.cut_back()
        except BaseException:
            self.poison(error)
            raise

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

    def _open_committed_or_close(self, counter: int) -> None:
        try:
            self._open_committed(counter)
        except BaseException:
            self.closed = True
            self.active.file.close()
            raise

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

    @property
    def bytes_retained(self) -> int:
        """Bytes of the segments' records: what a replay would read."""
        return sum(segment.end for segment in self.segments)


__all__ = ["Log"]
