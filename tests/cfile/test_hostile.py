"""A damaged file gives the right data or Corruption: never wrong data, another error, or a crash.

Damage below the checksums is found by them; with forged checksums every decoder is on its own and
may return other values, but nothing worse.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.base.crc32c import crc32c
from kudu_core._ext.changes.replay import replay
from kudu_core.cfile import DeltaFile, RowsFile, RowsFileSpec, write_rows_file
from kudu_core.cfile.columns.column_list import ColumnList, pack_entries
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages import container, container_writer, page, section_copies
from kudu_core.cfile.pages.page_cache import PageCache
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption, KuduError, NotSupported
from kudu_core.fs.posix import PosixFileSystem
from tests.support.cases.cfile import BytesFileSystem, column, make_case, read_codes
from tests.support.hostile.decoders import delta_file


def rows_bytes(rows: int = 9, types: list[str] | None = None, *, remote: bool = False) -> bytes:
    rng = np.random.default_rng(12)
    case = make_case(rng, rows, "mixed", ["float64", "string", "bool"] if types is None else types)
    case.columns[3] = column([None if i % 4 == 0 else f"w{i % 3}" for i in range(rows)], "string")
    case.insert_times = np.arange(rows, dtype=np.uint64) // 3
    fs = BytesFileSystem(remote=remote)
    case.write(fs, "f")
    return bytes(fs.files["f"])


def near_bytes() -> bytes:
    """A file as it is written to a store: with copies of sections, though it is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(section_copies, "LEAST_FILE_BYTES", 0)
        return rows_bytes(remote=True)


@cache
def near_tail() -> int:
    with RowsFile(files_of(near_bytes()), "f") as file:
        return file.file.tail


def read_near(data: bytes | bytearray, verify: bool) -> list[Any]:
    """By its copies of sections, as a manifest says where they begin."""
    return read_rows(data, verify, near_tail())


def read_rows(data: bytes | bytearray, verify: bool, tail: int = 0) -> list[Any]:
    fs = BytesFileSystem(remote=tail > 0)
    fs.files["f"] = bytearray(data)
    with RowsFile(fs, "f", PageCache(1 << 20), tail=tail) as file:
        found: list[Any] = [file.rows, file.min_key, file.max_key, file.key_ids]
        rows = np.arange(file.rows, dtype=np.int64)[::-1]
        for id_, reader in sorted(file.columns.items()):
            type_ = reader.spec.type
            found.append(file.read(id_, 0, file.rows).to_arrow(type_).to_pylist())
            found.append(file.cells([id_], rows)[0].to_arrow(type_).to_pylist())
            found.append([repr(zone) for zone in (*file.zones(id_), file.zone(id_))])
            codes = read_codes(file, id_, 0, file.rows)
            if codes is not None:
                found.append((codes[0].tolist(), codes[3].to_arrow(type_).to_pylist()))
        data_, offsets = file.keys(0, file.rows)
        found.append((bytes(data_), offsets.tolist()))
        found.append(file.find(data_, offsets).tolist())
        found.append(file.may_contain(np.arange(1000, dtype=np.uint64)).tolist())
        times = file.insert_times(0, file.rows)
        found.append(None if times is None else times.tolist())
        if verify:
            file.verify()
    return found


def files_of(data: bytes | bytearray) -> BytesFileSystem:
    fs = BytesFileSystem()
    fs.files["f"] = bytearray(data)
    return fs


def read_delta(data: bytes | bytearray, verify: bool) -> list[Any]:
    with DeltaFile(files_of(data), "f", PageCache(1 << 20)) as file:
        found: list[Any] = [file.kind, file.delete_count, file.reinsert_count, file.updates_per_column]
        parts = (*file.entries(), *file.liveness(), *file.entries(3, 6))
        found += [None if part is None else part.tolist() for part in parts]
        for id_ in file.column_ids:
            rowids, ts, values = file.updates(id_)
            found += [rowids.tolist(), None if ts is None else ts.tolist(), repr(file.zone(id_))]
            found.append(values.to_arrow(file.spec(id_).type).to_pylist())
            if values.width:
                cells, bits = np.zeros(10 * values.width, np.uint8), np.zeros(2, np.uint8)
                replay(file.parts(id_, 0, 10), cells, values.width, 0, 10, bits)
                found.append((cells.tolist(), bits.tolist()))
        live = np.ones(10, np.uint8)
        replay(file.liveness_parts(0, 10), live, 1, 0, 10)
        found.append(live.tolist())
        if verify:
            file.verify()
    return found


