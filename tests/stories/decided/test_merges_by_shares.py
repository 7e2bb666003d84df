"""The random merges of ``test_differential_merges.py``, decided in shares by readers of the table, as Spark's
tasks decide them: engine and model give equal answers."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.writers import check_txn
from kudu_core.common.rows.arrow_in import given_rows
from kudu_core.table.jobs import merge_shares as shares
from kudu_core.table.jobs.merge_shares import DecidedShare, SharesOvertaken, decide_share, shared_merge
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.merge import merge_rows
from kudu_core.table.merge.merge_rows import Asked, MergeResult
from kudu_core.table.merge.merge_source import MergeSource
from kudu_core.table.opened.engine import Engine
from tests.support.differential import code_of, failure_of, merging_case
from tests.support.inside import engine_of
from tests.support.tables import Make

SHORT, LONG = (4, 40), (200, 100)
SHARES = 3
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        cases, steps = LONG if metafunc.config.getoption("--long") else SHORT
        metafunc.parametrize("case_seed", range(first, first + cases))
        metafunc.parametrize("steps", [steps], ids=str)


class Shared:
    """``executed`` by shares, and how often which way was taken."""

    def __init__(self) -> None:
        self.plain = merge_rows.executed
        self.applied = self.refused = self.overtaken = 0

    def __call__(self, engine: Engine, asked: Asked, on_error: str, txn: Any, on_repeat: str) -> MergeResult:
        parts = [part.batch for part in given_rows(asked.data, engine.schema) if part.batch.num_rows]
        again = Asked(parts, asked.on, asked.clauses, last_by=asked.last_by)
        by_source = any(clause.of == "by_source" for clause in asked.clauses)
        if engine.in_store or by_source or on_error != "raise" or not sum(part.num_rows for part in parts):
            return self.plain(engine, again, on_error, txn, on_repeat)
        token = check_txn(txn, on_repeat)
        try:
            with shared_merge(
                engine, asked.on, asked.clauses, asked.last_by, is_named=token is not None
            ) as merge:
                found: list[DecidedShare | None] = []
                for number, mine in enumerate(shared_out(engine, asked, parts)):
                    with open_handle(engine.path) as reader:
                        batches = (batch for batch in mine)
                        found.append(decide_share(lambda r=reader: r, merge.order, batches, f"s{number}"))
                sent = [None if one is None else DecidedShare.from_bytes(one.to_bytes()) for one in found]
                done = merge.applied(sent, on_error, token)
        except SharesOvertaken:
            self.overtaken += 1
        except kc.RowErrors:
            self.refused += 1  # which rows is told by numbers that shares do not know
            with pytest.raises(kc.RowErrors):
                self.plain(engine, again, on_error, txn, on_repeat)
            return self.plain(engine, again, on_error, txn, on_repeat)
        else:
            self.applied += 1
            return done
        return self.plain(engine, again, on_error, txn, on_repeat)


def shared_out(engine: Engine, asked: Asked, batches: list[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Rows by share, those of one key in one."""
    found: list[list[pa.RecordBatch]] = [[] for _ in range(SHARES)]
    for batch in batches:
        [part] = MergeSource(list(given_rows(batch, engine.schema)), asked.on).parts(engine.schema)
        for row, number in enumerate((part.keys.hashes % np.uint64(SHARES)).tolist()):
            found[number].append(batch.slice(row, 1))
    return [share for share in found if share]


