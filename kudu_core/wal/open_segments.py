"""The segments of a log that are open for reading: which files they are, and whether they still are.

Beside a living writer a segment may be recycled, or replaced by a takeover, while it is read: ``LogChanged``.
Not known here: how far the records have been read, and what may be missing (``wal.tail``, ``wal.check``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from kudu_core.common.format.members import LIMIT
from kudu_core.errors import Corruption
from kudu_core.wal.find_records import Record, find_record, sound_records
from kudu_core.wal.format import (
    SEGMENT_HEADER,
    Segment,
    SegmentHeader,
    parse_segment_name,
    segment_salt,
    unpack_segment_header,
)

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, ReadFile

Mode: TypeAlias = Literal["rw", "r"]


class LogChanged(Exception):
    """The log moved on under a reader (segments removed or recycled): open it again."""


@dataclass(slots=True)
class OpenSegment:
    """A segment being read.  ``header`` is None for one whose header is of another life.

    ``end``: where the sound records found so far end; ``last_*``: of the last of them, or before.
    ``taken``: where the records not yet handed out begin, after ``taken_lsn``.
    """

    path: str
    epoch: int
    seq: int
    file: ReadFile
    header: SegmentHeader | None
    raw_header: bytes
    prev_lsn: int
    prev_ts: int
    last_lsn: int
    last_ts: int
    taken_lsn: int
    end: int = SEGMENT_HEADER.size
    taken: int = SEGMENT_HEADER.size


@dataclass(frozen=True, slots=True)
class LastSegment:
    """What ``Log.resume`` needs of the last segment."""

    path: str
    seq: int
    prev_ts: int
    prev_lsn: int


class OpenSegments:
    """The segments of a log, oldest first.  Not for several threads at once."""

    def __init__(self, fs: FileSystem, directory: str, table_uuid: bytes, mode: Mode) -> None:
        self._fs = fs
        self._directory = directory
        self._uuid = table_uuid
        self.mode: Mode = mode
        self.segments: list[OpenSegment] = []

    # Opening ------------------------------------------------------------------------------------

    def open_all(self) -> None:
        """Those that are the log's, as the folder is now."""
        chain = _latest_chain(self.listed(0))
        for seq, epoch, name in chain:
            self.segments.append(self.open(name, epoch, seq))
        for segment in self.segments[:-1]:
            if segment.header is None:
                self.damaged(segment, 0, "not the header of this log segment")
        headless = self.segments and self.segments[-1].header is None
        if headless and (self.mode == "r" or len(self.segments) == 1):
            # A reader finds it again when it is ready.
            last = self.segments.pop()
            last.file.close()
        if not self.segments:
            raise Corruption(self._directory, 0, "the log has no segment")

    def listed(self, from_seq: int) -> dict[int, tuple[int, str]]:
        """Sequence to (epoch, name): of two segments with one sequence the later epoch's is the log's."""
        names: dict[int, tuple[int, str]] = {}
        for name in self._fs.listdir(self._directory):
            parsed = parse_segment_name(name)
            if parsed is not None and parsed[1] >= from_seq:
                epoch, seq = parsed
                names[seq] = max(names.get(seq, (0, "")), (epoch, name))
        return names

    def open(self, name: str, epoch: int, seq: int) -> OpenSegment:
        """One that is listed; its header is None where that is not sound, or of another life."""
        path = f"{self._directory}/{name}"
        try:
            file = self._fs.open_read(path)
        except FileNotFoundError:
            if self.mode == "r":
                raise LogChanged(path) from None
            raise
        try:
            raw = file.pread(SEGMENT_HEADER.size, 0)
            header = unpack_segment_header(raw)
            if header is not None and (header.epoch, header.seq) != (epoch, seq):
                header = None
            if header is not None and header.table_uuid != self._uuid:
                raise Corruption(path, 0, "a log segment of another table")
        except BaseException:
            file.close()
            raise
        lsn, ts = (header.prev_lsn, header.prev_ts) if header is not None else (0, 0)
        return OpenSegment(path, epoch, seq, file, header, raw, lsn, ts, lsn, ts, lsn)

    def close(self) -> None:
        """Records handed out stay valid."""
        for segment in self.segments:
            with suppress(OSError):
                segment.file.close()
        self.segments = []

    # Their records ------------------------------------------------------------------------------

    def records(
        self, segment: OpenSegment, start: int, lsn: int, end: int | None = None
    ) -> Iterator[tuple[int, Record]]:
        """The sound records from ``start``, the first of them ``lsn``, to ``end`` or an unsound one."""
        salt = segment_salt(self._uuid, segment.epoch, segment.seq)
        return sound_records(segment.file, salt, start, lsn, end)

    def find(self, segment: OpenSegment, start: int, above_lsn: int, synced_lsn: int) -> int | None:
        """See ``find_record``; earlier lives of the segment have smaller lsn, so hardly any candidate needs
        its CRC."""
        salt = segment_salt(self._uuid, segment.epoch, segment.seq)
        return find_record(segment.file, salt, start, above_lsn, synced_lsn)

    def place_of(self, lsn: int) -> tuple[str, int]:
        """(path of the segment, byte offset) of a record that was read and whose segment is still open."""
        for segment in self.segments:
            if segment.prev_lsn < lsn <= segment.last_lsn:
                for offset, record in self.records(
                    segment, SEGMENT_HEADER.size, segment.prev_lsn + 1, segment.end
                ):
                    if record.lsn == lsn:
                        return segment.path, offset
        return self._directory, 0

    # Are they still what they were? -------------------------------------------------------------

    def check_headers(self) -> None:
        """Protocol R1: a header that changed is a recycled segment's, and so may any byte read from it be."""
        for segment in self.segments:
            if segment.file.pread(SEGMENT_HEADER.size, 0) != segment.raw_header:
                raise LogChanged(segment.path)

    def damaged(self, segment: OpenSegment, offset: int, reason: str) -> NoReturn:
        """Raise ``Corruption``, unless a reader was overtaken by the recycling of what it reads."""
        if self.mode == "r":
            self.check_headers()
            # Recycling takes the name away first; a segment that has a later one was whole under its name.
            if segment.header is None and not self._fs.exists(segment.path):
                raise LogChanged(segment.path)
            # A takeover goes on in a copy.  A listing that was made meanwhile may have the segments after the
            # copy without it, since a directory is not read at one moment.
            epoch, _ = self.listed(segment.seq).get(segment.seq, (LIMIT, ""))
            if epoch > segment.epoch:
                raise LogChanged(segment.path)
        raise Corruption(segment.path, offset, reason)

    # For Log.resume -----------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The last epoch in the log."""
        return self.segments[-1].epoch

    def sealed(self) -> list[Segment]:
        """All segments but the last."""
        return [
            Segment(s.path, s.epoch, s.seq, s.end, s.file.size(), s.last_ts, s.last_lsn)
            for s in self.segments[:-1]
        ]

    def last(self) -> LastSegment:
        last = self.segments[-1]
        return LastSegment(last.path, last.seq, last.prev_ts, last.prev_lsn)

    def records_of_last(self) -> Iterator[Record]:
        """Every record of the last segment, of whatever kind and age."""
        last = self.segments[-1]
        lsn = last.prev_lsn
        for _, record in self.records(last, SEGMENT_HEADER.size, lsn + 1, last.end):
            lsn = record.lsn
            yield record
        if lsn != last.last_lsn:
            self.damaged(last, SEGMENT_HEADER.size, f"record {lsn + 1} changed after it was read")


def _latest_chain(names: dict[int, tuple[int, str]]) -> list[tuple[int, int, str]]:
    """The longest run of consecutive sequences up to the last one, as (seq, epoch, name).

    A segment of a smaller epoch after a larger one is a stale writer's and no part of the log.  What
    lies before a gap had been dropped, or the check of the first segment's prev_ts says otherwise.
    """
    chain: list[tuple[int, int, str]] = []
    for seq, (epoch, name) in sorted(names.items()):
        if chain and epoch < chain[-1][1]:
            continue
        if chain and seq != chain[-1][0] + 1:
            chain = []
        chain.append((seq, epoch, name))
    return chain


__all__ = ["LastSegment", "LogChanged", "Mode", "OpenSegment", "OpenSegments"]
