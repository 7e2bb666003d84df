"""``Table.alter(change=..., order=...)``: defaults, comments, what may be NULL, order; keys renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.changes.fitting_states import check_states
from kudu_core.table.lifecycle.alter import alter
from tests.support.inside import engine_of, handle_of, schema_of, table_file_of

Place = Callable[[kc.Table], None]
NO_HISTORY = {"history_retention_s": 0}


def rows(scan: Any) -> list[dict[str, Any]]:
    return sorted(scan.to_pylist(), key=lambda row: row["k"])


def every_handle(table: kc.Table) -> Iterator[kc.Table]:
    """The table, a reader of it, and both ways to open it again, of which the last one is closed."""
    yield table
    with kc.open_table(table.path) as reader:
        yield reader
    table.close()
    with kc.open_table(table.path, "rw") as again:
        yield again
        again.verify()


# ------------------------------------------------------------------------------------- defaults


def test_a_default_is_of_rows_that_are_written_from_then_on(table: kc.Table, place: Place) -> None:
    table.alter(add=[kc.Column("n", "int32", False, default=7)])
    table.insert([{"k": 4}])
    place(table)
    before = table.timestamp
    table.alter(change={"n": {"default": 8}, "v": {"default": -1}})
    assert {row["n"] for row in rows(table.scan())} == {7}, "what was there stays"
    table.insert([{"k": 5}])
    table.upsert({"k": [6], "s": ["f"]})
    table.insert(pa.table({"k": pa.array(range(10, 40), pa.int64())}))  # into files
    table.alter(change={"v": {"default": None}})
    table.insert({"k": [7]})
    wanted = {4: (None, 7), 5: (-1, 8), 6: (-1, 8), 20: (-1, 8), 7: (None, 8), 1: (10, 7)}
    for handle in every_handle(table):
        for k, (v, n) in wanted.items():
            row = handle.get(k, ["v", "n"])
            assert row == {"v": v, "n": n}, k
        assert {row["n"] for row in rows(handle.scan(at=before))} == {7}
        assert handle.count(pc.field("n") == 8) == 33


def test_a_row_that_was_deleted_comes_back_with_the_new_default(table: kc.Table, place: Place) -> None:
    place(table)
    table.delete({"k": [2]})
    table.alter(change={"s": {"default": "new"}, "v": {"default": 5}})
    table.insert([{"k": 2, "v": 6}])
    for handle in every_handle(table):
        assert handle.get(2) == {"k": 2, "v": 6, "s": "new"}


def test_no_default_is_a_must(table: kc.Table) -> None:
    table.alter(add=[kc.Column("n", "int32", False, default=7)])
    table.alter(change={"n": {"default": None}})
    with pytest.raises(kc.SchemaMismatch, match="'n' takes no NULL and has no default"):
        table.insert({"k": [5]})
    table.insert({"k": [5], "n": [1]})
    assert [row["n"] for row in rows(table.scan())] == [7, 7, 7, 1]


# ------------------------------------------------------------------------------------- NULL


def test_null_is_taken_from_then_on(tmp_path: Path, place: Place) -> None:
    columns = [kc.Column("k", "int64"), kc.Column("v", "int64", False), kc.Column("s", "string", False)]
    options = {"maintenance": "manual", "file_grace_s": 0, "ingest_threshold_rows": 20}
    with kc.create_table(str(tmp_path / "t"), columns, "k", options=options) as table:
        table.insert({"k": [1, 2, 3], "v": [10, 20, 30], "s": ["a", "b", "c"]})
        place(table)
        before = table.timestamp
        old = table.scan(order="key")
        table.alter(change={"v": {"nullable": True}, "s": {"nullable": True}})
        assert [field.nullable for field in table.schema] == [False, True, True]
        table.update({"k": [1], "v": [None]})
        table.update(where=pc.field("k") == 2, set={"s": None})
        table.insert([{"k": 4}])
        table.insert(pa.table({"k": pa.array(range(10, 40), pa.int64())}))
        assert old.schema.field("v").nullable is False
        assert old.to_table()["v"].to_pylist() == [10, 20, 30]
        for handle in every_handle(table):
            assert handle.count(pc.field("v").is_null()) == 32
            assert handle.count(pc.field("s").is_null(), at=before) == 0
            assert [handle.get(k, ["v", "s"]) for k in (1, 2, 4)] == [
                {"v": None, "s": "a"},
                {"v": 20, "s": None},
                {"v": None, "s": None},
            ]
            assert rows(handle.scan(["k", "v"], pc.field("k") < 5)) == [
                {"k": 1, "v": None},
                {"k": 2, "v": 20},
                {"k": 3, "v": 30},
                {"k": 4, "v": None},
            ]
            told = handle.changes(before, columns=["k", "v"], where=pc.field("k") < 5).to_table()
            assert [row["v"] for row in told.to_pylist()] == [None, 20, None]
            if handle.mode == "rw":
                handle.flush()
                handle.compact(full=True)
                assert handle.count(pc.field("v").is_null()) == 32


def test_null_is_refused_from_then_on(table: kc.Table, place: Place) -> None:
    place(table)
    before = table.timestamp
    table.alter(change={"v": {"nullable": False}, "s": {"nullable": False, "default": "-"}})
    assert [field.nullable for field in table.schema] == [False, False, False]
    for write in (
        lambda: table.insert([{"k": 4, "v": None, "s": "x"}]),
        lambda: table.insert(pa.table({"k": [4], "v": pa.array([None], pa.int64())})),
        lambda: table.insert(pa.table({"k": pa.array(range(10, 40)), "v": pa.nulls(30, pa.int64())})),
        lambda: table.update({"k": [1], "v": [None]}),
    ):
        with pytest.raises(kc.RowErrors, match="null_in_required"):
            write()
    with pytest.raises(kc.InvalidArgument, match="'v' takes no NULL"):
        table.update(where=pc.field("k") == 1, set={"v": None})
    with pytest.raises(kc.SchemaMismatch, match="'v' takes no NULL and has no default"):
        table.insert([{"k": 4}])
    table.insert([{"k": 4, "v": 40}])
    for handle in every_handle(table):
        assert [row["s"] for row in rows(handle.scan())] == ["a", "b", "c", "-"]
        assert handle.scan(at=before).to_table()["v"].null_count == 0


def test_a_column_with_null_stays_nullable(table: kc.Table, place: Place) -> None:
    table.update({"k": [2], "v": [None]})
    place(table)
    state = table_file_of(table)
    with pytest.raises(kc.InvalidArgument, match=r"'v' cannot become NOT NULL: .* in 1 row, .* k = 2"):
        table.alter(change={"v": {"nullable": False}}, add=[pa.field("w", pa.int8())])
    assert table_file_of(table) is state
    fixed = table.update({"k": [2], "v": [0]}).timestamp
    place(table)
    with pytest.raises(kc.InvalidArgument, match=r"'v' .* in a past state .*history_retention_s"):
        table.alter(change={"v": {"nullable": False}})
    table.alter(change={"v": {"nullable": False}}, options=NO_HISTORY)
    for handle in every_handle(table):
        assert [row["v"] for row in rows(handle.scan())] == [10, 0, 30]
        with pytest.raises(kc.SnapshotTooOld):
            handle.scan(at=fixed - 1).to_table()


def test_a_snapshot_that_is_held_keeps_its_nulls(table: kc.Table) -> None:
    table.update({"k": [2], "v": [None]})
    with table.snapshot() as held:
        table.update({"k": [2], "v": [0]})
        with pytest.raises(kc.InvalidArgument, match=r"'v' .* in a past state"):
            table.alter(change={"v": {"nullable": False}}, options=NO_HISTORY)
        assert held.get(2)["v"] is None
    table.alter(change={"v": {"nullable": False}}, options=NO_HISTORY)


def test_a_row_that_came_before_its_column_is_null(table: kc.Table) -> None:
    table.alter(add=[pa.field("w", pa.int64())])
    with pytest.raises(kc.InvalidArgument, match=r"'w' .* in 3 rows"):
        table.alter(change={"w": {"nullable": False}})
    table.alter(drop=["w"])
    table.alter(add=[kc.Column("w", "int64", default=1)])
    table.alter(change={"w": {"nullable": False, "default": None}})
    assert [row["w"] for row in rows(table.scan())] == [1, 1, 1]


def test_what_is_written_between_the_looks_is_seen(table: kc.Table) -> None:
    """The second look is under the mutexes: nothing comes after it."""
    handle, looks = handle_of(table), []

    def fit(demands: Any, since: int, until: int, *, first: bool) -> None:
        check_states(handle, demands, since, until, first=first)
        looks.append(first)
        if looks == [True]:
            table.insert([{"k": 9}])

    with pytest.raises(kc.InvalidArgument, match=r"'v' .* k = 9"):
        alter(engine_of(table), change={"v": {"nullable": False}}, fit=fit)
    assert looks == [True]
    table.delete({"k": [9]})
    alter(engine_of(table), change={"v": {"nullable": False}}, options=NO_HISTORY, fit=fit)


def test_a_change_that_is_refused_gives_up_no_history(table: kc.Table, place: Place) -> None:
    table.update({"k": [2], "v": [None]})
    before = table.timestamp
    table.update({"k": [1], "v": [11]})
    place(table)
    with pytest.raises(kc.InvalidArgument, match="'v' cannot become NOT NULL"):
        table.alter(change={"v": {"nullable": False}}, options=NO_HISTORY)
    assert table.get(1, at=before)["v"] == 10
    assert table.options.history_retention_s == 86_400


def test_a_snapshot_taken_between_the_looks_is_looked_at(table: kc.Table) -> None:
    table.update({"k": [2], "v": [None]})
    handle, held = handle_of(table), []
    before = table.timestamp
    table.update({"k": [2], "v": [0]})

    def fit(demands: Any, since: int, until: int, *, first: bool) -> None:
        check_states(handle, demands, since, until, first=first)
        if not held:
            held.append(table.snapshot(before))

    with pytest.raises(kc.InvalidArgument, match=r"'v' .* in a past state"):
        alter(engine_of(table), change={"v": {"nullable": False}}, options=NO_HISTORY, fit=fit)
    assert held[0].get(2)["v"] is None


# ------------------------------------------------------------------------------------- comments, order


def test_comments(table: kc.Table) -> None:
    table.alter(change={"k": {"comment": "the key"}, "v": {"comment": "a value"}})
    table.alter(change={"v": {"comment": ""}}, add=[pa.field("n", pa.list_(pa.int64()))])
    table.alter(change={"n": {"comment": "some"}})
    for handle in every_handle(table):
        metadata = [field.metadata for field in handle.schema]
        assert metadata == [{b"comment": b"the key"}, None, None, {b"comment": b"some"}]


def test_columns_are_shown_in_their_order(table: kc.Table, place: Place) -> None:
    table.alter(add=[pa.field("n", pa.struct([("a", pa.int64()), ("b", pa.string())]))])
    table.insert({"k": [4], "n": [{"a": 1, "b": "x"}]})
    place(table)
    since = table.timestamp
    old = table.scan()
    table.alter(order=["n", "s"])
    table.insert([{"k": 5, "v": 50}])
    assert [row["k"] for row in rows(old)] == [1, 2, 3, 4]
    assert old.schema.names == ["k", "v", "s", "n"]
    for handle in every_handle(table):
        assert handle.schema.names == ["n", "s", "k", "v"]
        assert list(handle.get(4)) == ["n", "s", "k", "v"]
        assert handle.get(4)["n"] == {"a": 1, "b": "x"}
        assert handle.scan().to_table().schema.names == ["n", "s", "k", "v"]
        assert handle.scan(order="key").to_pylist()[-1] == {"n": None, "s": None, "k": 5, "v": 50}
        assert handle.changes(since).to_table().schema.names[2:] == ["n", "s", "k", "v"]
        assert handle.get_many([4]).schema.names == ["n", "s", "k", "v", "_found"]


# ------------------------------------------------------------------------------------- names of keys


@pytest.mark.parametrize("cut", ["none", "ranges", "hash"])
def test_key_columns_get_other_names(tmp_path: Path, place: Place, cut: str) -> None:
    path = str(tmp_path / "t")
    columns = [("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())]
    partitions: dict[str, Any] = {
        "none": (),
        "ranges": kc.RangePartition("a", [(0, 10), (10, 20)]),
        "hash": [kc.HashPartition(["b"], 2), kc.RangePartition("a", [(0, 20)])],
    }
    options = {"maintenance": "manual", "file_grace_s": 0, "ingest_threshold_rows": 20}
    with kc.create_table(path, columns, ["a", "b"], partition_by=partitions[cut], options=options) as table:
        table.insert({"a": [1, 12, 3], "b": ["x", "y", "z"], "v": [1, 2, 3]})
        place(table)
        since = table.timestamp
        table.alter(rename={"a": "b", "b": "a", "v": "w"})
        table.insert([{"b": 4, "a": "q", "w": 4}])
        table.upsert({"b": [1, 5], "a": ["x", "r"], "w": [10, 50]})
        table.insert(pa.table({"b": [15] * 30, "a": [f"n{i:02}" for i in range(30)]}))
        for handle in every_handle(table):
            assert handle.primary_key == ("b", "a")
            assert handle.get((1, "x")) == {"b": 1, "a": "x", "w": 10}
            assert handle.get({"b": 12, "a": "y"}) == {"b": 12, "a": "y", "w": 2}
            assert handle.count(pc.field("b") < 10) == 4
            assert handle.count(pc.field("a") == "q") == 1
            assert handle.scan(["w"], key_range=((3,), (5,)), order="key").to_pylist() == [{"w": 3}, {"w": 4}]
            told = handle.changes(since, where=pc.field("b") < 10).to_table().to_pylist()
            assert sorted((r["_op"], r["b"], r["a"]) for r in told) == [
                ("insert", 4, "q"), ("insert", 5, "r"), ("update", 1, "x"),
            ]  # fmt: skip
            shown = str(handle.partitions)
            assert cut == "none" or "range(b)" in shown
            assert cut != "hash" or "hash(a)" in shown
    with kc.open_table(path, "rw") as table:
        if cut != "none":
            table.alter(add_range=(20, 30))
            table.insert([{"b": 25, "a": "s"}])
        folder = str(tmp_path / "backups")
        table.backup(folder)
        table.alter(rename={"b": "c"})
        table.insert([{"c": 6, "a": "t"}])
        table.backup(folder)
        total = table.count()
    with kc.restore(folder, str(tmp_path / "again")) as again:
        assert again.primary_key == ("c", "a")
        assert again.count() == total
        assert again.get((1, "x")) == {"c": 1, "a": "x", "w": 10}


# ------------------------------------------------------------------------------------- what breaks a rule


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"change": {"k": {"nullable": True}}}, "'k': a key column is never NULL"),
        ({"change": {"k": {"default": 1}}}, "'k': a key column has no default"),
        ({"change": {"v": {"default": "x"}}}, "'v', default"),
        ({"change": {"v": {"nullable": 1}}}, "'v': nullable is True or False"),
        ({"change": {"v": {"comment": None}}}, "'v': a comment is text"),
        ({"change": {"v": {"comment": "x" * 257}}}, "'v': a comment is text"),
        ({"change": {"v": {"comment": "\ud800"}}}, "UTF-8"),
        ({"change": {"s": {"default": "x" * 70_000}}}, "'s': a default of 70,000 bytes"),
        ({"change": {"v": {}}}, "'v'"),
        ({"change": {"v": "int32"}}, "'v'"),
        ({"change": {"v": {"unique": True}}}, "'v': 'unique' cannot be changed"),
        ({"change": {"w": {"nullable": True}}}, "no column 'w'"),
        ({"change": {7: {"nullable": True}}}, "not 7"),
        ({"change": ["v"]}, "change maps names"),
        ({"change": {}}, "nothing"),
        ({"change": {"v": {"nullable": True, "default": None, "comment": ""}}}, "nothing"),
        ({"change": {"n": {"nullable": False}}}, "'n': whether a column of lists"),
        ({"change": {"n": {"default": {}}}}, "'n': a column of lists, structs or maps has no default"),
        ({"change": {"n.a": {"nullable": False}}}, "'n.a': nullable can only become True"),
        ({"change": {"n.a": {"nullable": None}}}, "'n.a': nullable can only become True"),
        ({"change": {"n.a": {"nullable": 1}}}, "'n.a': nullable can only become True"),
        ({"change": {"n.a": {"default": 1}}}, "'n.a': of a field type, nullable can change, not 'default'"),
        ({"change": {"n.a": {"type": "string"}}}, "'n.a': int64 cannot become string"),
        ({"change": {"n.b": {"nullable": True}}}, "'n.b': there is no such field"),
        ({"change": {"n.a.c": {"nullable": True}}}, "'n.a.c': there is no such field"),
        ({"change": {"n.a": {"nullable": True}}}, "nothing"),
        ({"change": {"n": {"type": "string"}}}, "'n': its type stays"),
        ({"order": ["w"]}, "order: no column 'w'"),
        ({"order": ["v", "v"]}, "order: column 'v' is there twice"),
        ({"order": "v"}, "order is a list"),
        ({"order": [7]}, "order: no column 7"),
        ({"order": ["k", "v", "s", "n"]}, "nothing"),
        ({"order": ["n.a"]}, "order: no column 'n.a'"),
    ],
)
def test_what_breaks_a_rule_changes_nothing(table: kc.Table, change: dict[str, Any], named: str) -> None:
    table.alter(add=[pa.field("n", pa.struct([("a", pa.int64())]))])
    before, schema = table.timestamp, schema_of(table)
    with pytest.raises(kc.InvalidArgument, match=named):
        table.alter(**change)
    assert table.timestamp == before
    assert schema_of(table) is schema


def test_changes_go_with_renames_in_one_call(table: kc.Table) -> None:
    table.alter(
        drop=["s"],
        rename={"v": "w"},
        change={"w": {"default": 3, "comment": "was v"}},
        add=[kc.Column("s", "string", default="new")],
        order=["s", "w"],
    )
    table.insert({"k": [9]})
    assert table.get(9) == {"s": "new", "w": 3, "k": 9}
    assert table.get(1) == {"s": "new", "w": 10, "k": 1}