KINDS = [(rows_bytes, read_rows), (near_bytes, read_near), (delta_file, read_delta)]


@pytest.mark.parametrize(("make", "read"), KINDS, ids=["rows", "near", "delta"])
def test_every_flipped_byte_is_found(make: Callable[[], bytes], read: Callable[..., list[Any]]) -> None:
    data = make()
    right = repr(read(data, True))
    for at in range(len(data)):
        for mask in (0xFF, 1 << (at % 8)):
            damaged = bytearray(data)
            damaged[at] ^= mask
            try:
                found = repr(read(damaged, False))
            except Corruption:
                continue
            assert found == right, f"byte {at}"
            with pytest.raises(Corruption):  # nothing read it, but verify does
                read(damaged, True)


@pytest.mark.parametrize(("make", "read"), KINDS, ids=["rows", "near", "delta"])
def test_a_file_cut_anywhere_is_found(make: Callable[[], bytes], read: Callable[..., list[Any]]) -> None:
    data = make()
    for size in range(len(data)):
        with pytest.raises(Corruption):
            read(data[:size], False)


@pytest.mark.parametrize(("make", "read"), KINDS, ids=["rows", "near", "delta"])
def test_bytes_after_the_end_are_found(make: Callable[[], bytes], read: Callable[..., list[Any]]) -> None:
    data = make()
    for tail in (b"\0", data[-24:], data):
        with pytest.raises(Corruption):
            read(data + tail, True)


def test_pages_that_changed_places_are_found() -> None:
    """Two equally long pieces with good checksums of their own, in each other's place."""
    one, two = rows_bytes(), bytearray(rows_bytes())
    fs = BytesFileSystem()
    fs.files["f"] = bytearray(one)
    with RowsFile(fs, "f") as file:
        extents = [reader.index_extent for reader in file.columns.values()]
    sizes: dict[int, list[Any]] = {}
    for extent in extents:
        sizes.setdefault(extent.length, []).append(extent)
    left, right = next(found for found in sizes.values() if len(found) > 1)[:2]
    two[left.offset : left.end] = one[right.offset : right.end]
    two[right.offset : right.end] = one[left.offset : left.end]
    with pytest.raises(Corruption, match="CRC"):
        read_rows(two, True)


def test_a_page_of_another_file_is_found() -> None:
    fs = BytesFileSystem()
    case = make_case(np.random.default_rng(1), 9, "int", ["int64"])
    case.write(fs, "a")
    other = bytearray(fs.files["a"])
    other[20:36] = os.urandom(16)
    other[36:40] = crc32c(bytes(other[:36]), 0).to_bytes(4, "little")
    with pytest.raises(Corruption):
        read_rows(other, False)


@pytest.mark.parametrize(("at", "value"), [(8, 2), (16, 1)])
def test_a_file_from_the_future_is_not_supported(at: int, value: int) -> None:
    data = bytearray(rows_bytes())
    data[at] = value
    data[36:40] = crc32c(bytes(data[:36]), 0).to_bytes(4, "little")
    data[-24:] = os.urandom(24)  # must not matter: the header decides
    with pytest.raises(NotSupported):
        read_rows(data, False)


def test_an_unknown_compatible_feature_is_ignored() -> None:
    """Only the header's checksum changes; its own bytes are not part of any other."""
    data = bytearray(rows_bytes())
    data[12] = 1
    data[36:40] = crc32c(bytes(data[:36]), 0).to_bytes(4, "little")
    assert repr(read_rows(data, True)) == repr(read_rows(rows_bytes(), True))


