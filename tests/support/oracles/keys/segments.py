"""What ``_ext.keys.segments`` means."""

from __future__ import annotations

Numbers = list[tuple[int, ...]]


def find(cells: Numbers, wanted: Numbers, of: list[int], rows: int) -> list[int]:
    """The cell of its segment that equals each probe, -1 where there is none."""
    out = []
    for probe, segment in zip(wanted, of, strict=True):
        piece = cells[segment * rows : (segment + 1) * rows]
        out.append(segment * rows + piece.index(probe) if probe in piece else -1)
    return out
