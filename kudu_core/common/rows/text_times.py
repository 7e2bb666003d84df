"""Dates and times in the text of ISO 8601, and the text of a uuid, as those of a column.

``2026-01-05``, ``2026-01-05T10:30`` and ``2026-01-05 10:30:00.123456`` for a column without a zone, with
``Z`` or ``+01:00`` behind for one with a zone; ``10:30:00`` for a time of day.  What says less or more than
the column holds is refused, never cut: a time of day for a date, a zone for a column without one, no zone for
a column with one, parts of the unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types import foreign
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, SchemaMismatch, shown

_t = pa.types
_UUID = "^[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(-?)[0-9a-fA-F]{4}(-?)[0-9a-fA-F]{4}(-?)[0-9a-fA-F]{12}$"
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def takes_text(type_: ColumnType) -> bool:
    return type_.is_timestamp or type_.is_date or type_.is_time_of_day or _is_uuid(type_)


def _is_uuid(type_: ColumnType) -> bool:
    return type_.value.name == "uuid"


def of_text(
    array: pa.Array, type_: ColumnType, name: str, first_row: int, in_row: int | None = None
) -> pa.Array:
    """Checked text as the column's dates, times or uuids.  ``CellRefused`` names the first row at fault:
    ``in_row``, where all of the text is in one."""
    try:
        return _parsed(array, type_)
    except pa.ArrowInvalid:
        pass
    row = foreign.first_refused(array, lambda some: _parsed(some, type_))
    where = foreign.place(name, in_row if in_row is not None or row is None else first_row + row)
    given = "the text" if row is None else shown(array[row].as_py())
    raise foreign.CellRefused(f"{where}: {given} {_refusal(array, row, type_)}")


def _parsed(array: pa.Array, type_: ColumnType) -> pa.Array:
    text = pc.cast(array, pa.string()) if array.type == pa.string_view() else array
    if _is_uuid(type_):
        return _uuids(text)
    if type_.is_time_of_day:  # which Arrow reads as a part of an instant alone
        whole = pc.binary_join_element_wise("1970-01-01T", pc.cast(text, pa.string()), "")
        return pc.cast(_parsed(whole, ColumnType.parse(f"timestamp[{type_.arrow.unit}]")), type_.arrow)
    try:
        return pc.cast(text, type_.arrow)
    except pa.ArrowInvalid:
        if not _t.is_timestamp(type_.arrow):
            raise
    # Zeros beyond the unit change nothing, and Arrow takes no more digits than the unit has.
    digits = _DIGITS[type_.arrow.unit]
    pattern = rf"(\.[0-9]{{{digits}}})0+(Z|[+-][0-9:]+)?$" if digits else r"(\.)0+(Z|[+-][0-9:]+)?$"
    return pc.cast(pc.replace_substring_regex(text, pattern, r"\1\2" if digits else r"\2"), type_.arrow)


def _uuids(text: pa.Array) -> pa.Array:
    """With hyphens or without, as 16 bytes; ``pa.ArrowInvalid`` for what is none."""
    if pc.all(pc.match_substring_regex(text, _UUID)).as_py() is False:
        raise pa.ArrowInvalid("no uuid")
    digits = pc.cast(pc.replace_substring(text, "-", ""), pa.large_binary())
    valid = pc.drop_null(digits)
    joined = b"".join(valid.to_pylist())
    sixteen = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(valid), [None, pa.py_buffer(bytes.fromhex(joined.decode("ascii")))]
    )
    if not text.null_count:
        return sixteen.cast(pa.binary())
    there = text.is_valid().to_numpy(zero_copy_only=False)
    return sixteen.take(pa.array(np.cumsum(there) - 1, mask=~there)).cast(pa.binary())


def _refusal(array: pa.Array, row: int | None, type_: ColumnType) -> str:
    if _is_uuid(type_):
        return "is no uuid; write it as 00112233-4455-6677-8899-aabbccddeeff"
    if type_.is_time_of_day:
        return f"is no {type_}; write 10:30:00, with no more places than {type_.arrow.unit}, and no zone"
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
