"""A list of rows with different columns is one call, in which each row says what it sets."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.calls import conform
from tests.support.bulk import small_runs
from tests.support.tables import Make

COLUMNS = [kc.Column("k", "int64"), kc.Column("a", "int64"), kc.Column("s", "string", default="none")]
WAYS = {
    "log": {},
    "files": {"ingest_threshold_rows": 1},
    "spilled": {"ingest_threshold_rows": 1, "memory_limit_bytes": 16 << 20},
}


@pytest.fixture(params=WAYS)
def table(request: pytest.FixtureRequest, make: Make) -> Any:
    made = make(COLUMNS, "k", **WAYS[request.param])
    if request.param == "spilled":
        with small_runs(spill=True):
            yield made
    else:
        yield made


def _of(table: kc.Table) -> dict[int, dict[str, Any]]:
    return {row.pop("k"): row for row in table.scan().to_pylist()}


def test_what_a_row_does_not_say_stays_or_has_its_default(table: kc.Table) -> None:
    done = table.insert([{"k": 1, "a": 1}, {"k": 2, "s": "two"}, {"k": 3}, {"s": None, "a": 4, "k": 4}])
    assert done.counts == (4, 0, 0, 0)
    expected = {1: (1, "none"), 2: (None, "two"), 3: (None, "none"), 4: (4, None)}
    assert _of(table) == {k: {"a": a, "s": s} for k, (a, s) in expected.items()}
    table.update([{"k": 1, "s": "one"}, {"k": 2, "a": 2}, {"k": 1, "a": None}])
    assert table.get(1) == {"k": 1, "a": None, "s": "one"} and table.get(2) == {"k": 2, "a": 2, "s": "two"}
    assert table.count(at=done.timestamp) == 4 and table.count(at=done.timestamp - 1) == 0


@pytest.mark.parametrize("seed", range(3))
def test_as_one_call_for_each_row(table: kc.Table, seed: int) -> None:
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(600):
        row: dict[str, Any] = {"k": draw.randrange(200)}
        row |= {"a": number} if draw.random() < 0.5 else {}
        row |= {"s": f"s{number}"} if draw.random() < 0.5 else {}
        rows.append(row)
    expected: dict[int, dict[str, Any]] = {}
    for row in rows:
        expected.setdefault(row["k"], {"a": None, "s": "none"}).update({n: row[n] for n in row if n != "k"})
    table.upsert(rows)
    assert _of(table) == expected


def test_all_or_nothing_and_rows_are_numbered_as_given(table: kc.Table) -> None:
    table.insert([{"k": 5}, {"k": 16}])
    rows = [{"k": k, "a" if k % 2 else "s": None} for k in range(20)]
    with pytest.raises(kc.RowErrors) as caught:
        table.insert(rows)
    assert caught.value.errors.select(["row", "code"]).to_pylist() == [
        {"row": 5, "code": "already_present"},
        {"row": 16, "code": "already_present"},
    ]
    assert table.count() == 2
    done = table.insert(rows, on_error="return")
    assert done.errors is not None and done.errors["row"].to_pylist() == [5, 16]
    assert [key["k"] for key in done.errors["key"].to_pylist()] == [5, 16]
    assert done.inserted == 18 and table.count() == 20


def test_numbers_in_a_batch_of_calls(table: kc.Table) -> None:
    table.insert([{"k": 3}])
    with table.batch(on_error="return") as batch:
        batch.insert([{"k": 100}, {"k": 101}])
        batch.insert([{"k": k, "a" if k % 2 else "s": None} for k in range(6)])
        batch.update([{"k": 200, "a": 1}, {"k": 100, "s": "x"}, {"k": 201, "a": 1}, {"k": 202, "s": "y"}])
    assert batch.result is not None and batch.result.errors is not None
    assert batch.result.errors["row"].to_pylist() == [3, 0, 2, 3]  # each numbered in its call
    assert sorted(key["k"] for key in batch.result.errors["key"].to_pylist()) == [3, 200, 201, 202]
    assert table.get(100) == {"k": 100, "a": None, "s": "x"}


def test_mixed_operations_say_what_they_need(table: kc.Table) -> None:
    table.insert([{"k": 1}, {"k": 2}])
    done = table.apply(
        [{"_op": "delete", "k": 1}, {"_op": "update", "k": 2, "a": 5}, {"_op": "insert", "k": 1, "s": "new"}]
    )
    assert done.counts == (1, 1, 1, 0)
    assert _of(table) == {1: {"a": None, "s": "new"}, 2: {"a": 5, "s": "none"}}


def test_a_repetition_is_known_however_the_rows_lie(table: kc.Table) -> None:
    rows = [{"k": k, "a" if k % 2 else "s": None} for k in range(20)]
    first = table.upsert(rows, txn=("app", 1))
    again = table.upsert(list(reversed(rows)), txn=("app", 1))
    assert again.deduplicated and again.timestamp == first.timestamp
    with pytest.raises(kc.TokenMismatch):
        table.upsert([{"k": k, "s" if k % 2 else "a": None} for k in range(20)], txn=("app", 1))


def test_alternating_rows_are_few_parts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(COLUMNS, "k", ingest_threshold_rows=1 << 20)
    parts: list[int] = []
    real = conform.conform

    def counted(*given: Any, **options: Any) -> Any:
        parts.append(given[1].num_rows)
        return real(*given, **options)

    monkeypatch.setattr(conform, "conform", counted)
    table.upsert([{"k": k, "a" if k % 2 else "s": None} for k in range(10_000)])
    assert parts == [5000, 5000] and table.count() == 10_000


def test_arrow_batches_of_one_call_still_agree(make: Make) -> None:
    table = make(COLUMNS, "k")
    with pytest.raises(kc.SchemaMismatch, match="different columns"):
        table.insert([pa.record_batch({"k": [1]}), pa.record_batch({"k": [2], "a": [2]})])
    with pytest.raises(kc.SchemaMismatch, match="different columns"):
        table.insert([{"k": 1}, pa.record_batch({"k": [2], "a": [2]})])
    assert table.count() == 0


def test_what_one_row_lacks_refuses_the_call(make: Make) -> None:
    table = make([kc.Column("k", "int64"), kc.Column("must", "int64", nullable=False)], "k")
    with pytest.raises(kc.SchemaMismatch, match="'must' takes no NULL and has no default"):
        table.insert([{"k": 1, "must": 1}, {"k": 2}])
    with pytest.raises(kc.InvalidArgument, match="update needs a column to set"):
        table.update([{"k": 1, "must": 1}, {"k": 2}])
    with pytest.raises(kc.SchemaMismatch, match="'zz' is unknown"):
        table.insert([{"k": 1, "must": 1}, {"k": 2, "zz": 1}])
    assert table.count() == 0
