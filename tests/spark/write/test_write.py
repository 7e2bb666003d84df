"""Writing DataFrames: by ``kudu_core.spark.write`` and by ``df.write.format("kudu_core")``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark import few
from kudu_core.engines.spark import write as write_module
from kudu_core.errors import TokenMismatch
from kudu_core.table.jobs.job_table import JobTable
from tests.support.staged import waiting

Frame = Callable[..., DataFrame]
Write = Callable[..., Any]

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int32()), ("s", pa.string())])


def by_function(df: DataFrame, path: str, operation: str, **options: Any) -> Any:
    return ks.write(df, path, operation, **options)


def by_format(df: DataFrame, path: str, operation: str, **options: Any) -> None:
    writer = df.write.format("kudu_core").mode(options.get("mode", "append")).option("operation", operation)
    if "txn" in options:
        app_id, version = options["txn"]
        writer = writer.option("txnAppId", app_id).option("txnVersion", version)
    names = {
        "on_duplicate": "onDuplicate", "sequence_by": "sequenceBy", "ignore_null": "ignoreNull",
        "on_repeat": "onRepeat",
    }  # fmt: skip
    for name in names.keys() & options.keys():
        writer = writer.option(names[name], options[name])
    writer.save(path)


def by_driver(df: DataFrame, path: str, operation: str, **options: Any) -> Any:
    """As ``by_function``, of a frame so small that it comes to the driver; no task may stage anything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few, "WRITTEN_BYTES", 1 << 20)
        patch.setattr(write_module, "staging_function", None)
        return ks.write(df, path, operation, **options)


def by_files(df: DataFrame, path: str, operation: str, **options: Any) -> Any:
    """As ``by_function``, whose tasks hand back what is as little as here; they stage all of it."""

    def at(path: Any, storage_options: Any) -> JobTable:
        found = known(path, storage_options)
        return replace(found, options=found.options.overridden({"ingest_threshold_rows": 1}))

    known = JobTable.at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobTable, "at", at)
        patch.setattr(write_module, "unpacked", refuse_rows)
        return ks.write(df, path, operation, **options)


def refuse_rows(held: list[bytes]) -> list[Any]:
    assert held == [], "a task has handed its rows back"
    return []


ROUTES = pytest.mark.parametrize(
    "write",
    [by_function, by_driver, by_files, by_format],
    ids=["function", "driver", "files", "format"],
)


def make(path: str, rows: dict[int, tuple[int | None, str | None]] | None = None, **options: Any) -> None:
    with kc.create_table(path, SCHEMA, "k", **options) as table:
        if rows:
            table.insert(columns(rows))


def columns(rows: dict[int, tuple[int | None, str | None]]) -> pa.Table:
    return pa.table(
        {"k": list(rows), "v": [r[0] for r in rows.values()], "s": [r[1] for r in rows.values()]},
        schema=pa.schema([("k", pa.int64()), ("v", pa.int32()), ("s", pa.string())]),
    )


def rows_of(path: str) -> dict[int, tuple[int | None, str | None]]:
    with kc.open_table(path) as table:
        return {r["k"]: (r["v"], r["s"]) for r in table.scan(order="key").to_pylist()}


def staging(path: str) -> list[str]:
    return waiting(path)


PARTITIONS = [
    kc.HashPartition("k", 2),
    kc.RangePartition("k", [(None, 3), (3, 1000)]),
]
BEFORE = {1: (10, "a"), 2: (20, "b"), 3: (30, None)}
KEYS = pa.table({"k": pa.array([2, 9], pa.int64())})
VALUES = pa.table({"k": pa.array([2, 9], pa.int64()), "v": pa.array([21, None], pa.int32())})
CASES = {
    "insert": (VALUES.slice(1), BEFORE | {9: (None, None)}, (1, 0, 0, 0)),
    "insert_ignore": (VALUES, BEFORE | {9: (None, None)}, (1, 0, 0, 1)),
    "upsert": (VALUES, BEFORE | {2: (21, "b"), 9: (None, None)}, (1, 1, 0, 0)),
    "update": (VALUES.slice(0, 1), BEFORE | {2: (21, "b")}, (0, 1, 0, 0)),
    "update_ignore": (VALUES, BEFORE | {2: (21, "b")}, (0, 1, 0, 1)),
    "delete": (KEYS.slice(0, 1), {1: (10, "a"), 3: (30, None)}, (0, 0, 1, 0)),
    "delete_ignore": (KEYS, {1: (10, "a"), 3: (30, None)}, (0, 0, 1, 1)),
    "apply": (
        pa.table(
            {"_op": ["delete", "upsert", "insert"], "k": [1, 2, 9], "v": pa.array([None, 5, 6], pa.int32())}
        ),
        {2: (5, "b"), 3: (30, None), 9: (6, None)},
        (1, 1, 1, 0),
    ),
}


