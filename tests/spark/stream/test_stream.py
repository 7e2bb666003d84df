"""Changes as DataFrames, and streams from tables and into them."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark import changes, source
from kudu_core.engines.spark.stream import stream_source
from kudu_core.engines.spark.stream.stream_source import KuduStreamReader, Shares
from kudu_core.engines.spark.versions.streaming import LIMITS, ReadAllAvailable, ReadLimit, ReadMaxRows
from tests.spark.stream.conftest import state
from tests.support.inside import oldest_ts_of

STEPS = 4
limited = pytest.mark.skipif(not LIMITS, reason="before PySpark 4.2 no batch is limited")


def first_write(path: str) -> int:
    with kc.open_table(path) as table:
        return int(min(row["_timestamp"] for row in table.changes(oldest_ts_of(table)).to_pylist()))


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


def plain(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


# ---- ks.changes ----


def test_changes_are_those_of_the_table(spark: SparkSession, path: str) -> None:
    since = first_write(path)
    with kc.open_table(path) as table:
        until = table.timestamp
        for kwargs in ({}, {"where": [("k", "<", 50)], "columns": ["v", "k"]}, {"net": True}):
            wanted = table.changes(since, until, **kwargs)
            df = ks.changes(spark, path, since, target_rows_per_task=60, **kwargs)
            assert rows(df) == plain(wanted.to_table())
            assert [(f.name, f.nullable) for f in df.schema.fields] == [
                (f.name, f.nullable) for f in wanted.schema
            ]
        assert rows(ks.changes(spark, table)) == plain(table.changes().to_table())
        both = table.changes(since, images="both").to_table()
    given = {"readChanges": "true", "since": str(since), "until": str(until)}
    loaded = spark.read.format("kudu_core").options(**given).load(path)
    assert loaded.count() == both.num_rows == 502
    assert loaded.where("_op = 'delete'").count() == 2
    images = ks.changes(spark, path, since, images="both").where("_op <> 'insert'")
    assert rows(images.select("k", "v", "_before.v", "_before.u")) == sorted(
        ((r["k"], r["v"], r["_before"]["v"], r["_before"]["u"]) for r in both.to_pylist() if r["_before"]),
        key=repr,
    )
    assert ks.changes(spark, path, until).collect() == []


def test_changes_of_keys_are_looked_up_by_the_driver(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "frame_of", None)
    since = first_write(path)
    with kc.open_table(path) as table:
        some: list[int] = [*{row["k"] for row in table.changes(since).to_pylist()}][::7]
        narrow = {"columns": ["v"], "where": [("k", ">", 9)]}
        for key, kwargs in ((some[0], {}), ((some[1],), {"net": True}), (some, narrow), (-5, {})):
            wanted = table.changes(since, key=key, **kwargs).to_table()
            df = ks.changes(spark, path, since, key=key, **kwargs)
            assert rows(df) == plain(wanted)
            assert df.columns == wanted.column_names
        assert rows(ks.changes(spark, path, since, images="both", key=[])) == []
        wanted = table.changes(key=some, images="both").to_table()
        told = ks.changes(spark, table, images="both", key=some)
        before = sorted(str(row["_before"] and row["_before"]["v"]) for row in wanted.to_pylist())
        assert sorted(str(row["_before"] and row["_before"]["v"]) for row in told.collect()) == before
    with pytest.raises(kc.KuduError, match="key"):
        ks.changes(spark, path, since, key={"nothing": 1})


def test_versions_of_a_row_are_looked_up_by_the_driver(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "frame_of", None)
    since = first_write(path)
    with kc.open_table(path) as table:
        some = [*{row["k"] for row in table.changes(since).to_pylist()}][::7]
        narrow = {"columns": ["v"], "since": since}
        for key, kwargs in ((some[0], {}), ((some[1],), narrow), (some[2], {"until": since}), (-5, {})):
            wanted = table.history_of(key, **kwargs)
            df = ks.history_of(spark, path, key, **kwargs)
            assert rows(df) == plain(wanted)
            assert [(f.name, f.nullable) for f in df.schema.fields] == [
                (f.name, f.nullable) for f in wanted.schema
            ]
        assert rows(ks.history_of(spark, table, some[0], ["v"])) == plain(table.history_of(some[0], ["v"]))


def test_changes_are_cut_into_tasks_by_time(spark: SparkSession, path: str) -> None:
    since = first_write(path)
    assert ks.changes(spark, path, since).rdd.getNumPartitions() == 2
    assert ks.changes(spark, path, since, target_rows_per_task=60).rdd.getNumPartitions() >= 4


def test_changes_that_are_gone_say_so(spark: SparkSession, path: str) -> None:
    since = first_write(path)
    with kc.open_table(path, "rw", options={"history_retention_s": 0}) as table:
        table.upsert({"k": range(1000), "v": [1] * 1000})
        table.flush()
        table.gc()
    with pytest.raises(kc.ChangesLost):
        ks.changes(spark, path, since)
    lost = spark.read.format("kudu_core").options(readChanges="true", since=str(since)).load(path)
    with pytest.raises(PySparkException, match=r"\[KUDU_CHANGES_LOST\]"):
        lost.count()


# ---- the source, step by step ----


def reader(path: str, **options: Any) -> KuduStreamReader:
    given = {"path": path} | {name: str(value) for name, value in options.items()}
    return KuduStreamReader(given, source.schema(given))


def batch(stream: KuduStreamReader, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
    """What the tasks of a batch read, each by a copy of the reader."""
    found = []
    for part in stream.partitions(start, end):
        copied, share = pickle.loads(pickle.dumps((stream, part)))
        assert isinstance(share, Shares)
        found += list(copied.read(share))
    return pa.Table.from_batches(found) if found else pa.table({"_op": pa.array([], pa.string())})


def play(rows: list[dict[str, Any]], into: dict[int, Any]) -> None:
    for row in sorted(rows, key=lambda row: row["_timestamp"]):
        if row["_op"] == "delete":
            del into[row["k"]]
        else:
            into[row["k"]] = (row["v"], row["u"])


@pytest.mark.parametrize("limit", [None, *(pytest.param(n, marks=limited) for n in (10, 150, 10**6))])
def test_a_stream_has_the_state_and_then_the_changes(path: str, limit: int | None) -> None:
    options = {"readChanges": True, "targetRowsPerTask": 40} | ({"maxRowsPerTrigger": limit} if limit else {})
    stream = reader(path, **options)
    how = ReadAllAvailable() if limit is None else ReadMaxRows(limit)
    assert stream.getDefaultReadLimit() == how
    offset = stream.initialOffset()
    followed: dict[int, Any] = {}
    batches = 0
    log = [offset]
    for step in range(STEPS):
        while (end := stream.latestOffset(offset, how)) != offset:
            assert json.loads(json.dumps(end)) == end and all(isinstance(v, int | str) for v in end.values())
            told = batch(stream, offset, end)
            play(told.to_pylist(), followed)
            offset, batches = end, batches + 1
            log.append(end)
        assert followed == state(path)
        assert stream.partitions(offset, offset) == []
        with kc.open_table(path, "rw") as table:
            table.upsert({"k": range(step * 10, step * 10 + 40), "v": [step] * 40})
            table.delete([step * 10])
            if step % 2:
                table.flush()
    assert (batches <= STEPS) if limit in (None, 10**6) else (batches > STEPS)
    # A repeated batch is the same one, for a reader that was just started, and after merges.
    with kc.open_table(path, "rw") as table:
        table.compact(full=True)
    again = reader(path, **options)
    repeated: dict[int, Any] = {}
    for start, end in pairwise(log):
        play(batch(again, start, end).to_pylist(), repeated)
    assert repeated == followed
    stream.stop()
    again.stop()


@limited
def test_a_limit_is_kept_where_the_index_allows(path: str) -> None:
    stream = reader(path, readChanges=True, maxRowsPerTrigger=100)
    offset = stream.initialOffset()
    sizes = []
    while (end := stream.latestOffset(offset, ReadMaxRows(100))) != offset:
        sizes.append(batch(stream, offset, end).num_rows)
        offset = end
    assert sum(sizes) == 998
    # A limit that the engine lifts is lifted.
    assert "tablet" not in stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    with pytest.raises(kc.KuduError, match="limited by rows"):
        stream.latestOffset(offset, OtherLimit())


class OtherLimit(ReadLimit):
    """One that the source does not know."""


def test_a_source_that_is_not_told_where_a_batch_begins_reads_all(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PySpark 4.0 and 4.1 ask: how far there is first, then where the query began."""
    stream = reader(path, readChanges=True)
    end = stream.latestOffset()
    start = stream.initialOffset()
    assert batch(stream, start, end).num_rows == 998 and stream.latestOffset() == end
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": [1, 5000], "v": [1, 1]})
    after = stream.latestOffset()
    assert after == stream.latestOffset(end, ReadAllAvailable())
    assert batch(stream, end, after)["k"].to_pylist() == [1, 5000]
    monkeypatch.setattr(stream_source, "LIMITS", False)
    with pytest.raises(kc.KuduError, match=r"\[KUDU_NOT_SUPPORTED\] maxRowsPerTrigger needs PySpark 4.2"):
        reader(path, maxRowsPerTrigger=5)


