"""What ``_ext.index.rowset_tree`` means: every rowset is looked at."""

from __future__ import annotations

from collections.abc import Sequence

Bounds = Sequence[tuple[bytes, bytes]]


def point(bounds: Bounds, key: bytes) -> list[int]:
    return [n for n, (first, last) in enumerate(bounds) if first <= key <= last]


def within(bounds: Bounds, lower: bytes | None, upper: bytes | None) -> list[int]:
    """Rowsets that may hold keys in [lower, upper)."""
    return [
        n
        for n, (first, last) in enumerate(bounds)
        if (lower is None or last >= lower) and (upper is None or first < upper)
    ]


def batch(bounds: Bounds, keys: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """(rowset, lower, upper): which of the ascending keys lie within its bounds, if any."""
    found = []
    for n, (first, last) in enumerate(bounds):
        inside = [i for i, key in enumerate(keys) if first <= key <= last]
        if inside:
            found.append((n, inside[0], inside[-1] + 1))
    return found
