"""Single values as Arrow scalars and arrays of the type in which a column's cells are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kudu_core.common.types import temporal, values
from kudu_core.common.types.types import TYPE_DECIMAL, ColumnType


def stored_scalar(type_: ColumnType, value: Any, what: str = "value") -> pa.Scalar:
    """A caller's or an exact value, None for NULL; ``InvalidArgument`` as ``values.physical``."""
    if value is None:
        return pa.scalar(None, type_.arrow)
    if type_.kind == TYPE_DECIMAL:
        return pa.scalar(values.exact(type_, value, what), type_.arrow)
    number = values.physical(type_, value, what)
    if type_.is_temporal:
        return temporal.scalar(type_, int(number))
    if type_.is_string:
        assert isinstance(number, bytes)
        return pa.scalar(number.decode("utf-8", "surrogateescape"), type_.arrow)
    return pa.scalar(number, type_.arrow)


def stored_array(type_: ColumnType, cells: Iterable[Any], place: str = "value", first: int = 0) -> pa.Array:
    """The same of several values; messages number them from ``first`` on."""
    convert = values.exact if type_.kind == TYPE_DECIMAL else values.physical
    checked = [
        None if cell is None else convert(type_, cell, f"{place}, row {row}")
        for row, cell in enumerate(cells, first)
    ]
    if type_.is_temporal:
        return pa.array(checked, pa.int32() if type_.width == 4 else pa.int64()).view(type_.arrow)
    if type_.is_string:
        return pa.array(checked, pa.binary()).view(pa.string())
    return pa.array(checked, type_.arrow)


__all__ = ["stored_array", "stored_scalar"]
