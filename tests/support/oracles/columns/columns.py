"""What ``_ext.columns.columns`` and ``_ext.columns.bitmaps`` mean, on lists of cells.  Slow on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


def cells_of_fixed(values: npt.NDArray[np.uint8], width: int) -> list[bytes]:
    raw = values.tobytes()
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def cells_of_var(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> list[bytes]:
    raw, ends = data.tobytes(), offsets.tolist()
    return [raw[lower:upper] for lower, upper in pairwise(ends)]


def flags_of_bits(bits: npt.NDArray[np.uint8] | None, n: int) -> list[int]:
    return [1 if bits is None else int(bits[i // 8]) >> (i % 8) & 1 for i in range(n)]


def bits_of_flags(flags: Sequence[int]) -> bytes:
    out = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        out[i // 8] |= bool(flag) << (i % 8)
    return bytes(out)


def take(cells: Sequence[T], rows: Sequence[int], missing: T) -> list[T]:
    return [missing if row == -1 else cells[row] for row in rows]


def interleave(
    parts: Sequence[Sequence[T]], source: Sequence[int], position: Sequence[int], missing: T
) -> list[T]:
    return [missing if row == -1 else parts[part][row] for part, row in zip(source, position, strict=True)]
