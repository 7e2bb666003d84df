"""Whether the codec of a column gets a dictionary, and which: docs/decisions/0007-codec-dictionaries.md and
0008-lz4-with-dictionaries.md.

The dictionary is text of the column.  zstd has pieces of 1 KiB from all over it.  LZ4, whose matches are no
cheaper for being frequent, has segments that share most with the rest of a sample.  What a dictionary is
worth is tried on cells between the pieces: bytes that no codec packs, and few ones that large pages pack
better, are stored as without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core._ext.codec.lz4_text import choose_text
from kudu_core.cfile.columns.page_size import LARGE_PAGE_BYTES, PAGE_BYTES, SHORT_BYTES, UNIT_BYTES
from kudu_core.cfile.columns.specs import INDEX_ENTRY, zone_width
from kudu_core.cfile.pages.codec_dictionary import (
    CODEC_DICTIONARY_LIMIT_BYTES,
    DictionaryCodec,
    Lz4DictionaryCodec,
    PageCodec,
)
from kudu_core.cfile.pages.page import compress

if TYPE_CHECKING:
    from kudu_core.cfile.columns.specs import ColumnSpec
    from kudu_core.common.rows.rowblock import ColumnBuffers

ZSTD_LEVEL = 2
"""With a dictionary, level 2 packs as well as level 3 and takes two thirds of its time."""

LZ4_DICTIONARY_BYTES = 56 << 10
"""The most for LZ4, whose matches reach 64 KiB: so each byte of a page of 8 KiB reaches all of it."""
SAMPLE_BYTES = 512 << 10
LARGE_SAMPLE_BYTES = 2 << 20
SAMPLE_DIVISOR = 24
"""The sample of what the dictionary is chosen from: of a large column one byte in so many."""
SEGMENT_BYTES = 128
"""Of such a dictionary."""

PIECE_BYTES = 1 << 10
SHARE = 32
"""Of the column's bytes the dictionary is at most one in so many."""
LEAST_BYTES = 8 << 10
"""Of a dictionary: columns of less than ``SHARE`` times as much have none."""

_TRIED_UNITS = 8
_KEPT_BELOW = 0.9
_MORE_THAN_LARGE_PAGES = 1.3
"""Of zstd, small pages may take so much more than large ones without a dictionary: a cell is read in a third
of the time."""
_INDEX_BYTES = INDEX_ENTRY.size + 2 * zone_width(0, None)


def codec_with_dictionary(column: ColumnBuffers, spec: ColumnSpec) -> PageCodec | None:
    """The codec of a column of strings that has no words; None where a dictionary does not pay."""
    if spec.compression == "none" or column.width or spec.role != "value" or spec.encoding == "prefix":
        return None
    assert column.offsets is not None
    first, end = (int(column.offsets[0]), int(column.offsets[-1])) if column.length else (0, 0)
    total = end - first
    if total < SHARE * LEAST_BYTES or not SHORT_BYTES <= total / column.length <= LARGE_PAGE_BYTES:
        return None
    cells: Any = memoryview(column.values)[first:end]  # type: ignore[arg-type]
    pieces = _pieces(cells, min(total // SHARE, CODEC_DICTIONARY_LIMIT_BYTES), PIECE_BYTES)
    if spec.compression == "zstd":
        codec = DictionaryCodec(pieces, ZSTD_LEVEL)
        return codec if _pays(codec, cells, LARGE_PAGE_BYTES, "zstd", _MORE_THAN_LARGE_PAGES) else None
    # Whether the bytes pack at all is cheaper to say than which of them are the best dictionary.
    quick = Lz4DictionaryCodec(pieces[-LZ4_DICTIONARY_BYTES:])
    if not _pays(quick, cells, PAGE_BYTES, "lz4", 1.0):
        return None
    size = min(total // SHARE, LZ4_DICTIONARY_BYTES) // SEGMENT_BYTES * SEGMENT_BYTES
    large = min(total // SAMPLE_DIVISOR, LARGE_SAMPLE_BYTES)
    sample = _pieces(cells, min(total // 2, max(SAMPLE_BYTES, large)), 2 * PIECE_BYTES)
    return Lz4DictionaryCodec(choose_text(sample, size, SEGMENT_BYTES))


def _pieces(cells: Any, size: int, piece: int) -> bytes:
    """Pieces from all over the cells, of ``size`` bytes together, about."""
    count = size // piece
    stride = len(cells) // count
    return b"".join(cells[at : at + piece] for at in range(0, count * stride, stride))


def _pays(codec: PageCodec, cells: Any, large: int, without: str, most: float) -> bool:
    """Whether small pages with a dictionary are few bytes, no more than ``most`` of large ones without."""
    stride = max(len(cells) // _TRIED_UNITS, UNIT_BYTES)
    tried = [bytes(cells[at:][:UNIT_BYTES]) for at in range(2 * PIECE_BYTES, len(cells), stride)]
    packed = sum(len(unit) + _INDEX_BYTES for unit in codec.compress(tried)) / sum(map(len, tried))
    page = cells[:large]
    whole = len(compress(page, without)[1]) / len(page)
    dictionary = len(compress(codec.data, "zstd")[1]) / len(cells)
    return packed <= _KEPT_BELOW and packed + dictionary <= most * whole


__all__ = ["codec_with_dictionary"]
