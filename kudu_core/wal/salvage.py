"""Reading a log that may be damaged: every record that is sound, and what was lost between them.

``tail.py`` refuses a log from which a durable record is missing; this goes on behind it.  It follows the
same rules of which segments are the log's and of where a log may end: what was not durable is no loss, and
nothing behind a missing record that was not durable is believed.  Changes nothing, takes no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kudu_core.common.format.members import LIMIT
from kudu_core.errors import KuduError
from kudu_core.wal.find_records import Record, find_record, sound_records
from kudu_core.wal.format import (
    ALIGNMENT,
    COMMITTED_NAME,
    COMMITTED_STRIDE,
    NOTHING_COMMITTED,
    RECORD_HEADER,
    RECORD_KIND_CHECKPOINT,
    RECORD_KINDS,
    SEGMENT_HEADER,
    Committed,
    SegmentHeader,
    padded,
    parse_segment_name,
    segment_salt,
    unpack_checkpoint,
    unpack_committed,
    unpack_segment_header,
)

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, ReadFile

UNREADABLE = (KuduError, OSError)
"""What reading damaged bytes, or a damaged disk, may raise."""


@dataclass(frozen=True, slots=True)
class LogGap:
    """Records that were durable and cannot be read."""

    path: str
    """Of the segment, or the log's directory."""
    after_ts: int
    """Timestamp of the record before; 0 where it is not known."""
    before_ts: int | None
    """Timestamp of the record after; None: nothing follows."""
    records: int | None
    """How many; None: not known."""
    nbytes: int
    """Of the bytes that are no sound record."""
    reason: str


@dataclass(slots=True)
class _RecordSpan:
    """Sound records one after the other."""

    start: int
    end: int
    first_lsn: int
    first_ts: int
    last_lsn: int
    last_ts: int
    synced_lsn: int
    """The largest that one of them names."""


@dataclass(slots=True)
class _Segment:
    path: str
    epoch: int
    seq: int
    file: ReadFile
    header: SegmentHeader | None
    spans: list[_RecordSpan] = field(default_factory=list)


@dataclass(slots=True)
class SalvagedLog:
    """What is left of a log.  ``close`` it."""

    table_uuid: bytes | None
    """That of its segments; None: no header is sound."""
    gaps: list[LogGap] = field(default_factory=list)
    unused: list[tuple[str, str]] = field(default_factory=list)
    """Files that are no part of it: (path, why)."""
    notes: list[str] = field(default_factory=list)
    through: int = 0
    """Of the last CHECKPOINT: files hold every change up to it."""
    edit_numbers: dict[int, int] = field(default_factory=dict)
    """By tablet, of the last CHECKPOINT."""
    begins_after: int = 0
    """Timestamp of the last record before the first one that there is."""
    records: int = 0
    """Sound ones."""
    last_ts: int = 0
    epoch: int = 0
    _segments: list[_Segment] = field(default_factory=list)

    def __iter__(self) -> Iterator[Record]:
        """The sound records in order, CHECKPOINTs left out."""
        for segment in self._segments:
            assert self.table_uuid is not None
            salt = segment_salt(self.table_uuid, segment.epoch, segment.seq)
            for span in segment.spans:
                for _, record in sound_records(segment.file, salt, span.start, span.first_lsn, span.end):
                    if record.kind != RECORD_KIND_CHECKPOINT:
                        yield record

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()
        self._segments = []


_Named: TypeAlias = tuple[int, int, str]
"""Sequence, epoch, path."""


def segment_uuids(fs: FileSystem, directory: str) -> Counter[bytes]:
    """The tables that the segments of a log say they are of."""
    found: Counter[bytes] = Counter()
    with suppress(*UNREADABLE):
        for name in fs.listdir(directory):
            if parse_segment_name(name) is None:
                continue
            with suppress(*UNREADABLE), closing(fs.open_read(f"{directory}/{name}")) as file:
                header = unpack_segment_header(file.pread(SEGMENT_HEADER.size, 0))
                if header is not None:
                    found[header.table_uuid] += 1
    return found


def salvage_log(
    fs: FileSystem, directory: str, table_uuid: bytes | None, *, clean_end: int = 0
) -> SalvagedLog:
    """Read what is left of a log.

    ``table_uuid``: None where nobody knows it, then most of the headers decide.  ``clean_end``: as
    for ``read_log``.
    """
    log = SalvagedLog(table_uuid)
    try:
        names = fs.listdir(directory)
    except UNREADABLE as error:
        log.gaps.append(LogGap(directory, 0, None, None, 0, f"the log's folder cannot be read: {error}"))
        return log
    try:
        segments = _opened(fs, directory, names, log)
        if log.table_uuid is not None:
            _walk(log, _chain(log, segments), directory, _known(fs, directory, log, clean_end, segments))
    except BaseException:
        log.close()
        raise
    if log.table_uuid is None:
        log.gaps.append(LogGap(directory, 0, None, None, 0, "no segment of the log can be read"))
    return log


