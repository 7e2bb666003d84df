"""Merges over every state of a table: rows in memory, in files, merged, after an ALTER, in a store, by files.

The states of before stay what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.merge.decision import Decision
from tests.support.inside import applied_writes_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened
from tests.support.tables import Make

ROWS = 300
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def _memory(table: kc.Table) -> kc.Table:
    table.insert({"k": list(range(ROWS)), "v": [0] * ROWS})
    return table


def _flushed(table: kc.Table) -> kc.Table:
    _memory(table).flush()
    return table


def _churned(table: kc.Table) -> kc.Table:
    """Rows in overlapping rowsets with changes in files and in memory, some deleted and back again."""
    _memory(table)
    for turn in range(3):
        table.delete(list(range(turn, ROWS, 5)))
        table.flush()
        table.insert({"k": list(range(turn, ROWS, 5)), "v": [9] * len(range(turn, ROWS, 5))})
        table.update(where=pc.field("k") < ROWS, set={"v": 1})
        table.flush()
    table.update(where=pc.field("k") < ROWS, set={"v": 0})
    return table


def _merged(table: kc.Table) -> kc.Table:
    _churned(table).compact(full=True)
    return table


def _altered(table: kc.Table) -> kc.Table:
    _flushed(table)
    table.alter(add=[kc.Column("more", "int32", default=5)], rename={"v": "was"})
    table.alter(add=[kc.Column("v", "int64", default=0)])
    return table


def _opened_again(table: kc.Table) -> kc.Table:
    _churned(table).close()
    return kc.open_table(table.path, "rw")


STATES: dict[str, Callable[[kc.Table], kc.Table]] = {
    "memory": _memory,
    "flushed": _flushed,
    "churned": _churned,
    "merged": _merged,
    "altered": _altered,
    "opened again": _opened_again,
}


def values(table: kc.Table, at: int | None = None) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in table.scan(["k", "v"], at=at).to_pylist()}


def merged(table: kc.Table) -> None:
    """All clauses at once, and what must be so after them, before them, and of the changes between."""
    then, before = table.timestamp, values(table)
    assert before == dict.fromkeys(range(ROWS), 0)
    source = {"k": list(range(100, ROWS + 50)), "n": list(range(100, ROWS + 50))}
    merge = table.merge(source)
    merge.when_matched_delete(where=kc.new("n") < 150)
    merge.when_matched({"v": kc.old("v") + kc.new("n")}, where=kc.new("n") < 250)
    merge.when_not_matched_insert({"v": kc.new("n")})
    merge.when_not_matched_by_source_delete(where=kc.old("k") < 20)
    done = merge.when_not_matched_by_source_update({"v": kc.old("k") - kc.old("v")}).execute()
    assert done.clauses == (50, 100, 50, 20, 80)
    assert done.counts == (50, 180, 70, 50)
    after = {
        **{k: k for k in range(20, 100)},
        **{k: k for k in range(150, 250)},
        **dict.fromkeys(range(250, ROWS), 0),
        **{k: k for k in range(ROWS, ROWS + 50)},
    }
    assert values(table) == after
    assert values(table, then) == before
    told = table.changes(then, done.timestamp).to_table()
    assert set(told["_timestamp"].to_pylist()) == {done.timestamp}
    counts = {c["values"]: c["counts"] for c in told["_op"].value_counts().to_pylist()}
    assert counts == {"insert": 50, "update": 180, "delete": 70}
    table.flush()
    table.compact(full=True)
    assert values(table) == after and values(table, then) == before


@pytest.mark.parametrize("threshold", [1, 100_000], ids=["files", "log"])
@pytest.mark.parametrize("tablets", [1, 3])
@pytest.mark.parametrize("state", STATES)
def test_states(make: Make, state: str, tablets: int, threshold: int) -> None:
    by = [kc.HashPartition("k", tablets)] if tablets > 1 else []
    made = make(SCHEMA, ["k"], partition_by=by, ingest_threshold_rows=threshold)
    with STATES[state](made) as table:
        merged(table)
        path = table.path
    with kc.open_table(path) as again:
        again.verify()
        assert again.count() == 280


@pytest.fixture
def stored() -> Iterator[tuple[MemoryObjectStore, kc.Table]]:
    store = MemoryObjectStore()
    with created(store, tablets=2) as table:
        yield store, table


def test_in_a_store(stored: tuple[MemoryObjectStore, kc.Table]) -> None:
    store, table = stored
    merged(_flushed(table))
    table.update({"k": [150]}, set={"v": kc.old("v") + 1}, if_=kc.old("v") == 150)
    with table.batch() as batch:
        row = batch.get(150)
        assert row is not None
        batch.upsert([{"k": 151, "v": row["v"]}])
    with opened(store) as reader:
        assert reader.get(150) == {"k": 150, "v": 151} and reader.get(151) == {"k": 151, "v": 151}


def test_a_table_that_was_altered_since_the_merge_began(make: Make) -> None:
    """Clauses are read anew; a column that is gone is refused by name."""
    table = make(SCHEMA, ["k"])
    _memory(table)
    added = table.merge({"k": [1], "v": [5]}).when_matched().when_not_matched_insert()
    dropped = table.merge({"k": [1], "v": [5]}).when_matched({"v": kc.old("v") + 1})
    table.alter(add=[kc.Column("more", "int32", default=5)])
    assert added.execute().updated == 1 and table.get(1) == {"k": 1, "v": 5, "more": 5}
    table.alter(drop=["v"])
    with pytest.raises(kc.InvalidArgument, match="'v'"):
        dropped.execute()


@pytest.mark.parametrize("threshold", [1, 100_000], ids=["files", "log"])
def test_an_alter_between_the_look_and_the_mutexes(
    make: Make, threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are conformed and the clauses read anew; what a column that is gone was for is refused."""
    table = make(SCHEMA, ["k"], ingest_threshold_rows=threshold)
    _memory(table)
    touched = Decision.touched
    alters: list[dict[str, Any]] = []

    def overtaken(decision: Decision) -> Any:
        tablets = touched(decision)
        while alters:
            table.alter(**alters.pop())
        return tablets

    monkeypatch.setattr(Decision, "touched", overtaken)
    alters.append({"add": [kc.Column("more", "int32", default=5)], "rename": {"v": "w"}})
    merge = table.merge({"k": [1, 999], "n": [5, 6]}).when_matched({"v": kc.new("n")})
    with pytest.raises(kc.InvalidArgument, match="'v'"):
        merge.execute()
    assert table.get(1) == {"k": 1, "w": 0, "more": 5}
    alters.append({"add": [kc.Column("last", "string", default="new")]})
    merge = table.merge({"k": [1, 999], "n": [5, 6]}).when_matched({"w": kc.old("w") + kc.new("n")})
    assert merge.when_not_matched_insert({"w": kc.new("n")}).execute().clauses == (1, 1)
    assert table.get(1) == {"k": 1, "w": 5, "more": 5, "last": "new"}
    assert table.get(999) == {"k": 999, "w": 6, "more": 5, "last": "new"}
    alters.append({"drop": ["more"]})
    done = table.update({"k": [1], "w": [0]}, if_=kc.old("w") > 5, on_error="return")
    assert done.errors is not None
    assert done.errors["there"].to_pylist() == [{"k": 1, "w": 5, "last": "new"}]


