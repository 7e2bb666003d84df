"""Every call that writes meets a key whose row has expired as one whose row was deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.table.opened import test_handle_beside as every_call
from tests.table.ttl.twins import DAY, LIFETIME, Twins, sorted_rows

GONE, ALIVE = {"k": 1}, {"k": 2}
BULK_ROWS = 8
Act = Callable[[kc.Table], Any]


def _batch(table: kc.Table) -> Any:
    with table.batch() as batch:
        seen = batch.get(1), batch.get_many([1, 2], ["v"]).to_pylist()
        batch.insert([GONE])
    return seen, batch.result.counts


def _batch_of_reads(table: kc.Table) -> Any:
    with table.batch() as batch:
        seen = batch.get(1)
        batch.upsert([{"k": 9, "v": 0 if seen is None else 1}])
    return batch.result.counts


def _unread_batch(table: kc.Table) -> Any:
    with table.batch() as batch:
        batch.insert([GONE])
        batch.update([{"k": 1, "v": 5}])
    return batch.result.counts


def _large(rows: int = BULK_ROWS) -> pa.Table:
    return pa.table({"k": pa.array(range(1, rows + 1), pa.int64()), "s": ["new"] * rows})


def _row(row: dict[str, Any]) -> pa.Table:
    return pa.table({name: [value] for name, value in row.items()})


DOORS: dict[str, list[Act]] = {
    "insert": [
        lambda t: t.insert([GONE]),
        lambda t: t.insert([GONE], on_conflict="ignore"),
        lambda t: t.insert(_row(GONE)),
        lambda t: t.insert([GONE, {"k": 9}]),
        lambda t: t.insert([GONE], if_=kc.new("k") > 0),
        lambda t: t.insert(_large(), on_conflict="ignore"),
        lambda t: t.insert([GONE], txn=("a", 1)),
        lambda t: t.insert([GONE], wait=False).result(),
    ],
    "upsert": [
        lambda t: t.upsert([GONE]),
        lambda t: t.upsert(_row(GONE)),
        lambda t: t.upsert(_large(3)),
        lambda t: t.upsert(_large()),
        lambda t: t.upsert(_large().to_pylist()),
        lambda t: t.upsert([GONE], if_=kc.old("v") > 100),
        lambda t: t.upsert([GONE], set={"v": kc.old("v") + 1}),
    ],
    "update": [
        lambda t: t.update([{"k": 1, "v": 3}]),
        lambda t: t.update([{"k": 1, "v": 3}], on_missing="ignore"),
        lambda t: t.update(_large(3), on_error="return"),
        lambda t: t.update(_large(), on_error="return"),
        lambda t: t.update([GONE], set={"v": kc.old("v") + 1}),
        lambda t: t.update(where=pc.field("v") >= 0, set={"v": 8}),
        lambda t: t.update(where="k = 1", set={"at": None}),
    ],
    "delete": [
        lambda t: t.delete([1]),
        lambda t: t.delete([1], on_missing="ignore"),
        lambda t: t.delete([1, 2], on_error="return"),
        lambda t: t.delete([1], if_=kc.old("v") > 0),
        lambda t: t.delete(where=pc.field("v") >= 0),
        lambda t: t.delete(where=pc.scalar(True)),
    ],
    "apply": [lambda t: t.apply([{"_op": "insert", "k": 1}, {"_op": "update", "k": 2, "v": 3}])],
    "batch": [_batch, _batch_of_reads, _unread_batch],
    "modify": [
        lambda t: t.modify(1, lambda row: {"v": 0 if row is None else 1}),
        lambda t: t.modify([1, 2], lambda row: None),
    ],
    "merge": [
        lambda t: t.merge([GONE]).when_matched({"v": 3}).when_not_matched_insert().execute().counts,
        lambda t: t.merge([ALIVE]).when_not_matched_by_source_update({"v": 3}).execute().counts,
        lambda t: t.merge([ALIVE]).when_not_matched_by_source_delete().execute().counts,
    ],
    "sql": [
        lambda t: t.sql("UPDATE this SET v = 3").counts,
        lambda t: t.sql("DELETE FROM this WHERE k = 1").counts,
    ],
}
CASES = [pytest.param(act, id=f"{name}-{at}") for name, acts in DOORS.items() for at, act in enumerate(acts)]


def test_every_write_is_here() -> None:
    assert set(DOORS) == every_call.WRITES | every_call.ELSEWHERE


@pytest.mark.parametrize("act", CASES)
def test_what_has_expired_is_not_there(tmp_path: Path, act: Act, request: pytest.FixtureRequest) -> None:
    twins = Twins(tmp_path, 1, ingest_threshold_rows=BULK_ROWS)
    old = twins.now - LIFETIME + DAY
    for table in (twins.ttl, twins.plain):
        table.insert([{**GONE, "at": old, "v": 1, "s": "old"}, {**ALIVE, "at": twins.now, "v": 2, "s": "x"}])
        if len(request.node.name) % 2:  # of some in files
            table.flush()
    twins.clock.advance(DAY.total_seconds())
    twins.both(act)
    assert sorted_rows(twins.ttl.to_table()) == twins.rows()
    twins.ttl.alter(ttl=None)  # nothing that had expired has come to anything
    shown = sorted_rows(twins.ttl.to_table())
    assert [row for row in shown if row["at"] != old] == twins.rows()
    twins.close()


def test_a_call_that_is_spilled(tmp_path: Path) -> None:
    twins = Twins(tmp_path, 1, memory_limit_bytes=16 << 20)
    old = twins.now - LIFETIME + DAY
    for table in (twins.ttl, twins.plain):
        table.insert([{**GONE, "at": old, "v": 1, "s": "old"}])
    twins.clock.advance(DAY.total_seconds())
    some = pa.table({"k": range(4096), "s": ["x" * 300] * 4096})
    batches = [some.set_column(0, "k", pc.add(some["k"], n * 4096)).to_batches()[0] for n in range(5)]
    assert twins.both(lambda t: t.insert(iter(batches)))[0] == (5 * 4096, 0, 0, 0)
    assert twins.ttl.get(1)["v"] == 7
    twins.close()
