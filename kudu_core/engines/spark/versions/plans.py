"""How often Spark plans a DataFrame of a data source: once, or in PySpark 4.0 for each action."""

from __future__ import annotations

from pyspark.sql import datasource

PLANS_ONCE = hasattr(datasource, "Filter")
"""PySpark 4.1 learned to push filters, and to keep what it has planned."""


__all__ = ["PLANS_ONCE"]
