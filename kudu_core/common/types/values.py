"""One cell as a Python value, and as the bytes that lie in a column.

Three forms of a value that is not null:

* what a caller gives: Python, numpy, pandas or ``pa.Scalar``, checked here and never rounded
  (a float32 column takes the nearest float, as everywhere in Python);
* the *exact* Python value of the column's type, as Arrow's ``as_py`` has it: int, float, bool, str, bytes,
  ``date``, ``time``, ``timedelta``, ``datetime`` (in the zone of the type, or naive), ``Decimal`` with the
  type's scale, ``UUID``, ``MonthDayNano``;
* the *physical* value: int (also of dates, times and decimals), float, bool or bytes.

Physical values of a key type compare as the cells do.
"""

from __future__ import annotations

import base64
import decimal
import math
import operator
import struct
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.types import temporal
from kudu_core.common.types.types import (
    LONG_DECIMAL_BYTES,
    TYPE_BINARY,
    TYPE_BOOL,
    TYPE_DECIMAL,
    TYPE_FLOAT,
    TYPE_UNSIGNED,
    ColumnType,
)
from kudu_core.errors import InvalidArgument, shown

Physical = int | float | bool | bytes

_INTERVAL = struct.Struct("<iiq")
# Wide enough for 76 digits scaled by 76 more, so that scaling never rounds unseen.
_EXACT = decimal.Context(prec=200, traps=[decimal.Inexact, decimal.InvalidOperation])


def physical(type_: ColumnType, value: Any, what: str = "value") -> Physical:
    """Check a caller's value.  ``InvalidArgument`` names ``what``, the value and the type."""
    return converter(type_)(value, what)


def python(type_: ColumnType, value: Physical, what: str = "value") -> Any:
    """The exact Python value; dates and times that Python cannot hold give ``InvalidArgument``."""
    try:
        return _maker(type_)(value)
    except (OverflowError, ValueError) as error:
        if not type_.is_temporal:
            raise
        raise InvalidArgument(
            f"{what}: {value!r} as {type_} {_why_not(error)}; read it as Arrow, by scan or get_many"
        ) from None


def _why_not(error: Exception) -> str:
    if "nanoseconds" in str(error):
        return f"is none of Python's values ({error})"
    return "lies outside the years 1 to 9999, which is all that Python's dates and times hold"


@lru_cache(maxsize=1024)
def _maker(type_: ColumnType) -> Callable[[Any], Any]:
    """``physical -> exact Python value`` of one type, with the branches of ``python`` taken."""
    if type_.is_temporal:
        return temporal.to_python(type_)
    if type_.kind == TYPE_DECIMAL:
        scale = type_.arrow.scale
        return lambda value: decimal.Decimal(value).scaleb(-scale, _EXACT)
    name = type_.value.name
    if name == "uuid":
        return lambda value: uuid.UUID(bytes=value)
    if name == "bool8":
        return bool
    if name == "month_day_nano_interval":
        return lambda value: pa.MonthDayNano(_INTERVAL.unpack(value))
    if type_.is_long_decimal:
        scale = type_.value.declared.scale
        return lambda value: decimal.Decimal(_of_long(value)).scaleb(-scale, _EXACT)
    if type_.is_string:
        return lambda value: value.decode("utf-8", "surrogateescape")
    return lambda value: value


def _of_long(value: bytes) -> int:
    return int.from_bytes(value, "big") - (1 << 255)


def python_or_scalar(type_: ColumnType, value: Physical) -> Any:
    """The exact Python value; of dates and times that Python cannot hold a ``pa.Scalar`` of the type."""
    try:
        return python(type_, value)
    except InvalidArgument:
        return temporal.scalar(type_, int(value))


def exact(type_: ColumnType, value: Any, what: str = "value") -> Any:
    """A caller's value as the exact Python value of the type."""
    return python(type_, physical(type_, value, what))


def pack(type_: ColumnType, value: Physical) -> bytes:
    """The bytes of a physical value in a column."""
    if type_.kind == TYPE_BINARY:
        assert isinstance(value, bytes)
        return value
    if type_.kind == TYPE_FLOAT:
        return struct.pack("<f" if type_.width == 4 else "<d", value)
    return int(value).to_bytes(type_.width, "little", signed=type_.kind not in (TYPE_UNSIGNED, TYPE_BOOL))


def unpack(type_: ColumnType, raw: bytes) -> Physical:
    """The physical value of a cell's bytes."""
    if type_.kind == TYPE_BINARY:
        return raw
    if type_.kind == TYPE_FLOAT:
        number: float = struct.unpack("<f" if type_.width == 4 else "<d", raw)[0]
        return number
    if type_.kind == TYPE_BOOL:
        return raw != b"\0"
    return int.from_bytes(raw, "little", signed=type_.kind != TYPE_UNSIGNED)


