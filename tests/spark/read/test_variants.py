"""Spark's variants: handed over as a struct of two binaries with a mark, which a table keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark import few
from tests.spark.stream.test_queries import run

VALUES = ['{"a": [1, null, "x"], "b": {"c": 2.5}}', None, "null", "[]", '"text"', "7"]


@pytest.fixture
def variants(spark: SparkSession) -> DataFrame:
    """A NULL, JSON's null, and others; alone, in an array and in a struct."""
    rows = list(enumerate(VALUES))
    return spark.createDataFrame(rows, "k bigint, j string").selectExpr(
        "k", "parse_json(j) AS v", "array(parse_json(j), NULL) AS l", "named_struct('x', parse_json(j)) AS s"
    )


def said(frame: DataFrame) -> dict[int, Any]:
    """The values as JSON."""
    told = frame.selectExpr("k", "to_json(v) AS v", "to_json(l[0]) AS l", "size(l) AS n", "to_json(s.x) AS s")
    return {row["k"]: (row["v"], row["l"], row["n"], row["s"]) for row in told.collect()}


@pytest.mark.parametrize("route", ["function", "driver", "format"])
def test_variants_come_back_as_variants(
    spark: SparkSession, variants: DataFrame, path: str, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    if route == "driver":
        monkeypatch.setattr(few, "WRITTEN_BYTES", 8 << 20)
        monkeypatch.setattr(few, "READ_ROWS", 20_000)
    ks.create(path, variants, "k")
    if route == "format":
        variants.write.format("kudu_core").mode("append").save(path)
        back = spark.read.format("kudu_core").load(path)
    else:
        assert ks.write(variants, path).inserted == len(VALUES)
        back = ks.scan(spark, path)
    assert back.schema.simpleString() == "struct<k:bigint,v:variant,l:array<variant>,s:struct<x:variant>>"
    wanted = {
        k: (None if text is None else json.dumps(json.loads(text), separators=(",", ":")))
        for k, text in enumerate(VALUES)
    }
    assert said(back) == {k: (text, text, 2, text) for k, text in wanted.items()}
    picked = back.selectExpr("variant_get(v, '$.b.c', 'double') AS c").where("c IS NOT NULL").collect()
    assert [row["c"] for row in picked] == [2.5]
    told = ks.changes(spark, path)
    assert said(told) == said(back)


def test_a_variant_is_a_struct_of_binaries_everywhere_else(
    spark: SparkSession, variants: DataFrame, path: str
) -> None:
    ks.create(path, variants.select("k", "v"), "k")
    ks.write(variants.select("k", "v").where("k = 5 OR k = 1"), path)
    with kc.open_table(path) as table:
        assert [field.name for field in table.schema.field("v").type] == ["value", "metadata"]
        assert table.get(5) == {"k": 5, "v": {"value": b"\x0c\x07", "metadata": b"\x01\x00\x00"}}
        assert table.get(1) == {"k": 1, "v": None}
    ks.write(variants.where("k = 4").selectExpr("5L AS k", "v"), path, "update")
    assert [row["v"] for row in ks.scan(spark, path).selectExpr("to_json(v) AS v").collect()].count(
        '"text"'
    ) == 1


def test_a_stream_carries_variants(
    spark: SparkSession, variants: DataFrame, path: str, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    for place in (path, copy):
        ks.create(place, variants, "k")
    ks.write(variants, path)
    stream = spark.readStream.format("kudu_core").load(path)
    run(stream, tmp_path / "checkpoint", lambda writer: writer.format("kudu_core").start(copy))
    assert said(ks.scan(spark, copy)) == said(ks.scan(spark, path))


def test_a_variant_is_no_key_and_fits_no_other_column(
    spark: SparkSession, variants: DataFrame, path: str
) -> None:
    with pytest.raises(kc.KuduError, match="'v'"):
        ks.create(path, variants.select("v"), "v")
    kc.create_table(path, pa.schema([("k", pa.int64()), ("v", pa.string())]), "k").close()
    with pytest.raises(kc.SchemaMismatch, match=r"column 'v' is string.*DataFrame has variant; cast it"):
        ks.write(variants.select("k", "v"), path)
