"""Writes that name themselves are applied once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import TokenMismatch
from tests.support.inside import log_of
from tests.support.tables import Make


@pytest.fixture(params=["log", "ingest"])
def any_table(request: pytest.FixtureRequest, make: Make) -> kc.Table:
    return make(ingest_threshold_rows=1 if request.param == "ingest" else 100_000)


def test_a_version_is_applied_once(any_table: kc.Table) -> None:
    first = any_table.upsert({"k": [1, 2], "a": [1, 1]}, txn=("job", 5))
    assert (first.counts, first.deduplicated) == ((2, 0, 0, 0), False)
    again = any_table.upsert({"k": [2, 1], "a": [1, 1]}, txn=("job", 5))
    assert (again.timestamp, again.counts, again.deduplicated) == (first.timestamp, (2, 0, 0, 0), True)
    other = any_table.upsert({"k": [1, 2, 3], "a": [9, 9, 9]}, txn=("job", 5), on_repeat="skip")
    assert (other.timestamp, other.counts, other.deduplicated) == (first.timestamp, (2, 0, 0, 0), True)
    older = any_table.upsert({"k": [3]}, txn=("job", 4), on_repeat="skip")
    assert (older.counts, older.deduplicated) == ((0, 0, 0, 0), True)
    assert any_table.scan(["k", "a"], order="key").to_pylist() == [{"k": 1, "a": 1}, {"k": 2, "a": 1}]
    newer = any_table.upsert({"k": [3]}, txn=("job", 6))
    assert newer.inserted == 1 and newer.timestamp > first.timestamp


def test_writers_do_not_meet(any_table: kc.Table) -> None:
    any_table.insert({"k": [1]}, txn=("a", 5))
    assert any_table.insert({"k": [2]}, txn=("b", 5)).inserted == 1
    assert any_table.insert({"k": [3]}, txn=("b", 1), on_repeat="skip").deduplicated
    assert any_table.insert({"k": [3]}, txn=("\N{SNOWMAN}", 0)).inserted == 1


def test_every_kind_of_write_takes_one(any_table: kc.Table) -> None:
    any_table.insert({"k": [1, 2, 3], "a": [1, 2, 3]}, txn=("j", 1))
    any_table.update({"k": [1], "a": [5]}, txn=("j", 2))
    any_table.delete([2], txn=("j", 3))
    any_table.apply({"k": [9], "_op": ["insert"]}, txn=("j", 4))
    any_table.delete(where=[("k", "=", 3)], txn=("j", 5))
    any_table.update(where=[("k", "=", 1)], set={"s": "x"}, txn=("j", 6))
    with any_table.batch(txn=("j", 7)) as batch:
        batch.insert({"k": [10]})
        batch.delete([9])
    with any_table.batch(txn=("j", 7)) as again:
        again.insert({"k": [10]})
        again.delete([9])
    assert batch.result is not None and again.result is not None
    assert again.result.counts == batch.result.counts == (1, 0, 1, 0)
    assert again.result.deduplicated
    assert any_table.delete(where=[("k", "=", 3)], txn=("j", 5)).deduplicated
    assert any_table.update(where=[("k", "=", 1)], set={"s": "x"}, txn=("j", 6)).deduplicated
    assert [r["k"] for r in any_table.scan(["k"], order="key").to_pylist()] == [1, 10]


def test_a_token_counts_though_nothing_changed(any_table: kc.Table) -> None:
    first = any_table.delete([99], on_missing="ignore", txn=("j", 1))
    assert first.counts == (0, 0, 0, 1)
    again = any_table.delete([99], on_missing="ignore", txn=("j", 1))
    assert again.deduplicated and again.counts == (0, 0, 0, 1)
    assert any_table.upsert([], txn=("j", 2)).counts == (0, 0, 0, 0)
    assert any_table.upsert([], txn=("j", 2)).deduplicated
    with pytest.raises(TokenMismatch, match="rows: 0 then, 1 now"):
        any_table.upsert({"k": [1]}, txn=("j", 2))
    assert any_table.count() == 0


def test_a_refused_write_leaves_the_token(any_table: kc.Table) -> None:
    any_table.insert({"k": [1]})
    with pytest.raises(kc.RowErrors):
        any_table.insert({"k": [1, 2]}, txn=("j", 1))
    result = any_table.insert({"k": [1, 2]}, on_error="return", txn=("j", 1))
    assert result.inserted == 1 and not result.deduplicated
    assert any_table.insert({"k": [1, 2]}, txn=("j", 1)).inserted == 1, "the good rows were counted"


@pytest.mark.parametrize("between", ["nothing", "flush", "truncated log", "reader first"])
@pytest.mark.usefixtures("small_segments")
def test_tokens_survive(make: Make, path: Path, between: str) -> None:
    table = make(durability="sync")
    first = table.insert({"k": [1, 2]}, txn=("j", 7))
    if between != "nothing":
        table.flush()
    if between == "truncated log":
        before = log_of(table).segments[0]
        for k in range(10):
            table.insert({"k": [10 + k], "s": ["x" * 2000]})
        table.flush()
        assert log_of(table).segments[0] != before, "the record of the token is gone"
    table.close()
    if between == "reader first":
        kc.open_table(path).close()
    for _ in range(2):
        with kc.open_table(path, "rw") as again:
            repeated = again.insert({"k": [1, 2]}, txn=("j", 7))
            assert (repeated.timestamp, repeated.counts) == (first.timestamp, (2, 0, 0, 0))
            with pytest.raises(TokenMismatch, match="version 7"):
                again.insert({"k": [99]}, txn=("j", 3))
            with pytest.raises(TokenMismatch, match="as many rows"):
                again.insert({"k": [1, 3]}, txn=("j", 7))
            assert again.get(99) is None
    with kc.open_table(path, "rw") as again:
        assert again.insert({"k": [99]}, txn=("j", 8)).inserted == 1


def test_tokens_of_a_log_that_was_not_closed(path: Path) -> None:
    """A crash right after: the log alone knows the token."""
    from tests.support.fs.memory import MemoryFileSystem

    fs = MemoryFileSystem()
    fs.mkdir("/d")
    fs.sync_dir("/")
    schema = pa.schema([("k", pa.int64())])
    table = kc.create_table("/d/t", schema, "k", options={"maintenance": "manual"}, _fs=fs)
    first = table.insert({"k": [1]}, txn=("j", 7))
    after = fs.crash_clone(keep="none")
    again = kc.open_table("/d/t", "rw", _fs=after)
    repeated = again.insert({"k": [1]}, txn=("j", 7))
    assert (repeated.timestamp, repeated.inserted, repeated.deduplicated) == (first.timestamp, 1, True)
    again.close()
    table.close()
