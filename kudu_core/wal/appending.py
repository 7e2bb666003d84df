"""Appending to a log: one order for everything that happens to a table (protocol W5 to W8, L1).

``append`` assigns the timestamp and writes the record; ``applied`` says that the stores have it;
``wait_visible`` returns when the caller may answer.  A log is several floors of one object: its watermarks
(``wal.watermarks``), what waits for them (``wal.sync``), here the records, and above how they become durable:
in segments of a folder (``wal.log``), or in objects of a store (``wal.objects.object_log``).

Not known here: what a payload means, tablets, TABLE.  Reading is ``wal.tail``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kudu_core._ext.few.log_state import SegmentRoom
from kudu_core.common.format.members import LIMIT
from kudu_core.common.run.clock import time_of
from kudu_core.errors import Closed, Fenced, InvalidArgument, KuduError, NotSupported, Poisoned
from kudu_core.wal.format import (
    MAX_RECORD,
    PADDING,
    RECORD_HEADER,
    Buffer,
    Segment,
    as_bytes,
    padded,
    payload_crc,
    record_header,
    total_size,
)
from kudu_core.wal.sync import SyncedLog

if TYPE_CHECKING:
    from kudu_core.fs.api import Data


class RecordFile(Protocol):
    """Where the bytes of records go."""

    def pwrite(self, data: Data, offset: int) -> None: ...


class ActiveRoom(SegmentRoom):
    """The segment, or the object, that takes records."""

    path: str
    epoch: int
    seq: int
    file: RecordFile
    following: ActiveRoom | None
    """The next one, from the moment when it may hold its header.  That says where this one ends, so no record
    comes here any more, also where the beginning of the next was interrupted (protocol L2)."""
    head_bytes: int
    """Before the first record."""

    @property
    def segment(self) -> Segment:
        """As it is now."""
        return Segment(self.path, self.epoch, self.seq, self.end, self.filled, self.last_ts, self.last_lsn)

    def fits(self, size: int) -> bool:
        """Whether ``size`` bytes fit; one without records takes a record of any size."""
        if self.following is not None:
            return False
        end = self.end
        if end == self.head_bytes:
            self.capacity = max(self.capacity, end + size)
        return end + size <= self.capacity

    def fill_ahead(self, end: int, at_least: int, at_most: int) -> None:
        """Make place for records up to ``end`` and beyond, where that is worth it."""

    def cut_back(self) -> None:
        """Undo a write that failed: no byte after the last record can read as one."""


class AppendingLog(SyncedLog):
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

    active: ActiveRoom

    # What a subclass gives ------------------------------------------------------------------------

    def _append_to_next_segment(
        self, kind: int, schema_version: int, length: int, body_crc: int, buffers: list[Buffer]
    ) -> int:
        """``_append`` in the segment after the active one, which has no room for the record."""
        raise NotImplementedError

    def checkpoint(
        self, through: int, edits: Mapping[int, int], marks: Mapping[int, int] | None = None
    ) -> int:
        """Say durably that replay needs nothing <= ``through``, and let go of it; a timestamp of then.

        ``edits``, ``marks``: by tablet id, what of its manifest is durable.
        """
        raise NotImplementedError

    def note_edits(self, edits: Mapping[int, int], marks: Mapping[int, int]) -> int:
        """From now on the log knows of these edits."""
        raise NotImplementedError

    def is_due(self, through: int) -> bool:
        """Whether a checkpoint at ``through`` is worth what it costs."""
        raise NotImplementedError

    def roll(self) -> None:
        """Let a checkpoint drop what is in the active segment, if that is anything."""
        raise NotImplementedError

    @property
    def segments(self) -> list[Segment]:
        """The segments that hold the log, oldest first; the last one takes the records."""
        raise NotImplementedError

    @property
    def spare_bytes(self) -> int:
        """Of obsolete segments that could go by now."""
        raise NotImplementedError

    def drop_spares(self) -> int:
        """Remove them; how many bytes that were.  An error leaves the rest for another time."""
        raise NotImplementedError

    @property
    def bytes_retained(self) -> int:
        """Bytes of the segments' records: what a replay would read."""
        return sum(segment.end for segment in self.segments)

    @property
    def replay_bytes(self) -> int:
        """What a replay would cost, the requests for many small segments counted in."""
        return sum(segment.replay_bytes for segment in self.segments)

    def _clean_end(self) -> int:
        """What ``close`` answers."""
        return self.last_lsn

    # The end ----------------------------------------------------------------------------------------

    def close(self) -> int | None:
        """Make the log durable and close it; idempotent.  One that was interrupted is to be called again.

        Returns where it ends, for TABLE's ``clean_end``, or None if the log is poisoned: then
        nothing more is written, and the next open decides.  Raises ``Poisoned``, ``Fenced`` or
        ``StoreError`` if the last sync fails; the files are closed all the same.
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
            return self._clean_end() if self.failure is None else None

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

    def cut_back(self, active: ActiveRoom, ts: int, error: BaseException) -> None:
        """Make a write that failed never have been: its bytes are no record and are not counted."""
        try:
            self.in_flight.pop(ts, None)
            active.cut_back()
        except BaseException:
            self.poison(error)
            raise


__all__ = ["ActiveRoom", "AppendingLog", "RecordFile"]
