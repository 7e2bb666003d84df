"""Why this source takes no filters from Spark; the day that Spark is mended, this test says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyspark
import pytest
from pyspark.sql import SparkSession, datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kudu_core.engines.spark.source import KuduReader

if not hasattr(datasource, "Filter"):
    pytest.skip("PySpark 4.0 pushes no filters", allow_module_level=True)

from pyspark.sql.datasource import EqualTo, Filter

LEAKING = ("4.1.", "4.2.", "4.3.")
"""Versions of Spark that keep a pushed filter for every later query of the same DataFrame."""
CONF = "spark.sql.python.filterPushdown.enabled"


class Hundred(DataSource):
    """The numbers below 100; a pushed equality is applied."""

    @classmethod
    def name(cls) -> str:
        return "hundred"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return HundredReader()


class HundredReader(DataSourceReader):
    def __init__(self) -> None:
        self._only: list[int] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            if isinstance(one, EqualTo):
                self._only.append(one.value)
            else:
                yield one

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        for number in range(100):
            if all(number == wanted for wanted in self._only):
                yield (number,)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(CONF, "true")
    yield spark
    spark.conf.unset(CONF)


def test_filters_are_taken_only_where_spark_forgets_them(pushing: SparkSession) -> None:
    pushing.dataSource.register(Hundred)
    df = pushing.read.format("hundred").load()
    assert df.where("id = 1").count() == 1
    leaks = df.count() != 100
    assert leaks == pyspark.__version__.startswith(LEAKING), "the versions that leak are others by now"
    takes = KuduReader.pushFilters is not DataSourceReader.pushFilters
    assert not (takes and leaks)
