"""What ``_ext.columns.foreign`` means."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

OFFSETS, TEXT = 1, 2
BLOCK_ROWS = 4096


def variable(
    data: bytes, offsets: Sequence[int], valid: Sequence[bool] | None, text: bool
) -> tuple[int, int] | None:
    """In blocks of rows: first the offsets of each, then its text."""
    cells = list(pairwise(offsets))
    for first in range(0, len(cells), BLOCK_ROWS):
        block = list(enumerate(cells[first : first + BLOCK_ROWS], first))
        for row, (start, end) in block:
            if not 0 <= start <= end <= len(data):
                return row, OFFSETS
        for row, (start, end) in block:
            if text and (valid is None or valid[row]) and not is_text(data[start:end]):
                return row, TEXT
    return None


def is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def views(cells: bytes, parts: Sequence[bytes], valid: Sequence[bool] | None) -> int:
    for row in range(len(cells) // 16):
        size, _, part, at = struct.unpack_from("<i4sii", cells, 16 * row)
        if 0 <= size <= 12 or (valid is not None and not valid[row]):
            continue
        inside = size > 0 and 0 <= part < len(parts) and 0 <= at <= at + size <= len(parts[part])
        if not inside or parts[part][at : at + 4] != cells[16 * row + 4 : 16 * row + 8]:
            return row
    return -1


def digits(values: Sequence[int], precision: int, valid: Sequence[bool] | None) -> int:
    for row, value in enumerate(values):
        if (valid is None or valid[row]) and abs(value) >= 10**precision:
            return row
    return -1
