"""A repetition is known by its rows, whatever door they come through and however they lie; other rows are
refused, and nothing of them is applied."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.fingerprint import Fingerprint
from kudu_core.common.idempotence.writers import RECENT_VERSIONS, check_txn
from kudu_core.errors import TokenMismatch
from kudu_core.table.jobs import commit
from tests.support.bulk import MEMORY_LIMIT_BYTES, small_runs
from tests.support.inside import applied_writes_of, engine_of, token_locks_of

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int32()), ("s", pa.string())])
ROWS = 40
KEYS = list(range(ROWS))
TXN = ("app", 1)


def rows(keys: list[int] = KEYS) -> pa.Table:
    """Of a key the same cells, always; some are NULL."""
    cells = {
        "k": keys,
        "a": [None if k % 5 == 0 else 7 * k for k in keys],
        "s": [None if k % 7 == 0 else f"s{k}" for k in keys],
    }
    return pa.table(cells, schema=SCHEMA)


# ---- how the rows are given ----

EQUAL: dict[str, Callable[[], pa.Table]] = {
    "equal": rows,
    "permuted": lambda: rows(random.Random(1).sample(KEYS, ROWS)),
    "other batches": lambda: pa.concat_tables([rows(KEYS[:1]), rows(KEYS[1:17]), rows(KEYS[17:])]),
    "large strings": lambda: rows().set_column(2, "s", rows()["s"].cast(pa.large_string())),
    "a dictionary": lambda: rows().set_column(2, "s", rows()["s"].dictionary_encode()),
    "other types": lambda: rows().set_column(1, "a", rows()["a"].cast(pa.int64())),
    "other columns first": lambda: rows().select(["s", "k", "a"]),
    "a slice": lambda: pa.concat_tables([rows([99, 98]), rows(), rows([97])]).combine_chunks().slice(2, ROWS),
}


def changed(column: int, row: int, value: Any) -> pa.Table:
    cells = rows().column(column).to_pylist()
    cells[row] = value
    return rows().set_column(column, SCHEMA.field(column).name, pa.array(cells, SCHEMA.field(column).type))


def moved() -> pa.Table:
    """The same cells in each column, of other rows."""
    strings = rows()["s"].to_pylist()
    strings[1], strings[2] = strings[2], strings[1]
    return rows().set_column(2, "s", pa.array(strings, pa.string()))


OTHER: dict[str, Callable[[], pa.Table]] = {
    "one cell": lambda: changed(1, 3, -1),
    "one string": lambda: changed(2, 3, "s3 "),
    "one key": lambda: changed(0, 3, 1000),
    "a value for NULL": lambda: changed(1, 5, 0),
    "NULL for a value": lambda: changed(2, 1, None),
    "an empty string for NULL": lambda: changed(2, 7, ""),
    "cells that changed places": moved,
    "a row more": lambda: rows([*KEYS, ROWS]),
    "a row less": lambda: rows(KEYS[:-1]),
    "a row twice": lambda: rows([*KEYS, 3]),
    "another row twice": lambda: rows([*KEYS[:-1], 3]),
    "none": lambda: rows([]),
}


# ---- the doors ----


def by_call(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    return table.upsert(data, **txn)


def by_one_batch(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    """A batch of many calls, also of single rows."""
    with table.batch(**txn) as batch:
        for part in data.to_batches(max_chunksize=7):
            if part.num_rows < 7:
                batch.upsert(part)
            else:
                batch.upsert(part.slice(0, 3))
                batch.upsert(part.slice(3))
    return batch.result


def by_operations(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    ops = pa.array(["upsert" if k % 2 else "insert_ignore" for k in data["k"].to_pylist()], pa.string())
    return table.apply(data.append_column("_op", ops), **txn)


def by_key(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    return table.update(data, on_missing="ignore", **txn)


def spilled(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    with small_runs(spill=True):
        return table.upsert(data.to_reader(max_chunksize=5), **txn)


def job_of(**fixed: Any) -> Callable[..., Any]:
    """A distributed write whose rows come through several attempts."""

    def write(table: kc.Table, data: pa.Table, *, txn: Any, on_repeat: str = "check") -> Any:
        columns = [(f.name, str(f.type)) for f in SCHEMA]
        operation = fixed.get("operation", "upsert")
        if operation == "apply":
            columns.append(("_op", "string"))
            names = ["upsert" if k % 2 else "insert_ignore" for k in data["k"].to_pylist()]
            ops = pa.array(names, pa.string())
            data = data.append_column("_op", ops)
        job = commit.begin(
            table, operation, columns, txn=check_txn(txn, on_repeat), on_duplicate="any",
            **{k: v for k, v in fixed.items() if k != "operation"},
        )  # fmt: skip
        runs = []
        types = {name: pa.type_for_alias(type_) for name, type_ in columns}
        for number, batch in enumerate(data.to_batches(max_chunksize=11)):
            # As attempts are given them: in the job's columns and types.
            arrays = [batch.column(name).cast(type_) for name, type_ in types.items()]
            stager = commit.stager(job, f"p{number}")
            stager.append(pa.RecordBatch.from_arrays(arrays, list(types)))
            runs += stager.finish()
        return commit.commit_job(job, runs, table)

    return write


LOG = {"ingest_threshold_rows": 100_000}
FILES = {"ingest_threshold_rows": 1}
SMALL = FILES | {"memory_limit_bytes": MEMORY_LIMIT_BYTES}
DOORS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "call": (by_call, LOG),
    "call to files": (by_call, FILES),
    "batch": (by_one_batch, LOG),
    "batch to files": (by_one_batch, FILES),
    "operations": (by_operations, LOG),
    "update": (by_key, LOG),
    "spilled": (spilled, SMALL),
    "job": (job_of(), LOG),
    "job to files": (job_of(), FILES),
    "job of operations": (job_of(operation="apply"), FILES),
    "overwrite": (job_of(overwrite=True), FILES),
}


def create(path: Path, **options: Any) -> kc.Table:
    return kc.create_table(
        path / "t", SCHEMA, "k", partition_by=kc.HashPartition("k", 3),
        options={"maintenance": "manual"} | options,
    )  # fmt: skip


def state(table: kc.Table) -> list[dict[str, Any]]:
    return table.scan(order="key").to_pylist()


@pytest.mark.parametrize("door", DOORS)
def test_equal_rows_are_a_repetition_and_others_are_refused(tmp_path: Path, door: str) -> None:
    """Protocol K1."""
    write, options = DOORS[door]
    with create(tmp_path, **options) as table:
        table.insert(rows([1, 2, 3]))
        first = write(table, rows(), txn=TXN)
        assert not first.deduplicated
        wanted, timestamp = state(table), table.timestamp
        for name, make in EQUAL.items():
            again = write(table, make(), txn=TXN)
            assert again.deduplicated, name
            assert (again.timestamp, again.counts) == (first.timestamp, first.counts), name
        for name, make in OTHER.items():
            given = make()
            with pytest.raises(TokenMismatch) as caught:
                write(table, given, txn=TXN)
            error = caught.value
            assert (error.app_id, error.version) == TXN, name
            assert (error.stored_rows, error.given_rows) == (ROWS, given.num_rows), name
            assert "on_repeat" in str(error) and "new name" in str(error)
            skipped = write(table, given, txn=TXN, on_repeat="skip")
            assert skipped.deduplicated and skipped.counts == first.counts, name
        assert (state(table), table.timestamp) == (wanted, timestamp)
        staging = tmp_path / "t/staging"
        left = [f.name for f in staging.iterdir()] if staging.exists() else []
        assert all(name.endswith(".committed") for name in left), left
        assert not write(table, rows([1]), txn=("app", 2)).deduplicated


def test_doors_know_each_other(tmp_path: Path) -> None:
    """The same operation with the same rows has one fingerprint, whichever way it comes."""
    for door, (write, options) in DOORS.items():
        if "operations" in door or door in ("update", "overwrite"):
            continue
        (tmp_path / door).mkdir()
        with create(tmp_path / door, **options) as table:
            write(table, rows(), txn=TXN)
            for other in ("call", "batch", "spilled", "job"):
                assert DOORS[other][0](table, rows(), txn=TXN).deduplicated, (door, other)


@pytest.mark.parametrize("door", ["call", "call to files", "batch", "spilled"])
def test_null_and_a_missing_column_are_two_things(tmp_path: Path, door: str) -> None:
    """An upsert sets the one and leaves the other."""
    write, options = DOORS[door]
    with create(tmp_path, **options) as table:
        nulls = rows().set_column(2, "s", pa.nulls(ROWS, pa.string()))
        write(table, nulls, txn=TXN)
        with pytest.raises(TokenMismatch, match="as many rows"):
            write(table, rows().select(["k", "a"]), txn=TXN)


def test_other_operations_are_other_writes(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.upsert(rows(), txn=TXN)
        for write in (
            lambda: table.insert(rows(), txn=TXN),
            lambda: table.insert(rows(), on_conflict="ignore", txn=TXN),
            lambda: table.update(rows(), txn=TXN),
            lambda: table.delete(rows().select(["k"]), txn=TXN),
            lambda: table.delete(where=pc.field("k") < 5, txn=TXN),
            lambda: table.update(where=pc.field("k") < 5, set={"a": 1}, txn=TXN),
            lambda: job_of(overwrite=True)(table, rows(), txn=TXN),
            lambda: job_of(operation="insert")(table, rows(), txn=TXN),
        ):
            with pytest.raises(TokenMismatch):
                write()
        assert state(table) == rows().to_pylist()


def test_a_write_by_predicate_is_known_by_what_it_says(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.insert(rows())
        first = table.update(where=[("k", "<", 5)], set={"a": pc.field("a") + 1, "s": "x"}, txn=("w", 1))
        again = table.update(where=pc.field("k") < 5, set={"s": "x", "a": pc.field("a") + 1}, txn=("w", 1))
        assert again.deduplicated and again.counts == first.counts
        for where, set_ in (
            ([("k", "<", 6)], {"a": pc.field("a") + 1, "s": "x"}),
            ([("k", "<", 5)], {"a": pc.field("a") + 2, "s": "x"}),
            ([("k", "<", 5)], {"a": pc.field("a") + 1, "s": None}),
            ([("k", "<", 5)], {"a": pc.field("a") + 1}),
        ):
            with pytest.raises(TokenMismatch):
                table.update(where=where, set=set_, txn=("w", 1))
        assert table.delete(where=[("k", "<", 5)], txn=("w", 2)).deleted == 5
        assert table.delete(where=[("k", "<", 5)], txn=("w", 2)).deleted == 5, "the stored answer"


# ---- versions of before ----


@pytest.mark.parametrize("reopened", [False, True])
def test_versions_of_before_are_known_for_a_while(tmp_path: Path, reopened: bool) -> None:
    last = RECENT_VERSIONS + 3
    table = create(tmp_path)
    for version in range(last + 1):
        table.upsert(rows([version]), txn=("app", version))
    if reopened:
        table.close()
        table = kc.open_table(tmp_path / "t", "rw")
    with table:
        for version in range(last - RECENT_VERSIONS, last):
            again = table.upsert(rows([version]), txn=("app", version))
            assert (again.deduplicated, again.counts) == (True, (0, 0, 0, 0))
            with pytest.raises(TokenMismatch, match="as many rows"):
                table.upsert(rows([1000]), txn=("app", version))
        with pytest.raises(TokenMismatch, match=f"not among the last {RECENT_VERSIONS}"):
            table.upsert(rows([2]), txn=("app", last - RECENT_VERSIONS - 1))
        assert table.upsert(rows([2]), txn=("app", 0), on_repeat="skip").deduplicated
        assert [r["k"] for r in state(table)] == list(range(last + 1))


def test_a_source_is_told_from_another(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.upsert(rows([1]), txn=("app", 1))
        table.upsert(rows([2]), txn=("app", 2, "query a"))
        assert table.upsert(rows([2]), txn=("app", 2, "query a")).deduplicated
        assert table.upsert(rows([2]), txn=("app", 2)).deduplicated, "who does not say is not asked"
        for version in (1, 2, 3):
            with pytest.raises(TokenMismatch, match=r"'app' as the name of the writes of query a, .*query b"):
                table.upsert(rows([version]), txn=("app", version, "query b"))
        assert table.upsert(rows([9]), txn=("app", 2, "query b"), on_repeat="skip").deduplicated
        table.upsert(rows([3]), txn=("app", 3, "query b"), on_repeat="skip")
        with pytest.raises(TokenMismatch, match="query a"):
            table.upsert(rows([3]), txn=("app", 3, "query a"))
        with pytest.raises(TokenMismatch, match="not among"):
            table.upsert(rows([2]), txn=("app", 2, "query b"))
    with kc.open_table(tmp_path / "t") as reader:
        assert applied_writes_of(reader)["app"].source == "query b"
        assert [r["k"] for r in state(reader)] == [1, 2, 3]


def test_an_alter_between_keeps_what_a_write_was(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.upsert(rows(), txn=TXN)
        table.alter(rename={"s": "text"}, add=[kc.Column("more", pa.int64())])
        assert table.upsert(rows().rename_columns(["k", "a", "text"]), txn=TXN).deduplicated
        with pytest.raises(TokenMismatch):
            table.upsert(rows().rename_columns(["k", "a", "text"]).append_column("more", [KEYS]), txn=TXN)
        assert table.count() == ROWS


# ---- names ----


@pytest.mark.parametrize(
    ("txn", "told"),
    [
        (("x" * 1025, 1), "1,025 bytes"),
        (("\N{SNOWMAN}" * 342, 1), "1,026 bytes"),
        (("a", 1, "s" * 257), "source has 257 bytes"),
        (("a", 1, ""), "app_id, version, source"),
        (("a", 1, 5), "app_id, version, source"),
        (("a", 2**63), "app_id, version, source"),
        (("a", 1, "b", "c"), "app_id, version, source"),
        (("a", True), "app_id, version, source"),
    ],
)
def test_a_name_that_no_reader_would_take_is_refused(tmp_path: Path, txn: Any, told: str) -> None:
    with create(tmp_path) as table:
        for write in (by_call, by_one_batch, spilled, job_of()):
            with pytest.raises(kc.InvalidArgument, match=told):
                write(table, rows(), txn=txn)
        assert table.count() == 0


def test_the_longest_names_come_back(tmp_path: Path) -> None:
    longest = "\N{SNOWMAN}" * 341 + "x"
    with create(tmp_path) as table:
        table.upsert(rows(), txn=(longest, 2**63 - 1, "s" * 256))
    for _ in range(2):
        with kc.open_table(tmp_path / "t", "rw") as table:
            assert table.upsert(rows(), txn=(longest, 2**63 - 1, "s" * 256)).deduplicated


def test_on_repeat_without_a_token_is_refused(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        for write in (table.upsert, lambda *a, **more: table.upsert([{"k": 1}], **more), table.insert):
            with pytest.raises(kc.InvalidArgument, match="is for writes with txn"):
                write(rows(), on_repeat="skip")
            with pytest.raises(kc.InvalidArgument, match="on_repeat is"):
                write(rows(), on_repeat="ask")
        with pytest.raises(kc.InvalidArgument, match="is for writes with txn"):
            table.batch(on_repeat="skip")
        with pytest.raises(kc.InvalidArgument, match="is for writes with txn"):
            table.delete(where=pc.field("k") < 1, on_repeat="skip")
        assert table.count() == 0


# ---- jobs ----

JOB_COLUMNS = [("k", "int64"), ("a", "int32")]


def staged(
    table: kc.Table, data: dict[str, Any], types: list[tuple[str, str]] = JOB_COLUMNS, **options: Any
) -> Any:
    job = commit.begin(table, "upsert", types, txn=TXN, **options)
    stager = commit.stager(job, "p0")
    schema = pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in types])
    stager.append(pa.table(data, schema=schema).to_batches()[0])
    return job, stager.finish()


def test_a_rule_of_nulls_makes_another_write(tmp_path: Path) -> None:
    with create(tmp_path, **FILES) as table:
        data = {"k": [1, 2], "a": [None, 3]}
        commit.commit_job(*staged(table, data, ignore_null=True), table)
        assert commit.commit_job(*staged(table, data, ignore_null=True), table).deduplicated
        with pytest.raises(TokenMismatch, match="as many rows"):
            commit.commit_job(*staged(table, data), table)


def test_a_column_that_is_not_stored_counts_where_it_decides(tmp_path: Path) -> None:
    types = [*JOB_COLUMNS, ("at", "int64")]
    last = {"on_duplicate": "last", "sequence_by": "at"}
    with create(tmp_path, **FILES) as table:
        commit.commit_job(*staged(table, {"k": [1, 1], "a": [1, 2], "at": [5, 6]}, types, **last), table)
        again = {"k": [1, 1], "a": [2, 1], "at": [6, 5]}
        assert commit.commit_job(*staged(table, again, types, **last), table).deduplicated
        with pytest.raises(TokenMismatch, match="as many rows"):
            commit.commit_job(*staged(table, again | {"at": [5, 6]}, types, **last), table)
        assert table.get(1)["a"] == 2  # type: ignore[index]


@pytest.mark.parametrize("fingerprint", [None, Fingerprint(1, 2, 3)])
def test_a_run_without_the_fingerprint_of_its_rows_is_refused(tmp_path: Path, fingerprint: Any) -> None:
    with create(tmp_path, **FILES) as table:
        job, runs = staged(table, {"k": [1, 2, 3, 4, 5, 6, 7], "a": [1] * 7})
        assert runs[0].rows > 1
        with pytest.raises(kc.Corruption, match="no fingerprint of its rows"):
            commit.commit_job(job, [replace(runs[0], fingerprint=fingerprint), *runs[1:]], table)
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
            assert commit.commit_job(job, runs, table).deduplicated
        else:
            with pytest.raises(TokenMismatch, match="as many rows"):
                commit.commit_job(job, runs, table)
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
