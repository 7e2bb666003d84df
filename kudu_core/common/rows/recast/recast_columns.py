"""Columns of one type as those of another, whose cells differ (``common/types/recasting.py``)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.types.recasting import fitting, recast
from kudu_core.common.types.types import ColumnType


def recast_column(column: ColumnBuffers, old: ColumnType, new: ColumnType) -> ColumnBuffers:
    """The column as one of the other type; a cell that has no such value becomes any."""
    cells = column.values[: column.length * old.width]
    return ColumnBuffers(new.width, column.length, recast(old, new, cells), None, column.validity)


def cells_fit(column: ColumnBuffers, old: ColumnType, new: ColumnType) -> npt.NDArray[np.bool_]:
    """Which cells have a value of the other type, (n,) bool; NULL has."""
    found = fitting(old, new, column.values[: column.length * old.width])
    if column.validity is not None:
        found |= ~column.valid_mask()
    return found


def column_fits(column: ColumnBuffers, old: ColumnType, new: ColumnType) -> bool:
    """Whether each cell has a value of the other type; NULL has."""
    return bool(cells_fit(column, old, new).all())


def recast_block(
    block: RowBlock, older: Mapping[int, ColumnType], types: Mapping[int, ColumnType]
) -> RowBlock:
    """Rows whose columns are of ``older``, by id, as ones of ``types``; other columns stay."""
    if not any(i in block.columns for i in older):
        return block
    columns = {
        i: recast_column(column, older[i], types[i]) if i in older else column
        for i, column in block.columns.items()
    }
    return RowBlock(columns, block.rows)


__all__ = ["cells_fit", "column_fits", "recast_block", "recast_column"]