def _opened(fs: FileSystem, directory: str, names: list[str], log: SalvagedLog) -> list[_Segment]:
    """Every segment of the table, by what its header says it is, else by its name."""
    found: list[_Segment] = []
    uuids: Counter[bytes] = Counter()
    for name in names:
        parsed = parse_segment_name(name)
        if parsed is None:
            continue
        path = f"{directory}/{name}"
        try:
            file = fs.open_read(path)
        except UNREADABLE as error:
            log.unused.append((path, f"it cannot be opened: {error}"))
            continue
        header = None
        with suppress(*UNREADABLE):
            header = unpack_segment_header(file.pread(SEGMENT_HEADER.size, 0))
        segment = _Segment(path, *parsed, file, header)
        log._segments.append(segment)
        if header is not None:
            uuids[header.table_uuid] += 1
            segment.epoch, segment.seq = header.epoch, header.seq
        found.append(segment)
    if log.table_uuid is None and uuids:
        log.table_uuid = uuids.most_common(1)[0][0]
    for segment in list(found):
        if segment.header is not None and segment.header.table_uuid != log.table_uuid:
            log.unused.append((segment.path, "a log segment of another table"))
            found.remove(segment)
    return found


def _chain(log: SalvagedLog, segments: list[_Segment]) -> list[_Segment]:
    """Those that are the log's: see docs/format-log.md, "Log"."""
    by_seq: dict[int, _Segment] = {}
    for segment in segments:
        other = by_seq.get(segment.seq)
        if other is None or segment.epoch > other.epoch:
            by_seq[segment.seq] = segment
    chain: list[_Segment] = []
    for _, segment in sorted(by_seq.items()):
        if not chain or segment.epoch >= chain[-1].epoch:
            chain.append(segment)
    for segment in segments:
        if segment not in chain:
            log.unused.append((segment.path, "of a writer that another one had replaced"))
    return chain


def _known(fs: FileSystem, directory: str, log: SalvagedLog, clean_end: int, segments: list[_Segment]) -> int:
    """The last lsn that something beside the segments calls durable."""
    log.epoch = max((s.epoch for s in segments if s.header is not None), default=0)
    committed: Committed = NOTHING_COMMITTED
    with suppress(*UNREADABLE):
        data = fs.read_bytes(f"{directory}/{COMMITTED_NAME}", 2 * COMMITTED_STRIDE)
        assert log.table_uuid is not None
        committed = unpack_committed(data, log.table_uuid)
    return max(clean_end, committed.lsn if committed.epoch >= log.epoch else 0)


def _walk(log: SalvagedLog, chain: list[_Segment], directory: str, known: int) -> None:
    """Note every gap between the sound records of the chain, and keep what belongs to the log."""
    if not chain:
        log.gaps.append(LogGap(directory, 0, None, None, 0, "the log has no segment"))
        return
    assert log.table_uuid is not None
    for segment in chain:
        try:
            segment.spans = _spans(segment, log.table_uuid)
        except UNREADABLE as error:
            log.unused.append((segment.path, f"it cannot be read: {error}"))
    proven = _proven(chain, known)
    lsn = ts = 0
    expected = False
    ended = False
    kept: list[_Segment] = []
    for place, segment in enumerate(chain):
        header, spans = segment.header, segment.spans
        if not expected:
            lsn, ts = (header.prev_lsn, header.prev_ts) if header is not None else _before(spans)
            expected = header is not None or bool(spans)
        good: list[_RecordSpan] = []
        at = SEGMENT_HEADER.size
        for number, span in enumerate(spans):
            if span.first_lsn <= lsn or span.first_ts <= ts:
                log.unused.append(
                    (segment.path, f"records from {span.first_lsn} on are older than those before")
                )
                continue
            if span.first_lsn != lsn + 1:
                durable = max([proven[place], *(later.synced_lsn for later in spans[number:])])
                if durable <= lsn:
                    ended = True
                    break
                missing = span.first_lsn - lsn - 1
                reason = f"records {lsn + 1} to {span.first_lsn - 1} are damaged or missing"
                log.gaps.append(LogGap(segment.path, ts, span.first_ts, missing, span.start - at, reason))
            good.append(span)
            lsn, ts, at = span.last_lsn, span.last_ts, span.end
        segment.spans = good
        kept.append(segment)
        if ended:
            break
        following = chain[place + 1].header if place + 1 < len(chain) else None
        if following is not None and following.prev_lsn > lsn:
            reason = f"records {lsn + 1} to {following.prev_lsn} are damaged or missing"
            missing = following.prev_lsn - lsn
            nbytes = max(0, segment.file.size() - at)
            log.gaps.append(LogGap(segment.path, ts, following.prev_ts + 1, missing, nbytes, reason))
            lsn, ts = following.prev_lsn, following.prev_ts
    log.last_ts = ts
    if lsn < known:
        reason = f"records {lsn + 1} to {known} are damaged or missing; they had been synced"
        log.gaps.append(LogGap(kept[-1].path, ts, None, known - lsn, 0, reason))
    for segment in log._segments:
        if segment not in kept:
            segment.file.close()
    log._segments = kept
    _summed_up(log, directory)


