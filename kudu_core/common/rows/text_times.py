"""Dates and times in the text of ISO 8601, as those of a column.

``2026-01-05``, ``2026-01-05T10:30`` and ``2026-01-05 10:30:00.123456`` for a column without a zone, with
``Z`` or ``+01:00`` behind for one with a zone.  What says less or more than the column holds is refused,
never cut: a time of day for a date, a zone for a column without one, no zone for a column with one, parts of
the unit.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types import foreign
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, SchemaMismatch, shown

_t = pa.types
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def takes_text(type_: ColumnType) -> bool:
    return bool(_t.is_timestamp(type_.arrow) or _t.is_date(type_.arrow))


def of_text(array: pa.Array, type_: ColumnType, name: str, first_row: int) -> pa.Array:
    """Checked text as the column's dates or times.  ``SchemaMismatch`` names the first row at fault."""
    try:
        return _parsed(array, type_)
    except pa.ArrowInvalid:
        pass
    row = foreign.first_refused(array, lambda some: _parsed(some, type_))
    where = foreign.place(name, None if row is None else first_row + row)
    given = "the text" if row is None else shown(array[row].as_py())
    raise SchemaMismatch(f"{where}: {given} {_refusal(array, row, type_)}")


def _parsed(array: pa.Array, type_: ColumnType) -> pa.Array:
    text = pc.cast(array, pa.string()) if array.type == pa.string_view() else array
    try:
        return pc.cast(text, type_.arrow)
    except pa.ArrowInvalid:
        if not _t.is_timestamp(type_.arrow):
            raise
    # Zeros beyond the unit change nothing, and Arrow takes no more digits than the unit has.
    digits = _DIGITS[type_.arrow.unit]
    pattern = rf"(\.[0-9]{{{digits}}})0+(Z|[+-][0-9:]+)?$" if digits else r"(\.)0+(Z|[+-][0-9:]+)?$"
    return pc.cast(pc.replace_substring_regex(text, pattern, r"\1\2" if digits else r"\2"), type_.arrow)


def _refusal(array: pa.Array, row: int | None, type_: ColumnType) -> str:
    cell = array if row is None else array.slice(row, 1)
    if _t.is_date(type_.arrow):
        return f"is no {type_}; write 2026-01-05, or parse it: pc.strptime(column, format, unit='s')"
    has_zone = type_.arrow.tz is not None
    other = pa.timestamp("ns", None if has_zone else "UTC")
    try:
        pc.cast(pc.cast(cell, pa.large_string()), other)
    except pa.ArrowInvalid:
        how = "2026-01-05T10:30:00Z" if has_zone else "2026-01-05T10:30:00"
        return (
            f"is no {type_}; write {how}, with no more places than {type_.arrow.unit}, "
            "or parse it: pc.strptime(column, format, unit='us')"
        )
    if has_zone:
        return f"has no zone, and the column is {type_}; write which, as in 2026-01-05T10:30:00Z"
    return f"has a zone, and the column is {type_}, without one; leave it out"


def cell_of_text(cell: Any, type_: ColumnType, what: str) -> Any:
    """Text among other Python values as a scalar of the column's type; all else as it is."""
    if not isinstance(cell, str):
        return cell
    try:
        return of_text(pa.array([cell], pa.string()), type_, "", 0)[0]
    except SchemaMismatch as error:
        told = str(error).partition(": ")[2]
    raise InvalidArgument(f"{what}: {told}")


__all__ = ["cell_of_text", "of_text", "takes_text"]
