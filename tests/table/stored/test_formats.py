"""TABLE, MANIFEST and record payloads: documented bytes are the code's structs; damage is found."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.columns import statistics
from kudu_core.common.partition.declared import HashPartition, RangePartition
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.alter import altered
from kudu_core.common.schema.declare import Column, declare
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.backup import backup_manifest as backup_format
from kudu_core.table.stored import table_state
from kudu_core.table.stored.alteration import Alteration, alters, followed
from kudu_core.tablet.store import manifest, manifest_format, records
from kudu_core.wal import RECORD_KIND_ALTER, RECORD_KIND_INGEST, RECORD_KIND_WRITE, Record
from tests.support.fs.memory import MemoryFileSystem

PAGES = sorted((Path(__file__).parents[3] / "docs").glob("format*.md"))

TABLES = [
    ("TABLE", table_state.HEADER),
    ("Manifest header", manifest_format.HEADER),
    ("Manifest frame", manifest_format.FRAME),
    ("Column statistics", statistics.HEAD),
    ("Column statistics entry", statistics.ENTRY),
    ("Record payloads", records.PAYLOAD),
    ("Record section", records.SECTION),
    ("Record column", records.COLUMN),
    ("Backup manifest", backup_format.HEADER),
]


def rows_of(section: str) -> list[tuple[int, int]]:
    text = "\n".join(page.read_text() for page in PAGES)
    for part in re.split(r"^#+ ", text, flags=re.MULTILINE):
        if part.startswith(section + "\n"):
            table = part.split("| offset | width |", 1)[1].split("\n\n")[0]
            return [
                (int(a), int(b)) for a, b in re.findall(r"^\| (\d+) \| (\d+) \|", table, flags=re.MULTILINE)
            ]
    raise AssertionError(f"docs/format*.md have no section {section!r}")


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
            return table_state.read_state(fs, str(path))
        uuid = table_state.read_state(fs, str(table_path / "TABLE")).uuid
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
    have = table_state.read_state(PosixFileSystem(), str(path))
    data = bytearray(have.to_bytes())
    struct.pack_into("<H", data, 8, 2)
    struct.pack_into("<I", data, 16, table_state.ENVELOPE.crc(2, 0, bytes(data[table_state.HEADER.size :])))
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
                records.RECORD_INSERT, RowBlock({0: names, 5: numbers}, 3), np.array([1, 0, 1], np.int32)
            ),
            records.Section(
                records.RECORD_DELETE, RowBlock({0: names.slice(1, 3)}, 2), np.array([0, 0], np.int32)
            ),
        ],
        {"txn": ["app", 3]},
    )
    data = b"".join(bytes(memoryview(p).cast("B")) for p in records.encode(payload))
    assert len(data) % 8 == 0
    back = records.decode(memoryview(data), "log", 0)
    assert back.tablets == (4, 9) and back.extra == {"txn": ["app", 3]}
    first, second = back.sections
    assert first.tablets.tolist() == [1, 0, 1] and first.op == records.RECORD_INSERT
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


# ------------------------------------------------------------------------------------- ALTER


def altered_state() -> tuple[table_state.TableState, Alteration]:
    columns = [Column("k", "int64"), Column("v", "decimal128(9,2)")]
    schema = declare(columns, "k")
    partitions = PartitionSchema.make(schema, [HashPartition("k", 2), RangePartition("k", [(0, 9)])])
    tablets = tuple(table_state.TabletEntry(i + 1, i, 0) for i in range(2))
    before = table_state.TableState(bytes(16), 1, kc.Options(), (schema,), partitions, tablets)
    after = altered(schema, drop=["v"], add=[Column("d", "date32", False, default=date(2024, 1, 2))])
    return before, Alteration.of(before, after, partitions.altered(after, drop=[(0, 9)], add=[(0, None)]))


def record_of(payload: bytes, ts: int = 5) -> Record:
    return Record(1, ts, RECORD_KIND_ALTER, 2, memoryview(payload), 0)


def test_an_alteration_comes_back_as_it_was() -> None:
    before, alteration = altered_state()
    assert (alteration.created, alteration.dropped) == (((3, 2), (4, 3)), (1, 2))
    again = Alteration.parse(alteration.to_bytes(), before.schema)
    assert again == alteration
    after = followed(before, [record_of(alteration.to_bytes())])
    assert after.schema == alteration.schema
    assert [(t.id, t.partition, t.created_ts, t.dropped_ts) for t in after.tablets] == [
        (1, 0, 0, 5),
        (2, 1, 0, 5),
        (3, 2, 5, None),
        (4, 3, 5, None),
    ]
    assert (after.next_tablet, after.applied_ts, len(after.schemas)) == (5, 5, 2)
    assert followed(after, [record_of(alteration.to_bytes())]) is after
    assert followed(before, []) is before


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("schema"),
        lambda v: v["schema"].update(version=7),
        lambda v: v["schema"].update(key=[2]),
        lambda v: v["schema"]["columns"].append(v["schema"]["columns"][0]),
        lambda v: v.update(created=[[3, 2]]),
        lambda v: v.update(created=[[3, 2], [3, 3]]),
        lambda v: v.update(created=[[1, 2], [4, 3]]),
        lambda v: v.update(created=[[3, 2], [1 << 33, 3]]),
        lambda v: v.update(created=7),
        lambda v: v.update(dropped=[1]),
        lambda v: v.update(dropped=["1", "2"]),
        lambda v: v.update(partitions=None),
        lambda v: v["partitions"].update(ranges=[]),
        lambda v: v["partitions"].update(range=[99]),
    ],
)
def test_an_alteration_that_no_table_can_follow_is_corruption(
    change: Callable[[dict[str, Any]], object],
) -> None:
    before, alteration = altered_state()
    value = json.loads(alteration.to_bytes())
    change(value)
    with pytest.raises(kc.Corruption, match="log record 1"):
        followed(before, [record_of(json.dumps(value).encode())])


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_an_alteration_of_foreign_bytes_is_corruption(payload: bytes) -> None:
    with pytest.raises(kc.Corruption, match="log record 1"):
        followed(altered_state()[0], [record_of(payload)])


# ------------------------------------------------------------------------------------- overwrite


def overwriting_record(extra: dict[str, Any], ts: int = 5, kind: int = RECORD_KIND_INGEST) -> Record:
    parts = records.encode(records.Payload((), [], extra))
    data = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
    return Record(1, ts, kind, 1, memoryview(data), 0)


def test_an_ingest_that_overwrites_puts_new_tablets_in_the_place_of_the_old() -> None:
    before, _ = altered_state()
    alteration = Alteration.overwriting(before)
    assert alteration.tablets == {"created": [[3, 0], [4, 1]], "dropped": [1, 2]}
    record = overwriting_record({"parts": {}, "counts": [0] * 4, "later": 1, **alteration.tablets})
    assert alters(record) and alters(record_of(b"{}"))
    assert not alters(overwriting_record({"parts": {}, "counts": [0] * 4}))
    assert not alters(overwriting_record(alteration.tablets, kind=RECORD_KIND_WRITE))
    after = followed(before, [record])
    assert [(t.id, t.partition, t.created_ts, t.dropped_ts) for t in after.tablets] == [
        (1, 0, 0, 5),
        (2, 1, 0, 5),
        (3, 0, 5, None),
        (4, 1, 5, None),
    ]
    assert (after.next_tablet, after.applied_ts) == (5, 5)
    assert (after.schemas, after.partitions) == (before.schemas, before.partitions)
    fs = MemoryFileSystem()
    fs.replace_file("/TABLE", after.to_bytes())
    assert table_state.read_state(fs, "/TABLE") == after
    assert followed(after, [record]) is after
    again = followed(after, [overwriting_record(Alteration.overwriting(after).tablets, ts=9)])
    assert [t.id for t in again.tablets if t.dropped_ts is None] == [5, 6]
    # Those in between may have been purged, in any order.
    for gone in (1, 3):
        left = replace(again, tablets=tuple(t for t in again.tablets if t.id != gone))
        fs.replace_file("/TABLE", left.to_bytes())
        assert table_state.read_state(fs, "/TABLE") == left


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("dropped"),
        lambda v: v.update(dropped=[1]),
        lambda v: v.update(dropped=[1, 2, 3]),
        lambda v: v.update(created=[[3, 0]]),
        lambda v: v.update(created=[[3, 0], [4, 0]]),
        lambda v: v.update(created=[[3, 0], [4, 2]]),
        lambda v: v.update(created=[[2, 0], [4, 1]]),
        lambda v: v.update(created=[[3, 0], [1 << 33, 1]]),
        lambda v: v.update(created=7),
        lambda v: v.update(created=[["3", 0], [4, 1]]),
    ],
)
def test_an_overwrite_that_no_table_can_follow_is_corruption(
    change: Callable[[dict[str, Any]], object],
) -> None:
    before, _ = altered_state()
    value = Alteration.overwriting(before).tablets
    change(value)
    with pytest.raises(kc.Corruption, match="log record 1"):
        followed(before, [overwriting_record(value)])


def test_an_ingest_of_foreign_bytes_is_corruption() -> None:
    for payload in (b"", b"\xff" * 40):
        with pytest.raises(kc.Corruption, match="log record 1"):
            alters(Record(1, 5, RECORD_KIND_INGEST, 1, memoryview(payload), 0))


def test_a_table_of_before_alters_is_read() -> None:
    """TABLE had neither ``next_tablet`` nor ``horizon``."""
    fs = MemoryFileSystem()
    before, _ = altered_state()
    written = before.to_bytes()
    value = json.loads(written[table_state.HEADER.size :])
    assert value.pop("next_tablet") == 3 and value.pop("horizon") == 0
    body = json.dumps(value).encode()
    fs.replace_file("/TABLE", table_state.ENVELOPE.around(body))
    assert table_state.read_state(fs, "/TABLE") == before
