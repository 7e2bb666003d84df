"""What ``_ext.changes.chains`` means, on lists.  Slow on purpose."""

from __future__ import annotations

from collections.abc import Sequence


def chain(rows: Sequence[int], first_row: int, span: int) -> tuple[list[int], list[int]]:
    before = [max((j for j in range(i) if rows[j] == row), default=-1) for i, row in enumerate(rows)]
    last = [
        max((i for i, row in enumerate(rows) if row == wanted), default=-1)
        for wanted in range(first_row, first_row + span)
    ]
    return before, last


def settled(before: Sequence[int], known: Sequence[int]) -> list[int]:
    found = []
    for change in range(len(before)):
        while change >= 0 and known[change] < 0:
            change = before[change]
        found.append(known[change] if change >= 0 else -1)
    return found
