"""Dictionaries of a codec: text of a column, with which zstd or LZ4 packs and unpacks the column's pages.

A codec learns from what it has packed, and a page of a few KB is packed by itself: there is little to learn
from.  So the codec is given up to 64 KiB of the column's own bytes, which it treats as if they came before
each page.  They lie in the file, in a section of their own; the page cache keeps them, ready for use, as it
keeps pages.  (The *words* of a column are another dictionary: ``cfile.columns.pages``.)

Layout: docs/format.md, "Codec dictionary".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pyarrow as pa
import zstandard

from kudu_core._ext.codec.lz4 import Lz4Packer
from kudu_core.cfile.pages.container import SECTION_CODEC_DICTIONARY, SECTION_FRAME, Extent

if TYPE_CHECKING:
    from kudu_core.cfile.pages.container import FileReader
    from kudu_core.cfile.pages.container_writer import FileWriter

CODEC_ZSTD_DICTIONARY = 3
"""In the frame of a page that zstd packed with its column's dictionary."""
CODEC_LZ4_DICTIONARY = 4
"""The same of LZ4."""

# raw bytes, codec (0 none, 2 zstd), of the pages that are packed with it (3 or 4), reserved
CODEC_DICTIONARY_HEAD = struct.Struct("<IBBH")
assert CODEC_DICTIONARY_HEAD.size == 8

CODEC_DICTIONARY_LIMIT_BYTES = 64 << 10
"""Of a dictionary; the section with it is no longer than that and its heads."""
LONGEST_SECTION = SECTION_FRAME.size + CODEC_DICTIONARY_HEAD.size + CODEC_DICTIONARY_LIMIT_BYTES

_STORED, _ZSTD = 0, 2
_PACKS_DICTIONARIES = pa.Codec("zstd", compression_level=3)
# What zstd has beside a dictionary's bytes, as far as it is touched: a decompressor and its tables.
_TABLES_BYTES = 32 << 10
_KEPT_DECOMPRESSORS = 2
_EMPTY = zstandard.ZstdCompressor().compress(b"")


