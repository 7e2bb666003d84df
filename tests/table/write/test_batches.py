"""A batch is applied wholly or not at all, at one timestamp."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make


class Sorry(Exception):
    pass


def broken(rows: int = 5) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"k": list(range(rows)), "a": [1] * rows})
    raise Sorry


@pytest.fixture(params=["log", "ingest"])
def any_table(request: pytest.FixtureRequest, make: Make) -> kc.Table:
    """Small writes through the log, or every write straight to files."""
    table = make(ingest_threshold_rows=1 if request.param == "ingest" else 100_000)
    table.insert({"k": [1, 2, 3], "a": [1, 2, 3], "s": ["x", "y", "z"]})
    return table


def test_nothing_is_applied_when_a_generator_raises(any_table: kc.Table) -> None:
    before, ts = any_table.scan().to_pylist(), any_table.timestamp
    for write in (any_table.upsert, any_table.insert, any_table.update):
        with pytest.raises(Sorry):
            write(broken())
    with pytest.raises(Sorry):
        any_table.delete(b.select(["k"]) for b in broken())
    reader = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64()), ("a", pa.int64())]), broken())
    with pytest.raises(Sorry):
        any_table.upsert(reader)
    assert any_table.scan().to_pylist() == before
    assert any_table.timestamp == ts


def test_nothing_is_applied_when_rows_are_refused(any_table: kc.Table) -> None:
    before, ts = any_table.scan().to_pylist(), any_table.timestamp
    with pytest.raises(kc.RowErrors):
        any_table.insert({"k": [10, 11, 1]})
    with pytest.raises(kc.RowErrors), any_table.batch() as batch:
        batch.upsert({"k": [1, 50], "a": [9, 9]})
        batch.delete({"k": [77]})
    assert any_table.scan().to_pylist() == before
    assert any_table.timestamp == ts
    with pytest.raises(kc.InvalidArgument, match="no result: its block ended with an error"):
        _ = batch.result


def test_a_batch_has_its_result_from_the_end_of_the_block_on(any_table: kc.Table) -> None:
    with any_table.batch() as batch:
        batch.insert({"k": [500]})
        for ask in (lambda: batch.result, lambda: batch.ticket):
            with pytest.raises(kc.InvalidArgument, match="it is applied at the end of its block"):
                ask()
    assert batch.result.inserted == 1
    with pytest.raises(kc.InvalidArgument, match="no ticket: ask for its result"):
        _ = batch.ticket


def test_an_exception_in_the_block_applies_nothing(any_table: kc.Table) -> None:
    before = any_table.scan().to_pylist()
    with pytest.raises(Sorry), any_table.batch() as batch:
        batch.upsert({"k": [1, 50], "a": [9, 9]})
        raise Sorry
    with pytest.raises(kc.SchemaMismatch), any_table.batch() as batch:
        batch.upsert({"k": [1, 50], "a": [9, 9]})
        batch.upsert({"nobody": [1]})
    assert any_table.scan().to_pylist() == before


def test_a_batch_has_one_timestamp(any_table: kc.Table) -> None:
    before = any_table.timestamp
    with any_table.batch() as batch:
        batch.insert({"k": [10], "a": [1]})
        batch.update({"k": [1], "s": ["new"]})
        batch.delete({"k": [2]})
        assert any_table.get(10) is None, "nothing is visible before the end"
        assert any_table.get(2) is not None
    assert batch.result is not None and batch.result.counts == (1, 1, 1, 0)
    ts = batch.result.timestamp
    assert before < ts <= any_table.timestamp
    keys = [r["k"] for r in any_table.scan(["k"], order="key", at=ts).to_pylist()]
    assert keys == [1, 3, 10]
    earlier = any_table.scan(at=ts - 1, order="key").to_pylist()
    assert [r["k"] for r in earlier] == [1, 2, 3] and earlier[0]["s"] == "x"


def test_calls_of_a_batch_see_the_earlier_ones(any_table: kc.Table) -> None:
    with any_table.batch() as batch:
        batch.insert({"k": [20], "a": [1]})
        batch.update({"k": [20], "a": [2]})
        batch.upsert({"k": [20], "s": ["s"]})
        batch.insert({"k": [21]})
        batch.delete({"k": [21]})
        batch.delete({"k": [1]})
        batch.insert({"k": [1], "a": [100]})
        batch.insert({"k": [1]}, on_conflict="ignore")
        batch.apply({"k": [22, 22], "a": [1, 2], "_op": ["insert", "update"]})
    assert batch.result is not None and batch.result.counts == (4, 3, 2, 1)
    assert any_table.get(20) == {"k": 20, "a": 2, "s": "s", "must": 7}
    assert any_table.get(21) is None
    assert any_table.get(1) == {"k": 1, "a": 100, "s": None, "must": 7}, "columns not given: defaults"
    assert any_table.get(22, ["a"]) == {"a": 2}


@pytest.mark.parametrize("flushed", [False, True])
def test_delete_and_insert_in_one_batch_update_every_column(make: Make, flushed: bool) -> None:
    table = make()
    table.insert({"k": [1], "a": [1], "s": ["x"], "must": [1]})
    if flushed:
        table.flush()
    with table.batch() as batch:
        batch.delete({"k": [1]})
        batch.insert({"k": [1], "must": [2]})
    assert batch.result is not None and batch.result.counts == (1, 0, 1, 0)
    assert table.get(1) == {"k": 1, "a": None, "s": None, "must": 2}
    assert table.count() == 1
    stored = table.stats()["rows_stored"].to_pylist()
    assert stored == [1], "the row stayed where it was"


def test_on_error_return_in_a_batch(any_table: kc.Table) -> None:
    with any_table.batch(on_error="return") as batch:
        batch.insert({"k": [1, 30]})
        batch.delete({"k": [2, 99, 31]})
    assert batch.result is not None and batch.result.counts == (1, 0, 1, 0)
    assert batch.result.errors is not None
    assert batch.result.errors.to_pylist() == [
        {"row": 0, "code": "already_present", "key": {"k": 1}},
        {"row": 1, "code": "not_found", "key": {"k": 99}},
        {"row": 2, "code": "not_found", "key": {"k": 31}},
    ]


def test_an_empty_batch_does_nothing(any_table: kc.Table) -> None:
    ts, layout = any_table.timestamp, any_table.layout()
    with any_table.batch() as batch:
        pass
    assert batch.result is not None and batch.result.counts == (0, 0, 0, 0)
    for empty in ([], {"k": []}, pa.table({"k": pa.array([], pa.int64())}), iter([])):
        result = any_table.upsert(empty)
        assert result.counts == (0, 0, 0, 0) and result.errors is None
        assert result.timestamp == ts
    assert any_table.layout() == layout


def test_a_batch_is_used_once(table: kc.Table) -> None:
    with table.batch() as batch:
        batch.insert({"k": [1]})
    with pytest.raises(kc.Closed):
        batch.insert({"k": [2]})
    with pytest.raises(kc.Closed), batch:
        pass
    assert table.count() == 1


def test_data_of_a_batch_is_taken_when_the_call_is_made(table: kc.Table) -> None:
    import numpy as np

    keys = np.arange(3)
    with table.batch() as batch:
        batch.insert({"k": keys})
        keys[:] = 99
    assert table.scan(["k"], order="key").to_pylist() == [{"k": 0}, {"k": 1}, {"k": 2}]
    values = np.arange(3)
    table.update({"k": np.arange(3), "a": values})
    values[:] = 99
    assert [r["a"] for r in table.scan(["a"], order="key").to_pylist()] == [0, 1, 2]


def test_where_does_not_fit_into_a_batch(table: kc.Table) -> None:
    with pytest.raises(kc.NotSupported, match="by itself"), table.batch() as batch:
        batch.delete(where=[("k", "=", 1)])
    with pytest.raises(kc.NotSupported, match="by itself"), table.batch() as batch:
        batch.update(where=[("k", "=", 1)], set={"a": 1})


# ---- writes by predicate


def test_update_where_sets_literals_and_expressions(any_table: kc.Table) -> None:
    result = any_table.update(where=[("a", ">=", 2)], set={"a": pc.field("a") * 10, "s": "big", "must": 1})
    assert result.counts == (0, 2, 0, 0)
    assert [(r["k"], r["a"], r["s"], r["must"]) for r in any_table.scan(order="key").to_pylist()] == [
        (1, 1, "x", 7),
        (2, 20, "big", 1),
        (3, 30, "big", 1),
    ]
    assert any_table.update(where=pc.field("a") == 20, set={"s": None}).updated == 1
    assert any_table.get(2, ["s"]) == {"s": None}


def test_where_writes_see_the_newest_state(any_table: kc.Table) -> None:
    any_table.flush()
    any_table.update({"k": [1], "a": [50]})
    any_table.delete({"k": [3]})
    any_table.insert({"k": [4], "a": [50]})
    assert any_table.delete(where=pc.field("a") == 50).counts == (0, 0, 2, 0)
    assert any_table.delete(where=pc.field("a") == 3).counts == (0, 0, 0, 0)
    assert [r["k"] for r in any_table.scan().to_pylist()] == [2]


def test_where_of_all_rows_is_said_in_so_many_words(any_table: kc.Table) -> None:
    with pytest.raises(kc.InvalidArgument, match=r"pyarrow\.compute\.scalar\(True\)"):
        any_table.delete(where=[])
    assert any_table.update(where=pc.scalar(True), set={"a": 0}).updated == 3
    assert any_table.delete(where=pc.scalar(False)).deleted == 0
    assert any_table.delete(where=pc.scalar(True)).deleted == 3
    assert any_table.count() == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"where": [("nobody", "=", 1)], "set": {"a": 1}}, "nobody"),
        ({"where": [("k", "=", 1)], "set": {"nobody": 1}}, "nobody"),
        ({"where": [("k", "=", 1)], "set": {"k": 1}}, "key column"),
        ({"where": [("k", "=", 1)], "set": {"a": "text"}}, "'a' is int64"),
        ({"where": [("k", "=", 1)], "set": {"a": pc.field("s")}}, "'a'"),
        ({"where": [("k", "=", 1)], "set": {"must": None}}, "takes no NULL"),
        ({"where": [("k", "=", 1)], "set": {}}, "set="),
        ({"set": {"a": 1}}, "where="),
        ({}, "where="),
    ],
)
def test_where_updates_that_make_no_sense(any_table: kc.Table, arguments: dict, message: str) -> None:
    before = any_table.scan().to_pylist()
    with pytest.raises(kc.InvalidArgument, match=message):
        any_table.update(**arguments)
    assert any_table.scan().to_pylist() == before
