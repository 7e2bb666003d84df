"""``if_=`` and ``set=`` of writes by key: compare-and-set, and what is told of rows that are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make


@pytest.fixture
def stock(table: kc.Table) -> kc.Table:
    table.insert({"k": [1, 2, 3], "a": [10, 20, None], "s": ["x", "y", "z"]})
    return table


def values(table: kc.Table, column: str = "a") -> dict[int, Any]:
    return {row["k"]: row[column] for row in table.scan(["k", column], order="key").to_pylist()}


def told(result: kc.WriteResult | kc.RowErrors) -> list[tuple[int, str, Any]]:
    """(row, code, ``a`` of the row that is there) of what was refused."""
    assert result.errors is not None
    rows = result.errors.to_pylist()
    return [(row["row"], row["code"], row["there"] and row["there"]["a"]) for row in rows]


def test_update_if(stock: kc.Table) -> None:
    rows = {"k": [1, 2], "a": [11, 21]}
    with pytest.raises(kc.RowErrors, match="row 1 condition_failed") as refused:
        stock.update(rows, if_=kc.old("a") == 10)
    assert told(refused.value) == [(1, "condition_failed", 20)]
    assert values(stock) == {1: 10, 2: 20, 3: None}, "nothing was applied"
    done = stock.update(rows, if_=kc.old("a") == 10, on_error="return")
    assert told(done) == [(1, "condition_failed", 20)] and done.counts == (0, 1, 0, 0)
    assert values(stock) == {1: 11, 2: 20, 3: None}


def test_the_row_that_is_there_is_told_whole(stock: kc.Table) -> None:
    done = stock.update({"k": [2], "a": [0]}, if_=kc.old("a") == 0, on_error="return")
    assert done.errors is not None
    assert done.errors["there"].to_pylist() == [{"k": 2, "a": 20, "s": "y", "must": 7}]
    assert done.errors.schema.names == ["row", "code", "key", "there"]
    fine = stock.update({"k": [2], "a": [0]}, if_=kc.old("a") == 20, on_error="return")
    assert fine.errors is not None and fine.errors.num_rows == 0
    assert fine.errors.schema == done.errors.schema


@pytest.mark.parametrize("word", ["error", "ignore"])
def test_update_if_of_rows_that_are_not_there(stock: kc.Table, word: Any) -> None:
    rows = {"k": [9, 1], "a": [1, 1]}
    done = stock.update(rows, if_=kc.new("a") < kc.old("a"), on_missing=word, on_error="return")
    assert done.updated == 1
    assert told(done) == ([(0, "not_found", None)] if word == "error" else [])
    assert done.ignored == (1 if word == "ignore" else 0)


def test_update_set(stock: kc.Table) -> None:
    stock.update({"k": [1, 2]}, set={"a": kc.old("a") + 1, "s": "set"})
    assert values(stock) == {1: 11, 2: 21, 3: None}
    assert values(stock, "s") == {1: "set", 2: "set", 3: "z"}
    less, enough = {"a": kc.old("a") - kc.new("by")}, kc.old("a") >= kc.new("by")
    stock.update({"k": [1], "by": [5]}, set=less, if_=enough)
    assert values(stock)[1] == 6


def test_upsert_if(stock: kc.Table) -> None:
    """A row that is not there is inserted, whatever the condition."""
    rows = {"k": [1, 2, 3, 9], "a": [5, 25, 35, 95]}
    done = stock.upsert(rows, if_=kc.new("a") > kc.old("a"), on_error="return")
    assert done.counts == (1, 1, 0, 0)
    assert told(done) == [(0, "condition_failed", 10), (2, "condition_failed", None)]
    assert values(stock) == {1: 10, 2: 25, 3: None, 9: 95}


def test_upsert_set(stock: kc.Table) -> None:
    """What is there gets what ``set`` says; what is new comes as it is given."""
    done = stock.upsert({"k": [1, 9], "a": [1, 1]}, set={"a": kc.old("a") + kc.new("a")})
    assert done.counts == (1, 1, 0, 0)
    assert values(stock) == {1: 11, 2: 20, 3: None, 9: 1}


@pytest.mark.parametrize("word", ["error", "ignore"])
def test_insert_if(stock: kc.Table, word: Any) -> None:
    rows = {"k": [1, 8, 9], "a": [100, 50, 100]}
    done = stock.insert(rows, if_=kc.new("a") > 60, on_conflict=word, on_error="return")
    assert (done.inserted, done.ignored) == (1, 1 if word == "ignore" else 0)
    present = [(0, "already_present", 10)] if word == "error" else []
    assert told(done) == [*present, (1, "condition_failed", None)]
    assert values(stock) == {1: 10, 2: 20, 3: None, 9: 100}


BARE = [1, 2, 9]


@pytest.mark.parametrize("keys", [BARE, {"k": BARE}, pa.table({"k": BARE}), [{"k": k} for k in BARE]])
def test_delete_if(stock: kc.Table, keys: Any) -> None:
    done = stock.delete(keys, if_=kc.old("a") == 10, on_error="return")
    assert done.deleted == 1
    assert told(done) == [(1, "condition_failed", 20), (2, "not_found", None)]
    assert list(values(stock)) == [2, 3]


def test_delete_if_what_was_seen_is_still_so(stock: kc.Table) -> None:
    seen = stock.get(2)
    assert seen is not None
    stock.update({"k": [2], "s": ["changed"]})
    with pytest.raises(kc.RowErrors) as refused:
        stock.delete([seen], if_=(kc.old("a") == kc.new("a")) & (kc.old("s") == kc.new("s")))
    assert refused.value.errors["there"].to_pylist() == [{**seen, "s": "changed"}]
    assert stock.delete([stock.get(2)], if_=kc.old("s") == kc.new("s")).deleted == 1


def test_filter_lists_are_conditions(stock: kc.Table) -> None:
    assert stock.update({"k": [1], "a": [1]}, if_=[("a", "=", 10), ("s", "in", ["x", "q"])]).updated == 1
    done = stock.insert({"k": [8], "a": [1]}, if_=[("a", ">", 5)], on_error="return")
    assert told(done) == [(0, "condition_failed", None)]


def test_each_row_of_one_key_is_refused(stock: kc.Table) -> None:
    done = stock.update({"k": [1, 1, 2], "a": [1, 2, 3]}, if_=kc.old("a") > 0, on_error="return")
    assert told(done) == [(0, "duplicate_in_batch", None), (1, "duplicate_in_batch", None)]
    assert values(stock) == {1: 10, 2: 3, 3: None}


def test_wrong_calls(stock: kc.Table) -> None:
    rows = {"k": [1], "a": [1]}
    positive = kc.old("a") > 1
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: stock.update(rows, if_=kc.old("b") > 1), kc.InvalidArgument, "'b'"),
        (lambda: stock.update(rows, if_=kc.new("b") > 1), kc.InvalidArgument, "given have no column 'b'"),
        (lambda: stock.update(rows, if_="a > 1"), kc.InvalidArgument, "`a` may be old.a and new.a"),
        (lambda: stock.update(rows, if_=kc.old("a")), kc.InvalidArgument, "true or false, not int64"),
        (lambda: stock.update(rows, if_=kc.old("a") > "x"), kc.InvalidArgument, "^update: "),
        (lambda: stock.update(rows, set={"k": 1}), kc.InvalidArgument, "'k' is a key column"),
        (lambda: stock.update(rows, set={"b": 1}), kc.InvalidArgument, "'b'"),
        (lambda: stock.update(rows, set={}), kc.InvalidArgument, "^update: a mapping"),
        (lambda: stock.update(rows, set=[("a", 1)]), kc.InvalidArgument, "set is a mapping"),
        (lambda: stock.update({"k": [1]}, if_=kc.old("a") > 1), kc.InvalidArgument, "no column to set"),
        (lambda: stock.insert(rows, if_=positive), kc.InvalidArgument, "no row is there of which 'a'"),
        (lambda: stock.delete(where=pc.field("a") > 1, if_=positive), kc.InvalidArgument, "part of that"),
        (lambda: stock.delete(if_=kc.old("a") > 1), kc.InvalidArgument, "rows by key"),
        (lambda: stock.update(where=pc.field("a") > 1, set={"a": 1}, if_=kc.old("a") > 1),
         kc.InvalidArgument, "part of that"),
        (lambda: stock.update(rows, if_=positive, on_missing="skip"), kc.InvalidArgument, "on_missing"),
        (lambda: stock.update(rows, if_=kc.old("a") > 1, on_error="skip"), kc.InvalidArgument, "on_error"),
        (lambda: stock.insert(rows, if_=kc.new("a") > 1, on_conflict="x"), kc.InvalidArgument, "on_conflict"),
    ]  # fmt: skip
    before = stock.scan().to_pylist()
    for call, error, match in wrong:
        with pytest.raises(error, match=match):
            call()
    assert stock.scan().to_pylist() == before
    with pytest.raises(kc.InvalidArgument, match="the name of a column is text, not 5"):
        kc.old(5)  # type: ignore[arg-type]
    with pytest.raises(kc.InvalidArgument, match="not ''"):
        kc.new("")


def test_wrong_clauses_are_refused_when_they_are_added(stock: kc.Table) -> None:
    merge = stock.merge({"k": [1], "a": [1]})
    by_source_update = merge.when_not_matched_by_source_update
    wrong: list[tuple[Any, str]] = [
        (lambda: merge.when_matched({"nope": 1}), "'nope'"),
        (lambda: merge.when_matched({"k": 1}), "when_matched: 'k' is a key column"),
        (lambda: merge.when_matched({}), "a mapping from columns"),
        (lambda: merge.when_matched(where=kc.old("nope") == 1), "'nope'"),
        (lambda: merge.when_not_matched_insert(where=kc.old("a") == 1), "no row is there of which 'a'"),
        (lambda: merge.when_not_matched_insert({"a": kc.old("a")}), "no row is there of which 'a'"),
        (lambda: merge.when_not_matched_by_source_delete(where=kc.new("a") == 1), "no row is given of which"),
        (lambda: by_source_update({"a": kc.new("a")}), "no row is given of which 'a'"),
        (lambda: merge.execute(), "a merge has clauses"),
        (lambda: stock.merge({"k": [1]}).when_matched().execute(), "no column to set beside the key"),
        (lambda: merge.when_matched_delete(where=5), "when_matched_delete: a condition is"),
    ]
    for call, match in wrong:
        with pytest.raises(kc.InvalidArgument, match=match):
            call()
    assert stock.merge({"k": [1], "a": [1]}).when_matched().execute().clauses == (1,)


def test_without_waiting(stock: kc.Table) -> None:
    ticket = stock.update({"k": [1]}, set={"a": kc.old("a") + 1}, wait=False)
    assert ticket.result(60).updated == 1
    with pytest.raises(kc.RowErrors):
        stock.update({"k": [1], "a": [5]}, if_=kc.old("a") == 0, wait=False)
    done = stock.delete([1], if_=kc.old("a") == 0, on_error="return", wait=False).result(60)
    assert told(done) == [(0, "condition_failed", 11)]


def test_a_reader_may_not(stock: kc.Table) -> None:
    path = stock.path
    stock.close()
    with kc.open_table(path) as reader:
        for call in (
            lambda: reader.merge({"k": [1]}),
            lambda: reader.update({"k": [1], "a": [1]}, if_=kc.old("a") > 1),
            lambda: reader.modify(1, lambda row: row),
        ):
            with pytest.raises(kc.ReadOnly, match="is open for reading"):
                call()


def test_there_of_nested_rows(make: Make) -> None:
    at, many = pa.struct([("x", pa.int64())]), pa.list_(pa.int8())
    table = make(pa.schema([("k", pa.int64()), ("at", at), ("n", many)]), ["k"])
    rows = [{"k": 1, "at": {"x": 3}, "n": [1]}, {"k": 2, "at": None, "n": None}]
    table.insert(rows)
    done = table.upsert(
        [{"k": 1, "at": {"x": 1}}, {"k": 2, "at": {"x": 1}}], if_=kc.old("at.x") == 1, on_error="return"
    )
    assert done.errors is not None
    assert done.errors["there"].to_pylist() == rows
