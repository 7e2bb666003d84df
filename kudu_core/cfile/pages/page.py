"""Frame, compress and check pages.  Layout: docs/format.md, "Page frame".

A page's payload is what ``_ext.pages.blocks`` encodes: up to 16,384 values of one column in mini-blocks
of 1,024; how many is the column's choice (``cfile.columns.page_size``).  This module adds the frame, the
codec and the CRC, and takes them off again; the payload that it hands out has the class, width and row
count that the caller expects.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core._ext.base.crc32c import crc32c
from kudu_core._ext.codec import lz4
from kudu_core._ext.files.page_fetcher import PageFetcher
from kudu_core.cfile.pages.codec_dictionary import CODEC_LZ4_DICTIONARY
from kudu_core.cfile.pages.container import SECTION_PAGE
from kudu_core.errors import NotSupported

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kudu_core.cfile.pages.codec_dictionary import ColumnDictionary, PageCodec
    from kudu_core.cfile.pages.container import FileReader
    from kudu_core.cfile.pages.container_writer import FileWriter

PAGE_BITS = 14
BLOCK_BITS = 10
PAGE_ROWS = 1 << PAGE_BITS
"""The most; each column of a file has a power of two of its own."""
BLOCK_ROWS = 1 << BLOCK_BITS
"""Of a mini-block, but for pages that have fewer."""

ENCODING_VALUES = 0  # the payload holds the column's values
ENCODING_CODES = 1  # it holds ordinals of the column's sorted dictionary

CODEC_NONE = 0
CODEC_LZ4 = 1
CODEC_ZSTD = 2
# and, with the codec dictionary of the column, CODEC_ZSTD_DICTIONARY and CODEC_LZ4_DICTIONARY

# crc, payload bytes, raw bytes, encoding, codec, flags
PAGE_FRAME = struct.Struct("<IIIBBH")
# rows, class, width, flags, blocks: the head of every payload
PAYLOAD_HEAD = struct.Struct("<IBBBB")
assert PAGE_FRAME.size == 16
assert PAYLOAD_HEAD.size == 8

RAW_LIMIT_BYTES = 256 << 20
"""A page that decompresses to more is refused; larger ones are stored as they are.  The largest cells have a
quarter of it, and lie in pages of their own, or nearly so."""

_WORTH_IT_FROM_BYTES = 64
_KEPT_BELOW = 0.9  # a codec stays only where it saves 10% (Kudu's min_compression_ratio)
TRIED = (_WORTH_IT_FROM_BYTES, RAW_LIMIT_BYTES, _KEPT_BELOW)
"""Least and most bytes of a payload that is packed, and which part of it the packed one may be to stay."""

# One-shot codecs without state: both may be used by several threads at once.
_LZ4 = pa.Codec("lz4_raw")
_ZSTD = pa.Codec("zstd", compression_level=3)
_KNOWN_CODECS = range(CODEC_LZ4_DICTIONARY + 1)


def compress_with(codec: PageCodec, payloads: list[bytes]) -> list[tuple[int, bytes]]:
    """``compress`` of several payloads, with the codec of a column that has a dictionary for it."""
    fit = [_WORTH_IT_FROM_BYTES <= len(payload) <= RAW_LIMIT_BYTES for payload in payloads]
    packed = iter(codec.compress([payload for payload, fits in zip(payloads, fit, strict=True) if fits]))
    found = []
    for payload, fits in zip(payloads, fit, strict=True):
        stored = next(packed) if fits else payload
        pays = fits and len(stored) <= _KEPT_BELOW * len(payload)
        found.append((codec.number, stored) if pays else (CODEC_NONE, payload))
    return found


def compress(payload: Any, compression: str) -> tuple[int, Any]:
    """Return the codec's number and the bytes to store; codec 0 where compressing does not pay."""
    if compression == "none" or not _WORTH_IT_FROM_BYTES <= len(payload) <= RAW_LIMIT_BYTES:
        return CODEC_NONE, payload
    if compression == "zstd":
        number, packed = CODEC_ZSTD, _ZSTD.compress(payload, asbytes=True)
    else:
        number, packed = CODEC_LZ4, _LZ4.compress(payload, asbytes=True)
    if len(packed) > _KEPT_BELOW * len(payload):
        return CODEC_NONE, payload
    return number, packed


