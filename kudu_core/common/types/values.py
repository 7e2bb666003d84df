"""One cell as a Python value, and as the bytes that lie in a column.

Three forms of a value that is not null:

* what a caller gives: Python, numpy, pandas or ``pa.Scalar``, checked here and never rounded
  (a float32 column takes the nearest float, as everywhere in Python);
* the *exact* Python value of the column's type: int, float, bool, str, bytes, ``date``,
  ``datetime`` (aware and UTC, or naive, as the type says), ``Decimal`` with the type's scale;
* the *physical* value: int (also of dates, timestamps and decimals), float, bool or bytes.

Physical values of a key type compare as the cells do.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import operator
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.types.types import (
    TYPE_BINARY,
    TYPE_BOOL,
    TYPE_DECIMAL,
    TYPE_FLOAT,
    TYPE_UNSIGNED,
    ColumnType,
)
from kudu_core.errors import InvalidArgument, shown

Physical = int | float | bool | bytes

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
# Wide enough for 38 digits scaled by 38 more, so that scaling never rounds unseen.
_EXACT = decimal.Context(prec=100, traps=[decimal.Inexact, decimal.InvalidOperation])


def physical(type_: ColumnType, value: Any, what: str = "value") -> Physical:
    """Check a caller's value.  ``InvalidArgument`` names ``what``, the value and the type."""
    return converter(type_)(value, what)


def python(type_: ColumnType, value: Physical, what: str = "value") -> Any:
    """The exact Python value; dates and times that Python cannot hold give ``InvalidArgument``."""
    if type_.kind == TYPE_BINARY:
        assert isinstance(value, bytes)
        return value.decode("utf-8", "surrogateescape") if type_.is_string else value
    if type_.kind == TYPE_DECIMAL:
        return decimal.Decimal(int(value)).scaleb(-type_.arrow.scale, _EXACT)
    try:
        if type_.is_date:
            return dt.date.fromordinal(int(value) + _EPOCH_DAY)
        if type_.is_timestamp:
            epoch = _EPOCH if type_.arrow.tz is None else _EPOCH_UTC
            return epoch + dt.timedelta(microseconds=int(value))
    except (OverflowError, ValueError):
        raise InvalidArgument(
            f"{what}: {value!r} as {type_} lies outside the years 1 to 9999, which is all that Python's "
            "dates and times hold; read it as Arrow, by scan or get_many"
        ) from None
    return value


def python_or_scalar(type_: ColumnType, value: Physical) -> Any:
    """The exact Python value; of dates and times that Python cannot hold a ``pa.Scalar`` of the type."""
    try:
        return python(type_, value)
    except InvalidArgument:
        return pa.scalar(value, pa.int32() if type_.is_date else pa.int64()).cast(type_.arrow)


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
        return value if type_.is_string else base64.b64encode(number).decode("ascii")
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
        return exact(type_, stored if type_.is_string else base64.b64decode(stored, validate=True))
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
    return python(type_, _in_range(type_, stored, "value", stored))


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
    if type_.kind == TYPE_BINARY:
        leaf = _string if type_.is_string else _binary
    elif type_.kind == TYPE_DECIMAL:
        leaf = _decimal(type_)
    elif type_.kind == TYPE_FLOAT:
        leaf = _float(type_)
    elif type_.kind == TYPE_BOOL:
        leaf = _bool
    elif type_.is_date:
        leaf = _date
    elif type_.is_timestamp:
        leaf = _timestamp(type_)
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
    if value.is_valid and (type_.is_timestamp or type_.is_date) and value.type == type_.arrow:
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
    def convert(value: Any, what: str) -> Physical:
        if isinstance(value, _NOT_FLOATS):
            raise TypeError
        number = float(value)
        if type_.width == 4 and math.isfinite(number):
            try:
                number = struct.unpack("<f", struct.pack("<f", number))[0]
            except OverflowError:
                raise InvalidArgument(f"{what}: {shown(value)} is outside the range of float32") from None
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


def _binary(value: Any, what: str) -> Physical:
    if not isinstance(value, _BUFFERS):
        raise TypeError
    return bytes(value)


def _date(value: Any, what: str) -> Physical:
    if isinstance(value, np.datetime64):
        value = _from_datetime64(value, "D")
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise TypeError  # the time of day would be lost
    return value.toordinal() - _EPOCH_DAY


def _timestamp(type_: ColumnType) -> Converter:
    aware = type_.arrow.tz is not None

    def convert(value: Any, what: str) -> Physical:
        if isinstance(value, np.datetime64):
            if aware:
                raise InvalidArgument(f"{what}: a {type_} needs a time with a zone; {shown(value)} has none")
            exact_us = value.astype("datetime64[us]")
            if np.isnat(value) or exact_us != value:
                raise InvalidArgument(f"{what}: {shown(value)} is not a whole number of microseconds")
            return int(exact_us.astype(np.int64))
        if not isinstance(value, dt.datetime) or not isinstance(value.year, int):
            raise TypeError  # pandas' NaT is a datetime whose year is NaN
        if getattr(value, "nanosecond", 0):
            raise InvalidArgument(f"{what}: {shown(value)} is not a whole number of microseconds")
        if aware:
            if value.utcoffset() is None:
                raise InvalidArgument(f"{what}: a {type_} needs a time with a zone; {shown(value)} has none")
            return (value - _EPOCH_UTC) // _MICROSECOND
        if value.tzinfo is not None:
            raise InvalidArgument(f"{what}: a {type_} has no zone; {shown(value)} has one")
        return (value - _EPOCH) // _MICROSECOND

    return convert


def _from_datetime64(value: np.datetime64, unit: str) -> Any:
    if np.isnat(value) or value.astype(f"datetime64[{unit}]") != value:
        raise TypeError
    return value.astype(f"datetime64[{unit}]").item()


def _decimal(type_: ColumnType) -> Converter:
    precision, scale = type_.arrow.precision, type_.arrow.scale

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