@pytest.mark.timeout(1800)
def test_engine_and_model_agree(case_seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = Shared()
    monkeypatch.setattr(merge_rows, "executed", executed)
    if case_seed % 2:
        monkeypatch.setattr(shares, "PART_BYTES", 1)
    case = merging_case(5000 + case_seed, steps)
    failure = failure_of(case)
    if failure is not None:
        pytest.fail(f"seed {case_seed}: {failure}\n\n{code_of(case)}\n", pytrace=False)


@pytest.mark.parametrize("threshold", [1, 100_000], ids=["files", "log"])
@pytest.mark.parametrize("state", ["memory", "flushed"])
def test_shares_are_applied(make: Make, state: str, threshold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every clause that may be decided so, by files and by the log, and a repetition by the other way."""
    executed = Shared()
    by = [kc.HashPartition("k", 2)]
    with make(SCHEMA, ["k"], partition_by=by, ingest_threshold_rows=threshold) as table:
        table.insert({"k": list(range(100)), "n": [0] * 100})
        if state == "flushed":
            table.flush()
        source = pa.table({"k": list(range(50, 150)), "n": list(range(100))})

        def merge() -> kc.Merge:
            made = table.merge(source).when_matched_delete(where=kc.new("n") < 10)
            made = made.when_matched({"n": kc.old("n") + kc.new("n")}, where=kc.new("n") < 40)
            return made.when_not_matched_insert(where=kc.new("n") < 90)

        with monkeypatch.context() as patch:
            patch.setattr(merge_rows, "executed", executed)
            done = merge().execute(txn=("a", 1))
        assert executed.applied == 1
        assert (done.clauses, done.counts) == ((10, 30, 40), (40, 30, 10, 20))
        assert merge().execute(txn=("a", 1)).deduplicated
        rows = {row["k"]: row["n"] for row in table.scan().to_pylist()}
        kept = {k: 0 for k in range(100) if not 50 <= k < 90}
        assert rows == {**kept, **{k: k - 50 for k in range(60, 90)}, **{k: k - 50 for k in range(100, 140)}}
        assert not (engine_of(table).writers.committing)


@pytest.mark.parametrize("change", ["write", "other tablet", "alter", "truncate"])
def test_shares_that_are_not_right_any_more(make: Make, change: str) -> None:
    """Whatever of their tablets has changed: nothing is applied.  What happens to others does not matter."""
    by = [kc.RangePartition("k", [(None, 100), (100, None)])]
    with make(SCHEMA, ["k"], partition_by=by) as table:
        table.insert({"k": [1, 2, 200], "n": [0, 0, 0]})
        engine = engine_of(table)
        clause = table.merge([]).when_matched({"n": kc.old("n") + kc.new("n")}).clauses
        with shared_merge(engine, {"k": "k"}, clause, None, is_named=False) as merge:
            with open_handle(engine.path) as reader:
                batch = given(1, 3)
                share = decide_share(lambda: reader, merge.order, iter([batch]), "s")
            if change == "write":
                table.insert({"k": [3], "n": [1]})
            elif change == "other tablet":
                table.update({"k": [200], "n": [1]})
            elif change == "alter":
                table.alter(add=[kc.Column("m", "int64")])
            else:
                table.truncate()
            if change == "other tablet":
                assert merge.applied([share], "raise", None).updated == 1
                return
            before = table.scan(order="key").to_pylist()
            with pytest.raises(SharesOvertaken):
                merge.applied([share], "raise", None)
            with pytest.raises(SharesOvertaken):
                merge.applied([share, None], "raise", None)
        assert table.scan(order="key").to_pylist() == before


def given(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64()), "n": pa.array([5] * len(keys), pa.int64())})


def test_a_reader_that_is_behind_is_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "LOOK_PAUSE_S", 0.0)
    with make(SCHEMA, ["k"]) as table:
        table.insert({"k": [1], "n": [0]})
        with open_handle(table.path) as reader:
            table.update(where=pc.field("k") == 1, set={"n": 7})
            clause = table.merge([]).when_matched({"n": kc.old("n") + kc.new("n")}).clauses
            batch = given(1)
            looks = []

            def find() -> Any:
                looks.append(1)
                if len(looks) == 3:
                    reader.refresh()
                return reader

            with shared_merge(engine_of(table), {"k": "k"}, clause, None, is_named=False) as merge:
                monkeypatch.setattr(shares, "LOOKS", 2)
                assert decide_share(find, merge.order, iter([batch]), "s") is None
                monkeypatch.setattr(shares, "LOOKS", 9)
                share = decide_share(find, merge.order, iter([batch]), "s")
                assert merge.applied([share], "raise", None).updated == 1
        assert table.get(1) == {"k": 1, "n": 12}


def test_what_has_expired_is_not_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = Shared()
    monkeypatch.setattr(merge_rows, "executed", executed)
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("s"))])
    with make(schema, ["k"]) as table:
        table.insert([{"k": 1, "at": dt.datetime(2000, 1, 1)}, {"k": 2, "at": dt.datetime(2000, 1, 1)}])
        table.flush()
        table.alter(ttl=("at", dt.timedelta(days=1)))
        merge = table.merge([{"k": 1, "at": dt.datetime(2099, 1, 1)}]).when_matched_delete()
        done = merge.when_not_matched_insert().execute()
        assert (done.inserted, done.deleted, executed.applied) == (1, 0, 1)
        assert table.count() == 1