def _content(data: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


class PageCodec(Protocol):
    """Packs pages with a dictionary."""

    number: int
    """In the frames of pages."""

    @property
    def data(self) -> bytes:
        """The dictionary."""
        ...

    def compress(self, payloads: list[bytes]) -> list[bytes]: ...


class DictionaryCodec:
    """zstd with a dictionary.  Not thread safe."""

    number = CODEC_ZSTD_DICTIONARY

    def __init__(self, data: bytes, level: int) -> None:
        assert 0 < len(data) <= CODEC_DICTIONARY_LIMIT_BYTES
        self.data = data
        made = _content(data)
        made.precompute_compress(level=level)
        self._compressor = zstandard.ZstdCompressor(
            level=level, dict_data=made, write_checksum=False, write_dict_id=False
        )

    def compress(self, payloads: list[bytes]) -> list[bytes]:
        return [self._compressor.compress(payload) for payload in payloads]


class Lz4DictionaryCodec:
    """LZ4 with a dictionary."""

    number = CODEC_LZ4_DICTIONARY

    def __init__(self, data: bytes) -> None:
        self.packer = Lz4Packer(data)

    @property
    def data(self) -> bytes:
        return self.packer.text

    def compress(self, payloads: list[bytes]) -> list[bytes]:
        return self.packer.pack(payloads)


class CodecDictionary:
    """Unpacks pages of zstd with a dictionary.

    Thread safe: each call has a decompressor of its own meanwhile.  To make one takes longer than to unpack
    a page, so that one or two are kept.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._bytes = _content(data), len(data)
        self._idle = [self._decompressor()]
        # zstd's tables are made at the first use, which must not be that of two threads at once.
        self._idle[0].decompress(_EMPTY)

    def __len__(self) -> int:
        """Bytes of memory, about: the page cache counts them."""
        return self._bytes + _TABLES_BYTES

    def decompress(self, stored: Any, raw_bytes: int) -> bytes:
        """Exactly ``raw_bytes``; ValueError for anything else, before memory is taken for it."""
        try:
            if zstandard.frame_content_size(stored) != raw_bytes:
                raise ValueError(f"a frame of other than {raw_bytes} bytes")
            try:
                decompressor = self._idle.pop()
            except IndexError:
                decompressor = self._decompressor()
            raw = decompressor.decompress(stored, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        if len(self._idle) < _KEPT_DECOMPRESSORS:
            self._idle.append(decompressor)
        return raw

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(dict_data=self._data)


class ColumnDictionary:
    """The codec's dictionary of one column of an open file; it is read when first used.

    The file's page cache has it from then on, as long as it is used: of LZ4 the bytes, of zstd what unpacks
    with them.  Where there is no cache, or it keeps nothing so large, the file has the one that was used
    last.  Thread safe.
    """

    def __init__(self, file: FileReader, extent: Extent, column_id: int, *, alone: bool = False) -> None:
        """``alone``: keep it here, past the cache."""
        self._file, self._extent, self._column_id = file, extent, column_id
        # Pages are known to the cache by their offsets, which are positive.
        self.place = -extent.offset
        self._own = self.load() if alone else None

    def alone(self) -> ColumnDictionary:
        """The same, read anew past the cache."""
        return ColumnDictionary(self._file, self._extent, self._column_id, alone=True)

    def decompress(self, stored: Any, decompressed_size: int, asbytes: bool = True) -> bytes:
        """As a codec of pyarrow, with an exact size; ValueError where it is another."""
        found = self._own or self._dictionary()
        if not isinstance(found, CodecDictionary):
            self._damaged("is one of LZ4, and a page has zstd")
        return found.decompress(stored, decompressed_size)

    def text(self) -> bytes:
        """What comes before each page that LZ4 packs with it."""
        found = self._own or self._dictionary()
        if not isinstance(found, bytes):
            self._damaged("is one of zstd, and a page has LZ4")
        return found

    def _dictionary(self) -> CodecDictionary | bytes:
        file, place = self._file, self.place
        found: CodecDictionary | bytes | None = file.cached_page(place)
        if found is None:
            last = file.last_dictionary
            if last is not None and last[0] == place:
                found = last[1]
                assert isinstance(found, CodecDictionary | bytes)
                return found
            found = self.load()
            file.last_dictionary = None if file.remember(place, found) else (place, found)
        return found

    def load(self) -> CodecDictionary | bytes:
        """It, read from the file and checked."""
        payload = self._file.section(self._extent, SECTION_CODEC_DICTIONARY)
        if len(payload) < CODEC_DICTIONARY_HEAD.size:
            self._damaged("has no head")
        raw_bytes, codec, packs, reserved = CODEC_DICTIONARY_HEAD.unpack_from(payload)
        if not 0 < raw_bytes <= CODEC_DICTIONARY_LIMIT_BYTES or reserved:
            self._damaged(f"of {raw_bytes} bytes")
        data = bytes(payload[CODEC_DICTIONARY_HEAD.size :])
        if codec == _ZSTD:
            try:
                data = _PACKS_DICTIONARIES.decompress(data, decompressed_size=raw_bytes, asbytes=True)
            except (OSError, ValueError) as error:
                self._damaged(f"cannot be decompressed: {error}")
        elif codec != _STORED:
            self._damaged(f"has codec {codec}")
        if len(data) != raw_bytes:
            self._damaged(f"has {len(data)} bytes, declared as {raw_bytes}")
        if packs == CODEC_LZ4_DICTIONARY:
            return data
        if packs != CODEC_ZSTD_DICTIONARY:
            self._damaged(f"is one of codec {packs}")
        return CodecDictionary(data)

    def _damaged(self, why: str) -> NoReturn:
        self._file.damaged(self._extent.offset, f"the codec dictionary of column {self._column_id} {why}")


def add_codec_dictionary(writer: FileWriter, used_by: PageCodec) -> Extent:
    """Append the section with a dictionary."""
    data = used_by.data
    codec, stored = _ZSTD, _PACKS_DICTIONARIES.compress(data, asbytes=True)
    if len(stored) >= len(data):
        codec, stored = _STORED, data
    head = CODEC_DICTIONARY_HEAD.pack(len(data), codec, used_by.number, 0)
    return writer.add_section(SECTION_CODEC_DICTIONARY, [head, stored], copied=True)


__all__ = [
    "CODEC_DICTIONARY_HEAD",
    "CODEC_DICTIONARY_LIMIT_BYTES",
    "CODEC_LZ4_DICTIONARY",
    "CODEC_ZSTD_DICTIONARY",
    "LONGEST_SECTION",
    "CodecDictionary",
    "ColumnDictionary",
    "DictionaryCodec",
    "Lz4DictionaryCodec",
    "PageCodec",
    "add_codec_dictionary",
]
