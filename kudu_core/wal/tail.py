"""Reading the log: for the writer's open (protocol O3) and for another process (protocol R1, R2).

One walk serves both.  It follows the segments record by record, ends at the first record that is
not sound, and then asks whether that end is legal (``wal.check``).  A reader beside a living writer stops
earlier, at what COMMITTED calls durable, so it never meets a record that might yet be taken back.

Memory stays small: the first walk keeps only where each segment's records end; ``records`` walks
again and hands the payloads out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from kudu_core.common.format.members import LIMIT
from kudu_core.wal.check import Broken, check_beginning, check_end, check_mark, is_torn
from kudu_core.wal.find_records import Record
from kudu_core.wal.format import (
    COMMITTED_NAME,
    COMMITTED_STRIDE,
    NOTHING_COMMITTED,
    RECORD_HEADER,
    RECORD_KIND_ALTER,
    RECORD_KIND_CHECKPOINT,
    RECORD_KINDS,
    Checkpoint,
    Committed,
    Segment,
    padded,
    unpack_checkpoint,
    unpack_committed,
)
from kudu_core.wal.open_segments import LastSegment, LogChanged, Mode, OpenSegment, OpenSegments

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

MAX_RESTARTS: Final = 8

Alters: TypeAlias = Callable[[Record], bool]
"""Whether a record says what the table is, and not only what its rows are."""


def _is_alter(record: Record) -> bool:
    return record.kind == RECORD_KIND_ALTER


class LogTail:
    """The log as far as it has been read.  Not for several threads at once.

    ``checkpoint`` is the last one that the *first* walk met.  Manifests that are read after that walk hold
    everything that it stands for; what later ones stand for they may lack, so it stays when a reader
    goes on.
    """

    def __init__(self, fs: FileSystem, directory: str, table_uuid: bytes, mode: Mode, alters: Alters) -> None:
        """Use ``read_log`` or ``open_log``."""
        self._alters = alters
        self._fs = fs
        self._directory = directory
        self._uuid = table_uuid
        self._opened = OpenSegments(fs, directory, table_uuid, mode)
        self._at = 0
        self._walked = False
        self._broken: Broken | None = None
        self._latest_through = 0
        self._taken_lsn = 0
        self.taken_from = directory, 0
        """(path of the segment, byte offset) of the record that ``records`` gave last."""
        self.checkpoint = Checkpoint()
        self.committed: Committed = NOTHING_COMMITTED
        self.taken_over = False
        """A writer has begun an epoch and not yet said how far the log is committed."""
        self.last_lsn = 0
        self.last_ts = 0
        self.committed_ts = 0
        self.alterations: list[Record] = []
        """The records that were read which say what the table is: that must be known before rows are
        replayed."""

    @property
    def through(self) -> int:
        """Replay needs no record with a timestamp <= this."""
        return self.checkpoint.through

    def close(self) -> None:
        """Close the segments' handles; records handed out stay valid."""
        self._opened.close()

    # Walking ------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._opened.open_all()
        first = self._opened.segments[0]
        self.last_lsn, self.last_ts = first.prev_lsn, first.prev_ts

    def _walk(self, limit: int | None) -> None:
        """Read on to the end of the segments that are open, or to the record ``limit``."""
        while True:
            segment = self._opened.segments[self._at]
            if segment.header is not None:
                self._walk_segment(segment, limit)
            if self._at + 1 == len(self._opened.segments) or self.last_lsn == limit:
                return
            following = self._opened.segments[self._at + 1]
            if following.header is None:
                following.prev_lsn = following.last_lsn = following.taken_lsn = self.last_lsn
                following.prev_ts = following.last_ts = self.last_ts
            elif (following.prev_lsn, following.prev_ts) != (self.last_lsn, self.last_ts):
                reason = (
                    f"the records after {self.last_lsn} are damaged: {following.prev_lsn} had been synced"
                )
                if self._walked:
                    self._opened.damaged(segment, segment.end, reason)
                self._begin_at(following, (segment, segment.end, reason))
                continue
            self._at += 1

    def _begin_at(self, first: OpenSegment, broken: Broken) -> None:
        """What lies before ``first`` is no part of the log, or ``check_beginning`` reports ``broken``.

        A segment that a takeover replaced can come back under its name when the fsync of the directory
        that covered its removal failed, and the log has since dropped the copy.
        """
        self._broken = broken
        at = self._opened.segments.index(first)
        for segment in self._opened.segments[:at]:
            segment.file.close()
        del self._opened.segments[:at]
        self._at = 0
        self.alterations.clear()
        self.last_lsn, self.last_ts = first.prev_lsn, first.prev_ts

    def _walk_segment(self, segment: OpenSegment, limit: int | None) -> None:
        for offset, record in self._opened.records(segment, segment.end, self.last_lsn + 1):
            if record.ts <= self.last_ts:
                self._opened.damaged(segment, offset, f"timestamp {record.ts} after {self.last_ts}")
            if max(record.ts, record.lsn) >= LIMIT:
                self._opened.damaged(segment, offset, f"timestamp {record.ts}, lsn {record.lsn}: too large")
            if record.kind not in RECORD_KINDS:
                self._opened.damaged(segment, offset, f"record of unknown kind {record.kind}")
            if record.kind == RECORD_KIND_CHECKPOINT:
                checkpoint = unpack_checkpoint(record.payload)
                if checkpoint is None:
                    self._opened.damaged(segment, offset, "the sizes of a CHECKPOINT do not fit")
                self._latest_through = checkpoint.through
                if not self._walked:
                    self.checkpoint = checkpoint
            elif self._alters(record):
                self.alterations.append(record)
            self.last_lsn = segment.last_lsn = record.lsn
            self.last_ts = segment.last_ts = record.ts
            segment.end = offset + padded(RECORD_HEADER.size + len(record.payload))
            if record.lsn == limit:
                return

    # The two readings ---------------------------------------------------------------------------

    def _read_for_writer(self, clean_end: int) -> None:
        self._open()
        self._read_committed()
        self._walk(None)
        self._check_end(clean_end)
        check_beginning(self._opened, self._latest_through, self._broken)
        self.committed_ts = self.last_ts
        self._walked = True

    def read_on(self, *, writer_alive: bool, clean_end: int = 0) -> int:
        """Read what has become durable since; returns the number of new records.

        ``writer_alive``: somebody held the lease when the caller looked.  Without a writer the log is
        read to its end.  ``committed_ts`` is then the log's bound of protocol R2: what this reader may see.

        Raises ``LogChanged`` if segments were removed or recycled meanwhile: open again.
        """
        before = self.last_lsn
        self._read_committed()
        limit = self.committed.lsn if writer_alive else None
        if self._walked:
            # First, since after a takeover a stale writer may still append to the segment that is open.
            self._open_newer_segments()
        if limit is None or limit > self.last_lsn:
            self._walk(limit)
            while (limit is None or limit > self.last_lsn) and self._open_newer_segments():
                self._walk(limit)
        self._opened.check_headers()
        if limit is None:
            self._check_end(clean_end)
            self.committed_ts = self.last_ts
        else:
            if self.last_lsn < limit:
                self._opened.damaged(
                    self._opened.segments[self._at],
                    self._opened.segments[self._at].end,
                    f"record {self.last_lsn + 1} is damaged or missing; {limit} had been synced",
                )
            self.committed_ts = max(self.committed_ts, self.committed.ts)
        if not self._walked:
            check_beginning(self._opened, self._latest_through, self._broken)
        self._walked = True
        return self.last_lsn - before

    def _check_end(self, clean_end: int) -> None:
        check_end(self._opened, self.last_lsn, max(clean_end, self.committed.lsn), clean_end)

    def _read_committed(self) -> None:
        with suppress(FileNotFoundError):
            data = self._fs.read_bytes(f"{self._directory}/{COMMITTED_NAME}", 2 * COMMITTED_STRIDE)
            committed = unpack_committed(data, self._uuid)
            # A slot of an older epoch may be a stale writer's, which the log no longer follows.
            self.taken_over = NOTHING_COMMITTED.epoch < committed.epoch < self.epoch
            self.committed = committed if committed.epoch >= self.epoch else NOTHING_COMMITTED

    def _open_newer_segments(self) -> bool:
        """Open the segments that came after the last one, or that replaced it at a takeover."""
        opened = False
        for seq, (epoch, name) in sorted(self._opened.listed(self._opened.segments[-1].seq).items()):
            last = self._opened.segments[-1]
            if epoch < last.epoch or (seq, epoch) == (last.seq, last.epoch):
                continue
            if seq > last.seq + 1:
                raise LogChanged(name)
            segment = self._opened.open(name, epoch, seq)
            if segment.header is None:
                segment.file.close()  # on its way
                break
            if seq == last.seq:
                self._take_over(segment)
            else:
                self._opened.segments.append(segment)
            opened = True
        return opened

    def _take_over(self, segment: OpenSegment) -> None:
        """A new writer copied the last segment: go on in the copy, after the last record that was read."""
        old = self._opened.segments.pop()
        old.file.close()
        self._opened.segments.append(segment)
        if self._at + 1 < len(self._opened.segments):
            return  # not reached yet
        for offset, record in self._opened.records(segment, segment.end, segment.prev_lsn + 1):
            if record.lsn > self.last_lsn:
                break
            segment.last_lsn, segment.last_ts = record.lsn, record.ts
            segment.end = offset + padded(RECORD_HEADER.size + len(record.payload))
        if (segment.last_lsn, segment.last_ts) != (self.last_lsn, self.last_ts):
            raise LogChanged(segment.path)

    # Handing out --------------------------------------------------------------------------------

    def records(self) -> Iterator[Record]:
        """The records with ts > ``through`` that were read and not yet handed out, in log order.

        CHECKPOINT records are left out.  A reader may call it again after each ``read_on``; a
        writer after ``Log.resume``.
        """
        for segment in list(self._opened.segments):
            if segment.last_lsn > self._taken_lsn and segment.last_ts > self.through:
                yield from self._take(segment)
            if (
                self._opened.mode == "r"
                and self._opened.segments.index(segment) < self._at
                and segment.last_lsn <= self._taken_lsn
            ):
                # What was handed out need not be kept from being recycled.
                self._opened.segments.remove(segment)
                self._at -= 1
                segment.file.close()

    def _take(self, segment: OpenSegment) -> Iterator[Record]:
        for offset, record in self._opened.records(
            segment, segment.taken, segment.taken_lsn + 1, segment.end
        ):
            segment.taken = offset + padded(RECORD_HEADER.size + len(record.payload))
            segment.taken_lsn = record.lsn
            if record.lsn <= self._taken_lsn:
                continue
            self._taken_lsn = record.lsn
            if record.ts > self.through and record.kind != RECORD_KIND_CHECKPOINT:
                self.taken_from = segment.path, offset
                yield record
        if segment.taken_lsn != segment.last_lsn:
            self._opened.damaged(
                segment, segment.taken, f"record {segment.taken_lsn + 1} changed after it was read"
            )

    def place_of(self, lsn: int) -> tuple[str, int]:
        """(path of the segment, byte offset) of a record that was read and whose segment is still open."""
        return self._opened.place_of(lsn)

    # What it is like ----------------------------------------------------------------------------

    @property
    def torn(self) -> bool:
        """Whether what lies behind the last record looks like the head of the next (``check.is_torn``)."""
        return is_torn(self._opened, self.last_lsn)

    def check_mark(self, mark: int) -> None:
        """Protocol O3: ``mark``, the largest of all manifests, must be a timestamp that the log can prove."""
        check_mark(self._opened, mark, self.last_ts, self.through)

    @property
    def epoch(self) -> int:
        """The last epoch in the log."""
        return self._opened.epoch

    def sealed_segments(self) -> list[Segment]:
        """All segments but the last."""
        return self._opened.sealed()

    def last_segment(self) -> LastSegment:
        return self._opened.last()

    def last_segment_records(self) -> Iterator[Record]:
        """Every record of the last segment, of whatever kind and age."""
        return self._opened.records_of_last()