def raw_bytes(type_: ColumnType, value: Any, what: str = "value") -> bytes:
    """The bytes in a column of a caller's value, checked."""
    return pack(type_, physical(type_, value, what))


def to_json(type_: ColumnType, value: Any) -> Any:
    """An exact value (or None) as JSON that keeps every bit: see ``from_json``."""
    if value is None:
        return None
    number = physical(type_, value)
    if type_.kind == TYPE_BINARY:
        assert isinstance(number, bytes)
        return number.decode() if type_.is_string else base64.b64encode(number).decode("ascii")
    if type_.kind == TYPE_DECIMAL:
        return str(value)
    if type_.kind == TYPE_FLOAT:
        return float(number) if math.isfinite(float(number)) else str(float(number))
    return number


def from_json(type_: ColumnType, stored: Any) -> Any:
    """The exact value of ``to_json``'s.  ``ValueError`` or ``TypeError`` for anything else."""
    if stored is None:
        return None
    if type_.kind == TYPE_BINARY:
        return exact(type_, stored if type_.is_string else _of_bytes(type_, stored))
    if type_.kind == TYPE_DECIMAL:
        if not isinstance(stored, str):
            raise TypeError(f"a decimal is stored as a string, not {stored!r}")
        return exact(type_, decimal.Decimal(stored))
    if type_.kind == TYPE_FLOAT:
        return exact(type_, float(stored))
    if type_.kind == TYPE_BOOL:
        return exact(type_, stored)
    if isinstance(stored, bool) or not isinstance(stored, int):
        raise TypeError(f"{type_} is stored as an integer, not {stored!r}")
    return python_or_scalar(type_, _in_range(type_, stored, "value", stored))


def _of_bytes(type_: ColumnType, stored: Any) -> Any:
    raw = base64.b64decode(stored, validate=True)
    if type_.cell_bytes not in (None, len(raw)) or (type_.is_long_decimal and len(raw) != LONG_DECIMAL_BYTES):
        raise ValueError(f"{len(raw)} bytes are no {type_}")
    return python(type_, raw)


# ------------------------------------------------------------------ checking what a caller gives

Converter = Callable[[Any, str], Physical]

_BOOLS = (bool, np.bool_)
_FLOATS = (float, np.floating)
_BUFFERS = (bytes, bytearray, memoryview)
_NOT_FLOATS = (*_BOOLS, str, bytes, decimal.Decimal, pa.Scalar)


@lru_cache(maxsize=1024)
def converter(type_: ColumnType) -> Converter:
    """``(value, what) -> physical value`` for one type: ``physical`` with its branches taken."""
    leaf: Converter
    if type_.value.name in _OF_NAMES:
        leaf = _OF_NAMES[type_.value.name]
    elif type_.is_long_decimal:
        leaf = _long_decimal(type_)
    elif type_.kind == TYPE_BINARY:
        leaf = _string if type_.is_string else _binary_of(type_)
    elif type_.kind == TYPE_DECIMAL:
        leaf = _decimal(type_.arrow.precision, type_.arrow.scale, type_)
    elif type_.kind == TYPE_FLOAT:
        leaf = _float(type_)
    elif type_.kind == TYPE_BOOL:
        leaf = _bool
    elif type_.is_temporal:
        leaf = temporal.from_python(type_)
    else:
        leaf = _integer(type_)

    def convert(value: Any, what: str) -> Physical:
        try:
            return leaf(value, what)
        except InvalidArgument:
            raise
        except (TypeError, ValueError, OverflowError):
            pass
        if value is not None and isinstance(value, pa.Scalar):
            return _scalar(type_, value, what)
        raise InvalidArgument(f"{what}: {shown(value)} ({type(value).__name__}) is not a {type_}")

    return convert


def _scalar(type_: ColumnType, value: pa.Scalar, what: str) -> Physical:
    """A ``pa.Scalar`` keeps times that Python's own types cannot hold."""
    if value.is_valid and type_.is_temporal and value.type == type_.arrow:
        return int(value.value)
    if not value.is_valid:
        raise InvalidArgument(f"{what}: NULL is not a {type_}")
    try:
        held = value.as_py()
    except (OverflowError, ValueError):  # a time that Python's own types cannot hold, of another unit
        raise InvalidArgument(f"{what}: {value.type} {shown(value)} is not a {type_}") from None
    return converter(type_)(held, what)


def _integer(type_: ColumnType) -> Converter:
    signed = type_.kind != TYPE_UNSIGNED
    bits = 8 * type_.width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(value: Any, what: str) -> Physical:
        if type(value) is int and low <= value <= high:
            return value
        if isinstance(value, _BOOLS):
            raise TypeError
        number = operator.index(value)
        if not low <= number <= high:
            raise InvalidArgument(f"{what}: {shown(number)} is outside the range of {type_}, {low} to {high}")
        return number

    return convert


