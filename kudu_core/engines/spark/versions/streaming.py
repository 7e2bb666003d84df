"""What a source and a sink of streams are made of.

Since 4.2 PySpark tells a source where a batch begins and how long it may be, since 4.1 it has a name for a
sink of Arrow batches.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import datasource

LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark says how long a batch may be."""

if TYPE_CHECKING or LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How long a batch may be."""

    @dataclass(frozen=True)
    class ReadAllAvailable(ReadLimit):
        """As long as there is something: the only one that Spark has."""

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):
        """So many rows, which Spark does not ask for."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """Spark asks once how far there is, and reads that in one batch."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """PySpark 4.0 gives batches to any writer that says so by this base."""


__all__ = [
    "LIMITS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
