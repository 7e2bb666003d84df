"""The pages of a column of text that LZ4 packs with a dictionary: many of them in one compiled call.

Of text a page is a few KB, so that a call of Python for each of its steps would cost more than the codec.
What is written is what the general path of ``cfile.columns.writer`` writes, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kudu_core._ext.files.string_pages import write_string_pages
from kudu_core.cfile.columns import zone as zones
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages.container import SECTION_PAGE
from kudu_core.cfile.pages.page import ENCODING_VALUES, TRIED

if TYPE_CHECKING:
    from kudu_core.cfile.columns.specs import ColumnSpec
    from kudu_core.cfile.pages.codec_dictionary import Lz4DictionaryCodec
    from kudu_core.cfile.pages.container_writer import FileWriter
    from kudu_core.common.rows.rowblock import ColumnBuffers

CALL_BYTES = 1 << 20
"""Of cells that one call takes, about: no less than a page."""


def write_text_pages(
    writer: FileWriter, spec: ColumnSpec, column: ColumnBuffers, page_bits: int, codec: Lz4DictionaryCodec
) -> tuple[bytes, Zone]:
    """Append the pages of a column of strings; return their entries of the page index, and its zone."""
    offsets = column.offsets
    assert offsets is not None and not column.width
    index, found = [], []
    begin = 0
    while begin < column.length:
        end = int(np.searchsorted(offsets, int(offsets[begin]) + CALL_BYTES))
        end = min(max(((end - begin) >> page_bits) << page_bits, 1 << page_bits) + begin, column.length)
        stored, entries, (low, low_exact, high, high_exact, nulls) = write_string_pages(
            offsets[begin : end + 1],
            column.values,
            column.validity,
            begin,
            page_bits,
            codec.packer,
            writer.offset,
            writer.id_crc,
            SECTION_PAGE,
            ENCODING_VALUES,
            codec.number,
            TRIED,
        )
        writer.append(stored)
        index.append(entries)
        found.append(Zone(low, high, nulls, 0, end - begin, low_exact, high_exact))
        begin = end
    return b"".join(index), zones.merge(spec.type, found)


__all__ = ["write_text_pages"]
