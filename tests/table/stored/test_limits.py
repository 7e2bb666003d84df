"""Each limit of a format, exactly reached, is taken and comes back; one more is refused, and nothing changes.

docs/format.md, "Limits", lists them.  Where the real one is too large for a test it is lowered,
for writer and reader alike: both ask the same constant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.columns import specs
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.columns.writer import write_column
from kudu_core.cfile.pages import container
from kudu_core.cfile.pages import page as pages
from kudu_core.cfile.pages.container import FileReader, FileWriter
from kudu_core.common.format.members import LIMIT
from kudu_core.common.idempotence import writers
from kudu_core.common.idempotence.fingerprint import Fingerprint
from kudu_core.common.idempotence.writers import AppliedWrite
from kudu_core.common.partition import partitions, ranges
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema import schema
from kudu_core.common.types.keycodec import MAX_KEY_BYTES
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption, InvalidArgument, NotSupported
from kudu_core.table.backup import backup
from kudu_core.table.backup import format as backup_format
from kudu_core.table.jobs import commit, resolve
from kudu_core.table.jobs import job as job_module
from kudu_core.table.opened import job_marks
from kudu_core.table.stored import alteration, table_file
from kudu_core.wal import log
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, log_of, poison_of, rowsets_of, schema_of, table_file_of, tablet_of
from tests.support.models.overwriting import overwrite
from tests.support.models.overwriting import staged as staged_job

PATH = "/t"
MANUAL: dict[str, Any] = {"maintenance": "manual", "file_grace_s": 0}
Column = kc.Column


def contents(fs: MemoryFileSystem, folder: str = "/") -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    found: dict[str, bytes | None] = {}
    for name in fs.listdir(folder):
        path = f"{folder.rstrip('/')}/{name}"
        if fs.is_dir(path):
            found |= {path: None} | contents(fs, path)
        else:
            found[path] = fs.read_bytes(path, 1 << 40)
    return found


def make(fs: MemoryFileSystem, columns: Any = None, key: Any = "k", **more: Any) -> kc.Table:
    columns = [Column("k", "int64"), Column("s", "string")] if columns is None else columns
    more.setdefault("options", MANUAL)
    return kc.create_table(PATH, columns, key, _fs=fs, **more)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def refused(fs: MemoryFileSystem, call: Callable[[], object], match: str, *errors: type[Exception]) -> None:
    """The call says why it does nothing, and does nothing."""
    before = contents(fs)
    with pytest.raises(errors or (InvalidArgument,), match=match):
        call()
    assert contents(fs) == before


def comes_back(fs: MemoryFileSystem, table: kc.Table) -> None:
    """What the table is, it is for whoever opens it."""
    engine = engine_of(table)
    known = engine.schema, engine.partitions, table.scan().to_pylist()
    table.close()
    for mode in ("r", "rw"):
        with kc.open_table(PATH, mode, _fs=fs) as again:
            assert (schema_of(again), engine_of(again).partitions, again.scan().to_pylist()) == known


def unreadable(fs: MemoryFileSystem, match: str) -> None:
    """A file that breaks a limit is damaged, whoever wrote it; nothing is done about it."""
    for mode in ("r", "rw"):
        refused(fs, lambda mode=mode: kc.open_table(PATH, mode, _fs=fs), match, Corruption)


# ---- columns


def columns_of(count: int) -> list[kc.Column]:
    return [Column("k", "int64"), *(Column(f"c{i}", "int64") for i in range(count - 1))]


def test_columns_of_a_table(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_COLUMNS", 5)
    refused(fs, lambda: make(fs, columns_of(6)), "6 columns; a table has at most 5")
    with make(fs, columns_of(4)) as table:
        table.alter(add=[Column("more", "int64")])
        refused(fs, lambda: table.alter(add=[Column("again", "int64")]), "6 columns")
        refused(fs, lambda: table.alter(drop=["c0"], add=[Column("a", "int8"), Column("b", "int8")]), "6 col")
        table.alter(drop=["c0"], add=[Column("again", "int64")])
        table.insert([{"k": 1, "c1": 2, "c2": 3, "more": 4, "again": 5}])
        comes_back(fs, table)
    monkeypatch.setattr(schema, "MAX_COLUMNS", 4)
    unreadable(fs, "5 columns")


def test_so_many_columns_as_there_may_be(tmp_path: Any, long: bool) -> None:
    """The real number through every path that writes and reads rows."""
    count = schema.MAX_COLUMNS if long else 700
    columns = [
        Column("k", "int64"),
        *(Column(f"c{i}", "string" if i % 2 else "int32") for i in range(1, count)),
    ]
    names = [c.name for c in columns[1:]]

    def row(k: int, n: int) -> dict[str, Any]:
        return {"k": k} | {name: (f"{n} of a string {i}" if i % 2 else n) for i, name in enumerate(names, 1)}

    def data(*rows: dict[str, Any]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=table.schema)

    path, options = tmp_path / "t", MANUAL | {"durability": "none"}
    if long:
        with pytest.raises(InvalidArgument, match="10,001 columns"):
            kc.create_table(path, [*columns, Column("one", "int8")], "k")
    table = kc.create_table(path, columns, "k", options=options)
    table.insert([row(1, 1)])
    table.insert(data(row(2, 2), row(3, 3)))
    table.close()
    table = kc.open_table(path, "rw")  # from the log
    assert table.scan(order="key").to_pylist() == [row(1, 1), row(2, 2), row(3, 3)]
    table.flush()
    start = table.timestamp
    table.update([row(1, 11)])
    table.update(data(row(2, 22), row(3, 33)))
    table.flush()
    table.delete([3])
    engine = engine_of(table)
    for kind in ("minor", "major"):
        engine.compactions.compact(engine.tablets[0], engine.tablets[0].view.rowsets[0].id, kind)
    table.insert([row(4, 4)])
    table.flush()
    table.compact(full=True)
    wanted = [row(1, 11), row(2, 22), row(4, 4)]
    assert table.scan(order="key").to_pylist() == wanted and table.get(4) == row(4, 4)
    told = [(r["_op"], r["k"]) for r in table.changes(start, images="both").to_pylist()]
    assert sorted(told) == [("delete", 3), ("insert", 4), ("update", 1), ("update", 2), ("update", 3)]
    table.alter(rename={names[0]: "other"})
    table.alter(rename={"other": names[0]})
    table.verify()
    table.backup(tmp_path / "saved")
    table.close()
    with kc.open_table(path) as reader, kc.restore(tmp_path / "saved", tmp_path / "back") as back:
        for again in (reader, back):
            assert again.scan(order="key").to_pylist() == wanted


@pytest.mark.parametrize("type_", ["int16", "string"])
def test_columns_of_a_key(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, type_: str) -> None:
    """A key of more columns was written, and once it was flushed nothing could be written any more."""
    count = schema.MAX_KEY_COLUMNS
    names = [f"k{i}" for i in range(count + 1)]
    columns = [*(Column(name, type_) for name in names), Column("v", "int64")]
    refused(fs, lambda: make(fs, columns, names), "a key of 65 columns; at most 64 make a key")
    cell: Any = str if type_ == "string" else int

    def rows(v: int) -> list[dict[str, Any]]:
        return [{n: cell((i * 7 + at) % 3) for at, n in enumerate(names)} | {"v": v} for i in range(3)]

    with make(fs, columns, names[:-1], partition_by=kc.HashPartition(names[:3], 2)) as table:
        table.insert(pa.Table.from_pylist(rows(1), schema=table.schema))
        table.flush()
        table.upsert(pa.Table.from_pylist(rows(2), schema=table.schema))
        assert table.count() == 3 and table.get(tuple(rows(2)[1][n] for n in names[:-1]))["v"] == 2
        table.flush()
        table.compact(full=True)
        table.insert(pa.Table.from_pylist(rows(3), schema=table.schema), on_conflict="ignore")
        comes_back(fs, table)
    monkeypatch.setattr(schema, "MAX_KEY_COLUMNS", count - 1)
    unreadable(fs, "a key of 64 columns")


# ---- names, comments, defaults

SURROGATE = "caf\udce9"
BAD_NAMES = [
    ("x" * 257, "257 bytes; at most 256"),
    ("\u00e9" * 129, "258 bytes; at most 256"),
    (SURROGATE, "cannot be written as UTF-8"),
    ("", "not empty"),
    ("a\0b", "without NUL"),
    ("_op", "reserved"),
    ("_timestamp_2", "reserved"),
    ("_before", "reserved"),
    (None, "text"),
    (10**5000, "text"),
    (["a"], "text"),
]
GOOD_NAMES = ["x" * 256, "\u00e9" * 128, "\U0001f600" * 64, "a\nb\t\x7f\x01", "'\"\\", " ", "_", "K", "k "]
BAD_COLUMNS = [
    ({"comment": "x" * 257}, "comment is text of up to 256 characters"),
    ({"comment": SURROGATE}, "comment is text of up to 256 characters that UTF-8 can hold"),
    ({"comment": None}, "comment"),
    ({"default": "x" * 65_537}, "a default of 65,537 bytes; at most 65,536"),
    ({"default": "\u00e9" * 32_769}, "a default of 65,538 bytes"),
    ({"default": SURROGATE}, "cannot be written as UTF-8"),
    ({"type": "binary", "default": bytes(65_537)}, "a default of 65,537 bytes"),
    ({"type": "int64", "default": 10**5000}, "cannot be written out"),
    ({"type": "int64", "default": 1 << 63}, "range"),
    ({"type": "float32", "default": 1e39}, "range"),
    ({"type": "decimal128(5,2)", "default": 1000}, "digits"),
    ({"type": "timestamp[us]", "default": pa.scalar(2**63 - 1, pa.timestamp("us"))}, "years 1 to 9999"),
    ({"type": "decimal128(39,2)"}, "column 'x'"),
]
GOOD_COLUMNS = [
    {"comment": "x" * 256},
    {"comment": "\U0001f600\0\n" * 85},
    {"default": "x" * 65_536},
    {"default": "\u00e9\0" * 21_845},
    {"type": "binary", "default": bytes(65_536)},
]


@pytest.mark.parametrize(("name", "why"), BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_a_name_that_no_column_may_have(fs: MemoryFileSystem, name: Any, why: str) -> None:
    refused(fs, lambda: make(fs, [Column("k", "int64"), Column(name, "int8")]), why)
    with make(fs) as table:
        refused(fs, lambda: table.alter(add=[Column(name, "int8")]), why)
        refused(fs, lambda: table.alter(rename={"s": name}), why)
        assert table.schema.names == ["k", "s"]
        comes_back(fs, table)


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_any_other_name(fs: MemoryFileSystem, name: str) -> None:
    with make(fs, [Column("k", "int64"), Column(name, "int8")]) as table:
        table.insert([{"k": 1, name: 2}])
        table.alter(rename={name: "y"})
        table.alter(rename={"y": name}, add=[Column(name[:-1] + "z", "int8")])
        table.flush()
        comes_back(fs, table)


@pytest.mark.parametrize(("given", "why"), BAD_COLUMNS, ids=range(len(BAD_COLUMNS)))
def test_a_column_that_no_table_may_have(fs: MemoryFileSystem, given: dict[str, Any], why: str) -> None:
    column = Column("x", **{"type": "string"} | given)
    refused(fs, lambda: make(fs, [Column("k", "int64"), column]), why)
    with make(fs) as table:
        refused(fs, lambda: table.alter(add=[column]), why)
        comes_back(fs, table)


@pytest.mark.parametrize("given", GOOD_COLUMNS, ids=range(len(GOOD_COLUMNS)))
def test_a_column_at_its_limits(
    fs: MemoryFileSystem, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column("x", **{"type": "string"} | given)
    with make(fs, [Column("k", "int64"), column]) as table:
        table.insert({"k": [1]})
        table.alter(add=[replace(column, name="y")])
        comes_back(fs, table)
    monkeypatch.setattr(schema, "MAX_COMMENT_CHARACTERS", 200)
    monkeypatch.setattr(schema, "MAX_DEFAULT_BYTES", 65_000)
    unreadable(fs, "comment" if "comment" in given else "default")


def test_a_name_in_a_file_is_one_that_a_column_may_have(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(fs, [Column("k", "int64"), Column("x" * 256, "int8")]).close()
    monkeypatch.setattr(schema, "MAX_NAME_BYTES", 255)
    unreadable(fs, "256 bytes; at most 255")


def test_a_field_whose_name_is_no_text(fs: MemoryFileSystem) -> None:
    field = pa.field(b"caf\xe9", pa.int8())
    refused(fs, lambda: make(fs, [pa.field("k", pa.int64()), field]), "no UTF-8")


@pytest.mark.parametrize("key", [5, [5], None, ["k", None], [["k"]]])
def test_what_is_no_key(fs: MemoryFileSystem, key: Any) -> None:
    refused(fs, lambda: make(fs, None, key), "key")


# ---- versions of the schema


def test_ids_of_columns_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_COLUMN_ID", 5)
    with make(fs) as table:
        table.alter(add=[Column("a", "int8")])
        table.alter(add=[Column("b", "int8")], drop=["a"])
        refused(fs, lambda: table.alter(add=[Column("c", "int8")], drop=["b"]), "next column id 6")
        comes_back(fs, table)
    monkeypatch.setattr(schema, "MAX_COLUMN_ID", 4)
    unreadable(fs, "whole number")


def test_versions_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_VERSION", 3)
    with make(fs) as table:
        table.alter(add=[Column("a", "int8")])
        refused(fs, lambda: table.alter(drop=["a"]), "schema version 3")
        comes_back(fs, table)
    monkeypatch.setattr(schema, "MAX_VERSION", 2)
    unreadable(fs, "whole number")


def test_a_version_as_a_file_has_it(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("k", "int64"), Column("s", "string", default="\x01" * 5000)]
    size = schema.declare(columns, "k").json_bytes
    assert size == len(json.dumps(schema.declare(columns, "k").to_json(), separators=(",", ":"))) > 60_000
    monkeypatch.setattr(schema, "MAX_SCHEMA_BYTES", size - 1)
    refused(fs, lambda: make(fs, columns), f"take {size:,} bytes; at most {size - 1:,} are stored")
    monkeypatch.setattr(schema, "MAX_SCHEMA_BYTES", size)
    with make(fs, columns) as table:
        refused(fs, lambda: table.alter(add=[Column("a", "int8")]), "are stored")
        comes_back(fs, table)


def test_of_wide_schemas_fewer_versions_are_remembered(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(fs) as table:
        for number in range(70):
            table.alter(add=[Column(f"a{number}", "int8")])
        versions = [s.version for s in table_file_of(table).schemas]
        assert versions == list(range(8, 72)), "64 of narrow ones"
        sizes = [s.json_bytes for s in table_file_of(table).schemas]
        # As much as the three before the next version take: that one, and these three.
        monkeypatch.setattr(table_file, "OLD_SCHEMAS_BYTES", sum(sizes[-3:]))
        table.alter(rename={"a1": "b1"})
        assert [s.version for s in table_file_of(table).schemas] == [69, 70, 71, 72]
        monkeypatch.setattr(table_file, "OLD_SCHEMAS_BYTES", 0)
        table.alter(rename={"b1": "a1"})
        assert [s.version for s in table_file_of(table).schemas] == [73], "the newest in any case"
        comes_back(fs, table)


# ---- partitions


def test_partitions_of_a_table(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITIONS", 6)
    hashed = kc.HashPartition("k", 2)

    def ranges(count: int) -> kc.RangePartition:
        return kc.RangePartition("k", [(i, i + 1) for i in range(count)])

    refused(fs, lambda: make(fs, partition_by=[hashed, ranges(4)]), "8 partitions; a table has at most 6")
    with make(fs, partition_by=[hashed, ranges(2)]) as table:
        table.alter(add_range=(2, 3))
        refused(fs, lambda: table.alter(add_range=(3, 4)), "8 partitions")
        refused(fs, lambda: table.alter(drop_range=(0, 1), add_range=(3, 4)), "dropped ones counted")
        table.insert({"k": [0, 1, 2]})
        comes_back(fs, table)
    monkeypatch.setattr(partitions, "MAX_PARTITIONS", 5)
    unreadable(fs, "6 partitions")


def test_many_ranges_are_checked_in_time() -> None:
    """As many as there may be; each was compared with each."""
    declared = schema.declare([Column("k", "int64")], "k")
    count = partitions.MAX_PARTITIONS
    bounds = [(i, i + 1) for i in range(count)]
    made = partitions.PartitionSchema.make(declared, kc.RangePartition("k", bounds[::-1]))
    assert len(made.partitions) == count and made.router is not None
    again = partitions.PartitionSchema.from_json(json.loads(json.dumps(made.to_json())), declared)
    assert again == made
    with pytest.raises(InvalidArgument, match=r"range \[\(5\), \(7\)\) overlaps"):
        partitions.PartitionSchema.make(declared, kc.RangePartition("k", [*bounds[:10], (5, 7)]))
    with pytest.raises(InvalidArgument, match="65,537 partitions"):
        partitions.PartitionSchema.make(declared, kc.RangePartition("k", [*bounds, (count, count + 1)]))


def test_bounds_of_ranges(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("k", "binary"), Column("s", "string")]

    def cut(size: int) -> kc.RangePartition:
        return kc.RangePartition("k", [(None, b"x" * size), (b"x" * size, None)])

    most = MAX_KEY_BYTES
    refused(fs, lambda: make(fs, columns, partition_by=cut(most + 1)), "16,385 bytes as a key; .* 16,384")
    with make(fs, columns, partition_by=cut(most)) as table:
        refused(fs, lambda: table.alter(drop_range=(b"y" * (most + 1), None)), "16,385 bytes")
        table.insert({"k": [b"x" * most, b"w" * most]})
        comes_back(fs, table)
    monkeypatch.setattr(ranges, "MAX_KEY_BYTES", most - 1)
    unreadable(fs, "a bound of 16384 bytes")


def test_bounds_of_all_ranges(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = kc.RangePartition("k", [(i, i + 1) for i in range(10)])
    wanted = 10 * (2 * 8 + 2 * 8 + 20)
    monkeypatch.setattr(ranges, "MAX_RANGES_BYTES", wanted - 1)
    refused(fs, lambda: make(fs, partition_by=cut), f"10 ranges take {wanted} bytes; at most {wanted - 1}")
    monkeypatch.setattr(ranges, "MAX_RANGES_BYTES", wanted)
    with make(fs, partition_by=cut) as table:
        taken = len(json.dumps(table.partitions.to_json()["ranges"], separators=(",", ":")))
        assert taken <= wanted, "what is counted is no less than what is stored"
        refused(fs, lambda: table.alter(add_range=(10, 11)), "11 ranges take")
        comes_back(fs, table)
    monkeypatch.setattr(ranges, "MAX_RANGES_BYTES", wanted - 1)
    unreadable(fs, "10 ranges take")


def test_ranges_from_an_iterator(fs: MemoryFileSystem) -> None:
    """They were looked at twice, and the second time there were none: a table that nobody could open."""
    with make(fs, partition_by=kc.RangePartition("k", (b for b in [(0, 5), (5, 9)]))) as table:  # type: ignore[arg-type]
        assert len(table.partitions.partitions) == 2
        comes_back(fs, table)


@pytest.mark.parametrize(
    "wrong",
    [5, [5], kc.HashPartition(5, 2), kc.RangePartition("k", 5), kc.RangePartition("k", [5])],  # type: ignore[arg-type]
)
def test_what_is_no_partition(fs: MemoryFileSystem, wrong: Any) -> None:
    refused(fs, lambda: make(fs, partition_by=wrong), "partition|dimension|range")


# ---- tablets, epochs, TABLE


def test_tablets_that_are_listed(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "MAX_TABLETS", 4)
    cut = kc.RangePartition("k", [(0, 1), (1, 2)])
    options = MANUAL | {"history_retention_s": 3600}
    with make(fs, partition_by=cut, options=options) as table:
        table.insert({"k": [0, 1], "s": ["a", "b"]})
        overwrite(table, [{"k": 0, "s": "c"}])
        rows = table.scan().to_pylist()
        refused(fs, lambda: table.alter(add_range=(2, 3)), "1 new tablets beside 4", NotSupported)
        with pytest.raises(NotSupported, match="2 new tablets beside 4"):
            overwrite(table, [{"k": 1, "s": "d"}])
        assert table.scan().to_pylist() == rows
        comes_back(fs, table)
    with kc.open_table(PATH, "rw", options={"history_retention_s": 0}, _fs=fs) as table:
        table.gc()
        table.alter(add_range=(2, 3))
        assert len(table_file_of(table).tablets) == 3
        comes_back(fs, table)
    monkeypatch.setattr(table_file, "MAX_TABLETS", 2)
    unreadable(fs, "3 tablets; at most 2")


def test_ids_of_tablets_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table_file, alteration):
        monkeypatch.setattr(module, "MAX_TABLET", 4)
    with make(fs, partition_by=kc.RangePartition("k", [(0, 1), (1, 2)])) as table:
        table.alter(add_range=(2, 3))
        refused(fs, lambda: table.alter(add_range=(3, 4)), "from id 4 on", NotSupported)
        with pytest.raises(NotSupported, match="from id 4 on"):
            overwrite(table, [{"k": 1, "s": "d"}])
        comes_back(fs, table)
    monkeypatch.setattr(table_file, "MAX_TABLET", 3)
    unreadable(fs, "whole number")


def test_epochs_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "MAX_EPOCH", 4)
    from kudu_core.table.lifecycle import open_writer as opening

    monkeypatch.setattr(opening, "MAX_EPOCH", 4)
    make(fs).close()
    with kc.open_table(PATH, "rw", _fs=fs) as table:
        assert table_file_of(table).epoch == 3
        table.insert({"k": [1]})
    refused(fs, lambda: kc.open_table(PATH, "rw", _fs=fs), "opened for writing 3 times", NotSupported)
    with kc.open_table(PATH, _fs=fs) as reader:
        assert reader.count() == 1
    monkeypatch.setattr(table_file, "MAX_EPOCH", 3)
    with pytest.raises(Corruption, match="whole number"):
        kc.open_table(PATH, _fs=fs)


def test_the_parts_of_table_come_to_less_than_it_may_be() -> None:
    """So nobody but those who add to a part has to ask for its size."""
    text = "\x01" * 1024
    number = LIMIT - 1
    rows = Fingerprint((1 << 62) - 1, (1 << 64) - 1, (1 << 64) - 1)
    token = AppliedWrite(
        writers.MAX_VERSION - 1, number, (number,) * 4, rows, text[: writers.MAX_SOURCE_BYTES],
        ((writers.MAX_VERSION - 1, rows),) * writers.RECENT_VERSIONS,
    )  # fmt: skip
    entry = table_file.TabletEntry((1 << 32) - 1, partitions.MAX_PARTITIONS - 1, number, number)
    declared = schema.declare([Column("k", "int64")], "k")
    none = table_file.TableState(
        bytes(16), table_file.MAX_EPOCH - 1, kc.Options(), (declared,),
        partitions.PartitionSchema.make(declared), (entry,), {text[: writers.MAX_APP_ID_BYTES]: token},
        number, number, number, number,
    )  # fmt: skip
    one, other = len(none.to_bytes()), len(replace(none, tokens={}).to_bytes())
    a_token = one - other + 1
    a_tablet = len(json.dumps([entry.id, entry.partition, number, number], separators=(",", ":"))) + 1
    most = (
        other
        + schema.MAX_SCHEMA_BYTES
        + table_file.OLD_SCHEMAS_BYTES
        + ranges.MAX_RANGES_BYTES
        + a_tablet * table_file.MAX_TABLETS
        + a_token * writers.MAX_TOKENS
    )
    assert most < table_file.MAX_BYTES


def test_a_table_file_that_is_too_long_is_not_written(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(fs)
    size = len(table_file_of(table).to_bytes())
    table.close()
    monkeypatch.setattr(table_file, "MAX_BYTES", size - 40)
    before = contents(fs)
    with pytest.raises(Corruption, match="longer than"):
        kc.open_table(PATH, _fs=fs)
    assert contents(fs) == before
    with pytest.raises(NotSupported, match="TABLE would have"):
        make(MemoryFileSystem())


# ---- data files


def test_the_widest_footer_is_smaller_than_a_footer_may_be() -> None:
    """Of a delta file that changes every column of as many as a table may have."""
    fs = MemoryFileSystem()
    writer = FileWriter(fs, "/f", container.CONTAINER_DELTA)
    column = ColumnBuffers(0, 1, np.frombuffer(b"\xfe" * 64, np.uint8), np.array([0, 64], np.int32))
    entry = write_column(writer, ColumnSpec(1, ColumnType.parse("binary"), True), column)
    writer.abort()
    widest = entry | {
        "id": schema.MAX_COLUMN_ID, "type": "timestamp[us,UTC]", "rows": specs.MAX_ROWS,
        "pages": [1 << 62] * 2, "index": [1 << 62] * 2, "dictionary": [1 << 62] * 2, "words": 65_536,
        "zone": entry["zone"] | dict.fromkeys(("rows", "null_count", "nan_count"), specs.MAX_ROWS),
    }  # fmt: skip
    assert len(entry["zone"]["min"]) == len(entry["zone"]["max"]) == 64
    size = len(json.dumps(widest, separators=(",", ":"))) + 1
    assert 2 * size * schema.MAX_COLUMNS < container.FOOTER_LIMIT_BYTES // 2


def test_a_footer_that_no_reader_takes_is_not_written(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(fs)
    table.insert({"k": [1, 2], "s": ["a", "b"]})
    monkeypatch.setattr(container, "FOOTER_LIMIT_BYTES", 100)
    with pytest.raises(NotSupported, match=r"a footer of .* bytes; it has at most 100"):
        table.flush()
    assert table.count() == 2
    monkeypatch.undo()
    table.flush()
    comes_back(fs, table)
    monkeypatch.setattr(container, "FOOTER_LIMIT_BYTES", 100)
    with kc.open_table(PATH, _fs=fs) as reader, pytest.raises(Corruption, match="footer"):
        reader.scan().to_table()


@pytest.mark.parametrize("what", ["rows", "entries"])
def test_rows_of_a_file(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def limit(rows: int) -> None:
        monkeypatch.setattr(specs, "MAX_ROWS", rows)
        from kudu_core.cfile.columns import pages as column_pages
        from kudu_core.cfile.files import delta_file, rows_file

        for module in (column_pages, delta_file, rows_file):
            monkeypatch.setattr(module, "MAX_ROWS", rows)

    table = make(fs)
    table.insert({"k": range(9), "s": ["a"] * 9})
    if what == "entries":
        table.flush()
        table.update({"k": range(9), "s": ["b"] * 9})
    limit(8)
    with pytest.raises(NotSupported, match="9 rows in one file; it has at most 8"):
        table.flush()
    limit(9)
    table.flush()
    comes_back(fs, table)
    limit(8)
    with kc.open_table(PATH, _fs=fs) as reader, pytest.raises(Corruption, match="is 9"):
        reader.scan().to_table()


# ---- the log


def test_a_record(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(fs, options=MANUAL | {"durability": "none"}) as table:
        table.insert({"k": [0], "s": ["a"]})

        def size_of(call: Callable[[], object]) -> int:
            before = log_of(table).bytes_appended
            call()
            return log_of(table).bytes_appended - before

        writes: list[Callable[[int], object]] = [
            lambda k: table.insert([{"k": k, "s": "x" * 50_000}]),
            lambda k: table.insert({"k": [k, k + 1], "s": ["x" * 30_000] * 2}),
            lambda k: table.insert({"k": [k], "s": ["x" * 50_000]}, txn=("me", k)),
            lambda k: table.alter(add=[Column("other", "string", default="x" * 30_000)]),
        ]
        for number, write in enumerate(writes):
            first, again = 10 * number + 10, 10 * number + 15
            altering = write is writes[-1]
            size = 30_000 if altering else size_of(lambda first=first, write=write: write(first))
            rows = table.scan(order="key").to_pylist()
            monkeypatch.setattr(log, "MAX_RECORD", size - 1)
            with pytest.raises(InvalidArgument, match=f"a log record holds at most {size - 1} bytes"):
                write(again)
            assert table.scan(order="key").to_pylist() == rows and poison_of(table) is None
            monkeypatch.setattr(log, "MAX_RECORD", 100_000 if altering else size)
            write(again)
            monkeypatch.undo()
        comes_back(fs, table)


# ---- distributed writes, backups

ROWS = pa.table({"k": pa.array(range(30), pa.int64()), "s": ["x"] * 30})


def test_what_describes_a_job(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(fs) as table:
        table.insert({"k": [100]})
        job, runs = staged_job(table, ROWS, 3, overwrite=False)
        size = len(job_module.sealed(job, runs))
        monkeypatch.setattr(job_module, "MAX_SEALED_BYTES", size - 1)
        refused(
            fs, lambda: commit.commit_job(job, runs, table), f"3 staged files is {size:,} bytes", NotSupported
        )
        assert table.count() == 1
        monkeypatch.setattr(job_module, "MAX_SEALED_BYTES", size)
        assert commit.commit_job(job, runs, table).inserted == 30
        comes_back(fs, table)


def test_a_list_of_changes_that_no_commit_reads_is_not_written(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the commit decides the rows itself."""
    monkeypatch.setattr(resolve, "MAX_BY_KEY_BYTES", 100)
    with make(fs, options=MANUAL | {"ingest_threshold_rows": 10}) as table:
        table.insert({"k": range(9), "s": ["a"] * 9})  # rows in memory, whose changes are such a list
        job, runs = staged_job(table, ROWS, overwrite=False)
        form = commit.form_of(job)
        assert resolve.resolve(table, job, form, runs) == []
        monkeypatch.undo()
        [found] = resolve.resolve(table, job, form, runs)
        assert found.by_key is not None
        monkeypatch.setattr(resolve, "MAX_BY_KEY_BYTES", found.by_key[1])
        [found] = resolve.resolve(table, job, form, runs)
        result = commit.commit_job(job, runs, table, [found])
        assert (result.inserted, result.updated) == (21, 9)
        comes_back(fs, table)


