"""The Arrow types in which rows go between Spark and Python: times with a zone are in UTC.

Until PySpark 4.1 its functions say so by themselves, since 4.2 they must be told.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
)


def wire_type(type_: DataType) -> pa.DataType:
    """The Arrow type of one Spark type."""
    return to_arrow_type(type_, **_UTC)


def wire_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark gives and wants batches of these columns."""
    return to_arrow_schema(schema, **_UTC)


__all__ = ["wire_schema", "wire_type"]