@pytest.mark.parametrize(("most", "jobs"), [(99, 1), (100, 0)])
def test_a_few_rows_are_resolved_by_the_driver(
    frame: Frame, path: str, monkeypatch: pytest.MonkeyPatch, most: int, jobs: int
) -> None:
    """By rows and by bytes; both ways write the same."""
    before: Any = {k: (k, "old") for k in range(50)}
    make(path, before, partition_by=PARTITIONS, options={"ingest_threshold_rows": 1})
    begun = []
    usual = write_module.resolving_function

    def resolving(job: Any) -> Any:
        begun.append(job)
        return usual(job)

    monkeypatch.setattr(write_module, "resolving_function", resolving)
    monkeypatch.setattr(write_module, "DRIVER_BYTES", 1 << 20)
    monkeypatch.setattr(write_module, "DRIVER_ROWS", most)
    new = {k: (k, "new") for k in range(25, 125)}
    told = ks.write(frame(columns(new)), path, "upsert")
    assert (told.inserted, told.updated, len(begun)) == (75, 25, jobs)
    assert rows_of(path) == {k: (k, "old" if k < 25 else "new") for k in range(125)}
    monkeypatch.setattr(write_module, "DRIVER_ROWS", 100)
    monkeypatch.setattr(write_module, "DRIVER_BYTES", 10)
    ks.write(frame(columns(new)), path, "upsert")
    assert len(begun) == jobs + 1


