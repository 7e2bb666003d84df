"""The smallest and the largest value of a column: by statistics, or of cells that were read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types import values
from kudu_core.common.types.types import TYPE_DECIMAL, ColumnType
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from kudu_core.rowset.rows.rows_at import RowsAt


def known_bounds(source: RowsAt, column: StoredColumn) -> tuple[Any, ...] | None:
    """(min, max) of a column, physical, by the statistics of its rowset, () if it has no value that compares;
    None where they are not exactly those of the rows that are seen."""
    if not isinstance(source, DiskRowsAt) or not source.all_live or source.touches(column.id):
        return None
    if not source.has(column.id):
        return None
    zone = source.file.zone(column.id)
    if zone.empty:
        return ()
    low, high = zone.physical_bounds(column.type)
    if low is None or high is None or not (zone.minimum_exact and zone.maximum_exact):
        return None
    return low, high


def ends_of(column: ColumnBuffers, type_: ColumnType) -> tuple[Any, Any] | None:
    """The smallest and the largest value as physical ones, None where there is none that compares."""
    array = column.to_arrow(type_)
    if type_.is_temporal:  # as numbers: Python has not all of them as dates
        array = array.view(pa.int32() if type_.width == 4 else pa.int64())
    elif type_.is_string:
        array = array.view(pa.binary())
    found = pc.min_max(array)
    if not found["min"].is_valid:
        return None
    low, high = found["min"].as_py(), found["max"].as_py()
    if type_.kind == TYPE_DECIMAL:
        return values.physical(type_, low), values.physical(type_, high)
    return low, high


__all__ = ["ends_of", "known_bounds"]
