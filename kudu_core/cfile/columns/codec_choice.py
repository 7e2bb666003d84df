"""Whether the codec of a column gets a dictionary, and which: docs/decisions/0007-codec-dictionaries.md.

The dictionary is text of the column: pieces of 1 KiB from all over it.  A dictionary that is trained packs
about as well and takes a hundred times as long to make.  What it is worth is tried on cells between the
pieces: bytes that no codec packs, and few ones that large pages pack better, are stored as without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core.cfile.columns.page_size import LARGE_PAGE_BYTES, SHORT_BYTES, UNIT_BYTES
from kudu_core.cfile.columns.specs import INDEX_ENTRY, zone_width
from kudu_core.cfile.pages.codec_dictionary import CODEC_DICTIONARY_LIMIT_BYTES, DictionaryCodec
from kudu_core.cfile.pages.page import compress

if TYPE_CHECKING:
    from kudu_core.cfile.columns.specs import ColumnSpec
    from kudu_core.common.rows.rowblock import ColumnBuffers

LEVELS = {"zstd": 2}
"""Of zstd, by the compression that is asked for; others have no dictionary.  With one, level 2 packs as well
as level 3 and takes two thirds of its time."""

PIECE_BYTES = 1 << 10
SHARE = 32
"""Of the column's bytes the dictionary is at most one in so many."""
LEAST_BYTES = 8 << 10
"""Of a dictionary: columns of less than ``SHARE`` times as much have none."""

_TRIED_UNITS = 8
_KEPT_BELOW = 0.9
_MORE_THAN_LARGE_PAGES = 1.3
"""Small pages may take so much more than large ones without a dictionary: a cell is read in a third of the
time."""
_INDEX_BYTES = INDEX_ENTRY.size + 2 * zone_width(0, None)


def codec_with_dictionary(column: ColumnBuffers, spec: ColumnSpec) -> DictionaryCodec | None:
    """The codec of a column of strings that has no words; None where a dictionary does not pay."""
    level = LEVELS.get(spec.compression)
    if level is None or column.width or spec.role != "value" or spec.encoding == "prefix":
        return None
    assert column.offsets is not None
    first, end = (int(column.offsets[0]), int(column.offsets[-1])) if column.length else (0, 0)
    total = end - first
    if total < SHARE * LEAST_BYTES or not SHORT_BYTES <= total / column.length <= LARGE_PAGE_BYTES:
        return None
    pieces = min(total // SHARE, CODEC_DICTIONARY_LIMIT_BYTES) // PIECE_BYTES
    stride = total // pieces
    starts = [first + stride * number for number in range(pieces)]
    cells: Any = memoryview(column.values)  # type: ignore[arg-type]
    codec = DictionaryCodec(b"".join(cells[at : at + PIECE_BYTES] for at in starts), level)
    tried = [cells[at + 2 * PIECE_BYTES :][:UNIT_BYTES] for at in starts[:: max(1, pieces // _TRIED_UNITS)]]
    packed = sum(len(codec.compress(unit)) + _INDEX_BYTES for unit in tried) / sum(map(len, tried))
    large = cells[first:end][:LARGE_PAGE_BYTES]
    whole = len(compress(large, "zstd")[1]) / len(large)
    pays = packed + len(compress(codec.data, "zstd")[1]) / total <= _MORE_THAN_LARGE_PAGES * whole
    return codec if packed <= _KEPT_BELOW and pays else None


__all__ = ["codec_with_dictionary"]
