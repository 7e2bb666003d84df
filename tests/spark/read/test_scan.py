"""Reading tables: by ``kudu_core.spark.scan`` and by ``spark.read.format("kudu_core")``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark import scan as scan_module
from kudu_core.engines.spark.scan import read_tokens, shared_out
from kudu_core.engines.spark.source import KuduReader
from tests.support.inside import tablets_of

ROWS = 5000
FIVE = pa.scalar(datetime(2026, 1, 1, 5, tzinfo=UTC), pa.timestamp("us", "UTC"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of several rowsets and one memory store: k, v = k * 3 or NULL, s, at, d."""
    path = str(tmp_path_factory.mktemp("scan") / "table")
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), False),
            ("v", pa.int32()),
            ("s", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("d", pa.decimal128(9, 2)),
        ]
    )
    with kc.create_table(path, schema, "k", partition_by=kc.HashPartition("k", 3)) as table:
        data = pa.table(
            {
                "k": range(ROWS),
                "v": [None if i % 7 == 0 else i * 3 for i in range(ROWS)],
                "s": [f"s{i % 10}" for i in range(ROWS)],
                "at": [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=i) for i in range(ROWS)],
                "d": pa.array([Decimal(i) for i in range(ROWS)], pa.decimal128(9, 2)),
            },
            schema=schema,
        )
        table.insert(data.slice(0, 4000))
        table.flush()
        table.insert(data.slice(4000))
    return path


