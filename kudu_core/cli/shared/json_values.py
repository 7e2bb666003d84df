"""Cells as JSON: docs/cli.md has the table of types.

Nothing is rounded: what JSON's numbers cannot hold, in Python's hands or a program's, is text.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc


def json_rows(batch: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as what ``json.dumps`` takes."""
    columns = [json_cells(column) for column in batch.columns]
    names = batch.schema.names
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def json_line(value: Any) -> str:
    """One value as one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_cells(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The cells of a column."""
    if isinstance(column, pa.ChunkedArray):
        return [cell for chunk in column.chunks for cell in json_cells(chunk)]
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        return _of_extension(column, type_)
    if pa.types.is_dictionary(type_):
        return json_cells(column.cast(type_.value_type))
    if pa.types.is_floating(type_):
        return [_float(cell) for cell in column.cast(pa.float64()).to_pylist()]
    if pa.types.is_decimal(type_):
        return [None if cell is None else _decimal(cell) for cell in column.to_pylist()]
    if _is_binary(type_):
        return [None if cell is None else b64encode(cell).decode() for cell in column.to_pylist()]
    if pa.types.is_temporal(type_):
        return _of_times(column, type_)
    if pa.types.is_nested(type_):
        return _of_nested(column, type_)
    cells: list[Any] = column.to_pylist()
    return cells


def _float(cell: float | None) -> float | str | None:
    if cell is None or math.isfinite(cell):
        return cell
    return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"


def _decimal(cell: Decimal) -> str:
    return format(cell, "f")


def _is_binary(type_: pa.DataType) -> bool:
    of = pa.types
    kinds = (of.is_binary, of.is_large_binary, of.is_binary_view, of.is_fixed_size_binary)
    return any(is_kind(type_) for is_kind in kinds)


def _of_extension(column: pa.Array, type_: pa.BaseExtensionType) -> list[Any]:
    if type_.extension_name == "arrow.uuid":
        cells = column.storage.to_pylist()
        return [None if cell is None else str(UUID(bytes=cell)) for cell in cells]
    if type_.extension_name == "arrow.bool8":
        return [None if cell is None else bool(cell) for cell in column.storage.to_pylist()]
    return json_cells(column.storage)


def _of_times(column: pa.Array, type_: pa.DataType) -> list[Any]:
    if pa.types.is_duration(type_):
        counts: list[Any] = column.cast(pa.int64()).to_pylist()
        return counts
    if pa.types.is_interval(type_):
        return [
            None if cell is None else dict(zip(("months", "days", "nanoseconds"), cell, strict=True))
            for cell in column.to_pylist()
        ]
    if not pa.types.is_timestamp(type_):
        texts: list[Any] = column.cast(pa.string()).to_pylist()
        return texts
    zone = "" if type_.tz is None else "Z"
    cells = column.cast(pa.timestamp(type_.unit)).cast(pa.string()).to_pylist()
    return [None if cell is None else cell.replace(" ", "T", 1) + zone for cell in cells]


def _of_nested(column: pa.Array, type_: pa.DataType) -> list[Any]:
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        fields = [json_cells(field) for field in column.flatten()]
        there = column.is_valid().to_pylist()
        rows = zip(*fields, strict=True) if fields else ((),) * len(column)
        return [
            dict(zip(names, row, strict=True)) if valid else None
            for row, valid in zip(rows, there, strict=True)
        ]
    if pa.types.is_map(type_):
        pair = pa.struct([pa.field("key", type_.key_type, False), type_.item_field.with_name("value")])
        pairs = _of_nested(column.cast(pa.list_(pair)), pa.list_(pair))
        return [None if cell is None else [[one["key"], one["value"]] for one in cell] for cell in pairs]
    cells = iter(json_cells(column.flatten()))
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else [next(cells) for _ in range(length)] for length in lengths]


__all__ = ["json_cells", "json_line", "json_rows"]
