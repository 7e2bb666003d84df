"""Each limit of columns, keys, names and defaults, exactly reached, is taken; one more is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.schema import column_names, schema
from kudu_core.errors import InvalidArgument
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of
from tests.support.limits import MANUAL, Column, comes_back, make, refused, unreadable

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
    monkeypatch.setattr(column_names, "MAX_NAME_BYTES", 255)
    unreadable(fs, "256 bytes; at most 255")


def test_a_field_whose_name_is_no_text(fs: MemoryFileSystem) -> None:
    field = pa.field(b"caf\xe9", pa.int8())
    refused(fs, lambda: make(fs, [pa.field("k", pa.int64()), field]), "no UTF-8")


@pytest.mark.parametrize("key", [5, [5], None, ["k", None], [["k"]]])
def test_what_is_no_key(fs: MemoryFileSystem, key: Any) -> None:
    refused(fs, lambda: make(fs, None, key), "key")
