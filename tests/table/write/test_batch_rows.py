"""Batches of Arrow go by the compiled path, and it and the general path are one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.write import door, few_rows
from tests.support.cases.logged import Logged
from tests.support.cases.row_tables import KEYS, LAYOUTS, make, random_keys, write
from tests.support.clock import ManualClock
from tests.support.fs.slow import Disk, create, reopen, rows
from tests.support.inside import engine_of, log_of
from tests.table.write.test_few_arrow_rows import random_batch
from tests.table.write.test_few_rows import OPERATIONS


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of a batch was answered without the general path.  Every batch is asked for."""
    out: list[bool] = []

    def write_batch(engine: Any, operation: str, rows: Any, wait: bool = True) -> Any:
        done = few_rows.write_batch(engine, operation, rows, wait)
        out.append(done is not None)
        return done

    monkeypatch.setattr(door, "write_batch", write_batch)
    monkeypatch.setattr(door, "write_few", lambda *_: None)
    monkeypatch.setattr(door, "FEW_OF_A_BATCH", 0)
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key_types", KEYS, ids=["+".join(k) for k in KEYS])
def test_batches_are_written_alike(
    tmp_path: Path, key_types: tuple[str, ...], seed: int, long: bool, taken: list[bool], layout: str
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types} {layout} batch")
    drawn = {repr(key): key for key in random_keys(r, key_types, 400)}
    keys = [drawn[max(drawn, key=len)], *(key for text, key in drawn.items() if len(text) < 800)][:40]
    with (
        make(tmp_path / "fast", key_types, ManualClock(), layout) as fast,
        make(tmp_path / "slow", key_types, ManualClock(), layout) as slow,
    ):
        fast_log, slow_log = Logged(fast), Logged(slow)
        for step in range(2000 if long else 30 if layout == "range" else 16):
            operation = r.choice(OPERATIONS)
            batch = random_batch(r, fast.schema, keys, operation)
            given = pa.Table.from_batches([batch]) if r.random() < 0.5 else batch
            # A list of batches means the same, and is not looked at by the compiled path.
            answers = write(fast, operation, given), write(slow, operation, [batch])
            assert answers[0] == answers[1], (step, operation, batch.to_pydict())
            assert fast_log.new() == slow_log.new(), (step, operation, batch.to_pydict())
            if r.random() < 0.15:  # after which no deleted row is left in the MemRowSet
                fast.flush()
                slow.flush()
        assert fast_log.records
        assert fast.scan(order="key").to_table().equals(slow.scan(order="key").to_table())
        assert sum(taken) > len(taken) // 10 or "decimal128(9,2)" in key_types or layout == "range"


SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])


def given(lower: int, upper: int, v: int) -> pa.RecordBatch:
    keys = list(range(lower, upper))
    words = [None if k % 3 else f"\u00e4{k}" for k in keys]
    return pa.RecordBatch.from_pydict({"k": keys, "v": [v] * len(keys), "s": words}, SCHEMA)


@pytest.fixture(params=[None, 4], ids=["one tablet", "four tablets"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    options = {"maintenance": "manual", "durability": "none"}
    parts = [] if request.param is None else [kc.HashPartition("k", request.param)]
    with kc.create_table(tmp_path / "t", SCHEMA, "k", partition_by=parts, options=options) as table:
        yield table


def test_thousands_of_rows_over_memory_and_files(table: kc.Table, taken: list[bool]) -> None:
    assert table.insert(given(0, 5000, 1)).inserted == 5000
    assert table.upsert(given(4000, 8000, 2)).counts == (3000, 1000, 0, 0)
    table.flush()
    assert table.update(given(7000, 8000, 3).select(["k", "v"])).updated == 1000
    assert table.upsert(given(6000, 9000, 4).select(["v", "k"])).counts == (1000, 2000, 0, 0)
    assert table.insert(given(8500, 9500, 5), on_conflict="ignore").counts == (500, 0, 0, 500)
    assert table.delete(given(9400, 9600, 0).select(["k"]), on_missing="ignore").counts == (0, 0, 100, 100)
    assert table.delete(given(0, 1000, 0).select(["k"])).deleted == 1000
    assert taken == [True] * 7
    path, rows = table.path, table.scan(order="key").to_table()
    expected = dict.fromkeys(range(1000, 4000), 1) | dict.fromkeys(range(4000, 6000), 2)
    expected |= dict.fromkeys(range(6000, 9000), 4) | dict.fromkeys(range(9000, 9400), 5)
    assert dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True)) == expected
    assert rows["s"].to_pylist() == [None if k % 3 or 8000 <= k < 9000 else f"\u00e4{k}" for k in expected]
    table.close()
    with kc.open_table(path, "rw") as table:
        assert table.scan(order="key").to_table().equals(rows)