def test_what_says_of_a_job_that_it_is_committed() -> None:
    assert len(json.dumps([LIMIT] * 5)) < job_marks.MAX_MARK_BYTES


def test_the_manifest_of_a_backup(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(fs) as table:
        table.insert({"k": [1]})
        full = table.backup("/saved")
        size = fs.stat("/saved/00000001/BACKUP").size
        monkeypatch.setattr(backup_format, "MAX_BYTES", size - 1)
        with pytest.raises(NotSupported, match=f"1 files: its manifest would have {size:,} bytes"):
            table.backup("/other")
        assert fs.listdir("/other") == ["LOCK"]
        with pytest.raises(Corruption, match="longer than"):
            table.backup("/saved", since=full)
        monkeypatch.setattr(backup_format, "MAX_BYTES", size)
        table.backup("/other")
    with closing(kc.restore("/other", "/back", _fs=fs)) as back:
        assert back.count() == 1


def test_backups_of_a_folder(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "MAX_NUMBER", 2)
    with make(fs) as table:
        for k in range(2):
            table.insert({"k": [k]})
            table.backup("/saved")
        refused(fs, lambda: table.backup("/saved"), "holds backup 2, the last one; begin another folder")
    assert backup_format.backup_of_folder(f"{backup_format.MAX_NUMBER:08d}") == backup_format.MAX_NUMBER
    assert backup_format.backup_of_folder(f"{backup_format.MAX_NUMBER + 1:08d}") is None


# ---- pages and dictionaries


def test_a_page_that_is_stored_with_a_codec(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one is stored without: a reader takes no codec's word for more."""
    monkeypatch.setattr(pages, "RAW_LIMIT_BYTES", 1000)
    assert pages.compress(bytes(1000), "zstd")[0] == pages.CODEC_ZSTD
    assert pages.compress(bytes(1001), "zstd") == (pages.CODEC_NONE, bytes(1001))
    columns = [Column("k", "int64"), Column("s", "string", encoding="plain", compression="zstd")]

    def stored(cell: str) -> int:
        """The codec of the page that holds the cell."""
        with make(fs, columns, exist_ok=True) as table:
            table.insert({"k": [len(cell)], "s": [cell]})
            table.flush()
            [rowset] = [r for r in rowsets_of(table) if r.meta.min_key == key(len(cell))]
            path = f"{tablet_of(table).directory}/{rowset.meta.base.name}"
            footer = FileReader(fs, path, container.CONTAINER_ROWS).footer
            entry = next(column for column in footer["columns"] if column["id"] == 2)
            comes_back(fs, table)
        frame = fs.read_bytes(path, 1 << 20)[entry["pages"][0] :]
        return int(pages.PAGE_FRAME.unpack_from(frame)[4])

    found = {size: stored("x" * size) for size in (900, *range(960, 1001, 4), 1001)}
    largest = max(size for size, codec in found.items() if codec == pages.CODEC_ZSTD)
    assert all((codec == pages.CODEC_ZSTD) == (size <= largest) for size, codec in found.items())
    assert 900 < largest < 1000, "what is counted is the page, not its cells"
    monkeypatch.setattr(pages, "RAW_LIMIT_BYTES", 900)
    with (
        kc.open_table(PATH, _fs=fs) as reader,
        pytest.raises(Corruption, match="after decompression exceed 900"),
    ):
        reader.scan().to_table()


def key(number: int) -> bytes:
    return (number + (1 << 63)).to_bytes(8, "big")


@pytest.mark.parametrize("more", [0, 1])
def test_words_of_a_dictionary(fs: MemoryFileSystem, more: int) -> None:
    count = specs.DICTIONARY_WORDS + more
    columns = [Column("k", "int64"), Column("s", "string", encoding="dictionary")]
    words = [f"{i:06d}" for i in range(count)]
    with make(fs, columns, options=MANUAL | {"ingest_threshold_rows": 10}) as table:
        table.insert(pa.table({"k": pa.array(range(count), pa.int64()), "s": words}))
        [rowset] = rowsets_of(table)
        path = f"{tablet_of(table).directory}/{rowset.meta.base.name}"
        footer = FileReader(fs, path, container.CONTAINER_ROWS).footer
        entry = next(column for column in footer["columns"] if column["id"] == 2)
        assert entry["words"] == (None if more else specs.DICTIONARY_WORDS)
        comes_back(fs, table)
