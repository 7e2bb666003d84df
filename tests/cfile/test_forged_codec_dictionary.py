"""Codec dictionaries that are damaged or lie: Corruption that names the file, no crash, no memory for it."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile import (
    PageCache,
    RowsFile,
    RowsFileSpec,
    write_rows_file,
)
from kudu_core.cfile.columns.column_list import ColumnEntry, ColumnList, pack_entries
from kudu_core.cfile.pages import codec_dictionary, container, container_writer, page
from kudu_core.cfile.pages.codec_dictionary import (
    CODEC_DICTIONARY_HEAD,
    CODEC_DICTIONARY_LIMIT_BYTES,
    CodecDictionary,
    DictionaryCodec,
)
from kudu_core.cfile.pages.container import SECTION_FRAME, Extent
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption, KuduError
from tests.support.cases.cfile import BytesFileSystem, column
from tests.support.cases.texts import CODECS, codecs, file_of, spec_of, text, without_checksums


@pytest.fixture(scope="module", params=["zstd", "lz4"])
def sound(request: pytest.FixtureRequest) -> tuple[bytes, Extent, list[str]]:
    values = text(13, 120, 5000)
    fs = file_of(values, spec_of(request.param))
    with RowsFile(fs, "f") as file:
        extent = file.columns[0].dictionary_extent
        assert extent is not None
    return bytes(fs.files["f"]), extent, values


def read_all(data: bytes | bytearray, *, verify: bool = True) -> list[Any]:
    fs = BytesFileSystem()
    fs.files["f"] = bytearray(data)
    with RowsFile(fs, "f", PageCache(1 << 20)) as file:
        type_ = file.columns[0].spec.type
        found: list[Any] = file.read(0, 0, file.rows).to_arrow(type_).to_pylist()
        file.cells([0], np.arange(0, file.rows, 7))
        if verify:
            file.verify()
        return found


def kept_cells() -> list[str]:
    """What is in the file that is kept."""
    rng = random.Random(7)
    words = [f"{int(rng.random() * 10**7)}" for _ in range(800)]
    return [" ".join(words[int(rng.random() * 800)] for _ in range(8 + k % 9)) for k in range(3000)]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_file_that_is_kept_is_read(compression: str, rewrite: bool) -> None:
    """As it was once written, by ``file_of(kept_cells())``; to be read for ever."""
    path = Path(__file__).parent / "golden" / f"codec_dictionary_{compression}.rows"
    if rewrite:
        path.write_bytes(file_of(kept_cells(), spec_of(compression)).files["f"])
    data = path.read_bytes()
    assert read_all(data) == kept_cells()
    fs = BytesFileSystem()
    fs.files["f"] = bytearray(data)
    with RowsFile(fs, "f") as file:
        assert codecs(file, data) == {CODECS[compression]}


def test_each_flipped_byte_of_it_is_found(sound: tuple[bytes, Extent, list[str]]) -> None:
    data, extent, values = sound
    assert read_all(data) == values
    for at in [*range(extent.offset, extent.offset + 40), *range(extent.offset + 40, extent.end, 97)]:
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(Corruption, match=f"^f at byte {extent.offset}: ") as caught:
            read_all(damaged, verify=False)
        assert caught.value.path == "f"


def forged(data: bytes, extent: Extent, head: tuple[int, int, int, int], rest: bytes) -> bytearray:
    """The dictionary's section with another payload of the same length, and a checksum that holds."""
    payload = (CODEC_DICTIONARY_HEAD.pack(*head) + rest).ljust(extent.length - SECTION_FRAME.size, b"\0")
    assert len(payload) == extent.length - SECTION_FRAME.size
    out = bytearray(data)
    out[extent.offset + SECTION_FRAME.size : extent.end] = payload
    place = crc32c(container.CRC_PLACE.pack(extent.offset, 8), crc32c(bytes(16), 0))
    out[extent.offset : extent.offset + 4] = crc32c(
        bytes(out[extent.offset + 4 : extent.end]), place
    ).to_bytes(4, "little")
    return out


def test_what_the_head_says_is_not_believed(sound: tuple[bytes, Extent, list[str]]) -> None:
    data, extent, values = sound
    at = extent.offset + SECTION_FRAME.size
    raw, codec, packs, _ = CODEC_DICTIONARY_HEAD.unpack_from(data, at)
    rest = data[at + CODEC_DICTIONARY_HEAD.size : extent.end]
    assert read_all(forged(data, extent, (raw, codec, packs, 0), rest)) == values
    limit = CODEC_DICTIONARY_LIMIT_BYTES
    for head in (
        (0, codec, packs, 0), (raw - 1, codec, packs, 0), (raw + 1, codec, packs, 0),
        (limit + 1, codec, packs, 0), (2**32 - 1, codec, packs, 0), (raw, 0, packs, 0), (raw, 1, packs, 0),
        (raw, 9, packs, 0), (raw, codec, 0, 0), (raw, codec, 5, 0), (raw, codec, 7 - packs, 0),
        (raw, codec, packs, 1),
    ):  # fmt: skip
        with pytest.raises(Corruption, match=f"^f at byte {extent.offset}: the codec dictionary of column 0"):
            read_all(forged(data, extent, head, rest))


