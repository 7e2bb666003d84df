"""A column that stays and gets another type, of which files and records have the same cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from kudu_core.common.schema.declare import Column, column_type
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types import values
from kudu_core.common.types.nested_layout import is_nested
from kudu_core.common.types.types import TYPE_DECIMAL, ColumnType
from kudu_core.common.types.widening import same_cells
from kudu_core.errors import InvalidArgument

_INSTEAD = (
    "its values lie in files and in the log otherwise; add a column of the new type, fill it by "
    "update(where=, set=), drop the old one and rename"
)


def retyped(column: StoredColumn, given: Any, *, is_key: bool) -> StoredColumn:
    """The column with another type; ``InvalidArgument`` where what is stored is not of that type as it is.

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
        raise InvalidArgument(f"{what}: {old} cannot become {new}: {_INSTEAD}")
    if is_key and (old.kind == TYPE_DECIMAL or not new.is_key_type):
        raise InvalidArgument(f"{what}: in a key {old} cannot become {new}")
    read, write = (_as(old, new, default, what) for default in (column.read_default, column.write_default))
    return replace(column, type=new, read_default=read, write_default=write)


def _as(old: ColumnType, new: ColumnType, value: Any, what: str) -> Any:
    """A default of one type as the other's."""
    if value is None:
        return None
    cells = values.unpack(new, values.raw_bytes(old, value))
    return values.exact(new, values.python(new, cells, what), f"{what}, default")


__all__ = ["retyped"]