def _proven(chain: list[_Segment], known: int) -> list[int]:
    """Of each segment the last lsn that some later segment's record or header, or ``known``, proves to have
    been durable."""
    proven = [known] * len(chain)
    for place in range(len(chain) - 2, -1, -1):
        after = chain[place + 1]
        said = [span.synced_lsn for span in after.spans]
        if after.header is not None:
            said.append(after.header.prev_lsn)
        proven[place] = max([proven[place + 1], *said])
    return proven


def _before(spans: list[_RecordSpan]) -> tuple[int, int]:
    """(lsn, ts) before a segment whose header is gone."""
    return (spans[0].first_lsn - 1, 0) if spans else (0, 0)


def _spans(segment: _Segment, table_uuid: bytes) -> list[_RecordSpan]:
    """All stretches of sound records of a segment."""
    salt = segment_salt(table_uuid, segment.epoch, segment.seq)
    size = segment.file.size()
    spans: list[_RecordSpan] = []
    at, lsn = SEGMENT_HEADER.size, 0
    if segment.header is not None:
        lsn = segment.header.prev_lsn
    if segment.header is not None and (span := _span(segment.file, salt, at, lsn + 1)):
        spans.append(span)
        at, lsn = span.end, span.last_lsn
    while True:
        # Between two records of a segment lie no more than its bytes can hold.
        most = lsn + 2 + (size - at) // RECORD_HEADER.size if lsn else LIMIT
        first = find_record(segment.file, salt, at, lsn, 0, most)
        if first is None:
            return spans
        found = RECORD_HEADER.unpack(segment.file.pread(RECORD_HEADER.size, first))[2]
        span = _span(segment.file, salt, first, found)
        if span is None:
            at = first + ALIGNMENT  # sound, and of no kind that there is
        else:
            spans.append(span)
            at, lsn = span.end, span.last_lsn


def _span(file: ReadFile, salt: bytes, start: int, lsn: int) -> _RecordSpan | None:
    span: _RecordSpan | None = None
    for offset, record in sound_records(file, salt, start, lsn):
        if max(record.ts, record.lsn) >= LIMIT or record.kind not in RECORD_KINDS:
            break
        end = offset + padded(RECORD_HEADER.size + len(record.payload))
        if span is None:
            span = _RecordSpan(offset, end, record.lsn, record.ts, record.lsn, record.ts, record.synced_lsn)
        elif record.ts <= span.last_ts:
            break
        span.end, span.last_lsn, span.last_ts = end, record.lsn, record.ts
        span.synced_lsn = max(span.synced_lsn, record.synced_lsn)
    return span


def _summed_up(log: SalvagedLog, directory: str) -> None:
    """The last CHECKPOINT, and whether what it does not cover begins with the first segment."""
    assert log.table_uuid is not None
    for segment in log._segments:
        salt = segment_salt(log.table_uuid, segment.epoch, segment.seq)
        for span in segment.spans:
            log.records += span.last_lsn - span.first_lsn + 1
            for _, record in sound_records(segment.file, salt, span.start, span.first_lsn, span.end):
                if record.kind == RECORD_KIND_CHECKPOINT and (found := unpack_checkpoint(record.payload)):
                    log.through, log.edit_numbers = found.through, dict(found.edits)
    first = log._segments[0]
    if first.seq == 1:
        return
    before = log.through
    if first.header is not None:
        before = first.header.prev_ts
    elif first.spans:
        before = first.spans[0].first_ts - 1
    log.begins_after = before
    if before > log.through:
        reason = f"the segments before {first.seq} are missing; the last CHECKPOINT covers {log.through}"
        log.gaps.insert(0, LogGap(directory, log.through, before + 1, None, 0, reason))


__all__ = ["UNREADABLE", "LogGap", "SalvagedLog", "salvage_log", "segment_uuids"]