def decompress(
    reader: FileReader,
    offset: int,
    codec: int,
    stored: Any,
    raw_bytes: int,
    dictionary: ColumnDictionary | None = None,
) -> Any:
    """Undo ``compress`` into exactly ``raw_bytes`` bytes, never more."""
    if codec == CODEC_NONE:
        if raw_bytes != len(stored):
            reader.damaged(offset, f"{len(stored)} stored bytes, declared as {raw_bytes}")
        return stored
    if codec not in _KNOWN_CODECS:
        raise NotSupported(f"{reader.path} at byte {offset}: codec {codec} is not known to this version")
    if raw_bytes > RAW_LIMIT_BYTES:
        reader.damaged(offset, f"{raw_bytes} bytes after decompression exceed {RAW_LIMIT_BYTES}")
    try:
        # Each decoder writes into a buffer of this size and stops there.
        if codec == CODEC_ZSTD:
            raw = _ZSTD.decompress(pa.py_buffer(stored), decompressed_size=raw_bytes, asbytes=True)
        elif codec == CODEC_LZ4:
            raw = lz4.unpack(stored, raw_bytes)
        elif dictionary is None:
            reader.damaged(offset, "packed with a codec dictionary that the column does not have")
        elif codec == CODEC_LZ4_DICTIONARY:
            raw = lz4.unpack(stored, raw_bytes, dictionary.text())
        else:
            raw = dictionary.decompress(stored, raw_bytes)
    except (OSError, ValueError) as error:
        reader.damaged(offset, f"cannot be decompressed: {error}")
    if len(raw) != raw_bytes:
        reader.damaged(offset, f"{len(raw)} bytes after decompression, declared as {raw_bytes}")
    return raw


def add_page(writer: FileWriter, raw_bytes: int, encoding: int, codec: int, stored: Any) -> int:
    """Append a page, as ``compress`` gave it of ``raw_bytes``; return its size with the frame."""
    rest = PAGE_FRAME.pack(0, len(stored), raw_bytes, encoding, codec, 0)[4:]
    crc = crc32c(stored, crc32c(rest, writer.place_crc(SECTION_PAGE)))
    writer.append(crc.to_bytes(4, "little") + rest)
    writer.append(stored)
    return PAGE_FRAME.size + len(stored)


def open_page(
    reader: FileReader,
    data: bytes,
    offset: int,
    encoding: int,
    width: int,
    rows: int,
    nulls: bool,
    dictionary: ColumnDictionary | None = None,
) -> Any:
    """Check a framed page that was read from ``offset``; return its payload, decompressed.

    It must hold ``rows`` values of the physical ``width`` (0: variable), some of them null or none.
    ``dictionary``: the codec's, where the column has one.
    """
    view = memoryview(data)
    crc, payload_bytes, raw_bytes, found_encoding, codec, flags = PAGE_FRAME.unpack_from(view)
    if payload_bytes != len(view) - 16:
        reader.damaged(offset, f"a page of {payload_bytes} bytes in {len(view) - 16}")
    if crc32c(view[4:], reader.place_crc(offset, SECTION_PAGE)) != crc:
        reader.damaged(offset, "the page does not match its CRC")
    if flags:
        raise NotSupported(f"{reader.path} at byte {offset}: page flags {flags:#x} are not known")
    if found_encoding != encoding:
        reader.damaged(offset, f"page encoding {found_encoding} where {encoding} belongs")
    payload = decompress(reader, offset, codec, view[16:], raw_bytes, dictionary)
    if len(payload) < PAYLOAD_HEAD.size:
        reader.damaged(offset, f"a payload of {len(payload)} bytes has no head")
    found_rows, klass, found_width, payload_flags, _ = PAYLOAD_HEAD.unpack_from(payload)
    if found_rows != rows or klass != (width == 0) or (width and found_width != width):
        reader.damaged(
            offset,
            f"a page of {found_rows} rows, class {klass}, width {found_width} "
            f"where {rows}, {int(width == 0)}, {width} belong",
        )
    if bool(payload_flags & 1) != nulls:
        reader.damaged(offset, "the page index and the page do not agree on nulls")
    return payload


def page_fetcher(
    reader: FileReader,
    offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    nulls: npt.NDArray[np.int64],
    rows: int,
    page_bits: int,
    width: int,
    encoding: int,
    dictionary: ColumnDictionary | None = None,
) -> PageFetcher | None:
    """``open_page`` of a column's pages, in one compiled call each; None where the file has no descriptor."""
    file = reader.direct
    if file is None:
        return None
    decoders = [None, None, _ZSTD.decompress, dictionary and dictionary.decompress]
    column = offsets, sizes, nulls, rows, page_bits, width, encoding
    unpacks = decoders, RAW_LIMIT_BYTES, dictionary, reader.reader
    return PageFetcher(file, crc32c(reader.file_id, 0), SECTION_PAGE, *column, *unpacks)
