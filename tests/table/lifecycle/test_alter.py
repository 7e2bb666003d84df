"""``Table.alter``: columns added, dropped and renamed, beside everything else that a table does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.inside import all_rowsets_of, tablets_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
MANUAL = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0}
N = kc.Column("n", "int32", False, default=7)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    made = kc.create_table(str(tmp_path / "t"), SCHEMA, "k", options=MANUAL)
    made.insert({"k": [1, 2, 3], "v": [10, 20, 30], "s": ["a", "b", "c"]})
    yield made
    made.close()


def rows(scan: Any) -> list[dict[str, Any]]:
    return sorted(scan.to_pylist(), key=lambda row: row["k"])


def reopened(table: kc.Table, mode: str = "rw") -> kc.Table:
    table.close()
    return kc.open_table(table.path, mode)


# ------------------------------------------------------------------------------------- what it does


def test_columns_come_go_and_change_their_names_in_one_call(table: kc.Table) -> None:
    before = table.timestamp
    ts = table.alter(add=[N, pa.field("x", pa.float64())], drop=["v"], rename={"s": "text"})
    assert ts > before
    assert table.timestamp >= ts
    assert table.schema.names == ["k", "text", "n", "x"]
    expected = [{"k": k, "text": s, "n": 7, "x": None} for k, s in ((1, "a"), (2, "b"), (3, "c"))]
    assert rows(table.scan()) == expected
    assert rows(table.scan(at=before)) == expected  # any snapshot is read with today's columns
    assert table.get(2) == expected[1]
    assert table.get_many([3, 1]).drop(["_found"]).to_pylist() == [expected[2], expected[0]]
    for mode in ("r", "rw"):
        table = reopened(table, mode)
        assert rows(table.scan()) == expected
        assert rows(table.scan(at=before)) == expected


@pytest.mark.parametrize("flushed", [False, True])
def test_names_can_be_swapped(table: kc.Table, flushed: bool) -> None:
    table.alter(add=[pa.field("w", pa.int64())])
    table.update([{"k": 1, "w": 5}])
    if flushed:
        table.flush()
    table.alter(rename={"v": "w", "w": "v"})
    assert table.get(1) == {"k": 1, "w": 10, "s": "a", "v": 5}
    table.update(where=pc.field("v") == 5, set={"w": pc.field("v") + 1})
    assert table.get(1, ["v", "w"]) == {"v": 5, "w": 6}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, "nothing"),
        ({"rename": {"v": "v"}}, "nothing"),
        ({"drop": ["k"]}, "'k'"),
        ({"rename": {"k": "v"}}, "'v'"),
        ({"rename": {"k": "_op"}}, "_op"),
        ({"add": [kc.Column("n", "int32", False)]}, "'n'"),
        ({"add": [N, N]}, "'n'"),
        ({"add": [N], "drop": ["zz"]}, "'zz'"),
        ({"add": [N], "rename": {"v": "s"}}, "'s'"),
        ({"add": [N], "rename": {"v": "_op"}}, "_op"),
        ({"add": [kc.Column("_timestamp", "int32")]}, "_timestamp"),
        ({"add": [kc.Column("n", "int32", default="x")]}, "'n'"),
        ({"add": [N], "add_range": (1, 2)}, "range"),
        ({"add": [N], "drop_range": 7}, "drop_range"),
    ],
)
def test_what_breaks_a_rule_changes_nothing(table: kc.Table, change: dict[str, Any], named: str) -> None:
    before = table.timestamp
    with pytest.raises(kc.InvalidArgument, match=named):
        table.alter(**change)
    assert table.schema == SCHEMA.set(0, pa.field("k", pa.int64(), False))
    assert table.timestamp == before
    table.insert({"k": [4], "v": [40], "s": ["d"]})
    assert table.count() == 4


def test_only_a_writer_alters(table: kc.Table) -> None:
    table = reopened(table, "r")
    with pytest.raises(kc.ReadOnly):
        table.alter(drop=["v"])
    table.close()
    with pytest.raises(kc.Closed):
        table.alter(drop=["v"])


# ------------------------------------------------------------------------------------- old rows


def place_nothing(table: kc.Table) -> None:
    """The rows stay in the MemRowSet."""


def place_flushed(table: kc.Table) -> None:
    table.flush()


def place_changed(table: kc.Table) -> None:
    table.flush()
    table.update({"k": [1, 2, 3], "v": [10, 20, 30]})


def place_compacted(table: kc.Table) -> None:
    place_changed(table)
    table.flush()
    table.compact(full=True)


PLACES: list[Callable[[kc.Table], None]] = [place_nothing, place_flushed, place_changed, place_compacted]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("after", PLACES)
def test_a_column_of_an_old_name_shows_no_old_values(
    table: kc.Table, place: Callable[[kc.Table], None], after: Callable[[kc.Table], None]
) -> None:
    place(table)
    before = table.timestamp
    table.alter(drop=["v"])
    table.flush()
    table.alter(add=[kc.Column("v", "int64", False, default=-1)])
    for _ in range(2):
        assert [row["v"] for row in rows(table.scan())] == [-1, -1, -1]
        assert [row["v"] for row in rows(table.scan(at=before))] == [-1, -1, -1]
        assert table.get(1)["v"] == table.get(1, at=before)["v"] == -1  # type: ignore[index]
        assert table.scan(where=pc.field("v") == 10).count() == 0
        assert table.scan(where=pc.field("v") < 0).count() == 3
        assert table.scan().min_max("v") == (-1, -1)
    after(table)
    expected = [10, 20, 30] if after in (place_changed, place_compacted) else [-1, -1, -1]
    table = reopened(table)
    assert [row["v"] for row in rows(table.scan())] == expected
    assert [row["v"] for row in rows(table.scan(at=before))] == [-1, -1, -1]
    table.close()


TYPES = [
    ("int8", -5),
    ("uint64", 2**64 - 1),
    ("float32", 0.5),
    ("float64", float("inf")),
    ("bool", True),
    ("string", "né\0"),
    ("binary", b"\0\xff"),
    ("date32", date(1969, 12, 31)),
    ("timestamp[us]", datetime(1960, 1, 2, 3, 4, 5, 6)),
    ("timestamp[us,UTC]", datetime(2024, 1, 2, 3, 4, 5, 6, UTC)),
    ("decimal128(20,3)", Decimal("-12345.678")),
]


@pytest.mark.parametrize(("type_", "default"), TYPES)
@pytest.mark.parametrize("place", PLACES)
def test_old_rows_read_the_default_in_every_way(
    table: kc.Table, place: Callable[[kc.Table], None], type_: str, default: Any
) -> None:
    """Defaults and NULLs under every kind of predicate: what is absent from a file rules nothing out."""
    place(table)
    before = table.timestamp
    # Rows that are older than a column read its fixed default (protocol A2).
    table.alter(add=[kc.Column("d", type_, False, default=default), kc.Column("u", type_)])
    value = pa.scalar(default, table.schema.field("d").type)
    d, u = pc.field("d"), pc.field("u")
    cases = [
        (d == value, {1, 2, 3}),
        (d != value, set()),
        (d.isin(pa.array([value.as_py()], value.type)), {1, 2, 3}),
        (d.is_null(), set()),
        (d.is_valid(), {1, 2, 3}),
        (u == value, set()),
        (u.is_null(), {1, 2, 3}),
        (u.is_valid(), set()),
        ((u == value) | (pc.field("v") == 20), {2}),
    ]
    if type_ not in ("bool",):
        cases += [(d <= value, {1, 2, 3}), (d > value, set()), (u <= value, set())]
    for at in (None, before):
        for where, keys in cases:
            for order in ("any", "key"):
                found = table.scan(where=where, at=at, order=order).to_table()
                assert set(found["k"].to_pylist()) == keys, (str(where), order)
                assert found["d"].to_pylist() == [value.as_py()] * len(keys)
            assert table.count(where, at=at) == len(keys)
        assert table.get(2, at=at) == {"k": 2, "v": 20, "s": "b", "d": value.as_py(), "u": None}
    assert table.scan().min_max("u") == (None, None)
    # The column now has values in some rows of the same rowset.
    table.update(where=pc.field("k") == 2, set={"u": value, "d": value})
    assert table.count(u == value) == 1
    assert table.count(u == value, at=before) == 0
    table.flush()
    table.compact(full=True)
    assert table.count(u == value) == 1
    assert table.count(u.is_null(), at=before) == 3
    assert table.get(2, ["u", "d"]) == {"u": value.as_py(), "d": value.as_py()}
    assert table.get(1, ["u", "d"]) == {"u": None, "d": value.as_py()}


def test_statistics_of_a_column_that_is_partly_in_files(table: kc.Table) -> None:
    table.flush()
    table.alter(add=[N])
    table.insert({"k": [4, 5], "n": [100, 200]})
    table.flush()
    assert table.scan().min_max("n") == (7, 200)
    assert table.count(pc.field("n") == 7) == 3
    assert table.count(pc.field("n") > 150) == 1
    by_column = {row["column"]: row for row in table.stats("column").to_pylist()}
    assert set(by_column) == {"k", "v", "s", "n"}
    assert "v" in table.stats("column")["column"].to_pylist()
    table.alter(drop=["v"])
    assert "v" not in table.stats("column")["column"].to_pylist()
    assert table.verify().files == 2


# ------------------------------------------------------------------------------------- scans in hand


@pytest.mark.parametrize("place", PLACES)
def test_a_scan_keeps_its_columns_and_names(table: kc.Table, place: Callable[[kc.Table], None]) -> None:
    place(table)
    whole, ordered = table.scan(), table.scan(["v", "k"], pc.field("v") > 10, order="key")
    changes = table.changes()
    old, schema = rows(whole), whole.schema
    happened = list(changes.to_table().to_pylist())
    running = iter(table.scan(batch_rows=1, order="key"))
    first = next(running).to_pylist()
    table.alter(drop=["v"], rename={"s": "v"}, add=[N])
    table.insert({"k": [4], "v": ["new"]})
    for step in (table.flush, lambda: table.compact(full=True), table.gc):
        step()
        assert rows(whole) == old
        assert whole.schema == schema
        assert ordered.to_pylist() == [{"v": 20, "k": 2}, {"v": 30, "k": 3}]
        assert changes.to_table().to_pylist() == happened
        assert whole.count() == 3
        assert whole.min_max("v") == (10, 30)
    assert first + [row for batch in running for row in batch.to_pylist()] == old
    assert table.get(4) == {"k": 4, "v": "new", "n": 7}


def test_what_no_scan_asks_for_is_left_out_of_new_files(table: kc.Table) -> None:
    def ids() -> list[set[int]]:
        return [set(r.meta.column_ids) for t in tablets_of(table) for r in t.view.rowsets]

    scan = table.scan(["v"])
    table.alter(drop=["v"])
    table.flush()
    assert ids() == [{1, 2, 3}]  # a scan may ask for it
    table.insert({"k": [4], "s": ["d"]})
    table.flush()
    assert ids() == [{1, 2, 3}, {1, 3}]
    assert sorted(scan.to_table()["v"].to_pylist()) == [10, 20, 30]
    del scan
    table.alter(add=[pa.field("v", pa.int64())])
    table.insert({"k": [5], "v": [50]})
    table.alter(drop=["v"])
    table.flush()
    assert ids() == [{1, 2, 3}, {1, 3}, {1, 3}]


def test_changes_of_a_dropped_column_go_with_their_files(table: kc.Table) -> None:
    table.flush()
    start = table.timestamp
    table.update({"k": [1], "v": [11]})
    table.flush()
    table.update({"k": [1, 2], "v": [12, 21], "s": ["aa", "bb"]})
    table.flush()
    table.update({"k": [3], "v": [31]})
    table.alter(drop=["v"])
    expected = [(1, "aa"), (2, "bb")]
    for step in (lambda: None, table.flush, lambda: table.compact(full=True)):
        step()
        changes = table.changes(start).to_table()
        assert sorted(zip(changes["k"].to_pylist(), changes["s"].to_pylist(), strict=True)) == expected
        assert table.changes(start, net=True).to_table().num_rows == 2
        assert rows(table.scan(at=start)) == [{"k": k, "s": s} for k, s in ((1, "a"), (2, "b"), (3, "c"))]
    [rowset] = all_rowsets_of(table)
    assert all(2 not in ref.updates for ref in (*rowset.meta.redo, *rowset.meta.undo))


def test_a_table_may_be_left_with_its_key(table: kc.Table) -> None:
    table.alter(drop=["v", "s"])
    table.insert([{"k": 4}])
    table.upsert({"k": [4, 5]})
    table.flush()
    assert rows(table.scan()) == [{"k": k} for k in (1, 2, 3, 4, 5)]
    table.alter(add=[N])
    assert table.get(5) == {"k": 5, "n": 7}
