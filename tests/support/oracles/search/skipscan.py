"""What ``_ext.search.skipscan`` means: look at every row."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[int, ...]
"""Order numbers of the key columns."""


def ranges(
    rows: Sequence[Row], lower: int, upper: int, spans: Sequence[Sequence[tuple[int, int]] | None]
) -> list[tuple[int, int]]:
    """Ranges of rows whose cells all lie in an interval of their column."""
    out: list[tuple[int, int]] = []
    for number in range(lower, upper):
        inside = all(
            pairs is None or any(low <= cell <= high for low, high in pairs)
            for cell, pairs in zip(rows[number], spans, strict=False)
        )
        if inside and out and out[-1][1] == number:
            out[-1] = (out[-1][0], number + 1)
        elif inside:
            out.append((number, number + 1))
    return out


def seek(rows: Sequence[Row], cells: Row, *, beyond: bool) -> int:
    """How many rows begin with less than these cells; ``beyond``: with no more."""
    return sum(row[: len(cells)] < cells or (beyond and row[: len(cells)] == cells) for row in rows)
