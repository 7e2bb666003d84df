"""A DataFrame that Spark plans anew for each action, as PySpark 4.0 does, reads one state all the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import kudu_core as kc
from kudu_core.engines.spark import source
from pyspark_kudu_core import DefaultSource


def rows_of(made: DefaultSource, schema: Any) -> list[dict[str, Any]]:
    """What one action reads."""
    reader = made.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("once", [True, False])
def test_each_plan_reads_the_state_of_the_first(
    path: str, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    monkeypatch.setattr(source, "PLANS_ONCE", once)
    with kc.create_table(path, pa.schema([("k", pa.int64())]), "k") as table:
        table.insert({"k": [1]})
        made = DefaultSource({"path": path})
        told = DefaultSource({"path": path, "readChanges": "true"})
        state, changes = made.schema(), told.schema()
        assert [row["k"] for row in rows_of(made, state)] == [1]
        between = table.insert({"k": [2]}).timestamp
        wanted = [1, 2] if once else [1]
        assert sorted(row["k"] for row in rows_of(made, state)) == wanted
        assert sorted(row["k"] for row in rows_of(told, changes)) == wanted
        table.insert({"k": [3]})
        # What an option says goes first.
        given = DefaultSource({"path": path, "snapshot": str(between)})
        ended = DefaultSource({"path": path, "readChanges": "true", "until": str(between)})
        for each in (given, ended):
            assert sorted(row["k"] for row in rows_of(each, each.schema())) == [1, 2]


def test_both_sides_of_a_join_are_one_state(spark: SparkSession, path: str) -> None:
    with kc.create_table(path, pa.schema([("k", pa.int64())]), "k") as table:
        table.insert({"k": [1, 2]})
        loaded = spark.read.format("kudu_core").load(path)
        assert loaded.count() == 2
        table.insert({"k": [3]})
        assert loaded.alias("a").join(loaded.alias("b"), "k").count() == 2