def read(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("kudu_core").options(**options).load(path)


def as_table(df: DataFrame) -> pa.Table:
    return df.toArrow().sort_by("k")


def scanned(path: str, columns: Any = None, where: Any = None) -> pa.Table:
    with kc.open_table(path) as table:
        return table.scan(columns, where).to_table().sort_by("k")


def same(found: pa.Table, wanted: pa.Table) -> None:
    """Equal values; Spark writes its session's zone into the type of an instant."""
    assert found.column_names == wanted.column_names
    assert found.cast(wanted.schema).equals(wanted)


def test_a_scan_has_the_rows_and_the_nullability_of_the_table(spark: SparkSession, path: str) -> None:
    wanted = scanned(path)
    for df in (ks.scan(spark, path), read(spark, path)):
        assert [f.nullable for f in df.schema.fields] == [False, True, True, True, True]
        same(as_table(df), wanted)


def test_columns_come_in_the_order_asked_for(spark: SparkSession, path: str) -> None:
    wanted = scanned(path, ["s", "k"])
    same(as_table(ks.scan(spark, path, ["s", "k"])), wanted)
    same(as_table(read(spark, path, columns="s, k")), wanted)
    same(as_table(read(spark, path, columns='["s", "k"]')), wanted)
    own = spark.read.format("kudu_core").schema("s string, k bigint not null").load(path)
    same(as_table(own), wanted)


@pytest.mark.parametrize(
    ("where", "expression"),
    [
        ([["k", ">=", 100], ["k", "<", 110]], (pc.field("k") >= 100) & (pc.field("k") < 110)),
        ([["s", "in", ["s3", "s4"]]], pc.field("s").isin(["s3", "s4"])),
        ([[["k", "=", 3]], [["v", ">", 14900]]], (pc.field("k") == 3) | (pc.field("v") > 14900)),
        (
            [["at", "<", "2026-01-01T05:00:00+00:00"]],
            pc.field("at") < FIVE,
        ),
        ([["d", "<=", "2.00"]], pc.field("k") <= 2),
        ([["d", "<=", 2]], pc.field("k") <= 2),
        ([["k", "=", -1]], pc.field("k") == -1),
    ],
    ids=str,
)
def test_a_predicate_selects_what_it_does_on_the_table(
    spark: SparkSession, path: str, where: list[Any], expression: pc.Expression
) -> None:
    wanted = scanned(path, ["k", "v"], expression)
    same(as_table(ks.scan(spark, path, ["k", "v"], expression)), wanted)
    same(as_table(read(spark, path, columns="k,v", where=json.dumps(where))), wanted)


def test_a_predicate_may_be_text(spark: SparkSession, path: str) -> None:
    text = "k >= 100 AND k < 110 OR s LIKE 's3'"
    wanted = scanned(path, ["k", "v"], text)
    assert wanted.num_rows > 10
    same(as_table(ks.scan(spark, path, ["k", "v"], text)), wanted)
    same(as_table(read(spark, path, columns="k,v", where=text)), wanted)
    assert ks.count(spark, path, text) == wanted.num_rows


def test_a_scan_is_cut_into_tasks_by_rows(spark: SparkSession, path: str) -> None:
    assert ks.scan(spark, path).rdd.getNumPartitions() == 2
    small = ks.scan(spark, path, ["k"], target_rows_per_task=600)
    assert small.rdd.getNumPartitions() > 3
    same(as_table(small), scanned(path, ["k"]))
    assert read(spark, path, targetRowsPerTask=600).rdd.getNumPartitions() > 3


def test_shares_of_many_tasks_are_sent_to_a_worker_once(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [(os.urandom(100),) for _ in range(300)]
    assert len(tasks) > scan_module.CARRIED_TASKS
    assert len(cloudpickle.dumps(scan_module.carried(spark, tasks))) < 10_000, "as many bytes go with each"
    assert len(cloudpickle.dumps(scan_module.carried(spark, tasks[:200]))) > 20_000
    monkeypatch.setattr(scan_module, "CARRIED_TASKS", 1)
    assert scan_module.carried(spark, tasks)() == tasks
    frame = ks.scan(spark, path, ["k"], target_rows_per_task=400)
    assert frame.rdd.getNumPartitions() > 2
    assert sorted(row.k for row in frame.collect()) == list(range(ROWS))


@pytest.mark.parametrize("rows", [[0, 0, 0], [5], [1000, 1, 1, 1], [1, 1, 1, 1000], [10] * 40, []], ids=str)
def test_every_token_is_read_by_one_task(path: str, rows: list[int]) -> None:
    with kc.open_table(path) as table:
        token = table.scan_tokens()[0]
    tokens = [replace(token, tablet_id=i, rows=n) for i, n in enumerate(rows)]
    for at_least, target in ((1, 1), (2, 100), (8, 10**6)):
        tasks = shared_out(tokens, target, at_least)
        assert [t for task in tasks for t in task] == tokens
        assert all(tasks)
        assert len(tasks) <= max(at_least, -(-sum(rows) // target))
    assert len(shared_out(tokens, 100, 2)) >= min(2, len(rows))


def test_a_predicate_on_the_key_leaves_out_tablets(spark: SparkSession, path: str) -> None:
    df = ks.scan(spark, path, where=[("k", "=", 77)])
    assert df.rdd.getNumPartitions() == 1
    assert [row.k for row in df.collect()] == [77]


def test_a_predicate_that_zone_maps_exclude_plans_nothing(spark: SparkSession, path: str) -> None:
    for where in ([("v", "<", -5)], [("k", ">", 10**6)]):
        with kc.open_table(path) as table:
            left = {t.tablet_id for t in table.scan_tokens(where=where)}
            held = {t.id for t in tablets_of(table) if len(t.view.active)}
            assert left <= held, "what is on disk is not planned"
        assert ks.count(spark, path, where) == 0


def test_a_limit_reads_no_more_than_it_needs(spark: SparkSession, path: str) -> None:
    df = ks.scan(spark, path, ["k"], limit=7, target_rows_per_task=600)
    assert df.rdd.getNumPartitions() == 1
    assert df.count() == 7
    assert ks.scan(spark, path, ["k"], [("k", ">=", 4990)], limit=100).count() == 10
    loaded = read(spark, path, limit=3)
    assert loaded.count() == 3 and loaded.rdd.getNumPartitions() == 1
    assert read(spark, path, limit=0).collect() == [] == ks.scan(spark, path, limit=0).collect()
    with kc.open_table(path) as table:
        tokens = table.scan_tokens(["k"], batch_rows=5)
    batches = list(read_tokens(tokens, pa.schema([pa.field("k", pa.int64(), False)]), limit=8))
    assert [b.num_rows for b in batches] == [5, 3]
    with pytest.raises(kc.InvalidArgument, match="limit"):
        ks.scan(spark, path, limit=-1)


def test_rows_are_counted_by_manifests_that_know(spark: SparkSession, path: str, tmp_path: Any) -> None:
    nobody: Any = None
    assert ks.count(nobody, path) == ROWS, "without a task"
    above = pc.sum(pc.greater(scanned(path)["v"], 14000)).as_py()
    assert ks.count(spark, path, [("v", ">", 14000)]) == above
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with kc.create_table(tmp_path / "t", schema, "k", partition_by=kc.HashPartition("k", 2)) as table:
        before = table.insert({"k": range(100), "v": [0] * 100}).timestamp
        table.flush()
        table.delete([5])
        table.insert({"k": [1000]})
        assert ks.count(nobody, table, at=before) == 100
        with pytest.raises(AttributeError):
            ks.count(nobody, table)
        assert ks.count(spark, table) == 100
        table.flush()
        assert [ks.count(spark, table), ks.count(spark, table, at=before)] == [100, 100]


def test_a_dataframe_is_one_snapshot(spark: SparkSession, tmp_path: Any) -> None:
    path = str(tmp_path / "table")
    with kc.create_table(path, pa.schema([("k", pa.int64()), ("v", pa.int64())]), "k") as table:
        first = table.insert({"k": [1, 2], "v": [1, 2]}).timestamp
        before = ks.scan(spark, path)
        loaded = read(spark, path)
        assert loaded.count() == 2
        table.flush()
        table.upsert({"k": [2, 3], "v": [20, 30]})
        table.flush()

        def pairs(df: DataFrame) -> list[tuple[int, int]]:
            return sorted((row.k, row.v) for row in df.collect())

        assert pairs(before) == pairs(loaded) == [(1, 1), (2, 2)]
        assert pairs(ks.scan(spark, path)) == pairs(read(spark, path)) == [(1, 1), (2, 20), (3, 30)]
        assert pairs(ks.scan(spark, table, at=first)) == [(1, 1), (2, 2)]
        assert pairs(read(spark, path, snapshot=first)) == [(1, 1), (2, 2)]
        micros = (first >> 12) + 1
        now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        elsewhere = now.astimezone(timezone(timedelta(hours=-5)))
        seconds = f"{micros // 10**6}.{micros % 10**6:06}"
        for text in (now.isoformat(), now.isoformat(" "), elsewhere.isoformat(), seconds):
            assert pairs(read(spark, path, timestampAsOf=text)) == [(1, 1), (2, 2)]
        assert pairs(ks.scan(spark, path, at=now)) == [(1, 1), (2, 2)]
        with table.snapshot(at=first) as snapshot:
            for place in (path, table):
                assert pairs(ks.scan(spark, place, at=snapshot)) == [(1, 1), (2, 2)]
        # A handle that is open for writing knows moments that no other reader does yet.
        assert pairs(ks.scan(spark, table, at=datetime.now(UTC))) == [(1, 1), (2, 20), (3, 30)]
    a_moment_ago = f"{datetime.now(UTC).timestamp():.6f}"
    assert pairs(read(spark, path, timestampAsOf=a_moment_ago)) == [(1, 1), (2, 20), (3, 30)], "nobody writes"


def test_an_empty_table_and_an_empty_answer_have_a_schema(spark: SparkSession, tmp_path: Any) -> None:
    path = str(tmp_path / "table")
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    kc.create_table(path, schema, "k", partition_by=kc.RangePartition("k", [(0, 10)])).close()
    for df in (
        ks.scan(spark, path),
        read(spark, path),
        ks.scan(spark, path, where=[("k", ">", 50)]),
        read(spark, path, where='[["k", ">", 50]]'),
    ):
        assert df.columns == ["k", "v"]
        assert df.collect() == []


def test_spark_may_stop_early_and_join_a_scan_with_itself(spark: SparkSession, path: str) -> None:
    df = ks.scan(spark, path, ["k", "s"])
    assert len(df.limit(5).collect()) == 5
    assert df.alias("a").join(df.alias("b"), "k").count() == ROWS
    loaded = read(spark, "file://" + path)
    # Spark 4.3 keeps a pushed filter for every later query of a DataFrame, so none may be pushed.
    assert "pushFilters" not in vars(KuduReader)
    assert loaded.where("k = 1").count() == 1
    assert loaded.count() == ROWS


def test_workers_keep_their_tables_open(spark: SparkSession, path: str) -> None:
    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from kudu_core.engines.spark.cache import _tables

        for _ in batches:
            pass
        found = {place.path: id(t) for place, t in _tables.items()}
        yield pa.RecordBatch.from_pydict(
            {"pid": pa.array([os.getpid()], pa.int64()), "table": pa.array([found.get(path, 0)], pa.int64())}
        )

    def tables() -> dict[int, int]:
        rows = spark.range(0, 8, 1, 8).mapInArrow(report, "pid bigint, table bigint").collect()
        return {row.pid: row.table for row in rows if row.table}

    df = ks.scan(spark, path, target_rows_per_task=600)
    df.count()
    before = tables()
    df.count()
    ks.scan(spark, path, ["k"]).count()
    after = tables()
    kept = before.keys() & after.keys()
    assert kept
    assert all(before[pid] == after[pid] for pid in kept)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colunms": "k"}, r"\[KUDU_INVALID_ARGUMENT\] no option 'colunms'.*did you mean columns\?"),
        ({"operation": "upsert"}, "operation is an option of write, not of read"),
        ({"columns": "k,nope"}, "nope"),
        ({"columns": " , "}, "columns names no column"),
        ({"where": "k >"}, r"where: SQL, line 1, at '>'"),
        ({"where": '[["k", ">", 5]'}, r"where is no JSON"),
        ({"where": '["k", ">", 5]'}, "where is a JSON list of"),
        ({"where": '[["nope", ">", 5]]'}, "nope"),
        ({"where": '[["at", ">", "soon"]]'}, "'soon' is no value of column 'at'"),
        ({"snapshot": "x"}, "snapshot is a whole number"),
        ({"snapshot": str(2**63)}, r"\[KUDU_SNAPSHOT_IN_FUTURE\]"),
        ({"timestampAsOf": "2026-01-01"}, "time with its zone"),
        ({"timestampAsOf": "2026-01-01 12:00:00"}, "seconds since 1970"),
        ({"timestampAsOf": "1769860800000000"}, "the option snapshot"),
        ({"timestampAsOf": "-5"}, "before 1970"),
        ({"timestampAsOf": "2099-01-01T00:00:00Z"}, r"\[KUDU_SNAPSHOT_IN_FUTURE\].*readable here"),
        ({"snapshot": "1", "timestampAsOf": "2026-01-01T00:00Z"}, "say the same thing"),
    ],
    ids=str,
)
def test_options_that_do_not_exist_say_what_does(
    spark: SparkSession, path: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, path, **options).count()


def test_a_path_without_a_table_says_so(spark: SparkSession, tmp_path: Any) -> None:
    with pytest.raises(kc.TableNotFound, match="create_table"):
        ks.scan(spark, tmp_path / "none")
    with pytest.raises(PySparkException, match=r"\[KUDU_TABLE_NOT_FOUND\]"):
        read(spark, str(tmp_path / "none"))
    with pytest.raises(PySparkException, match=r"no path: .*\.load"):
        spark.read.format("kudu_core").load()


def test_a_schema_that_is_not_the_tables_is_refused(spark: SparkSession, path: str) -> None:
    for ddl, message in (
        ("k int", "read as bigint, not int"),
        ("w int", "no column 'w'"),
        ("v int not null", "may be NULL"),
    ):
        with pytest.raises(PySparkException, match=message):
            spark.read.format("kudu_core").schema(ddl).load(path).count()


def test_scan_arguments_are_checked_on_the_driver(spark: SparkSession, path: str) -> None:
    with pytest.raises(kc.InvalidArgument, match="no DataFrame"):
        ks.scan(spark, path, [])
    with pytest.raises(kc.InvalidArgument):
        ks.scan(spark, path, ["nope"])
    with pytest.raises(kc.InvalidArgument, match="target_rows"):
        ks.scan(spark, path, target_rows_per_task=0)
