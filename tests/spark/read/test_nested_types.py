"""Arrays, structs, maps and Arrow's further flat types through Spark and back."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import kudu_core as kc
from kudu_core import spark as ks

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        ("a", pa.struct([("n", pa.int32()), ("tags", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("v", pa.list_(pa.float32(), 2)),
        ("moment", pa.timestamp("ms", "Europe/Berlin")),
        ("lasts", pa.duration("s")),
        ("u", pa.uuid()),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("h", pa.float16()),
    ]
)
MOMENT = dt.datetime(2024, 7, 1, tzinfo=dt.UTC)
ROWS: list[dict[str, Any]] = [
    {
        "k": 1, "a": {"n": 5, "tags": ["x", None]}, "m": {"p": 1.5}, "v": [1.0, 2.0], "moment": MOMENT,
        "lasts": dt.timedelta(5), "u": uuid.UUID(int=7), "d": "red", "h": 0.5,
    },
    {"k": 2, "a": None, "m": None, "v": None, "moment": None, "lasts": None, "u": None, "d": None, "h": None},
    {
        "k": 3, "a": {"n": None, "tags": []}, "m": {}, "v": [0.0, -1.0], "moment": MOMENT,
        "lasts": dt.timedelta(-1), "u": uuid.UUID(int=9), "d": "blue", "h": 2.0,
    },
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> str:
    with kc.create_table(tmp_path / "t", SCHEMA, "k") as table:
        table.insert(ROWS)
    return str(tmp_path / "t")


def test_rows_come_and_go(spark: SparkSession, path: str, tmp_path: Path) -> None:
    frame = ks.scan(spark, path)
    assert {f.name: f.dataType.simpleString() for f in frame.schema.fields} == {
        "k": "bigint", "a": "struct<n:int,tags:array<string>>", "m": "map<string,double>",
        "v": "array<float>", "moment": "timestamp", "lasts": "interval day to second",
        "u": "binary", "d": "string", "h": "float",
    }  # fmt: skip
    rows = {row["k"]: row for row in frame.collect()}
    assert rows[1]["a"].asDict() == {"n": 5, "tags": ["x", None]}
    assert (rows[1]["m"], rows[1]["v"], rows[1]["d"]) == ({"p": 1.5}, [1.0, 2.0], "red")
    assert bytes(rows[1]["u"]) == uuid.UUID(int=7).bytes
    assert rows[2]["a"] is rows[2]["m"] is rows[2]["v"] is None
    assert (rows[3]["a"].asDict(), rows[3]["m"]) == ({"n": None, "tags": []}, {})
    fields = ks.scan(spark, path, ["a.n", "k"]).selectExpr("`a.n` AS n", "k").collect()
    assert {row["k"]: row["n"] for row in fields} == {1: 5, 2: None, 3: None}
    with kc.create_table(tmp_path / "copy", SCHEMA, "k"):
        pass
    assert ks.write(frame.repartition(2), str(tmp_path / "copy"), "insert").inserted == 3
    changed = ks.scan(spark, path).where("k = 1").selectExpr("k + 1 AS k", "a", "v")
    assert ks.write(changed, str(tmp_path / "copy"), "update").updated == 1
    with kc.open_table(path) as table, kc.open_table(tmp_path / "copy") as copy:
        first, second, third = table.scan(order="key").to_pylist()
        wanted = [first, {**second, "a": first["a"], "v": first["v"]}, third]
        assert copy.scan(order="key").to_pylist() == wanted


def test_changes_and_the_data_source(spark: SparkSession, path: str, tmp_path: Path) -> None:
    told = ks.changes(spark, path, images="both").where("k = 3").collect()
    assert [row["a"].asDict() for row in told] == [{"n": None, "tags": []}]
    loaded = spark.read.format("kudu_core").load(path).select("k", "a", "m")
    with kc.create_table(tmp_path / "copy", SCHEMA, "k"):
        pass
    loaded.write.format("kudu_core").mode("append").save(str(tmp_path / "copy"))
    with kc.open_table(tmp_path / "copy") as copy:
        assert copy.get(1, ["a", "m"]) == {"a": {"n": 5, "tags": ["x", None]}, "m": [("p", 1.5)]}
        assert copy.get(3, ["v"]) == {"v": None}


def test_a_frame_that_does_not_fit_is_refused_by_name(spark: SparkSession, path: str) -> None:
    for frame, why in (
        (spark.sql("SELECT 9L AS k, named_struct('zz', 1) AS a"), "'a'.*no field 'zz'"),
        (spark.sql("SELECT 9L AS k, array(1) AS m"), "'m' is map"),
    ):
        with pytest.raises(kc.SchemaMismatch, match=why):
            ks.write(frame, path, "upsert")
    with pytest.raises(kc.KuduError, match="'v'"):
        ks.write(spark.sql("SELECT 9L AS k, array(1.0f) AS v"), path, "upsert")


def test_a_table_of_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1L AS id, named_struct('x', array(1, 2), 'y', map('a', 1.5D)) AS s")
    ks.create(str(tmp_path / "t"), frame, "id")
    ks.write(frame, str(tmp_path / "t"), "insert")
    with kc.open_table(tmp_path / "t") as table:
        assert table.get(1) == {"id": 1, "s": {"x": [1, 2], "y": [("a", 1.5)]}}


def test_times_and_nulls_inside_of_nested_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Local times and intervals of days in arrays, structs and maps, NULLs and empties at each level; a
    partition by a local time, and predicates on a local time, an interval and a field."""
    frame = spark.sql(
        """SELECT id AS k, timestamp_ntz'2024-07-01 00:00:00' + make_dt_interval(cast(id AS int)) AS n,
        interval '1 02:03:04.000005' day to second * id AS i,
        CASE id WHEN 0 THEN NULL WHEN 1 THEN array() ELSE
            array(timestamp_ntz'2024-07-01 01:02:03.000004', NULL) END AS l,
        CASE id WHEN 0 THEN NULL ELSE named_struct(
            'x', IF(id = 1, NULL, interval '-1' day), 'y', array(array(), NULL, array(id))) END AS s,
        map('a', IF(id = 1, NULL, timestamp_ntz'2024-07-02 00:00:00')) AS m FROM range(4)"""
    )
    path = str(tmp_path / "t")
    middle = dt.datetime(2024, 7, 3)
    ranges = kc.RangePartition("n", [(None, middle), (middle, None)])
    ks.create(path, frame, ["n", "k"], partition_by=ranges)
    frame.write.format("kudu_core").mode("append").option("operation", "insert").save(path)
    wanted = sorted(frame.select("n", "k", "i", "l", "s", "m").collect())
    for back in (ks.scan(spark, path), spark.read.format("kudu_core").load(path)):
        assert sorted(back.select("n", "k", "i", "l", "s", "m").collect(), key=lambda r: r["n"]) == wanted
    assert ks.write(frame, path, "update").updated == 4
    with kc.open_table(path) as table:
        assert table.scan(["k"], where=[("n", "<", middle)]).count() == 2
    for where, keys in (
        ([("n", ">=", middle)], [2, 3]),
        ([("i", ">", dt.timedelta(days=2))], [2, 3]),
        ([("s.x", "==", dt.timedelta(days=-1))], [2, 3]),
    ):
        assert sorted(row["k"] for row in ks.scan(spark, path, ["k"], where).collect()) == keys, where
    given = spark.read.format("kudu_core").option("where", '[["n", ">=", "2024-07-03T00:00:00"]]').load(path)
    assert given.count() == 2


def test_a_field_that_was_added_within_a_list_and_a_map(spark: SparkSession, tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.int32())])
    schema = pa.schema([("k", pa.int64()), ("v", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))])
    with kc.create_table(tmp_path / "t", schema, "k") as table:
        table.insert([{"k": 1, "v": [{"x": 1}, None], "m": {"a": {"x": 2}}}])
        table.flush()
        table.alter(add=[pa.field("v[].y", pa.string()), pa.field("m[].value.z", pa.list_(pa.int8()))])
        table.insert([{"k": 2, "v": [{"y": "new"}], "m": {"b": {"z": [1]}}}])
    first, second = ks.scan(spark, tmp_path / "t").orderBy("k").collect()
    assert [None if e is None else e.asDict() for e in first["v"]] == [{"x": 1, "y": None}, None]
    assert first["m"]["a"].asDict() == {"x": 2, "z": None}
    assert second["v"][0].asDict() == {"x": None, "y": "new"}
    assert second["m"]["b"].asDict() == {"x": None, "z": [1]}