def test_available_now_ends_where_it_began(path: str) -> None:
    stream = reader(path, readChanges=True)
    stream.prepareForTriggerAvailableNow()
    with kc.open_table(path, "rw") as table:
        table.insert({"k": [5000]})
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert batch(stream, stream.initialOffset(), end).num_rows == 998
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert stream.reportLatestOffset()["ts"] > end["ts"]
    later = reader(path, readChanges=True)
    told = batch(later, end, later.latestOffset(end, ReadAllAvailable()))
    assert [(r["_op"], r["k"]) for r in told.to_pylist()] == [("insert", 5000)]


def test_a_stream_may_leave_out_what_is_there(path: str) -> None:
    since = first_write(path)
    stream = reader(path, readChanges=True, since=since)
    start = stream.initialOffset()
    assert start["ts"] == since
    assert batch(stream, start, stream.latestOffset(start, ReadAllAvailable())).num_rows == 502
    stream = reader(path, readChanges=True, since="latest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(10))
    assert batch(stream, start, end).num_rows == 0
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": [1, 2], "v": [1, 2]})
    assert batch(stream, end, stream.latestOffset(end, ReadMaxRows(10)))["k"].to_pylist() == [1, 2]


def test_a_predicate_and_columns_hold_for_state_and_changes(path: str) -> None:
    stream = reader(path, readChanges=True, columns="v,k", where='[["k", "<", 10]]')
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    told = batch(stream, start, end)
    assert told.column_names == ["_op", "_timestamp", "v", "k"]
    assert sorted(told["k"].to_pylist()) == [0, 1, 2, 5, 6, 7, 8, 9]
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": [9, 10], "v": [1, 1]})
    assert batch(stream, end, stream.latestOffset(end, ReadAllAvailable()))["k"].to_pylist() == [9]


def test_a_stream_of_rows_alone_has_no_deletions(path: str) -> None:
    stream = reader(path)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert batch(stream, start, end).column_names == ["k", "v", "u"]
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": [1, 5000], "v": [1, 1]})
    after = stream.latestOffset(end, ReadAllAvailable())
    assert batch(stream, end, after)["k"].to_pylist() == [1, 5000]
    with kc.open_table(path, "rw") as table:
        table.delete([1])
    with pytest.raises(kc.KuduError, match=r"\[KUDU_INVALID_ARGUMENT\].*readChanges"):
        batch(stream, after, stream.latestOffset(after, ReadAllAvailable()))


def test_history_that_went_before_the_offset_is_lost(path: str) -> None:
    stream = reader(path, readChanges=True)
    start = stream.initialOffset()
    half = stream.latestOffset(start, ReadMaxRows(100))
    assert "key" in half
    whole = stream.latestOffset(start, ReadAllAvailable())
    shares = stream.partitions(half, whole)
    before = {**whole, "ts": first_write(path) - 1}
    with kc.open_table(path, "rw", options={"history_retention_s": 0}) as table:
        table.upsert({"k": range(1000), "v": [1] * 1000})
        table.flush()
        table.gc()
    for offset in (half, whole, before):
        for limit in (ReadAllAvailable(), ReadMaxRows(10)):
            with pytest.raises(kc.KuduError, match=r"\[KUDU_CHANGES_LOST\]"):
                fresh = reader(path, readChanges=True)
                batch(fresh, offset, fresh.latestOffset(offset, limit))
    with pytest.raises(kc.KuduError, match=r"\[KUDU_CHANGES_LOST\]"):
        for share in shares:
            list(stream.read(share))


def test_another_table_and_an_earlier_state_are_refused(path: str, tmp_path: Path) -> None:
    stream = reader(path, readChanges=True)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    with pytest.raises(kc.KuduError, match="another one than when the stream began"):
        stream.latestOffset({**end, "table": "00" * 16}, ReadAllAvailable())
    with pytest.raises(kc.KuduError, match="put back to an earlier state"):
        stream.latestOffset({**end, "ts": end["ts"] + 10**9}, ReadAllAvailable())
    with pytest.raises(kc.KuduError, match="no offset of a stream"):
        stream.latestOffset({"partition": 3}, ReadAllAvailable())
    for options, message in (
        ({"snapshot": 1}, "since says after which time"),
        ({"readChanges": True, "net": True}, "net is for spark.read"),
        ({"readChanges": True, "until": end["ts"]}, "until is for spark.read"),
        ({"maxRowsPerTrigger": 0}, "maxRowsPerTrigger is a whole number from 1"),
        ({"readChanges": "maybe"}, "true or false"),
        ({"images": "both"}, "set readChanges to true"),
    ):
        with pytest.raises(kc.KuduError, match=message):
            reader(path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxRowsPerTrigger": "5"}, "for spark.readStream"),
        ({"readChanges": "true", "since": "latest"}, "for spark.readStream"),
        ({"since": "5"}, "set readChanges to true as well"),
    ],
    ids=str,
)
def test_a_batch_read_refuses_what_is_for_streams(
    spark: SparkSession, path: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.read.format("kudu_core").options(**options).load(path).count()
