"""Every column type, with its ugliest values, through Spark and back; and Spark's routing of them."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.conform import conform
from kudu_core.common.schema.declare import declare
from kudu_core.common.types.types import ColumnType
from kudu_core.engines.spark import few
from kudu_core.engines.spark.schema import arrow_schema, spark_schema, to_spark
from kudu_core.engines.spark.write import routed, tablet_ordinal

GOLDEN = Path(__file__).parents[2] / "common" / "golden" / "spark_xxhash64.json"
# timestamps and dates as integers: Python's own end at the years 1 and 9999
VALUES: dict[str, list[Any]] = {
    "int8": [-128, -1, 0, 1, 127],
    "int16": [-(2**15), -1, 0, 300, 2**15 - 1],
    "int32": [-(2**31), -1, 0, 1 << 20, 2**31 - 1],
    "int64": [-(2**63), -1, 0, 1 << 40, 2**63 - 1],
    "uint8": [0, 1, 127, 128, 255],
    "uint16": [0, 1, 2**15, 300, 2**16 - 1],
    "uint32": [0, 1, 2**31, 1 << 20, 2**32 - 1],
    "uint64": [0, 1, 2**63, 1 << 40, 2**64 - 1],
    "string": ["", "a", "a\0b", "\u00df\u4e2d\U0001f600", "x" * 3000],
    "binary": [b"", b"\0", b"\0\xff", bytes(range(256)), b"x" * 3000],
    "date32": [-719162, -1, 0, 20000, 2932896],
    "timestamp[us]": [-62135596800000000, -1, 0, 1, 253402300799999999],
    "timestamp[us,UTC]": [-62135596800000000, -1, 0, 1, 253402300799999999],
    "decimal128(9,2)": [Decimal(text) for text in ("-9999999.99", "-0.01", "0", "0.5", "9999999.99")],
    "decimal128(18,0)": [Decimal(-(10**18) + 1), Decimal(-1), Decimal(0), Decimal(7), Decimal(10**18 - 1)],
    "decimal128(38,10)": [
        # Python rounds what it computes to 28 digits, but not what it reads.
        Decimal("-" + "9" * 28 + "." + "9" * 10),
        Decimal("-1E-10"),
        Decimal(0),
        Decimal("1.5"),
        Decimal("9" * 28 + "." + "9" * 10),
    ],
}
OTHERS: dict[str, list[Any]] = {
    "float32": [float("nan"), -0.0, float("-inf"), 1e-45, 3.4028234663852886e38],
    "float64": [float("nan"), -0.0, float("inf"), 5e-324, 1.7976931348623157e308],
    "bool": [True, False, True, False, True],
}
ROWS = 5


def array(name: str, cells: list[Any]) -> pa.Array:
    type_ = ColumnType.parse(name)
    if type_.is_timestamp:
        return pa.array(cells, pa.int64()).cast(type_.arrow)
    if type_.is_date:
        return pa.array(cells, pa.int32()).cast(type_.arrow)
    return pa.array(cells, type_.arrow)


def table_of_all_types() -> pa.Table:
    """A key of every key type, and every type with a NULL."""
    columns = {f"k {name}": array(name, cells) for name, cells in VALUES.items()}
    for name, cells in {**VALUES, **OTHERS}.items():
        columns[f"v {name}"] = array(name, cells)
        columns[f"n {name}"] = array(name, [None, *cells[1:4], None])
    fields = [pa.field(name, a.type, not name.startswith("k ")) for name, a in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def bits(table: pa.Table) -> list[Any]:
    """Cells that compare equal only when they are the same: NaN is, 0.0 and -0.0 are not."""
    out = []
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_floating(column.type):
            floats = column.fill_null(123.0).to_numpy(zero_copy_only=False)
            out.append((name, column.is_null().to_pylist(), floats.tobytes()))
        else:
            out.append((name, str(column.type), column))
    return out


def to_frame(spark: SparkSession, data: pa.Table) -> DataFrame:
    schema = declare(data.schema, [n for n in data.column_names if n.startswith("k ")])
    struct = spark_schema(schema)
    wanted = arrow_schema(struct)
    batches = [to_spark(b, wanted) for b in data.to_batches()]
    return spark.createDataFrame(pa.Table.from_batches(batches), struct)


@pytest.mark.parametrize("route", ["function", "driver", "format"])
def test_every_type_goes_through_spark_and_back(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    data = table_of_all_types()
    keys = [name for name in data.column_names if name.startswith("k ")]
    kc.create_table(path, data.schema, keys).close()
    df = to_frame(spark, data)
    if route == "driver":
        monkeypatch.setattr(few, "WRITTEN_BYTES", 1 << 20)
        monkeypatch.setattr(few, "READ_ROWS", 100)
    if route != "format":
        ks.write(df, path, "insert")
        back = ks.scan(spark, path)
    else:
        df.write.format("kudu_core").mode("append").option("operation", "insert").save(path)
        back = spark.read.format("kudu_core").load(path)
    with kc.open_table(path) as table:
        stored = table.scan(order="key").to_table()
    assert bits(stored) == bits(data)
    assert bits(back.toArrow().sort_by(keys[0])) == bits(df.toArrow().sort_by(keys[0]))
    assert {f.nullable for f in back.schema.fields if f.name in keys} == {False}
    assert {f.nullable for f in back.schema.fields if f.name not in keys} == {True}


def test_a_table_may_be_made_from_a_frame(spark: SparkSession, path: str) -> None:
    df = spark.range(3).selectExpr(
        "id as k", "cast(id as byte) as b", "current_timestamp() as t", "localtimestamp() as n",
        "cast(id as decimal(20,3)) as d", "cast(null as string) as s", "current_date() as day",
    )  # fmt: skip
    ks.create(path, df, "k", partition_by=kc.HashPartition("k", 2))
    with kc.open_table(path) as table:
        assert [str(f.type) for f in table.schema] == [
            "int64", "int8", "timestamp[us, tz=UTC]", "timestamp[us]", "decimal128(20, 3)", "string",
            "date32[day]",
        ]  # fmt: skip
    assert ks.write(df, path, "insert").inserted == 3
    ks.create(path, df.schema, ["k"], partition_by=kc.HashPartition("k", 2), exist_ok=True)
    with pytest.raises(kc.TableExists):
        ks.create(path, df, "k")
    with pytest.raises(kc.InvalidArgument, match="column 'm'"):
        ks.create(path + "2", spark.range(1).selectExpr("id as k", "interval '1' month as m"), "k")


def random_keys(rng: np.random.Generator, rows: int) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name, cells in VALUES.items():
        type_ = ColumnType.parse(name)
        if name == "string":
            sizes = rng.integers(0, 40, rows)
            more: list[Any] = ["".join(map(chr, rng.integers(1, 0x2FF, n))) for n in sizes]
        elif name == "binary":
            more = [rng.bytes(n) for n in rng.integers(0, 40, rows)]
        elif name.startswith("decimal"):
            digits, scale = type_.arrow.precision, type_.arrow.scale
            more = [
                Decimal((n % 2, rng.integers(0, 10, n).tolist(), -scale))
                for n in rng.integers(1, digits + 1, rows).tolist()
            ]
        else:
            lower, upper = int(cells[0]), int(cells[-1])
            more = [int(rng.integers(lower, upper, endpoint=True, dtype=_dtype(type_))) for _ in range(rows)]
        columns[f"k {name}"] = array(name, [*cells, *more])
    return pa.table(columns)


def _dtype(type_: ColumnType) -> Any:
    return np.uint64 if type_.name == "uint64" else np.int64


def test_spark_routes_every_key_type_as_the_table_does(spark: SparkSession, seed: int) -> None:
    """Live, beside the golden file of ``tests/common``."""
    data = random_keys(np.random.default_rng(seed), 60)
    names = data.column_names
    schema = declare(data.schema, names)
    block = conform(schema, data.combine_chunks().to_batches()[0]).block
    sorts = [PartitionSchema.make(schema, kc.HashPartition(name, 7)) for name in names]
    sorts.append(PartitionSchema.make(schema, kc.HashPartition(names, 4096)))
    for name in names:
        cells = sorted(set(data.column(name).to_pylist()))
        lower, upper = cells[len(cells) // 3], cells[2 * len(cells) // 3]
        bounds = [(None, lower), (lower, upper), (upper, None)]
        sorts.append(PartitionSchema.make(schema, kc.RangePartition(name, bounds)))
    df = to_frame(spark, data)
    wanted = [f"k {name}" for name in VALUES]
    assert df.columns == wanted
    # The time zone of the session must not move the bounds.
    found = df.select(*(tablet_ordinal(schema, p).alias(str(i)) for i, p in enumerate(sorts))).toArrow()
    for i, partitions in enumerate(sorts):
        assert found.column(i).to_pylist() == partitions.route(block).tolist(), partitions.to_json()


def test_spark_still_computes_the_golden_hashes(spark: SparkSession) -> None:
    """The golden file is what the table is tested with; here it meets the Spark that is installed."""
    for case in json.loads(GOLDEN.read_text())["cases"]:
        if case["types"] == ["int64"] or len(case["types"]) > 1:
            arrays = [
                _golden(name, [row[0][i] for row in case["rows"]]) for i, name in enumerate(case["types"])
            ]
            data = pa.table(arrays, names=[f"k {i}" for i in range(len(arrays))])
            names = ", ".join(f"`{name}`" for name in data.column_names)
            hashed = f"xxhash64({names})"
            df = to_frame(spark, data).selectExpr(f"{hashed} as h", f"pmod({hashed}, 7) as b")
            assert [(str(r.h), r.b) for r in df.collect()] == [(row[1], row[2]) for row in case["rows"]]


def _golden(name: str, cells: list[Any]) -> pa.Array:
    if name == "binary":
        cells = [bytes.fromhex(cell) for cell in cells]
    elif name.startswith("decimal"):
        cells = [Decimal(cell) for cell in cells]
    elif name == "uint64":
        cells = [int(cell) for cell in cells]
    return array(name, cells)


def test_rows_of_a_tablet_come_together_and_in_key_order(spark: SparkSession) -> None:
    schema = declare(pa.schema([("day", pa.date32()), ("id", pa.int64())]), ["day", "id"])
    middle = date(2026, 1, 2), 500
    partitions = PartitionSchema.make(
        schema,
        [
            kc.HashPartition("id", 2),
            kc.HashPartition("day", 3, seed=7),
            kc.RangePartition(["day", "id"], [(None, middle), (middle, None)]),
        ],
    )
    df = spark.range(0, 1000, 1, 5).selectExpr("date_add(date'2026-01-01', cast(id % 3 as int)) as day", "id")
    parts = routed(df, schema, partitions).rdd.glom().collect()
    assert sum(map(len, parts)) == 1000
    ordinals = []
    for part in parts:
        assert part == sorted(part)
        if part:
            rows = pa.record_batch({"day": [r.day for r in part], "id": [r.id for r in part]})
            block = conform(schema, rows).block
            # The dimension with a seed of its own is left to the commit.
            ordinals += sorted({int(o) // 3 for o in partitions.route(block).tolist()})
    assert sorted(ordinals) == [0, 1, 2, 3]


def test_times_of_the_frame_mean_the_same_instants(spark: SparkSession, path: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))])
    kc.create_table(path, schema, "k").close()
    df = spark.sql(
        "SELECT 1L AS k, timestamp'2026-01-01 00:00:00 America/New_York' AS at, "
        "timestamp_ntz'2026-01-01 00:00:00' AS local"
    )
    ks.write(df, path)
    with kc.open_table(path) as table:
        row = table.get(1)
    assert row is not None
    assert row["at"].isoformat() == "2026-01-01T05:00:00+00:00"
    assert row["local"] == datetime(2026, 1, 1)


@pytest.mark.parametrize("durability", ["sync", "group", "none"])
@pytest.mark.parametrize("form", [dict, lambda **named: kc.Options(**named)])
def test_a_table_is_made_with_the_options_that_are_given(tmp_path: Path, form: Any, durability: str) -> None:
    path, schema = tmp_path / "t", StructType([StructField("k", LongType())])
    for given in (form(durability=durability, scan_threads=None), form(durability="group")):
        ks.create(path, schema, "k", options=given, exist_ok=True)
        with kc.open_table(path) as table:
            assert (table.options.durability, table.options.scan_threads) == (durability, None), "the first's"
