"""``table.modify``: a row is read, a function makes another one of it, and no change of others is lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.inside import applied_writes_of
from tests.support.tables import Make


@pytest.fixture
def stock(table: kc.Table) -> kc.Table:
    table.insert({"k": [1, 2], "a": [10, 20], "s": ["x", "y"]})
    return table


def test_what_the_function_gives_is_written(stock: kc.Table) -> None:
    made = stock.modify(1, lambda row: {**row, "a": row["a"] + 1, "s": None})
    assert made == {"k": 1, "a": 11, "s": None, "must": 7} == stock.get(1)
    assert stock.modify(1, lambda row: {"a": 5}) == {"k": 1, "a": 5}, "columns that are not given stay"
    assert stock.get(1) == {"k": 1, "a": 5, "s": None, "must": 7}


def test_a_row_that_is_not_there_comes_as_none(stock: kc.Table) -> None:
    seen: list[Any] = []
    assert stock.modify(9, lambda row: seen.append(row)) is None
    assert seen == [None] and stock.get(9) is None
    assert stock.modify(9, lambda row: {"a": 1 if row is None else 2}) == {"k": 9, "a": 1}
    assert stock.get(9) == {"k": 9, "a": 1, "s": None, "must": 7}


def test_none_deletes(stock: kc.Table) -> None:
    assert stock.modify(1, lambda row: None) is None
    assert stock.get(1) is None


def test_many_keys(stock: kc.Table) -> None:
    def next_(row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None:
            return {"a": 0}
        return None if row["a"] == 10 else {"a": row["a"] + 1}

    assert stock.modify([2, 9, 1], next_) == [{"k": 2, "a": 21}, {"k": 9, "a": 0}, None]
    assert {row["k"]: row["a"] for row in stock.scan().to_pylist()} == {2: 21, 9: 0}
    assert stock.modify([], next_) == []


def test_nothing_is_written_where_nothing_changes(stock: kc.Table) -> None:
    writes = applied_writes_of(stock)
    stock.modify([1, 2, 3], lambda row: row)
    assert applied_writes_of(stock) == writes


def test_it_is_called_again_with_what_is_there_then(stock: kc.Table) -> None:
    seen: list[Any] = []

    def slow(row: dict[str, Any] | None) -> dict[str, Any]:
        assert row is not None
        seen.append(row["a"])
        if len(seen) < 3:
            stock.update([{"k": 1, "a": row["a"] + 100}])
        return {"a": row["a"] + 1}

    assert stock.modify(1, slow) == {"k": 1, "a": 211}
    assert seen == [10, 110, 210]


def test_it_gives_up_after_so_many_tries(stock: kc.Table) -> None:
    def never(row: dict[str, Any] | None) -> dict[str, Any]:
        assert row is not None
        stock.update([{"k": 1, "a": row["a"] + 1}])
        return {"a": 0}

    with pytest.raises(kc.Conflict, match=r"3 tries; the last: 1 rows have changed.*'k': 1"):
        stock.modify(1, never, tries=3)
    assert stock.get(1, ["a"]) == {"a": 13}


def test_wrong_calls(stock: kc.Table) -> None:
    before = stock.scan().to_pylist()
    wrong: list[tuple[Any, Any, str]] = [
        (1, lambda row: 5, "gives a row as a dict, or None, not 5"),
        (1, lambda row: {"k": 2}, "'k' is a key column, which does not change"),
        (1, lambda row: {"nope": 2}, "'nope'"),
        ([1, 1], lambda row: row, "a key is given twice"),
        ("one", lambda row: row, "k"),
    ]
    for keys, function, match in wrong:
        with pytest.raises(kc.InvalidArgument, match=match):
            stock.modify(keys, function)
    for tries in (0, -1, True, 2.5):
        with pytest.raises(kc.InvalidArgument, match="tries is a number from 1 on"):
            stock.modify(1, lambda row: row, tries=tries)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        stock.modify(1, lambda row: {"a": 1 // 0})
    assert stock.scan().to_pylist() == before


def test_keys_of_several_columns_and_nested_rows(make: Make) -> None:
    at = pa.struct([("x", pa.int64())])
    table = make(pa.schema([("day", pa.int32()), ("who", pa.string()), ("at", at)]), ["day", "who"])
    table.insert([{"day": 1, "who": "a", "at": {"x": 1}}])
    made = table.modify((1, "a"), lambda row: {"at": {"x": row["at"]["x"] + 1}})
    assert made == {"day": 1, "who": "a", "at": {"x": 2}}
    rows = table.modify([(1, "a"), (1, "b")], lambda row: {"at": None} if row is None else {"at": {"x": 9}})
    assert rows == [{"day": 1, "who": "a", "at": {"x": 9}}, {"day": 1, "who": "b", "at": None}]
    assert table.get((1, "a")) == rows[0] and table.get((1, "b")) == rows[1]
