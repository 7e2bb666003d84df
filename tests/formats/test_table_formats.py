"""TABLE, MANIFEST and record payloads: documented bytes are the code's structs; damage is found."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.rowblock import ColumnBuffers, RowBlock
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table import backup_format, state
from kudu_core.tablet import manifest, records

FORMAT = Path(__file__).parents[2] / "docs" / "format.md"

TABLES = [
    ("TABLE", state.HEADER),
    ("Manifest header", manifest.HEADER),
    ("Manifest edit", manifest.EDIT),
    ("Record payloads", records.PAYLOAD),
    ("Record section", records.SECTION),
    ("Record column", records.COLUMN),
    ("Backup manifest", backup_format.HEADER),
]


def rows_of(section: str) -> list[tuple[int, int]]:
    for part in re.split(r"^#+ ", FORMAT.read_text(), flags=re.MULTILINE):
        if part.startswith(section + "\n"):
            table = part.split("| offset | width |", 1)[1].split("\n\n")[0]
            return [
                (int(a), int(b)) for a, b in re.findall(r"^\| (\d+) \| (\d+) \|", table, flags=re.MULTILINE)
            ]
    raise AssertionError(f"docs/format.md has no section {section!r}")


@pytest.mark.parametrize(("section", "layout"), TABLES, ids=[name for name, _ in TABLES])
def test_documented_table_is_the_struct(section: str, layout: struct.Struct) -> None:
    at = 0
    for offset, width in rows_of(section):
        assert offset == at
        at += width
    assert at == layout.size


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    with kc.create_table(path, schema, "k", options={"maintenance": "manual"}) as table:
        table.insert({"k": [1, 2], "v": ["a", "b"]}, txn=("app", 7))
        table.flush()
        table.update({"k": [1], "v": ["c"]})
        table.flush()
    return path


@pytest.mark.parametrize("name", ["TABLE", "tablets/00000001/MANIFEST"])
def test_every_flipped_byte_is_found_or_harmless(table_path: Path, name: str) -> None:
    """A flip gives ``Corruption``, or the state before the damaged last edit; never other data."""
    fs = PosixFileSystem()
    path = table_path / name
    good = path.read_bytes()

    def read() -> object:
        if name == "TABLE":
            return state.read_state(fs, str(path))
        uuid = state.read_state(fs, str(table_path / "TABLE")).uuid
        return manifest.read_manifest(fs, str(path), uuid, 1)[0]

    expected = read()
    prefixes = [expected]
    for cut in range(len(good)):
        path.write_bytes(good[:cut])
        try:
            prefixes.append(read())
        except kc.Corruption:
            continue
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        try:
            got = read()
        except (kc.Corruption, kc.NotSupported):
            continue
        assert name != "TABLE" and got in prefixes, f"byte {at}"


def test_a_newer_format_is_refused_before_anything_is_written(table_path: Path) -> None:
    path = table_path / "TABLE"
    have = state.read_state(PosixFileSystem(), str(path))
    data = bytearray(have.to_bytes())
    struct.pack_into("<H", data, 8, 2)
    struct.pack_into("<I", data, 16, state._crc(2, 0, bytes(data[state.HEADER.size :])))
    path.write_bytes(data)
    for mode in ("r", "rw"):
        with pytest.raises(kc.NotSupported, match="version 2"):
            kc.open_table(table_path, mode)
    assert path.read_bytes() == bytes(data)


def test_record_payload_comes_back_and_every_cut_is_found() -> None:
    rng = np.random.default_rng(5)
    names = ColumnBuffers(0, 3, np.frombuffer(b"xxabcde", np.uint8), np.array([2, 3, 3, 7], np.int32), None)
    numbers = ColumnBuffers(8, 3, rng.integers(0, 255, 24, np.uint8), None, np.array([0b101], np.uint8))
    payload = records.Payload(
        (4, 9),
        [
            records.Section(
                records.INSERT, RowBlock({0: names, 5: numbers}, 3), np.array([1, 0, 1], np.int32)
            ),
            records.Section(records.DELETE, RowBlock({0: names.slice(1, 3)}, 2), np.array([0, 0], np.int32)),
        ],
        {"txn": ["app", 3]},
    )
    data = b"".join(bytes(memoryview(p).cast("B")) for p in records.encode(payload))
    assert len(data) % 8 == 0
    back = records.decode(memoryview(data), "log", 0)
    assert back.tablets == (4, 9) and back.extra == {"txn": ["app", 3]}
    first, second = back.sections
    assert first.tablets.tolist() == [1, 0, 1] and first.op == records.INSERT
    assert [first.block.columns[0].cell(i) for i in range(3)] == [b"a", b"", b"bcde"]
    assert first.block.columns[5].null_count == 1
    assert bytes(first.block.columns[5].values) == bytes(numbers.values)
    assert [second.block.columns[0].cell(i) for i in range(2)] == [b"", b"bcde"]
    for cut in range(0, len(data), 8):
        with pytest.raises(kc.Corruption):
            records.decode(memoryview(data[:cut]), "log", 0)
    for _ in range(500):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), 3):
            damaged[at] = rng.integers(0, 256)
        try:
            records.decode(memoryview(bytes(damaged)), "log", 0)
        except kc.Corruption:
            continue