def with_entry(data: bytes, **changed: Any) -> bytes:
    """The file with another entry of its column, and a footer that is sound."""
    fs = BytesFileSystem()
    fs.files["f"] = bytearray(data)
    with RowsFile(fs, "f") as file:
        reader = file.file
        entry: ColumnEntry = ColumnList(reader.footer_rest)[0]
        writer = container_writer.FileWriter(fs, "g", container.CONTAINER_ROWS, file_id=bytes(16))
        writer.append(data[writer.offset : reader.footer_extent.offset])
        writer.finish(reader.footer, pack_entries([replace(entry, **changed)]))
    return bytes(fs.files["g"])


def test_a_place_that_cannot_be(sound: tuple[bytes, Extent, list[str]]) -> None:
    data, extent, values = sound
    assert read_all(with_entry(data)) == values
    for other in (
        Extent(extent.offset, codec_dictionary.LONGEST_SECTION + 1),
        Extent(extent.offset, 1 << 40), Extent(1 << 40, extent.length), Extent(0, extent.length),
        Extent(extent.offset + 1, extent.length), Extent(extent.offset, 3), Extent(extent.offset, 16),
        Extent(extent.offset, extent.length - 1), Extent(extent.end, extent.length),
    ):  # fmt: skip
        with pytest.raises(Corruption):
            read_all(with_entry(data, dictionary=other), verify=False)


def test_pages_without_it(sound: tuple[bytes, Extent, list[str]]) -> None:
    """The footer names none, and the pages need one."""
    data = with_entry(sound[0], dictionary=None)
    with pytest.raises(Corruption, match="a codec dictionary that the column does not have"):
        read_all(data, verify=False)


def test_numbers_have_none() -> None:
    fs = BytesFileSystem()
    spec = replace(spec_of(), type=ColumnType.parse("int64"))
    write_rows_file(fs, "f", RowsFileSpec([(spec, column([1, 2, 3], "int64"))], file_id=bytes(16)))
    data = with_entry(bytes(fs.files["f"]), dictionary=Extent(container.HEADER.size, 30))
    with pytest.raises(Corruption, match="a codec dictionary of 30 bytes of column 0"):
        read_all(data, verify=False)


def test_another_dictionary_is_no_crash() -> None:
    """Whatever a forged dictionary makes of a page: other bytes of the same number, or an error."""
    cells = "".join(text(14, 1000, 100)).encode()
    codec = DictionaryCodec(cells[:20_000], 1)
    packed = codec.compress([cells[30_000:38_000]])[0]
    assert CodecDictionary(codec.data).decompress(packed, 8000) == cells[30_000:38_000]
    for other in (b"x", cells[:100], cells[1:20_001], cells[20_000:20_500]):
        with contextlib.suppress(ValueError):
            assert len(CodecDictionary(other).decompress(packed, 8000)) == 8000


def test_frames_that_lie(seed: int) -> None:
    """Neither the frame's size nor what follows it is believed, and no memory is taken for it."""
    cells = "".join(text(15, 1000, 100)).encode()
    codec = DictionaryCodec(cells[:20_000], 1)
    dictionary = CodecDictionary(codec.data)
    packed = codec.compress([cells[30_000:38_000]])[0]
    huge = zstandard.ZstdCompressor().compressobj(size=1 << 50).compress(b"") or (
        b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + b"\x01\0\0"
    )
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(cells[:8000])
    for wrong in (b"", b"x", packed[:3], packed[:-1], packed + b"x", packed + packed, huge, unknown):
        with pytest.raises(ValueError):
            dictionary.decompress(wrong, 8000)
    for wrong_size in (0, 7999, 8001, 1 << 31):
        with pytest.raises(ValueError):
            dictionary.decompress(packed, wrong_size)
    rng = np.random.default_rng(seed)
    for at in rng.integers(0, len(packed), 300).tolist():
        damaged = bytearray(packed)
        damaged[at] = int(rng.integers(0, 256))
        with contextlib.suppress(ValueError):
            assert len(dictionary.decompress(bytes(damaged), 8000)) == 8000


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_forged_bytes_break_nothing(
    compression: str, seed: int, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checksums of zero everywhere: the decoders are on their own."""
    for module in (container, container_writer, page):
        monkeypatch.setattr(module, "crc32c", lambda data, value=0: 0)
    values = text(13, 120, 5000)
    fs = file_of(values, spec_of(compression))
    data = without_checksums(fs)
    assert read_all(data) == values
    with RowsFile(fs, "f") as file:
        extent = file.columns[0].dictionary_extent
        assert extent is not None
    rng = np.random.default_rng(seed)
    heads = range(extent.offset, extent.offset + SECTION_FRAME.size + CODEC_DICTIONARY_HEAD.size)
    places = [*heads, *rng.integers(extent.offset, len(data), 300 if long else 40).tolist()]
    for at in places:
        damaged = bytearray(data)
        damaged[at] = int(rng.integers(0, 256))
        with contextlib.suppress(KuduError, pa.ArrowInvalid, UnicodeDecodeError):
            read_all(damaged)
