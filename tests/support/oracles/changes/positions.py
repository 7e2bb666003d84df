"""What ``_ext.changes.positions`` means, on lists.  Slow on purpose."""

from __future__ import annotations

from collections.abc import Sequence


def buckets(rowids: Sequence[int], shift: int) -> list[list[int]]:
    count = (max(rowids) >> shift) + 1 if rowids else 0
    out: list[list[int]] = [[] for _ in range(count)]
    for k, rowid in enumerate(rowids):
        out[rowid >> shift].append(k)
    return out
