"""``ks.merge``: a DataFrame's rows, decided by tasks or by the process that writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark import frame_merge

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.uint64()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "t"
    with kc.create_table(made, SCHEMA, "k") as table:
        table.insert({"k": [1, 2, 3], "n": [1, 2, 3], "at": [None] * 3})
    return made


def frame(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(2, rows).selectExpr("id AS k", "CAST(10 AS DECIMAL(20, 0)) AS n", "id % 2 = 0 AS even")


def merged(of: ks.FrameMerge) -> ks.FrameMerge:
    of = of.when_matched({"n": kc.old("n") + kc.new("n")}, where=kc.new("even"))
    return of.when_not_matched_insert({"n": kc.new("n")}, where=kc.new("even"))


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no frame were small, and nobody but tasks could decide."""
    monkeypatch.setattr(frame_merge, "few_rows", lambda _: None)
    monkeypatch.setattr(frame_merge, "executed", None)


@pytest.mark.parametrize("few", [True, False])
def test_a_merge_of_a_frame(
    spark: SparkSession, path: Path, few: bool, request: pytest.FixtureRequest
) -> None:
    if not few:
        request.getfixturevalue("by_tasks")
    df = frame(spark, 8).repartition(3)
    done = merged(ks.merge(df, path)).execute(txn=("query", 1))
    assert (done.clauses, done.counts) == ((1, 2), (2, 1, 0, 3))
    with kc.open_table(path) as table:
        rows = table.scan(["k", "n"], order="key").to_table().to_pylist()
        assert rows == [{"k": k, "n": n} for k, n in ((1, 1), (2, 12), (3, 3), (4, 10), (6, 10))]
    again = merged(ks.merge(df, path)).execute(txn=("query", 1))
    assert again.deduplicated and again.counts[:3] == (2, 1, 0)


def test_into_a_table_that_is_open(spark: SparkSession, path: Path) -> None:
    with kc.open_table(path, "rw") as table:
        of = ks.merge(frame(spark, 5), table, on={"k": "k"}).when_matched_delete()
        assert of.execute().counts == (0, 0, 2, 1)
        assert table.count() == 1


def test_what_is_wrong_is_said(spark: SparkSession, path: Path) -> None:
    df = frame(spark, 5)
    with pytest.raises(kc.InvalidArgument, match="a merge has clauses"):
        ks.merge(df, path).execute()
    with pytest.raises(kc.NotSupported, match="primary key, k"):
        ks.merge(df, path, on="n")
    with pytest.raises(kc.InvalidArgument, match="no column 'm'"):
        ks.merge(df, path).when_matched({"n": kc.new("m")}).execute()
    with kc.open_table(path, "rw"), pytest.raises(kc.Locked):
        ks.merge(df, path, lock_timeout_s=0).when_matched_delete().execute()
    twice = df.union(df)
    with pytest.raises(kc.RowErrors, match="duplicate_in_batch"):
        ks.merge(twice, path).when_matched({"n": kc.new("n")}).execute()
    with kc.open_table(path) as table:
        assert table.count() == 3


def test_a_stream_is_merged_once(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """As its documentation says: in ``foreachBatch``, with the batch's number as a token."""
    source = tmp_path / "source"
    frame(spark, 8).write.parquet(str(source))

    def each(df: DataFrame, number: int) -> None:
        for _ in range(2):  # a batch that Spark repeats
            merged(ks.merge(df, path)).execute(txn=("query", number), on_repeat="skip")

    reader: Any = spark.readStream.schema("k LONG, n DECIMAL(20, 0), even BOOLEAN").parquet(str(source))
    query = reader.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    with kc.open_table(path) as table:
        assert table.get(2, ["n"]) == {"n": 12}
        assert table.count() == 5


def test_many_tablets_and_rows_by_tasks(spark: SparkSession, tmp_path: Path, by_tasks: None) -> None:
    """By files, with another name for the key and the last of several rows of a key; and twice the same."""
    by, options = [kc.HashPartition("k", 4)], {"ingest_threshold_rows": 10}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", partition_by=by, options=options) as table:
        table.insert({"k": list(range(500)), "n": [0] * 500})
        df = spark.range(2000).selectExpr("id DIV 2 AS key", "CAST(id AS DECIMAL(20, 0)) AS n", "id AS turn")

        def merge() -> ks.FrameMerge:
            last: Any = {"on_duplicate": "last", "sequence_by": "turn"}
            made = ks.merge(df.repartition(5), table, on={"k": "key"}, **last)
            return made.when_matched({"n": kc.new("n")}).when_not_matched_insert({"n": kc.new("n")})

        done = merge().execute(txn=("query", 1))
        assert (done.clauses, done.counts) == ((500, 500), (500, 500, 0, 0))
        assert merge().execute(txn=("query", 1)).deduplicated
        assert {row["k"]: row["n"] for row in table.scan(["k", "n"]).to_pylist()} == {
            k: 2 * k + 1 for k in range(1000)
        }
        table.verify()
        assert not [name for name in (tmp_path / "t" / "staging").iterdir() if name.name.startswith("merge-")]


def test_a_write_beside_the_tasks(spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tasks have decided is not right any more: this process decides it."""
    monkeypatch.setattr(frame_merge, "few_rows", lambda _: None)
    collected = frame_merge.collected
    with kc.open_table(path, "rw") as table:

        def written(df: DataFrame) -> Any:
            found = collected(df)
            table.update({"k": [2], "n": [100]})
            return found

        monkeypatch.setattr(frame_merge, "collected", written)
        assert merged(ks.merge(frame(spark, 8), table)).execute().clauses == (1, 2)
        assert table.get(2, ["n"]) == {"n": 110}
