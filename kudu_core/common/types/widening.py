"""What a column's type may become while its files and log records stay as they are.

That is a type that is stored as the same cells: text and views of text, a decimal of more digits, a float16
as float32, another time zone.  Wider numbers and finer units are other cells (``recasting``).
"""

from __future__ import annotations

from decimal import Decimal

from kudu_core.common.types.types import TYPE_BINARY, TYPE_DECIMAL, TYPE_FLOAT, ColumnType


def same_cells(old: ColumnType, new: ColumnType) -> bool:
    """Whether the cells of one type are cells of another as they lie, with the same values; but those that
    ``narrows`` speaks of."""
    if old.is_named or new.is_named:
        return False
    one, other = old.value, new.value
    if one.kind != other.kind or one.width != other.width:
        return False
    if one.kind == TYPE_BINARY:
        return _is_same_text(one, other)
    if one.kind == TYPE_DECIMAL:
        return bool(one.arrow.scale == other.arrow.scale)
    if one.kind == TYPE_FLOAT:
        return one == other or (one.name, other.name) == ("float16", "float32")
    if one.is_timestamp and other.is_timestamp:
        zones = one.arrow.tz, other.arrow.tz
        return bool(one.arrow.unit == other.arrow.unit and (None in zones) == (zones == (None, None)))
    return one == other


def changes_cells(old: ColumnType, new: ColumnType) -> bool:
    """Whether cells of the one have to be cast to be those of the other (``recasting``)."""
    return old != new and not same_cells(old, new)


def narrows(old: ColumnType, new: ColumnType) -> bool:
    """Whether some values of a decimal are none of the other, which has the same cells."""
    one, other = old.value, new.value
    return one.kind == TYPE_DECIMAL and bool(other.arrow.precision < one.arrow.precision)


def most_decimal(type_: ColumnType) -> Decimal:
    """The largest value of a type of decimals."""
    arrow = type_.value.declared
    return Decimal(10**arrow.precision - 1).scaleb(-arrow.scale)


def _is_same_text(old: ColumnType, new: ColumnType) -> bool:
    if old == new:
        return True
    if old.is_long_decimal or new.is_long_decimal or "month_day_nano_interval" in (old.name, new.name):
        return False
    if new.cell_bytes is not None:
        return old.cell_bytes == new.cell_bytes
    return new.is_string == old.is_string


__all__ = ["changes_cells", "most_decimal", "narrows", "same_cells"]
