"""What ``_ext.keys.block_search`` means."""

from __future__ import annotations

Numbers = list[tuple[int, ...]]


def find(cells: Numbers, wanted: Numbers, of: list[int], rows: int) -> list[int]:
    """The cell of its block that equals each probe, -1 where there is none."""
    out = []
    for probe, block in zip(wanted, of, strict=True):
        piece = cells[block * rows : (block + 1) * rows]
        out.append(block * rows + piece.index(probe) if probe in piece else -1)
    return out
