"""Write one column: dictionary, pages, page index.

The whole column comes from memory.  The module knows nothing of what the column is for: base
columns, insert times, encoded keys, rowids and updates of a delta file are all stored by it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kudu_core._ext.pages import blocks
from kudu_core.cfile.columns import zone as zones
from kudu_core.cfile.columns.codec_choice import codec_with_dictionary
from kudu_core.cfile.columns.column_list import ColumnEntry
from kudu_core.cfile.columns.page_size import choose_page_bits
from kudu_core.cfile.columns.specs import (
    DICTIONARY_HEAD,
    DICTIONARY_WORDS,
    INDEX_ENTRY,
    INDEX_HEAD,
    ROLES,
    ZONE_HIGH_CUT,
    ZONE_HIGH_OPEN,
    ZONE_LOW_CUT,
    ZONE_PRESENT,
    ColumnSpec,
    code_width,
    word,
    zone_width,
)
from kudu_core.cfile.columns.text_pages import write_text_pages
from kudu_core.cfile.columns.time_dictionary import build_time_dictionary
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages import page as pages
from kudu_core.cfile.pages.codec_dictionary import Lz4DictionaryCodec, PageCodec, add_codec_dictionary
from kudu_core.cfile.pages.container import SECTION_DICTIONARY, SECTION_PAGE_INDEX, Extent
from kudu_core.cfile.pages.container_writer import FileWriter
from kudu_core.cfile.pages.page import BLOCK_ROWS, ENCODING_CODES, ENCODING_VALUES
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType


def write_column(
    writer: FileWriter, spec: ColumnSpec, column: ColumnBuffers, *, allow_delta: bool = True
) -> ColumnEntry:
    """Append a column's dictionary, pages and page index; return its entry for the footer.

    ``allow_delta`` false keeps every encoding one that gives a cell without decoding its block.
    """
    assert spec.role in ROLES and column.width == spec.type.width
    dictionary: Extent | None = None
    words: int | None = None
    word_list: ColumnBuffers | None = None
    stored, kind, encoding = column, spec.type.kind, ENCODING_VALUES
    built: tuple[ColumnBuffers, ColumnBuffers] | None = None
    if column.width == 0 and spec.encoding in ("auto", "dictionary") and spec.role != "keys":
        built = _build_dictionary(column, forced=spec.encoding == "dictionary")
    elif column.width:
        built = build_time_dictionary(column, spec.role)
    if built is not None:
        stored, word_list = built
        words = word_list.length
        kind, encoding = 0, ENCODING_CODES
        dictionary = _write_dictionary(writer, word_list, spec.compression)
    codec = None if words is not None else codec_with_dictionary(column, spec)
    if codec is not None:
        dictionary = add_codec_dictionary(writer, codec)
    start = writer.offset
    bound_width = zone_width(column.width, words)
    page_bits = choose_page_bits(stored, spec.role, spec.compression, with_dictionary=codec is not None)
    if isinstance(codec, Lz4DictionaryCodec):
        index, zone = write_text_pages(writer, spec, column, page_bits, codec)
    else:
        pages_of = _packed_pages(column, stored, page_bits, kind, spec, allow_delta, codec, words is not None)
        index, zone = _write_pages(writer, spec.type, pages_of, encoding, bound_width, word_list)
    end = writer.offset
    count = len(index) // (INDEX_ENTRY.size + 2 * bound_width)
    head = INDEX_HEAD.pack(count, bound_width, page_bits)
    # Of a single page the footer says all.
    extent = writer.add_section(SECTION_PAGE_INDEX, [head, index], copied=count != 1)
    return ColumnEntry(
        spec.id,
        spec.role,
        spec.type.stored.name,
        spec.nullable,
        column.length,
        page_bits,
        Extent(start, end - start),
        extent,
        dictionary,
        words,
        zone,
    )


_Encoded = tuple[bytes, bytes | None, bytes | None, int, int]
"""Payload, lowest and highest value, null count and NaN count of a page's rows."""

_Page = tuple[int, _Encoded, int, Any]
"""Rows of a page, the page encoded, its codec, what is stored."""


