"""``txn`` of merges and conditional writes: applied once, known again by its rows and by what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

ROWS = {"k": [1, 9], "a": [5, 6]}
Write = Callable[[kc.Table, Any], kc.WriteResult]
WRITES: dict[str, Write] = {
    "merge": lambda t, txn: t.merge(ROWS).when_matched({"a": kc.old("a") + 1}).execute(txn=txn),
    "update": lambda t, txn: t.update({"k": [1]}, set={"a": kc.old("a") + 1}, txn=txn),
    "upsert": lambda t, txn: t.upsert(ROWS, if_=kc.old("a") >= 0, txn=txn),
    "insert": lambda t, txn: t.insert({"k": [9]}, if_=kc.new("k") > 1, txn=txn),
    "delete": lambda t, txn: t.delete([1], if_=kc.old("a") >= 0, txn=txn),
    "by source": lambda t, txn: t.merge({"k": [9]}).when_not_matched_by_source_delete().execute(txn=txn),
}


@pytest.fixture
def stock(table: kc.Table) -> kc.Table:
    table.insert({"k": [1, 2], "a": [0, 0]})
    return table


@pytest.mark.parametrize("name", WRITES)
def test_applied_once(stock: kc.Table, name: str) -> None:
    write = WRITES[name]
    first = write(stock, ("job", 1))
    state = stock.scan(order="key").to_pylist()
    assert not first.deduplicated and sum(first.counts[:3]) > 0
    stock.flush()
    path = stock.path
    again = write(stock, ("job", 1))
    stock.close()
    with kc.open_table(path, "rw") as table:
        later = write(table, ("job", 1))
        assert table.scan(order="key").to_pylist() == state
    for result in (again, later):
        assert result.deduplicated
        assert (result.timestamp, result.counts[:3]) == (first.timestamp, first.counts[:3])
    if isinstance(again, kc.MergeResult):
        assert again.clauses == (), "which clauses they were is not kept"


def merge(table: kc.Table, source: Any = ROWS, **how: Any) -> kc.Merge:
    return table.merge(source, **how)


OTHERS: dict[str, Callable[[kc.Table], kc.Merge]] = {
    "other rows": lambda t: merge(t, {"k": [1, 9], "a": [5, 7]}).when_matched({"a": kc.new("a")}),
    "fewer rows": lambda t: merge(t, {"k": [1], "a": [5]}).when_matched({"a": kc.new("a")}),
    "another column": lambda t: merge(t, {**ROWS, "x": [1, 2]}).when_matched({"a": kc.new("a")}),
    "another value": lambda t: merge(t).when_matched({"a": kc.new("a") + 1}),
    "another column set": lambda t: merge(t).when_matched({"must": kc.new("a")}),
    "a condition": lambda t: merge(t).when_matched({"a": kc.new("a")}, where=kc.old("a") == 0),
    "one more clause": lambda t: merge(t).when_matched({"a": kc.new("a")}).when_not_matched_insert(),
    "another clause": lambda t: merge(t).when_not_matched_insert({"a": kc.new("a")}),
    "of all columns": lambda t: merge(t).when_matched(),
    "a deletion": lambda t: merge(t).when_matched_delete(),
    "a literal": lambda t: merge(t).when_matched({"a": 5}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_merge_under_the_same_token_is_refused(stock: kc.Table, other: str) -> None:
    merge(stock).when_matched({"a": kc.new("a")}).execute(txn=("job", 1))
    before = stock.scan().to_pylist()
    with pytest.raises(kc.TokenMismatch):
        OTHERS[other](stock).execute(txn=("job", 1))
    assert stock.scan().to_pylist() == before
    assert OTHERS[other](stock).execute(txn=("job", 1), on_repeat="skip").deduplicated
    assert OTHERS[other](stock).execute(txn=("job", 2)).deduplicated is False


def test_the_same_rows_in_another_form_are_the_same(stock: kc.Table) -> None:
    merge(stock).when_matched({"a": kc.new("a")}).execute(txn=("job", 1))
    for source in (
        pa.table(ROWS),
        [{"k": 1, "a": 5}, {"k": 9, "a": 6}],
        pa.table(ROWS).to_reader(1),
        pa.table({"a": pa.array([5, 6], pa.int8()), "k": [1, 9]}),
    ):
        assert merge(stock, source).when_matched({"a": kc.new("a")}).execute(txn=("job", 1)).deduplicated


def test_a_write_that_was_refused_is_not_applied_and_may_be_repeated(stock: kc.Table) -> None:
    write = lambda: stock.update({"k": [1], "a": [5]}, if_=kc.old("a") == 3, txn=("job", 1))  # noqa: E731
    with pytest.raises(kc.RowErrors):
        write()
    stock.update({"k": [1], "a": [3]})
    assert write().updated == 1
    assert write().deduplicated


def test_a_batch_that_reads_has_a_token(stock: kc.Table) -> None:
    """What it reads is not part of what it is known by: its calls are."""
    for deduplicated in (False, True):
        with stock.batch(txn=("job", 1)) as batch:
            assert batch.get(2) is not None
            batch.upsert({"k": [1], "a": [8]})
        assert batch.result.deduplicated is deduplicated


def test_columns_of_which_no_fingerprint_is_made(stock: kc.Table) -> None:
    source = {"k": [1], "many": [[1, 2]]}
    with pytest.raises(kc.NotSupported, match=r"'many' of the rows.*leave the column out, or txn"):
        stock.merge(source).when_matched({"a": 1}).execute(txn=("job", 1))
    assert stock.merge(source).when_matched({"a": 1}).execute().updated == 1
