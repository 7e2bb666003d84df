"""A repetition of a distributed write is known by its rows; what its answer rests on; several at once."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.fingerprint import Fingerprint
from kudu_core.errors import TokenMismatch
from kudu_core.table.jobs import commit
from tests.support.bulk import small_runs
from tests.support.cases.repetitions import FILES, LOG, SCHEMA, SMALL, TXN, by_call, create, job_of, rows
from tests.support.inside import applied_writes_of, engine_of, handle_of, token_locks_of

# ---- jobs ----

JOB_COLUMNS = [("k", "int64"), ("a", "int32")]


def staged(
    table: kc.Table, data: dict[str, Any], types: list[tuple[str, str]] = JOB_COLUMNS, **options: Any
) -> Any:
    job = commit.begin(handle_of(table), "upsert", types, txn=TXN, **options)
    stager = commit.stager(job, "p0")
    schema = pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in types])
    stager.append(pa.table(data, schema=schema).to_batches()[0])
    return job, stager.finish()


def test_a_rule_of_nulls_makes_another_write(tmp_path: Path) -> None:
    with create(tmp_path, **FILES) as table:
        data = {"k": [1, 2], "a": [None, 3]}
        commit.commit_job(*staged(table, data, ignore_null=True), handle_of(table))
        assert commit.commit_job(*staged(table, data, ignore_null=True), handle_of(table)).deduplicated
        with pytest.raises(TokenMismatch, match="as many rows"):
            commit.commit_job(*staged(table, data), handle_of(table))


def test_a_column_that_is_not_stored_counts_where_it_decides(tmp_path: Path) -> None:
    types = [*JOB_COLUMNS, ("at", "int64")]
    last = {"on_duplicate": "last", "sequence_by": "at"}
    with create(tmp_path, **FILES) as table:
        first = staged(table, {"k": [1, 1], "a": [1, 2], "at": [5, 6]}, types, **last)
        commit.commit_job(*first, handle_of(table))
        again = {"k": [1, 1], "a": [2, 1], "at": [6, 5]}
        assert commit.commit_job(*staged(table, again, types, **last), handle_of(table)).deduplicated
        with pytest.raises(TokenMismatch, match="as many rows"):
            commit.commit_job(*staged(table, again | {"at": [5, 6]}, types, **last), handle_of(table))
        assert table.get(1)["a"] == 2  # type: ignore[index]


@pytest.mark.parametrize("fingerprint", [None, Fingerprint(1, 2, 3)])
def test_a_run_without_the_fingerprint_of_its_rows_is_refused(tmp_path: Path, fingerprint: Any) -> None:
    with create(tmp_path, **FILES) as table:
        job, runs = staged(table, {"k": [1, 2, 3, 4, 5, 6, 7], "a": [1] * 7})
        assert runs[0].rows > 1
        with pytest.raises(kc.Corruption, match="no fingerprint of its rows"):
            commit.commit_job(job, [replace(runs[0], fingerprint=fingerprint), *runs[1:]], handle_of(table))
        assert table.count() == 0


@pytest.mark.parametrize("options", [LOG, FILES], ids=["log", "files"])
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "other"])
def test_a_job_asks_again_when_it_has_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], equal: bool
) -> None:
    """Another one with its token is applied between its first question and its turn."""
    with create(tmp_path, **options) as table:
        job, runs = staged(table, {"k": [1, 2], "a": [1, 1]})
        engine = engine_of(table)
        lock = engine.writers.lock_of

        def taken(app_id: str) -> Any:
            monkeypatch.setattr(engine.writers, "lock_of", lock)
            table.upsert(pa.table({"k": [1, 2], "a": pa.array([1, 1 if equal else 2], pa.int32())}), txn=TXN)
            return lock(app_id)

        monkeypatch.setattr(engine.writers, "lock_of", taken)
        if equal:
            assert commit.commit_job(job, runs, handle_of(table)).deduplicated
        else:
            with pytest.raises(TokenMismatch, match="as many rows"):
                commit.commit_job(job, runs, handle_of(table))
        assert [r["a"] for r in table.scan(order="key").to_pylist()] == [1, 1 if equal else 2]


# ---- what an answer rests on ----


def test_a_refusal_waits_until_what_it_rests_on_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path) as table:
        first = table.upsert(rows(), txn=TXN)
        waited: list[int] = []
        monkeypatch.setattr(engine_of(table), "wait_visible", waited.append)
        with pytest.raises(TokenMismatch):
            table.upsert(rows([1]), txn=TXN)
        assert waited == [first.timestamp]
        assert table.upsert(rows(), txn=TXN).deduplicated
        assert waited == [first.timestamp] * 2


def test_what_no_rows_can_mend_is_told_before_they_are_read(tmp_path: Path) -> None:
    with create(tmp_path, **SMALL) as table:
        table.upsert(rows([1]), txn=("app", 5))
        given: list[int] = []
        read: list[Any] = []

        def batches() -> Any:
            for key in range(100):
                given.append(key)
                if key == 50 and read:
                    read.pop()()
                yield rows([key]).to_batches()[0]

        def write(version: int) -> Any:
            given.clear()
            with small_runs(spill=True):
                reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
                return table.upsert(reader, txn=("app", version))

        with pytest.raises(TokenMismatch, match="cannot be told"):
            write(4)
        assert len(given) < 10
        with pytest.raises(TokenMismatch, match="rows: 1 then, 100 now"):
            write(5)
        assert len(given) == 100, "these had to be read"
        # A token that goes while they are read is asked all the same: then they are not there to be written.
        read.append(lambda: applied_writes_of(table).clear())
        with pytest.raises(TokenMismatch, match="rows: 1 then, 100 now"):
            write(5)
        assert table.count() == 1


# ---- several at once ----


def test_two_writers_of_one_token_at_once(tmp_path: Path) -> None:
    """Equal rows are applied once, other rows are refused; whichever comes first."""
    with create(tmp_path) as table:
        for version in range(20):
            start = threading.Barrier(3)
            told: list[Any] = []

            def write(data: pa.Table, door: Any, told: Any = told, at: Any = (start, version)) -> None:
                at[0].wait()
                try:
                    told.append(door(table, data, txn=("app", at[1])))
                except TokenMismatch as exc:
                    told.append(exc)

            first, other = rows([version]), rows([version, 1000 + version])
            threads = [
                threading.Thread(target=write, args=args)
                for args in ((first, by_call), (first, job_of()), (other, by_call))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            refused = [t for t in told if isinstance(t, TokenMismatch)]
            applied = [t for t in told if not isinstance(t, TokenMismatch) and not t.deduplicated]
            assert len(applied) == 1
            assert len(refused) == (2 if applied[0].inserted == 2 else 1)
            assert len(told) == 3


def test_locks_of_tokens_do_not_grow_with_their_names(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        engine = engine_of(table)
        locks = {id(engine.writers.lock_of(f"app {n}")) for n in range(5_000)}
        assert len(locks) <= len(token_locks_of(table)) == 256
        with engine.writers.lock_of("a"):
            assert engine.writers.lock_of("a") is engine.writers.lock_of("a")