def _write_pages(
    writer: FileWriter,
    type_: ColumnType,
    packed_pages: Iterable[_Page],
    encoding: int,
    bound_width: int,
    words: ColumnBuffers | None,
) -> tuple[bytes, Zone]:
    """Append pages; return their entries of the page index, and the zone of the column."""
    index = bytearray()
    page_zones: list[Zone] = []
    for rows, (payload, low, high, null_count, nan_count), number, packed in packed_pages:
        offset = writer.offset
        size = pages.add_page(writer, len(payload), encoding, number, packed)
        page_zone, flags, low_raw, high_raw = _page_zone(
            low, high, null_count, nan_count, rows, type_.width == 0, words
        )
        page_zones.append(page_zone)
        index += INDEX_ENTRY.pack(offset, size, null_count, nan_count, flags)
        index += low_raw.ljust(bound_width, b"\0") + high_raw.ljust(bound_width, b"\0")
    return bytes(index), zones.merge(type_, page_zones)


_TOGETHER = 64
"""Pages that a codec with a dictionary packs in one call."""


def _packed_pages(
    column: ColumnBuffers,
    stored: ColumnBuffers,
    page_bits: int,
    kind: int,
    spec: ColumnSpec,
    allow_delta: bool,
    codec: PageCodec | None,
    has_words: bool,
) -> Iterator[_Page]:
    """The pages of a column.  ``stored``: codes, or ``column``."""
    step = 1 << page_bits
    together = step if codec is None else _TOGETHER * step
    for begin in range(0, column.length, together):
        edges = [*range(begin, min(begin + together, column.length), step), column.length]
        edges[-1] = min(begin + together, column.length)
        bounds = list(itertools.pairwise(edges))
        encoded = [_encode_page(stored, *page, kind, spec, allow_delta) for page in bounds]
        if codec is not None:
            packed = pages.compress_with(codec, [payload for payload, *_ in encoded])
            for (lower, upper), page, (number, data) in zip(bounds, encoded, packed, strict=True):
                yield upper - lower, page, number, data
            continue
        (lower, upper), page = bounds[0], encoded[0]
        # Asked for, a codec is tried on whatever it is; by itself only on what is not packed.
        compressible = spec.compression != "auto" or _has_raw_blocks(page[0])
        number, data = pages.compress(page[0], spec.compression if compressible else "none")
        if spec.encoding == "auto" and spec.role == "value" and not has_words:
            rival = _repeated(column, lower, upper, kind, spec, len(data))
            if rival is not None:
                payload, number, data = rival
                page = (payload, *page[1:])
        yield upper - lower, page, number, data


_CUT_BYTES = zones.STRING_ZONE_BYTES + 1
"""Of a bound, so that ``cut_bounds`` sees that it is longer."""