def test_dead_rows_and_refused_rows_take_the_general_path(table: kc.Table, taken: list[bool]) -> None:
    table.insert(given(0, 100, 1))
    table.delete(given(10, 20, 1).select(["k"]))
    assert table.upsert(given(0, 100, 2)).counts == (10, 90, 0, 0)
    with pytest.raises(kc.RowErrors):
        table.insert(given(99, 130, 2))
    with pytest.raises(kc.RowErrors):
        table.update(given(90, 130, 2))
    assert taken == [True, True, False, False, False] and table.count() == 100
    refused = table.insert(given(90, 130, 2), on_error="return")
    assert refused.inserted == 30 and refused.errors is not None
    assert refused.errors["row"].to_pylist() == list(range(10))
    assert refused.errors["key"].to_pylist()[0] == {"k": 90}
    repeated = pa.concat_tables([pa.Table.from_batches([given(200, 230, 1)])] * 2).combine_chunks()
    assert table.upsert(repeated).counts == (30, 30, 0, 0)
    assert taken[5:] == [False, False]


def test_what_the_path_does_not_take(table: kc.Table, taken: list[bool]) -> None:
    table.insert(given(0, few_rows.BATCH_ROWS + 1, 1))
    table.upsert(pa.Table.from_batches([given(0, 30, 1), given(30, 60, 1)]))
    table.upsert(given(0, 30, 1), txn=("app", 1))
    table.upsert([given(0, 30, 1)])
    assert not taken
    with pytest.raises(kc.SchemaMismatch):
        table.upsert(given(0, 30, 1).append_column("x", pa.array(range(30))))
    table.upsert(given(0, 30, 1).set_column(1, "v", pa.array(range(30), pa.int32())))
    assert taken == [False, False]


def test_a_batch_for_which_there_is_no_memory_is_refused(tmp_path: Path, taken: list[bool]) -> None:
    options = {"maintenance": "manual", "memory_limit_bytes": 16 << 20, "ingest_threshold_bytes": 64 << 20}
    wide = given(0, 4000, 1).set_column(2, "s", pa.array(["x" * 5000] * 4000))
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        log = engine_of(table).log
        for batch in (wide, [wide]):
            with pytest.raises(kc.MemoryLimit):
                table.insert(batch)
        assert log.records == 0 and table.count() == 0
        assert table.insert(wide.slice(0, 1000)).inserted == 1000


def test_memory_that_batches_take_is_counted(table: kc.Table, taken: list[bool]) -> None:
    memory = engine_of(table).memory
    before = memory.estimate()
    table.insert(given(0, 4000, 1))
    after = memory.estimate()
    assert after - before > 4000 * (8 + 8 + 8)
    table.update(given(0, 4000, 2).select(["k", "v"]))
    assert memory.estimate() - after > 4000 * 8


def test_an_alter_beside_a_batch_is_seen(table: kc.Table, taken: list[bool]) -> None:
    table.insert(given(0, 50, 1))
    table.alter(add=[kc.Column("more", "int32", default=7)])
    table.insert(given(50, 100, 1))  # the MemRowSet has the columns of before
    table.flush()
    table.insert(given(100, 150, 1))
    assert table.scan(["more"]).to_table()["more"].to_pylist() == [7] * 150
    table.alter(drop=["s"])
    with pytest.raises(kc.SchemaMismatch):
        table.insert(given(150, 200, 1))
    assert taken[-1] is False and taken[0] and taken[2]


@pytest.mark.parametrize("step", ["append", "insert_batch"])
def test_w6_a_batch_that_is_cut_off_poisons(
    disk: Disk, taken: list[bool], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the record is in the log and in no store, and every later call waits for it."""
    table = create(disk)
    log = log_of(table)
    append = log.append

    def cut(*arguments: Any) -> None:
        if step == "append":
            append(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(log if step == "append" else MemRowSet, step, cut)
    with pytest.raises(KeyboardInterrupt):
        table.insert(rows(0, 50))
    with pytest.raises(kc.Poisoned):
        table.insert(rows(60, 99))
    assert not taken
    table.close()
    assert reopen(disk).count() == 50