@pytest.fixture
def forged(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checksums are zero, in what is written and what is expected."""

    def nothing(data: Any, value: int = 0) -> int:
        return 0

    for module in (container, container_writer):
        monkeypatch.setattr(module, "crc32c", nothing)
    monkeypatch.setattr(page, "crc32c", nothing)


@pytest.mark.usefixtures("forged")
@pytest.mark.parametrize(("make", "read"), KINDS, ids=["rows", "near", "delta"])
def test_forged_checksums_break_nothing(
    make: Callable[[], bytes], read: Callable[..., list[Any]], long: bool, seed: int
) -> None:
    data = make()
    rng = np.random.default_rng(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for at in range(len(data)):
        for value in rng.integers(0, 256, 50 if long else 2).tolist():
            damaged = bytearray(data)
            damaged[at] = value
            # Arrow refuses text that is not UTF-8.
            with contextlib.suppress(KuduError, pa.ArrowInvalid, UnicodeDecodeError):
                read(damaged, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "KiB"


@pytest.mark.usefixtures("forged")
def test_bounds_of_a_page_that_descend_are_damage() -> None:
    """Of the entries of a column that has not all: the least is the one to begin with, and too large."""
    make, read = KINDS[2]
    data = make()
    with DeltaFile(files_of(data), "f") as file:
        told = bytes(file.file.footer_rest)
    columns = list(ColumnList(told))
    bounds = bytes(4), (2).to_bytes(4, "little")
    [at] = [i for i, column in enumerate(columns) if (column.zone.minimum, column.zone.maximum) == bounds]
    zone = replace(columns[at].zone, minimum=bytes.fromhex("00d00000"))
    columns[at] = replace(columns[at], zone=zone)
    assert len(pack_entries(columns)) == len(told) and data.count(told) == 1
    with pytest.raises(Corruption, match="do not ascend"):
        read(bytearray(data.replace(told, pack_entries(columns))), True)


@pytest.mark.usefixtures("forged")
@pytest.mark.parametrize("offset", [-8, -1, 10**9, 2**63])
@pytest.mark.parametrize("sizes", [[8], [8, 8]])
def test_bytes_that_no_file_has_are_damage(tmp_path: Path, sizes: list[int], offset: int) -> None:
    """The offset comes out of a file: never an error of the system's call, nor a short answer."""
    path = tmp_path / "a"
    path.write_bytes(rows_bytes())
    with RowsFile(PosixFileSystem(), str(path)) as file:
        reader = file.file
        assert reader.read_adjacent([4, 4], 0) == [reader.read_at(0, 4), reader.read_at(4, 4)]
        with pytest.raises(Corruption, match="reach over the end of the file"):
            reader.read_adjacent(sizes, offset)
        with pytest.raises(Corruption, match="reach over the end of the file"):
            reader.read_adjacent(sizes, reader.size - 1)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_the_largest_cell_is_compressed(compression: str) -> None:
    text = (b"some words of a document " * 100)[:2048] * ((64 << 20) // 2048)
    codec, stored = page.compress(text, compression)
    assert codec and len(stored) < len(text) // 20
    reader: Any = None  # asked only where something is wrong
    assert page.decompress(reader, 0, codec, stored, len(text)) == text


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_decompression_never_exceeds_what_was_declared(compression: str) -> None:
    spec = ColumnSpec(0, ColumnType.parse("string"), False, encoding="plain", compression=compression)
    fs = BytesFileSystem()
    text = column([f"the same words again and again {i % 7}" for i in range(2000)], "string")
    write_rows_file(fs, "f", RowsFileSpec([(spec, text)]))
    with RowsFile(fs, "f") as file:
        offset = file.columns[0].extent.offset
    _, stored, raw, _, codec, _ = page.PAGE_FRAME.unpack_from(fs.files["f"], offset)
    assert codec
    assert stored < raw
    for declared in (0, 1, raw - 1, raw + 1, page.RAW_LIMIT_BYTES, page.RAW_LIMIT_BYTES + 1, 0xFFFFFFFF):
        fs.files["f"][offset + 8 : offset + 12] = declared.to_bytes(4, "little")
        with RowsFile(fs, "f") as file, pytest.raises(Corruption):
            file.read(0, 0, 2000)