def _encode_page(
    column: ColumnBuffers, lower: int, upper: int, kind: int, spec: ColumnSpec, allow_delta: bool
) -> _Encoded:
    validity = column.validity
    if validity is not None:
        validity = validity[lower // 8 : (upper + 7) // 8]
        if lower % 8:
            bits = np.unpackbits(validity, bitorder="little")[lower % 8 :]
            validity = np.packbits(bits, bitorder="little")
    if column.width:
        values = column.values[lower * column.width : upper * column.width]
        low, high, null_count, nan_count = blocks.zone_fixed(values, column.width, kind, validity)
        payload = blocks.encode_fixed(
            values,
            column.width,
            kind,
            validity if null_count else None,
            allow_delta=allow_delta,
            form=spec.encoding if spec.encoding in blocks.FORMS and spec.type.width else "auto",
        )
        return payload, low, high, null_count, nan_count
    assert column.offsets is not None
    offsets = column.offsets[lower : upper + 1]
    low, high, null_count = blocks.zone_binary(offsets, column.values, validity, _CUT_BYTES)
    payload = blocks.encode_binary(
        offsets, column.values, validity if null_count else None, spec.encoding == "prefix"
    )
    return payload, low, high, null_count, 0


_FEW_DISTINCT, _SAMPLES = 48, 64


def _repeated(
    column: ColumnBuffers, lower: int, upper: int, kind: int, spec: ColumnSpec, size: int
) -> tuple[bytes, int, Any] | None:
    """Payload, codec and stored bytes of a page that is smaller as plain bytes with a codec: its values are
    few, lie far apart, and alternate.  None where it is not, or not by a tenth."""
    width, rows = column.width, upper - lower
    if width < 4 or rows < BLOCK_ROWS or spec.compression == "none" or 5 * size < 2 * rows * width:
        return None
    cells = column.values[lower * width : upper * width].reshape(-1, width)
    sample = np.ascontiguousarray(cells[:: rows // _SAMPLES]).view(f"V{width}")
    if len(set(sample.ravel().tolist())) >= _FEW_DISTINCT:
        return None
    payload = _encode_page(column, lower, upper, kind, replace(spec, encoding="plain"), True)[0]
    codec, packed = pages.compress(payload, spec.compression)
    return (payload, codec, packed) if len(packed) < 0.9 * size else None


def _page_zone(
    low: bytes | None,
    high: bytes | None,
    null_count: int,
    nan_count: int,
    rows: int,
    binary: bool,
    words: ColumnBuffers | None,
) -> tuple[Zone, int, bytes, bytes]:
    """The zone of a page, and how its index entry says it: flags and two raw bounds."""
    if low is None or high is None:
        return Zone(None, None, null_count, nan_count, rows), 0, b"", b""
    if not binary and words is None:
        return Zone(low, high, null_count, nan_count, rows), ZONE_PRESENT, low, high
    raw = (b"", b"")
    if words is not None:
        first, last = int.from_bytes(low, "little"), int.from_bytes(high, "little")
        raw = first.to_bytes(4, "little"), last.to_bytes(4, "little")
        low, high = word(words, first), word(words, last)
    low, low_exact, cut, high_exact = zones.cut_bounds(low, high)
    zone = Zone(low, cut, null_count, 0, rows, low_exact, high_exact)
    if words is not None:
        return zone, ZONE_PRESENT, *raw
    flags = ZONE_PRESENT
    flags |= 0 if low_exact else ZONE_LOW_CUT
    flags |= 0 if high_exact else ZONE_HIGH_CUT
    if cut is None:
        cut = b""
        flags = flags & ~ZONE_HIGH_CUT | ZONE_HIGH_OPEN
    return zone, flags, bytes((len(low),)) + low, bytes((len(cut),)) + cut


DICTIONARY_LIMIT_BYTES = 64 << 20
"""Of the words: who reads one of them has all in memory."""


def _build_dictionary(column: ColumnBuffers, forced: bool) -> tuple[ColumnBuffers, ColumnBuffers] | None:
    """Codes and sorted words of a string column, or None where a dictionary does not pay."""
    assert column.offsets is not None
    rows = column.length
    data_bytes = int(column.offsets[-1]) - int(column.offsets[0]) if rows else 0
    if not data_bytes:
        return None
    # Codes and words must stay below four fifths of the strings, or they only cost a step.
    limit = DICTIONARY_LIMIT_BYTES if forced else min(int(0.8 * data_bytes), DICTIONARY_LIMIT_BYTES)
    built = blocks.dictionary_build(column.offsets, column.values, column.validity, DICTIONARY_WORDS, limit)
    if built is None:
        return None
    codes, offsets, data = built
    count = len(offsets) - 1
    code_bytes = rows * max(count - 1, 1).bit_length() // 8
    if count == 0 or (not forced and len(data) + 4 * count + code_bytes > 0.8 * (data_bytes + rows)):
        return None
    width = code_width(count)
    codes = np.ascontiguousarray(codes, f"<u{width}").view(np.uint8)
    return (
        ColumnBuffers(width, rows, codes, None, column.validity),
        ColumnBuffers(0, count, data, offsets, None),
    )


def _write_dictionary(writer: FileWriter, words: ColumnBuffers, compression: str) -> Extent:
    assert words.offsets is not None
    raw = words.offsets.astype("<u4").tobytes() + words.values[: words.offsets[-1]].tobytes()
    codec, stored = pages.compress(raw, compression)
    head = DICTIONARY_HEAD.pack(words.length, codec, 0, 0, len(raw))
    return writer.add_section(SECTION_DICTIONARY, [head, stored], copied=True)


# Kinds of mini-blocks that hold values as they came (docs/format.md): worth a codec.
_RAW_BLOCK_KINDS = (0, 5, 6)


def _has_raw_blocks(payload: bytes) -> bool:
    rows, _, _, flags, count = pages.PAYLOAD_HEAD.unpack_from(payload)
    at = pages.PAYLOAD_HEAD.size
    if flags & 1:
        at += ((rows + 7) // 8 + 7) // 8 * 8
    starts = struct.unpack_from(f"<{count}I", payload, at)
    return any(payload[start] in _RAW_BLOCK_KINDS for start in starts)
