"""Constants as what they mean beside one column: the text of a uuid is its 16 bytes, a bool is a bool8.

Arrow compares bytes with text, and numbers with times in lists, and then no row is ever found.  So a constant
that no cell of such a column can be is refused here; what merely is in no row is not.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa

from kudu_core.common.types.stored_arrays import inward
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, shown

_t = pa.types
EQUALITIES = frozenset(("equal", "not_equal", "is_in"))
COMPARISONS = EQUALITIES | {"less", "less_equal", "greater", "greater_equal"}
_UUID_BYTES = 16


def meant(array: pa.Array, type_: ColumnType, name: str, function: str) -> pa.Array:
    """Constants that ``function``, one of ``COMPARISONS``, has beside a column; the same array where they
    mean what they are.

    ``InvalidArgument`` names the column and the first constant that none of its cells can be.
    """
    if _t.is_null(array.type):
        return array
    kind = type_.value.name
    if kind == "bool8" and _t.is_boolean(array.type):
        return array.cast(pa.int8())
    if kind == "month_day_nano_interval":
        return _intervals(array, name, function)
    if kind == "uuid" and _is_text(array.type):
        array = pa.array([_of_text(text, name) for text in array.to_pylist()], pa.binary())
    if type_.cell_bytes is not None and function in EQUALITIES:
        _check_sizes(array, type_, name)
    if function == "is_in":
        _check_kinds(array.type, type_, name)
    return array


def _check_kinds(given: pa.DataType, type_: ColumnType, name: str) -> None:
    """Refuse a list of times beside numbers, or of others beside times: Arrow takes them for numbers."""
    kind, own = _kind_of(given), _kind_of(type_.value.arrow)
    if kind != own and None not in (kind, own):
        raise InvalidArgument(f"where: column {name!r} is {type_}, and the list is of {given}: none is in it")


def _kind_of(type_: pa.DataType) -> str | None:
    """Of numbers, and of what else Arrow casts to numbers; None: it casts it to none."""
    if _t.is_timestamp(type_) or _t.is_date(type_):
        return "instant"
    if _t.is_time(type_):
        return "time of day"
    if _t.is_duration(type_):
        return "duration"
    is_number = _t.is_integer(type_) or _t.is_floating(type_) or _t.is_decimal(type_) or _t.is_boolean(type_)
    return "number" if is_number else None


def _intervals(array: pa.Array, name: str, function: str) -> pa.Array:
    if function not in EQUALITIES:
        raise InvalidArgument(
            f"where: column {name!r} is month_day_nano_interval, and of two intervals none is the smaller; "
            "ask by == or in"
        )
    if not _t.is_interval(array.type) and set(map(_size, array.to_pylist())) - {None, _UUID_BYTES}:
        raise InvalidArgument(
            f"where: column {name!r} is month_day_nano_interval, and {array.type} is compared with it; "
            "write pyarrow.MonthDayNano((months, days, nanoseconds))"
        )
    return inward(array, ColumnType.parse("month_day_nano_interval")) if _t.is_interval(array.type) else array


def _of_text(text: str | None, name: str) -> bytes | None:
    if text is None:
        return None
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        raise InvalidArgument(
            f"where: column {name!r} is uuid, which {shown(text)} is not; write a uuid.UUID, its text, as in "
            "'00112233-4455-6677-8899-aabbccddeeff', or its 16 bytes"
        ) from None


def _check_sizes(array: pa.Array, type_: ColumnType, name: str) -> None:
    for value in array.to_pylist():
        if _size(value) not in (None, type_.cell_bytes):
            raise InvalidArgument(
                f"where: column {name!r} is {type_}, whose values have {type_.cell_bytes} bytes; "
                f"{shown(value)} has {_size(value)}, and is in no row"
            )


def _size(value: Any) -> int | None:
    """Bytes of text or of bytes; -1 of anything else, None of NULL."""
    if isinstance(value, str):
        value = value.encode()
    return None if value is None else len(value) if isinstance(value, bytes) else -1


def _is_text(type_: pa.DataType) -> bool:
    return bool(_t.is_string(type_) or _t.is_large_string(type_) or type_ == pa.string_view())


__all__ = ["COMPARISONS", "EQUALITIES", "meant"]
