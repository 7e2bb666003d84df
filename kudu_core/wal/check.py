"""Whether a log may end, and begin, where its sound records do.

A power cut may take back what no fsync covered, and nothing else: a record that is missing although something
proves that it was durable is damage.  Changes nothing; what was read is given to each check.
"""

from __future__ import annotations

from typing import TypeAlias

from kudu_core.errors import Corruption
from kudu_core.wal.format import RECORD_HEADER, SEGMENT_HEADER
from kudu_core.wal.open_segments import OpenSegment, OpenSegments

Broken: TypeAlias = tuple[OpenSegment, int, str]
"""A segment, the offset at which it breaks off, and why that is not legal."""


def check_end(opened: OpenSegments, last_lsn: int, known: int, clean_end: int) -> None:
    """Protocol O3: only records that no fsync covered may be missing at the end.

    ``known``: the last lsn that something beside the segments calls durable; ``clean_end``: that of a log
    that was closed, else 0.
    """
    last = opened.segments[-1]
    if last.header is None:
        _check_empty(opened, last, last_lsn)
    elif opened.mode == "r":
        # One that was on its way when the segments were opened; without a writer nobody makes it ready.
        for seq, (epoch, name) in opened.listed(last.seq + 1).items():
            headless = opened.open(name, epoch, seq)
            try:
                if headless.header is None and epoch >= last.epoch:
                    _check_empty(opened, headless, last_lsn)
            finally:
                headless.file.close()
    segment = opened.segments[-2] if last.header is None else last
    if last_lsn < known:
        opened.damaged(
            segment,
            segment.end,
            f"record {last_lsn + 1} is damaged or missing; {known} had been synced",
        )
    if clean_end and last_lsn == clean_end:
        return
    later = opened.find(segment, segment.end, last_lsn + 1, last_lsn + 1)
    if later is not None:
        opened.damaged(
            segment,
            segment.end,
            f"record {last_lsn + 1} is damaged: that at byte {later} was written after its fsync",
        )


def _check_empty(opened: OpenSegments, segment: OpenSegment, last_lsn: int) -> None:
    """Nothing of this life of a segment without a sound header is in it."""
    if opened.find(segment, SEGMENT_HEADER.size, last_lsn, 0) is not None:
        opened.damaged(segment, 0, "the header of a segment that holds records is damaged")


def check_beginning(opened: OpenSegments, through: int, broken: Broken | None) -> None:
    """Nothing that replay needs lies before the first segment.

    ``through``: of the last CHECKPOINT; ``broken``: where the walk had to begin anew, and why.
    """
    first = opened.segments[0]
    if first.seq != 1 and first.prev_ts > through:
        if broken is not None:
            opened.damaged(*broken)
        opened.damaged(
            first,
            0,
            f"the segments before are missing: they end at {first.prev_ts}, the last CHECKPOINT covers "
            f"{through}",
        )


def is_torn(opened: OpenSegments, last_lsn: int) -> bool:
    """Whether what lies behind the last record looks like the head of the next: a record that a power cut
    tore before any fsync covered it, or damage that nothing tells from that.

    What an earlier life of the segment left there has other numbers, but for one bit at most.
    """
    last = opened.segments[-1]
    head = last.file.pread(RECORD_HEADER.size, last.end)
    if len(head) < RECORD_HEADER.size:
        return any(head)
    length, _, lsn, *_ = RECORD_HEADER.unpack(head)
    return bool(length) and (lsn ^ (last_lsn + 1)).bit_count() <= 1


def check_mark(opened: OpenSegments, mark: int, last_ts: int, through: int) -> None:
    """Protocol O3: ``mark``, the largest of all manifests, must be a timestamp that the log can prove."""
    if mark > max(last_ts, through):
        raise Corruption(
            opened.segments[-1].path,
            opened.segments[-1].end,
            f"the log ends at {last_ts}, but a manifest names {mark}",
        )


__all__ = ["Broken", "check_beginning", "check_end", "check_mark", "is_torn"]