def read_log(
    fs: FileSystem,
    directory: str,
    table_uuid: bytes,
    *,
    clean_end: int = 0,
    alters: Alters = _is_alter,
) -> LogTail:
    """Read and check the whole log, for the process that holds the lease (protocol O3).

    ``clean_end``: TABLE's last lsn after a clean close, else 0.  Nothing is changed: that is
    ``Log.resume``.  Raises ``Corruption`` when a record is missing that had been synced.
    """
    tail = LogTail(fs, directory, table_uuid, "rw", alters)
    try:
        tail._read_for_writer(clean_end)
    except BaseException:
        tail.close()
        raise
    return tail


def open_log(
    fs: FileSystem,
    directory: str,
    table_uuid: bytes,
    *,
    writer_alive: bool,
    clean_end: int = 0,
    alters: Alters = _is_alter,
) -> LogTail:
    """Open and read the log beside a writer in another process, or without one (protocol R1, R2).

    The handles stay open.  By protocol R1 this call is first, then TABLE and the manifests, then ``read_on``.
    Tries again by itself when segments change meanwhile; ``LogChanged`` if that does not end.
    """
    for attempt in range(MAX_RESTARTS):
        tail = LogTail(fs, directory, table_uuid, "r", alters)
        try:
            tail._open()
            tail.read_on(writer_alive=writer_alive, clean_end=clean_end)
        except BaseException as error:
            tail.close()
            if isinstance(error, LogChanged) and attempt + 1 < MAX_RESTARTS:
                continue
            raise
        return tail
    raise AssertionError("unreachable")


__all__ = ["LogTail", "open_log", "read_log"]
