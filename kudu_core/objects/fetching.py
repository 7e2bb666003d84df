"""Which requests bring the ranges that are wanted: few, none much larger than what is wanted of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""(offset, bytes)"""

MOST_GAP = 512 << 10
"""Ranges that lie further apart are not fetched as one."""
MOST_WASTE = 0.25
"""Of what is fetched as one, this share may be bytes that nobody wants; of less than 256 KiB, any share."""
SMALL = 256 << 10


def planned(wanted: Sequence[Range]) -> list[Range]:
    """Ranges of which each wanted one lies in one; they rise, and none meets another: obstore would make one
    request of two that do, and the counts would be wrong.  None of the wanted is empty."""
    joined: list[list[int]] = []  # begin, end, wanted bytes
    for offset, length in sorted(wanted):
        end = offset + length
        if joined:
            begin, reached, useful = joined[-1]
            new = max(0, end - max(offset, reached))
            whole = max(end, reached) - begin
            close = offset - reached <= MOST_GAP
            little = whole <= SMALL or whole - useful - new <= MOST_WASTE * whole
            if offset <= reached or (close and little):
                joined[-1] = [begin, max(end, reached), useful + new]
                continue
        joined.append([offset, end, length])
    return [(begin, end - begin) for begin, end, _ in joined]


def cut(wanted: Sequence[Range], plan: Sequence[Range], pieces: Sequence[bytes]) -> list[bytes]:
    """The wanted ranges out of the pieces that were fetched; shorter only where the object ends."""
    begins = [offset for offset, _ in plan]
    found = []
    for offset, length in wanted:
        at = bisect_right(begins, offset) - 1
        low = offset - begins[at]
        found.append(pieces[at][low : low + length])
    return found


__all__ = ["cut", "planned"]