def test_a_large_merge_goes_by_files(make: Make) -> None:
    table = make(SCHEMA, ["k"], ingest_threshold_rows=20_000)
    keys = pa.array(range(100_000))
    table.insert(pa.table({"k": keys, "v": keys}))
    writes = applied_writes_of(table)
    given = pa.array(range(50_000, 150_000))
    source = pa.table({"k": given, "more": given})
    merge = table.merge(source).when_matched({"v": kc.old("v") + kc.new("more")})
    done = merge.when_not_matched_insert({"v": pc.scalar(-1)}).execute()
    assert done.clauses == (50_000, 50_000)
    assert applied_writes_of(table) == writes, "no record holds the rows"
    found = table.scan(["v"], order="key").to_table()["v"].to_pylist()
    assert found == [*range(50_000), *range(100_000, 200_000, 2), *[-1] * 50_000]
    by_source = table.merge({"k": [5]}).when_not_matched_by_source_delete(where=kc.old("v") >= 0)
    assert by_source.execute().deleted == 99_999
    assert table.count() == 50_001


def test_a_large_merge_is_refused_as_a_small_one(make: Make) -> None:
    table = make(SCHEMA, ["k"], ingest_threshold_rows=10)
    _memory(table)
    source = {"k": [*range(100), 5, 7], "v": [1] * 102}
    with pytest.raises(kc.RowErrors) as refused:
        table.merge(source).when_matched().execute()
    assert refused.value.errors["row"].to_pylist() == [5, 7, 100, 101]
    assert set(values(table).values()) == {0}
    done = table.merge(source).when_matched().execute(on_error="return")
    assert (done.updated, done.refused, done.clauses) == (98, 4, (102,))
    some = table.update(source, if_=kc.old("v") == 0, on_error="return")
    assert some.errors is not None and some.updated == 0
    wanted = {k: "condition_failed" for k in range(100) if k not in (5, 7)}
    told = {row["row"]: row["code"] for row in some.errors.to_pylist()}
    assert {row: code for row, code in told.items() if row not in (5, 7, 100, 101)} == wanted
    assert {told[row] for row in (5, 7, 100, 101)} == {"duplicate_in_batch"}
