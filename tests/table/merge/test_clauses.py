"""Each clause of a merge, alone and beside others: the first whose condition holds is applied."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make


@pytest.fixture
def stock(table: kc.Table) -> kc.Table:
    """Rows 1 to 4: ``a`` is ten times the key, NULL in row 4."""
    table.insert({"k": [1, 2, 3, 4], "a": [10, 20, 30, None], "s": ["x", "y", "z", None]})
    return table


def values(table: kc.Table, column: str = "a") -> dict[int, Any]:
    return {row["k"]: row[column] for row in table.scan(["k", column], order="key").to_pylist()}


GIVEN = {"k": [2, 3, 9], "a": [200, 300, 900]}


def test_a_matched_row_gets_all_columns_that_are_given(stock: kc.Table) -> None:
    done = stock.merge(GIVEN).when_matched().execute()
    assert values(stock) == {1: 10, 2: 200, 3: 300, 4: None}
    assert values(stock, "s") == {1: "x", 2: "y", 3: "z", 4: None}, "others keep theirs"
    assert (done.clauses, done.counts) == ((2,), (0, 2, 0, 1))
    assert done.timestamp == stock.timestamp


def test_a_matched_row_gets_what_set_says(stock: kc.Table) -> None:
    set_ = {"a": kc.old("a") + kc.new("a"), "s": "same", "must": pc.scalar(1)}
    stock.merge(GIVEN).when_matched(set_).execute()
    assert values(stock) == {1: 10, 2: 220, 3: 330, 4: None}
    assert stock.get(2) == {"k": 2, "a": 220, "s": "same", "must": 1}


def test_a_matched_row_is_deleted(stock: kc.Table) -> None:
    done = stock.merge(GIVEN).when_matched_delete(where=kc.old("a") > 20).execute()
    assert list(values(stock)) == [1, 2, 4]
    assert (done.deleted, done.ignored) == (1, 2)


def test_a_row_that_is_not_there_is_inserted(stock: kc.Table) -> None:
    done = stock.merge(GIVEN).when_not_matched_insert().execute()
    assert values(stock) == {1: 10, 2: 20, 3: 30, 4: None, 9: 900}
    assert stock.get(9) == {"k": 9, "a": 900, "s": None, "must": 7}, "the rest takes its default"
    assert done.counts == (1, 0, 0, 2)


def test_an_insert_takes_values(stock: kc.Table) -> None:
    source = {"k": [9, 10], "first": ["a", "b"], "second": ["x", "y"]}
    made = {"s": pc.binary_join_element_wise(kc.new("first"), kc.new("second"), "-"), "a": 1}
    stock.merge(source).when_not_matched_insert(made, where=kc.new("k") > 9).execute()
    assert stock.get(9) is None
    assert stock.get(10) == {"k": 10, "a": 1, "s": "b-y", "must": 7}


def test_rows_for_which_none_is_given(stock: kc.Table) -> None:
    """Those of keys that are given are left alone, whether a clause takes them or not."""
    merge = stock.merge({"k": [2, 9]})
    merge.when_not_matched_by_source_delete(where=kc.old("a") == 10)
    done = merge.when_not_matched_by_source_update({"s": "gone", "a": kc.old("a") + 1}).execute()
    assert values(stock) == {2: 20, 3: 31, 4: None}
    assert values(stock, "s") == {2: "y", 3: "gone", 4: "gone"}
    assert (done.clauses, done.counts) == ((1, 2), (0, 2, 1, 2))


def test_the_table_becomes_the_source(stock: kc.Table) -> None:
    merge = stock.merge(GIVEN).when_matched().when_not_matched_insert().when_not_matched_by_source_delete()
    assert merge.execute().counts == (1, 2, 2, 0)
    assert values(stock) == {2: 200, 3: 300, 9: 900}


def test_the_first_clause_that_holds_is_applied(stock: kc.Table) -> None:
    merge = stock.merge({"k": [1, 2, 3, 4, 8, 9], "a": [1, 2, 3, 4, 8, 9]})
    merge.when_matched({"s": "first"}, where=kc.old("a") >= 20)
    merge.when_matched_delete(where=kc.old("a") >= 30)
    merge.when_matched({"s": "third"}, where=kc.old("a") >= 10)
    merge.when_not_matched_insert({"s": "fourth"}, where=kc.new("a") == 9)
    merge.when_not_matched_insert({"s": "fifth"})
    done = merge.execute()
    assert values(stock, "s") == {1: "third", 2: "first", 3: "first", 4: None, 8: "fifth", 9: "fourth"}
    assert (done.clauses, done.ignored) == ((2, 0, 1, 1, 1), 1)


def test_clauses_of_one_kind_are_asked_in_their_order_whatever_is_between(stock: kc.Table) -> None:
    merge = stock.merge({"k": [1, 9], "a": [0, 0]}).when_matched({"a": 1}).when_not_matched_insert({"a": 2})
    done = merge.when_not_matched_by_source_delete().when_matched({"a": 3}).execute()
    assert values(stock) == {1: 1, 9: 2}
    assert done.clauses == (1, 1, 3, 0)


@pytest.mark.parametrize(
    ("where", "taken"),
    [
        (kc.old("a") > 0, {1, 2, 3}),
        (~(kc.old("a") > 0), set()),
        (kc.old("a").is_null(), {4}),
        ((kc.old("a") > 0) | (kc.new("k") == 4), {1, 2, 3, 4}),
        (kc.old("a") == pc.scalar(pa.scalar(None, pa.int64())), set()),
        (pc.scalar(True), {1, 2, 3, 4}),
        (pc.field("a") == 20, {2}),
        ([("a", ">=", 20), ("k", "<", 3)], {2}),
        ([[("a", "=", 10)], [("a", "=", 30)]], {1, 3}),
        (kc.new("a").isin([40, 20]), {2, 4}),
        (kc.new("a") == kc.old("a"), {1, 2, 3}),
    ],
    ids=str,
)
def test_what_is_null_does_not_hold(stock: kc.Table, where: Any, taken: set[int]) -> None:
    source = {"k": [1, 2, 3, 4], "a": [10, 20, 30, 40]}
    stock.merge(source).when_matched({"s": "taken"}, where=where).execute()
    assert {k for k, s in values(stock, "s").items() if s == "taken"} == taken


def test_a_bare_column_is_of_the_side_that_the_clause_is_about(stock: kc.Table) -> None:
    merge = stock.merge({"k": [1, 9], "a": [77, 77]})
    merge.when_matched({"s": pc.field("s"), "a": pc.field("a") + kc.new("a")}, where=pc.field("a") == 10)
    merge.when_not_matched_insert({"a": pc.field("a") + 1}, where=pc.field("a") == 77)
    merge.when_not_matched_by_source_update({"a": pc.field("a") * 2}, where=pc.field("a") > 20).execute()
    assert values(stock) == {1: 87, 2: 20, 3: 60, 4: None, 9: 78}


def test_both_sides_are_the_rows_of_before(stock: kc.Table) -> None:
    """No value that a clause gives is seen by another one."""
    swapped = {"a": kc.old("must").cast("int64"), "must": kc.old("a").cast("int32")}
    stock.merge({"k": [1]}).when_matched(swapped).execute()
    assert stock.get(1, ["a", "must"]) == {"a": 7, "must": 10}


def test_a_merge_of_no_rows(stock: kc.Table) -> None:
    before = stock.timestamp
    merge = stock.merge([]).when_matched_delete().when_not_matched_insert()
    assert merge.execute().counts == (0, 0, 0, 0)
    assert stock.timestamp == before and stock.count() == 4
    nothing = pa.table({"k": pa.array([], pa.int64())})
    assert stock.merge(nothing).when_not_matched_by_source_delete().execute().deleted == 4
    assert stock.count() == 0


def test_a_merge_into_an_empty_table(table: kc.Table) -> None:
    merge = table.merge(GIVEN).when_matched_delete().when_not_matched_by_source_delete()
    assert merge.when_not_matched_insert(where=kc.new("a") > 200).execute().counts == (2, 0, 0, 1)
    assert values(table) == {3: 300, 9: 900}


def test_a_merge_may_be_executed_again(stock: kc.Table) -> None:
    merge = stock.merge(GIVEN).when_matched({"a": kc.old("a") + 1}).when_not_matched_insert()
    assert [merge.execute().clauses for _ in range(2)] == [(2, 1), (3, 0)]
    assert values(stock) == {1: 10, 2: 22, 3: 32, 4: None, 9: 901}


def test_changes_tell_what_a_merge_has_done(stock: kc.Table) -> None:
    then = stock.timestamp
    merge = stock.merge(GIVEN).when_matched({"a": kc.new("a")}, where=kc.new("a") > 200)
    merge.when_matched_delete().when_not_matched_insert().when_not_matched_by_source_update({"s": "old"})
    done = merge.execute()
    told = stock.changes(then, done.timestamp, images="both").to_table().to_pylist()
    assert {(c["k"], c["_op"]) for c in told} == {
        (1, "update"), (2, "delete"), (3, "update"), (4, "update"), (9, "insert"),
    }  # fmt: skip
    assert {c["_timestamp"] for c in told} == {done.timestamp}, "one moment"
    [third] = [c for c in told if c["k"] == 3]
    assert (third["_before"]["a"], third["a"]) == (30, 300)
    assert values_at(stock, then) == {1: 10, 2: 20, 3: 30, 4: None}


def values_at(table: kc.Table, at: int) -> dict[int, Any]:
    return {row["k"]: row["a"] for row in table.scan(["k", "a"], at=at).to_pylist()}


def test_keys_of_several_columns(make: Make) -> None:
    columns = [("day", pa.int32()), ("place", pa.string()), ("n", pa.int64())]
    table = make(pa.schema(columns), ["day", "place"])
    table.insert({"day": [1, 1, 2], "place": ["a", "b", "a"], "n": [1, 2, 3]})
    merge = table.merge({"place": ["a", "c", "a"], "n": [10, 20, 30], "day": [1, 1, 9]})
    done = merge.when_matched().when_not_matched_insert().execute()
    assert done.clauses == (1, 2)
    rows = [tuple(row.values()) for row in table.scan(["place", "n"], order="key").to_pylist()]
    assert rows == [("a", 10), ("b", 2), ("c", 20), ("a", 3), ("a", 30)]


@pytest.mark.parametrize("partitions", ["hash", "ranges"])
def test_tablets(make: Make, partitions: str) -> None:
    by: Any = kc.HashPartition("k", 5)
    if partitions == "ranges":
        by = kc.RangePartition(["k"], bounds=[(0, 100), (100, 200), (200, 1000)])
    table = make(partition_by=by)
    table.insert({"k": list(range(0, 300, 3)), "a": [1] * 100})
    table.flush()
    source = {"k": list(range(300)), "a": [5] * 300}
    merge = table.merge(source).when_matched({"a": kc.old("a") + kc.new("a")}, where=kc.old("k") < 150)
    done = merge.when_matched_delete(where=kc.old("k") > 270).when_not_matched_insert().execute()
    assert done.clauses == (50, 9, 200) and done.ignored == 41
    wanted = {k: 5 for k in range(300) if k % 3} | {k: 6 if k < 150 else 1 for k in range(0, 271, 3)}
    assert values(table) == wanted
