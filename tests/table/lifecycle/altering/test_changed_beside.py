"""What is under way while a column ceases to take NULL: ingests, short writes, distributed writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.calls.prepared import Prepared
from kudu_core.table.ingest import ingest
from kudu_core.table.jobs import commit
from tests.support.bulk import small_runs
from tests.support.inside import engine_of, handle_of


@pytest.mark.parametrize("spill", [False, True])
def test_an_ingest_with_nulls_that_is_overtaken_is_refused(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch, spill: bool
) -> None:
    real, left = ingest._build, [lambda: table.alter(change={"v": {"nullable": False}})]

    def build(*args: Any, **more: Any) -> Any:
        made = real(*args, **more)
        if left:
            left.pop()()
        return made

    monkeypatch.setattr(ingest, "_build", build)
    data = pa.table({"k": pa.array(range(10, 60)), "v": pa.array([None, *range(49)], pa.int64())})
    with small_runs(spill=spill):
        result = table.insert(data, on_error="return")
    assert (result.inserted, result.refused) == (49, 1)
    assert result.errors.to_pylist()[0]["code"] == "null_in_required"
    assert table.count() == 52


def test_a_short_write_with_nulls_that_is_overtaken_is_refused(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = Prepared.__init__, [lambda: table.alter(change={"v": {"nullable": False}})]

    def prepare(*args: Any, **more: Any) -> None:
        real(*args, **more)
        if left:
            left.pop()()

    monkeypatch.setattr(Prepared, "__init__", prepare)
    with pytest.raises(kc.RowErrors, match="null_in_required"):
        table.upsert([{"k": 9, "v": None}, {"k": 9, "v": None}])
    assert table.count() == 3


@pytest.mark.parametrize("count", [3, 30])
def test_a_job_that_began_before(table: kc.Table, count: int) -> None:
    """Its rowset, which would be taken as it is, has NULLs in a column that it does not even give."""

    def staged(data: dict[str, Any]) -> Any:
        batch = pa.RecordBatch.from_pydict(data)
        job = commit.begin(handle_of(table), "insert", [(f.name, str(f.type)) for f in batch.schema])
        stager = commit.stager(job, "a", engine_of(table).fs)
        stager.append(batch)
        return job, stager.finish()

    keys = list(range(100, 100 + count))
    given = staged({"k": keys, "s": ["x"] * count})
    with_null = staged({"k": keys, "v": [None, *range(count - 1)]})
    table.alter(change={"v": {"nullable": False}}, rename={"k": "key"}, order=["s"])
    for job, runs in (given, with_null):
        with pytest.raises(kc.RowErrors, match="null_in_required"):
            commit.commit_job(job, runs, handle_of(table))
    assert table.count() == 3
    table.alter(rename={"key": "k"})
    job, runs = staged({"k": keys, "v": keys})
    table.alter(rename={"k": "key"}, change={"s": {"default": "new"}})
    assert commit.commit_job(job, runs, handle_of(table)).inserted == count
    assert table.get(100) == {"s": "new", "key": 100, "v": 100}
