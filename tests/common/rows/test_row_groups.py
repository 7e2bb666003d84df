"""Rows of different columns, put together by their columns, rows of one key in their order."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest

from kudu_core.common.rows.arrow_in import GivenRows, batches, given_rows
from kudu_core.common.schema.declare import Column, declare
from kudu_core.errors import InvalidArgument, SchemaMismatch

SCHEMA = declare([Column(n, "int64") for n in "kab"], "k")
PAIR = declare(
    [Column("k", "int64"), Column("s", "string"), Column("a", "int8"), Column("b", "date32")], ["k", "s"]
)


def _given(rows: list[dict[str, Any]], schema: Any = SCHEMA) -> list[GivenRows]:
    return list(given_rows(rows, schema))


def _in_order(given: list[GivenRows]) -> list[tuple[int, dict[str, Any]]]:
    """The rows with their numbers, batch after batch."""
    found = []
    for part in given:
        rows = part.batch.to_pylist()
        numbers = range(part.first, part.first + len(rows)) if part.numbers is None else part.numbers.tolist()
        found += list(zip(numbers, rows, strict=True))
    return found


def test_alternating_rows_are_two_batches() -> None:
    rows = [{"k": k, "a" if k % 2 else "b": k} for k in range(10_000)]
    given = _given(rows)
    assert [(part.batch.num_rows, part.from_rows) for part in given] == [(5000, True)] * 2
    assert [part.first for part in given] == [0, 5000]
    assert sorted(_in_order(given), key=lambda found: found[0]) == list(enumerate(rows))


def test_rows_of_one_key_stay_in_order() -> None:
    said = [(1, "a"), (2, "b"), (3, "a"), (1, "b"), (1, "a"), (2, "a"), (2, "b"), (4, "a"), (5, "b")]
    given = _given([{"k": k, name: 0} for k, name in said])
    numbers = [part.numbers.tolist() for part in given if part.numbers is not None]
    assert numbers == [[0, 2, 7], [1, 3, 8], [4, 5], [6]]


@pytest.mark.parametrize("seed", range(20))
def test_any_rows_come_once_and_in_the_order_of_their_keys(seed: int) -> None:
    draw = random.Random(seed)
    rows = []
    for number in range(300):
        row: dict[str, Any] = {"k": draw.randrange(draw.choice([3, 1000])), "s": draw.choice("xy")}
        row |= {"a": number % 100} if draw.random() < 0.5 else {}
        row |= {"b": dt.date(2026, 1, 1)} if draw.random() < 0.5 else {}
        rows.append(row)
    found = _in_order(_given(rows, PAIR))
    assert sorted(found, key=lambda one: one[0]) == list(enumerate(rows))
    of_key: dict[Any, list[int]] = {}
    for number, row in found:
        of_key.setdefault((row["k"], row["s"]), []).append(number)
    assert all(numbers == sorted(numbers) for numbers in of_key.values())


def test_numbers_go_on_over_what_comes_before() -> None:
    first = [{"k": k, "a": k} for k in range(70_000)]
    ragged = [{"k": -k, "a" if k % 2 else "b": k} for k in range(1, 11)]
    given = _given(first + ragged)
    assert _in_order(given)[:2] == [(0, first[0]), (1, first[1])]
    assert sorted(number for number, _ in _in_order(given)) == list(range(70_010))
    assert dict(_in_order(given))[70_003] == ragged[3]
    mixed: list[Any] = [pa.record_batch({"k": [7, 8]}), *ragged]
    assert dict(_in_order(list(given_rows(mixed, SCHEMA))))[5] == ragged[3]


@pytest.mark.parametrize("text", ["2026-01-05", "2026-01-05T00:00"])
def test_keys_that_only_the_column_tells_apart_stay_as_they_lie(text: str) -> None:
    """The same instant in two forms is one key."""
    schema = declare([Column("k", "timestamp[us]"), Column("a", "int64"), Column("b", "int64")], "k")
    instant = dt.datetime(2026, 1, 5)
    rows = [{"k": instant, "a": 1}, {"k": text, "b": 2}, {"k": instant, "a": 3}]
    found = _in_order(_given(rows, schema))
    assert [number for number, _ in found] == [0, 1, 2]


def test_keys_that_are_equal_in_other_types_stay_in_order() -> None:
    import numpy as np

    rows = [{"k": 1, "a": 1}, {"k": np.int64(1), "b": 2}, {"k": np.int8(1), "a": 3}, {"k": 2, "b": 4}]
    assert [number for number, _ in _in_order(_given(rows))] == [0, 1, 3, 2]


def test_a_value_that_does_not_fit_is_named_by_its_row() -> None:
    rows: list[dict[str, Any]] = [{"k": k, "s": "x", "a" if k % 2 else "b": None} for k in range(100)]
    rows[77]["a"] = "text"
    with pytest.raises(SchemaMismatch, match="row 77 has 'text'"):
        _given(rows, PAIR)
    rows[77]["a"], rows[78]["b"] = 1, "no date"
    with pytest.raises(SchemaMismatch, match="row 78: 'no date'"):
        _given(rows, PAIR)


def test_null_keys_do_not_keep_rows_apart() -> None:
    rows = [{"k": None if k % 3 else k, "a" if k % 2 else "b": k} for k in range(100)]
    given = _given(rows)
    assert sorted(number for number, _ in _in_order(given)) == list(range(100))
    assert len(given) < 50


def test_without_a_table_rows_stay_as_they_lie() -> None:
    rows: list[dict[str, Any]] = [{"k": 1, "a": 1}, {"k": 2}, {"k": 3, "a": 3}]
    assert [batch.to_pylist() for batch in batches(rows)] == [[row] for row in rows]


def test_a_row_of_nothing() -> None:
    with pytest.raises(InvalidArgument, match="a row without any column"):
        _given([{"k": 1}, {}])
