"""What ``_ext.columns.growing`` means: a list of cells, bytes or None for a null."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.support.oracles.columns.columns import bits_of_flags, cells_of_fixed, cells_of_var, flags_of_bits

Part = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32] | None, npt.NDArray[np.uint8] | None]


class ListColumn:
    def __init__(self) -> None:
        self.cells: list[bytes | None] = []

    def append(self, cells: list[bytes | None]) -> None:
        self.cells = self.cells + cells


def snapshot_cells(part: Part, width: int, n: int) -> list[bytes | None]:
    values, offsets, bits = part
    cells = cells_of_fixed(values, width) if offsets is None else cells_of_var(offsets, values)
    flags = flags_of_bits(bits, n)
    assert len(cells) == n
    return [cell if flag else None for cell, flag in zip(cells, flags, strict=True)]


def random_part(
    rng: np.random.Generator, width: int, n: int, null_rate: float
) -> tuple[Part, list[bytes | None]]:
    """A column of ``n`` cells (width 0: of 0 to 20 bytes) and the list it stands for."""
    flags = (rng.random(n) >= null_rate).astype(int).tolist()
    bits = None if all(flags) else np.frombuffer(bits_of_flags(flags), np.uint8)
    offsets = None
    if width:
        values = rng.integers(0, 256, n * width, np.uint8)
    else:
        ends = int(rng.integers(0, 9)) + np.concatenate([[0], np.cumsum(rng.integers(0, 21, n))])
        offsets = ends.astype(np.int32)
        values = rng.integers(0, 256, int(ends[-1]), np.uint8)
    part = values, offsets, bits
    return part, snapshot_cells(part, width, n)
