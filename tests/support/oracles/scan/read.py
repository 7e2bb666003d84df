"""What ``_ext.scan.read`` means: the cells of the chosen rows."""

from __future__ import annotations

from collections.abc import Sequence


def read(cells: Sequence[bytes | None], chosen: Sequence[int]) -> list[bytes | None]:
    return [cells[row] for row in chosen]
