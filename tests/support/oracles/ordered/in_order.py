"""What ``_ext.ordered.in_order`` means: rows of several lists of keys, in the order of keys and lists."""

from __future__ import annotations


def rows_in_order(
    sources: list[list[bytes]], lower: bytes | None, upper: bytes | None
) -> list[tuple[int, int]]:
    """(source, row) of each key between the bounds."""
    found = [
        (key, source, row)
        for source, keys in enumerate(sources)
        for row, key in enumerate(keys)
        if (lower is None or lower <= key) and (upper is None or key < upper)
    ]
    return [(source, row) for _, source, row in sorted(found)]
