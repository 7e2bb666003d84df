"""A column that stays and gets another type, of the same cells or of others with the same values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.schema.declare import Column, column_type
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types import recasting, values
from kudu_core.common.types.nested.nested_layout import is_nested
from kudu_core.common.types.types import TYPE_DECIMAL, ColumnType
from kudu_core.common.types.widening import same_cells
from kudu_core.errors import InvalidArgument, shown

_INSTEAD = (
    "values of the one are none of the other; add a column of the new type, fill it by "
    "update(where=, set=), drop the old one and rename"
)


def retyped(column: StoredColumn, given: Any, *, is_key: bool) -> StoredColumn:
    """The column with another type; ``InvalidArgument`` where what is stored can be no value of that type.

    Whether the values that are there fit, where the new type has fewer, is not asked here.
    """
    what = f"column {column.name!r}"
    if isinstance(given, pa.DataType) and is_nested(given):
        raise InvalidArgument(f"{what}: {column.type} cannot become {given}; add a column of that type")
    new = column_type(Column(column.name, given))
    old = column.type
    if new == old:
        return column
    if not same_cells(old, new):
        return _recast(column, new, is_key=is_key)
    if is_key and (old.kind == TYPE_DECIMAL or not new.is_key_type):
        raise InvalidArgument(f"{what}: in a key {old} cannot become {new}")
    read, write = (_as(old, new, default, what) for default in (column.read_default, column.write_default))
    return replace(column, type=new, read_default=read, write_default=write)


def _recast(column: StoredColumn, new: ColumnType, *, is_key: bool) -> StoredColumn:
    """The same where the new type has other cells: those that are there are read as it (``recasting``)."""
    what, old = f"column {column.name!r}", column.type
    if not recasting.recastable(old, new):
        raise InvalidArgument(f"{what}: {old} cannot become {new}: {_INSTEAD}")
    if is_key:
        raise InvalidArgument(
            f"{what}: in a key {old} cannot become {new}: keys are stored in the width of their type; make "
            "another table, and insert the rows of this one into it"
        )
    defaults = column.read_default, column.write_default
    read, write = (_recast_value(old, new, default, what) for default in defaults)
    return replace(column, type=new, read_default=read, write_default=write)


def _recast_value(old: ColumnType, new: ColumnType, value: Any, what: str) -> Any:
    """A default of one type as the other's, which has other cells."""
    if value is None:
        return None
    cells = np.frombuffer(values.raw_bytes(old, value), np.uint8)
    if not recasting.fitting(old, new, cells).all():
        raise InvalidArgument(f"{what}: {old} cannot become {new}: its default {shown(value)} is none")
    raw = values.unpack(new, recasting.recast(old, new, cells).tobytes())
    return values.exact(new, values.python(new, raw, what), f"{what}, default")


def _as(old: ColumnType, new: ColumnType, value: Any, what: str) -> Any:
    """A default of one type as the other's."""
    if value is None:
        return None
    cells = values.unpack(new, values.raw_bytes(old, value))
    return values.exact(new, values.python(new, cells, what), f"{what}, default")


__all__ = ["retyped"]
