"""How many rows of a column lie in one page: docs/decisions/0006-pages-bounded-in-bytes.md, and
0007-codec-dictionaries.md.

A page is what a point read fetches and what a scan decodes in one piece.  Rows of numbers are narrow: of
them a page has as many as it can.  Strings may be of any size, so that the number of rows is chosen for each
column of a file from its cells, as a power of two: a row's page stays a shift.
"""

from __future__ import annotations

import numpy as np

from kudu_core.cfile.pages.page import BLOCK_BITS, PAGE_BITS
from kudu_core.common.rows.rowblock import ColumnBuffers

PAGE_BYTES = 32 << 10
"""Of strings in a page, about; what a cell reads beside itself is no more than that."""

LARGE_PAGE_BYTES = 64 << 10
"""The same of short strings, which are scanned rather than read alone, and of columns for which zstd is
asked and has no dictionary: it packs larger pages better."""

UNIT_BYTES = 8 << 10
"""The same where the codec has a dictionary, so that it packs small pages as well as large ones."""

SHORT_BYTES = 64
"""Of short strings on average, fewer."""

LEAST_BYTES = 4 << 10
"""Of strings in a page on average, lest a few large cells among small ones make pages of nothing."""


def least_page_bits(role: str, width: int) -> int:
    """The least power of two for a column of cells of ``width`` bytes as stored (0: strings).

    The key index has an entry for each mini-block of 1,024 rows, and mini-blocks of fixed width always have
    so many; what belongs to the file itself is narrow.
    """
    if width:
        return BLOCK_BITS if role == "value" else PAGE_BITS
    return 0 if role == "value" else BLOCK_BITS


def choose_page_bits(
    column: ColumnBuffers, role: str, compression: str = "auto", *, with_dictionary: bool = False
) -> int:
    """The power of two for a column as it is stored: its strings, or cells of fixed width.

    ``with_dictionary``: whether the codec has a dictionary.
    """
    if column.width:
        return PAGE_BITS
    least = least_page_bits(role, 0)
    assert column.offsets is not None
    ends = column.offsets.astype(np.float64)
    total = ends[-1] - ends[0]
    # What a byte that is read by itself reads with it is the mean of the sizes, each weighed by itself.
    large = compression == "zstd" or total < SHORT_BYTES * column.length
    size = UNIT_BYTES if with_dictionary else LARGE_PAGE_BYTES if large else PAGE_BYTES
    most = size * total
    whole = _squares(ends, PAGE_BITS)
    if whole <= most:
        return PAGE_BITS
    most += _squares(ends, 0)
    for bits in range(PAGE_BITS - 1, least - 1, -1):
        if total * (1 << bits) < LEAST_BYTES * column.length:
            return min(bits + 1, PAGE_BITS)
        if _squares(ends, bits) <= most:
            return bits
    return least


def _squares(ends: np.ndarray, bits: int) -> float:
    """The sum of the squares of the sizes of pages."""
    edges = ends[:: 1 << bits]
    if (len(ends) - 1) % (1 << bits):
        edges = np.append(edges, ends[-1])
    sizes = np.diff(edges)
    return float(np.square(sizes, dtype=np.float64).sum())