def _in_range(type_: ColumnType, number: int, what: str, given: Any) -> int:
    signed = type_.kind != TYPE_UNSIGNED
    bits = 8 * type_.width - signed
    if not (-(1 << bits) if signed else 0) <= number < 1 << bits:
        raise InvalidArgument(f"{what}: {given} is outside the range of {type_}")
    return number


def _bool(value: Any, what: str) -> Physical:
    if not isinstance(value, _BOOLS):
        raise TypeError
    return bool(value)


def _float(type_: ColumnType) -> Converter:
    nearest = "<e" if pa.types.is_float16(type_.value.declared) else "<f"

    def convert(value: Any, what: str) -> Physical:
        if isinstance(value, _NOT_FLOATS):
            raise TypeError
        number = float(value)
        if type_.width == 4 and math.isfinite(number):
            try:
                number = struct.unpack(nearest, struct.pack(nearest, number))[0]
            except OverflowError:
                raise InvalidArgument(f"{what}: {shown(value)} is outside the range of {type_}") from None
        if not isinstance(value, _FLOATS) and number != value:
            raise InvalidArgument(f"{what}: {shown(value)} is not exact as {type_}")
        return number

    return convert


def _string(value: Any, what: str) -> Physical:
    if type(value) is not str and not isinstance(value, str):
        raise TypeError
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what}: {shown(value)} cannot be written as UTF-8") from None


def _binary_of(type_: ColumnType) -> Converter:
    size = type_.cell_bytes

    def convert(value: Any, what: str) -> Physical:
        if not isinstance(value, _BUFFERS):
            raise TypeError
        raw = bytes(value)
        if size is not None and len(raw) != size:
            raise InvalidArgument(f"{what}: {len(raw)} bytes are no {type_}, which has {size}")
        return raw

    return convert


def _uuid(value: Any, what: str) -> Physical:
    """A UUID, its 16 bytes, or its text."""
    if isinstance(value, str):
        try:
            value = uuid.UUID(value)
        except ValueError:
            raise InvalidArgument(f"{what}: {shown(value)} is not a uuid") from None
    if isinstance(value, uuid.UUID):
        return value.bytes
    if not isinstance(value, _BUFFERS):
        raise TypeError
    raw = bytes(value)
    if len(raw) != 16:
        raise InvalidArgument(f"{what}: {len(raw)} bytes are no uuid, which has 16")
    return raw


def _interval(value: Any, what: str) -> Physical:
    if isinstance(value, pa.MonthDayNano | tuple | list) and len(value) == 3:
        try:
            return _INTERVAL.pack(*value)
        except struct.error as error:
            raise InvalidArgument(f"{what}: {shown(value)} is outside the type's range: {error}") from None
    if isinstance(value, _BUFFERS) and len(value) == _INTERVAL.size:
        return bytes(value)
    raise TypeError


def _bool8(value: Any, what: str) -> Physical:
    if not isinstance(value, _BOOLS):
        raise TypeError
    return int(value)


def _nothing(value: Any, what: str) -> Physical:
    raise InvalidArgument(f"{what}: a column of type null has no values but NULL, not {shown(value)}")


_OF_NAMES: dict[str, Converter] = {
    "uuid": _uuid,
    "month_day_nano_interval": _interval,
    "bool8": _bool8,
    "null": _nothing,
}


def _long_decimal(type_: ColumnType) -> Converter:
    number_of = _decimal(type_.value.declared.precision, type_.value.declared.scale, type_)

    def convert(value: Any, what: str) -> Physical:
        number = number_of(value, what)
        return (int(number) + (1 << 255)).to_bytes(LONG_DECIMAL_BYTES, "big")

    return convert


def _decimal(precision: int, scale: int, type_: ColumnType) -> Converter:
    def convert(value: Any, what: str) -> Physical:
        if isinstance(value, _BOOLS):
            raise TypeError
        if not isinstance(value, decimal.Decimal):
            value = decimal.Decimal(operator.index(value))
        if not value.is_finite():
            raise TypeError
        try:
            scaled = value.scaleb(scale, _EXACT)
            # Before it is written out: a number of a million digits takes minutes.
            if scaled and scaled.adjusted() >= precision:
                raise InvalidArgument(f"{what}: {shown(value)} has more digits than {type_}")
            number = int(scaled) if scaled else 0
            if number != scaled:
                raise InvalidArgument(
                    f"{what}: {shown(value)} has more than {scale} places, those of {type_}"
                )
        except decimal.DecimalException:
            raise InvalidArgument(f"{what}: {shown(value)} is outside the range of {type_}") from None
        return number

    return convert