def test_rows_that_lie_alone_are_resolved_by_the_driver(
    frame: Frame, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: their files are taken in as they are.  Where the table holds something between
    their keys, in files or in memory, or another run does, tasks look at them."""
    make(path, {}, partition_by=PARTITIONS, options={"ingest_threshold_rows": 1})
    begun = []
    usual = write_module.resolving_function

    def resolving(job: Any) -> Any:
        begun.append(job)
        return usual(job)

    monkeypatch.setattr(write_module, "resolving_function", resolving)
    monkeypatch.setattr(write_module, "DRIVER_BYTES", 0)
    lower, upper = {k: (k, "a") for k in range(100, 120)}, {k: (k, "b") for k in range(200, 220)}
    for new in (lower, upper):
        assert ks.write(frame(columns(new)), path, "insert").inserted == 20
    assert not begun
    assert ks.write(frame(columns(lower)), path, "upsert", mode="overwrite").inserted == 20
    assert not begun
    assert ks.write(frame(columns(lower | upper)), path, "upsert").updated == 20
    assert len(begun) == 1
    with kc.open_table(path, "rw", options={"ingest_threshold_rows": 2}) as table:  # into memory
        table.insert([{"k": 310, "v": 1, "s": None}, {"k": 355, "v": 1, "s": None}])
        assert ks.write(frame(columns({k: (k, "c") for k in range(300, 310)})), table).inserted == 10
        assert len(begun) == 1
        between = {k: (k, "c") for k in range(350, 360) if k != 355}
        assert ks.write(frame(columns(between)), table).inserted == 9
        assert len(begun) == 2
    assert ks.write(frame(columns(upper)), path, "update").updated == 20
    assert len(begun) == 3
    mixed = frame(columns({k: (k, "d") for k in range(400, 440)}))  # two runs of each tablet
    assert ks.write(mixed, path, "upsert", repartition="none").inserted == 40
    assert len(begun) == 4


@ROUTES
@pytest.mark.parametrize("operation", CASES)
def test_every_operation_does_what_it_does_on_a_table(
    frame: Frame, path: str, write: Write, operation: str
) -> None:
    data, after, counts = CASES[operation]
    make(path, BEFORE, partition_by=PARTITIONS)
    result = write(frame(data), path, operation)
    assert rows_of(path) == after
    assert staging(path) == []
    if result is not None:
        assert result.counts == counts
        with kc.open_table(path) as table:
            assert table.timestamp == result.timestamp


@ROUTES
def test_a_refused_row_refuses_the_job(frame: Frame, path: str, write: Write) -> None:
    make(path, BEFORE, partition_by=PARTITIONS)
    with pytest.raises((kc.RowErrors, PySparkException)) as caught:
        write(frame(columns({8: (1, "x"), 2: (1, "y")})), path, "insert")
    assert "1 already_present" in str(caught.value) and "'k': 2" in str(caught.value)
    assert "insert_ignore" in str(caught.value) and "on_error" not in str(caught.value)
    if isinstance(caught.value, PySparkException):
        assert "[KUDU_ROW_ERRORS]" in str(caught.value)
    with pytest.raises((kc.RowErrors, PySparkException), match="no_partition"):
        write(frame(columns({8: (1, "x"), 5000: (1, "y")})), path, "upsert")
    assert rows_of(path) == BEFORE
    assert staging(path) == []


@ROUTES
def test_two_rows_with_one_key_are_refused_unless_any_will_do(frame: Frame, path: str, write: Write) -> None:
    make(path)
    twice = frame(pa.concat_tables([columns({1: (1, "x"), 2: (2, "y")}), columns({1: (3, "z")})]))
    with pytest.raises((kc.RowErrors, PySparkException), match="1 duplicate_in_batch"):
        write(twice, path, "upsert")
    assert rows_of(path) == {}
    write(twice, path, "upsert", on_duplicate="any")
    found = rows_of(path)
    assert found.pop(1) in ((1, "x"), (3, "z"))
    assert found == {2: (2, "y")}


@ROUTES
def test_the_last_row_of_a_key_counts_and_nulls_say_nothing(frame: Frame, path: str, write: Write) -> None:
    make(path, BEFORE, partition_by=PARTITIONS)
    rows = {
        "k": [1, 1, 1, 9, 9],
        "v": pa.array([11, None, 12, 90, 91], pa.int32()),
        "s": pa.array(["x", "late", "y", None, None], pa.string()),
        "seq": [1, 3, 2, 2, 1],
    }
    options = {"on_duplicate": "last", "sequence_by": "seq", "ignore_null": True}
    write(frame(rows), path, "upsert", **options)
    assert rows_of(path) == BEFORE | {1: (10, "late"), 9: (90, None)}
    with pytest.raises((kc.SchemaMismatch, PySparkException), match="'seq'"):
        write(frame(VALUES), path, "upsert", **options)
    assert staging(path) == []


@ROUTES
def test_a_token_is_applied_once(frame: Frame, path: str, write: Write) -> None:
    make(path)
    first = write(frame(columns({1: (1, "x"), 2: (1, "y")})), path, "insert", txn=("load", 7))
    again = write(frame(columns({2: (1, "y"), 1: (1, "x")})), path, "insert", txn=("load", 7))
    with pytest.raises((TokenMismatch, PySparkException), match="rows: 2 then, 1 now"):
        write(frame(columns({3: (1, "x")})), path, "insert", txn=("load", 7))
    write(frame(columns({3: (1, "x")})), path, "insert", txn=("load", 7), on_repeat="skip")
    with pytest.raises((TokenMismatch, PySparkException), match="cannot be told"):
        write(frame(columns({4: (1, "x")})), path, "insert", txn=("load", 6))
    assert rows_of(path) == {1: (1, "x"), 2: (1, "y")}
    if first is not None:
        assert again.deduplicated and again.counts == first.counts and again.timestamp == first.timestamp
    write(frame(columns({5: (1, "x")})), path, "insert", txn=("load", 8))
    assert sorted(rows_of(path)) == [1, 2, 5]
    assert staging(path) == []


def test_a_token_that_was_applied_while_the_tasks_ran_is_not_applied_again(
    frame: Frame, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    with kc.open_table(path, "rw") as table:
        original = write_module._stage

        def stage_late(df: DataFrame, job: Any) -> Any:
            runs = original(df, job)
            table.insert(columns({1: (1, "other")}), txn=(job.txn.app_id, job.txn.version))
            return runs

        monkeypatch.setattr(write_module, "_stage", stage_late)
        result = ks.write(frame(columns({1: (1, "other")})), table, "insert", txn=("load", 1))
        assert result.deduplicated and result.inserted == 1
        table.delete([1])
        with pytest.raises(TokenMismatch, match="as many rows"):
            ks.write(frame(columns({2: (2, "mine")})), table, "insert", txn=("load", 2))
        assert table.scan().to_pylist() == [{"k": 1, "v": 1, "s": "other"}]
    assert staging(path) == []


@pytest.mark.parametrize("write", [by_function, by_driver])
def test_an_empty_frame_writes_nothing_but_keeps_its_token(frame: Frame, path: str, write: Write) -> None:
    make(path, BEFORE)
    none = frame(columns(BEFORE)).where("k > 100")
    assert write(none, path, "upsert").counts == (0, 0, 0, 0)
    by_format(none, path, "upsert")
    assert not write(none, path, "upsert", txn=("a", 1)).deduplicated
    assert write(none, path, "upsert", txn=("a", 1)).deduplicated
    assert rows_of(path) == BEFORE


@pytest.mark.parametrize("repartition", ["tablet", "none"])
def test_a_large_write_goes_through_files_and_a_small_one_through_the_log(
    spark: SparkSession, path: str, repartition: str
) -> None:
    make(path, partition_by=kc.HashPartition("k", 4), options={"ingest_threshold_rows": 1000})
    df = spark.range(0, 3000, 1, 3).select(
        F.col("id").alias("k"), F.col("id").cast("int").alias("v"), F.lit("s").alias("s")
    )
    assert ks.write(df, path, "insert", repartition=repartition).inserted == 3000
    assert ks.write(df.where("k < 500"), path, "upsert", repartition=repartition).updated == 500
    with kc.open_table(path) as table:
        assert table.count() == 3000
        # One rowset of a tablet; without a shuffle one of each of the three tasks, as their keys do not mix.
        assert table.stats("rowset").num_rows == {"tablet": 4, "none": 12}[repartition]


@pytest.mark.parametrize("write", [by_function, by_driver])
def test_a_table_of_this_process_is_written_through(frame: Frame, path: str, write: Write) -> None:
    make(path)
    with kc.open_table(path, "rw") as table:
        result = write(frame(columns({1: (1, "x")})), table, "upsert")
        assert table.get(1) == {"k": 1, "v": 1, "s": "x"}
        assert table.timestamp >= result.timestamp
    with kc.open_table(path) as reader, pytest.raises(kc.ReadOnly):
        write(frame(columns({1: (1, "x")})), reader, "upsert")


@pytest.mark.parametrize("write", [by_function, by_driver])
def test_a_locked_table_keeps_the_staged_rows_for_a_later_commit(
    frame: Frame, path: str, write: Write
) -> None:
    make(path)
    df = frame(columns({1: (1, "x"), 2: (2, "y")}))
    with kc.open_table(path, "rw"):
        with pytest.raises(kc.Locked) as caught:
            write(df, path, "insert", lock_timeout_s=0.1)
        with pytest.raises(PySparkException, match=r"\[KUDU_LOCKED\] .*kudu_core.spark.commit") as coded:
            df.write.format("kudu_core").mode("append").option("lockTimeoutS", 0.1).save(path)
        assert str(os.getpid()) in str(coded.value)
    assert rows_of(path) == {}
    jobs = staging(path)
    assert len(jobs) == 2
    job = next(job for job in jobs if job in caught.value.__notes__[0])
    assert ks.commit(path, job).inserted == 2
    assert rows_of(path) == {1: (1, "x"), 2: (2, "y")}
    again = ks.commit(path, job)
    assert again.deduplicated and again.inserted == 2


def test_a_frame_that_is_not_few_rows_goes_to_tasks(
    frame: Frame, spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than its plan's bytes have promised, and a plan that promises nothing: both are written."""
    make(path)
    df = frame(columns({k: (k, "x") for k in range(50)}))
    monkeypatch.setattr(few, "WRITTEN_BYTES", 1 << 20)
    found = few.few_rows(df)
    assert found is not None and sum(batch.num_rows for batch in found) == 50
    monkeypatch.setattr(few, "WRITTEN_ROWS", 49)
    assert few.few_rows(df) is None
    assert ks.write(df, path, "insert").inserted == 50
    unknown = spark.createDataFrame(df.collect(), df.schema)
    monkeypatch.setattr(few, "WRITTEN_ROWS", 50)
    assert few.few_rows(unknown) is None
    assert ks.write(unknown, path, "upsert").updated == 50
    assert staging(path) == []
