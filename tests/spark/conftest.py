"""One Spark session for the room, two cores, two attempts for a task."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from kudu_core.engines.spark import few, write

ROOT = Path(__file__).parents[2]

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    # Where it is off, Spark takes some wrong batches for right ones.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.driver.memory": "1g",
    "spark.driver.host": "localhost",
}


def session(master: str) -> SparkSession:
    """A new session whose workers run this Python and see the package."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(paths).split(os.pathsep)))
    builder = SparkSession.builder.master(master).appName("kudu_core tests")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    CONF["spark.sql.warehouse.dir"] = str(tmp_path_factory.mktemp("warehouse"))
    spark = session("local[2,2]")
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def tasks_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks read, stage and resolve, as they do for many rows: the driver would do it, of so few.  What it
    does then is tested by the routes of ``write/test_write.py`` and by ``read/test_few.py``."""
    monkeypatch.setattr(write, "DRIVER_BYTES", -1)
    monkeypatch.setattr(few, "WRITTEN_BYTES", -1)
    monkeypatch.setattr(few, "READ_ROWS", -1)


@pytest.fixture
def frame(spark: SparkSession) -> Callable[[Any], DataFrame]:
    """A DataFrame of two partitions from a dict of columns or an Arrow table."""

    def make(columns: Any, partitions: int = 2) -> DataFrame:
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        return spark.createDataFrame(table).repartition(partitions)

    return make


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")
