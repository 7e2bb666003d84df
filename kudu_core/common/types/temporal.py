"""Dates, times of day, timestamps and durations: Python's, numpy's and pandas' values, and the numbers that
are stored.

Python's own types have microseconds.  Of nanoseconds, a number that is not whole in microseconds is pandas'
``Timestamp`` or ``Timedelta`` where pandas is installed (both are of Python's types), as in Arrow.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, shown

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of a second."""
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_DAY_MS = 86_400_000


def unit_of(type_: ColumnType) -> str:
    """The unit of a type's numbers, but of dates."""
    unit: str = type_.arrow.unit
    return unit


# ------------------------------------------------------------------------------ out: numbers to values


def to_python(type_: ColumnType) -> Callable[[int], Any]:
    """``number -> exact Python value``, which raises OverflowError or ValueError where Python has none."""
    if type_.is_date:
        divisor = 1 if type_.width == 4 else _DAY_MS
        return lambda number: dt.date.fromordinal(number // divisor + _EPOCH_DAY)
    unit = unit_of(type_)
    if type_.is_timestamp:
        make = _timestamp_of(type_)
    elif type_.is_duration:
        make = _duration_of
    else:
        make = _time_of
    if unit == "ns":
        return lambda number: make(*divmod(number, 1000))
    factor = TICKS["us"] // TICKS[unit]
    return lambda number: make(number * factor, 0)


def _timestamp_of(type_: ColumnType) -> Callable[[int, int], Any]:
    zone = zone_of(type_)

    def make(micros: int, nanos: int) -> Any:
        if nanos:
            return _of_pandas("Timestamp", micros * 1000 + nanos, tz=zone)
        if zone is None:
            return _EPOCH + dt.timedelta(microseconds=micros)
        moment = _EPOCH_UTC + dt.timedelta(microseconds=micros)
        return moment if zone is dt.UTC else moment.astimezone(zone)

    return make


def _duration_of(micros: int, nanos: int) -> Any:
    if nanos:
        return _of_pandas("Timedelta", micros * 1000 + nanos)
    return dt.timedelta(microseconds=micros)


def _time_of(micros: int, nanos: int) -> Any:
    if nanos:
        raise ValueError("Python's times of day have no nanoseconds")
    return (_EPOCH + dt.timedelta(microseconds=micros)).time()


def _of_pandas(kind: str, number: int, **options: Any) -> Any:
    try:
        pandas: Any = import_module("pandas")
    except ImportError:
        raise ValueError("Python's times have no nanoseconds, and pandas is not installed") from None
    made = getattr(pandas, kind)(number, unit="ns", **options)
    if made is pandas.NaT:  # the smallest number, to pandas
        raise ValueError(f"{number} nanoseconds are none of pandas' times")
    return made


@lru_cache(maxsize=256)
def zone_of(type_: ColumnType) -> dt.tzinfo | None:
    """The zone of a timestamp, None of one without; UTC for a zone that this machine does not know."""
    name = type_.arrow.tz
    if name is None:
        return None
    if type_.is_utc:
        return dt.UTC
    if name[0] in "+-":
        hours, minutes = int(name[1:3]), int(name[4:6] or 0)
        offset = dt.timedelta(hours=hours, minutes=minutes)
        return dt.timezone(-offset if name[0] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return dt.UTC


# ------------------------------------------------------------------------------- in: values to numbers


def from_python(type_: ColumnType) -> Callable[[Any, str], int]:
    """``(value, what) -> number``; TypeError for a value of another kind, ``InvalidArgument`` for one that is
    not exact in the type."""
    if type_.is_date:
        factor = 1 if type_.width == 4 else _DAY_MS
        return lambda value, what: _date(value) * factor
    if type_.is_timestamp:
        return _timestamp(type_)
    return _duration(type_) if type_.is_duration else _time(type_)


def _date(value: Any) -> int:
    if isinstance(value, np.datetime64):
        if np.isnat(value) or value.astype("datetime64[D]") != value:
            raise TypeError
        value = value.astype("datetime64[D]").item()
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise TypeError  # the time of day would be lost
    return value.toordinal() - _EPOCH_DAY


def _timestamp(type_: ColumnType) -> Callable[[Any, str], int]:
    aware = type_.arrow.tz is not None
    in_unit = _in_unit(type_)

    def convert(value: Any, what: str) -> int:
        if isinstance(value, np.datetime64):
            if aware:
                raise InvalidArgument(f"{what}: a {type_} needs a time with a zone; {shown(value)} has none")
            return _number_of(type_, value, what)
        if not isinstance(value, dt.datetime) or not isinstance(value.year, int):
            raise TypeError  # pandas' NaT is a datetime whose year is NaN
        if aware:
            if value.utcoffset() is None:
                raise InvalidArgument(f"{what}: a {type_} needs a time with a zone; {shown(value)} has none")
        elif value.tzinfo is not None:
            raise InvalidArgument(f"{what}: a {type_} has no zone; {shown(value)} has one")
        if getattr(value, "nanosecond", 0):  # of pandas, which has none but in times that it counts in them
            return in_unit(int(value.value), value, what)  # type: ignore[attr-defined]
        micros = (value - (_EPOCH_UTC if aware else _EPOCH)) // _MICROSECOND
        return in_unit(micros * 1000, value, what)

    return convert


def _duration(type_: ColumnType) -> Callable[[Any, str], int]:
    in_unit = _in_unit(type_)

    def convert(value: Any, what: str) -> int:
        if isinstance(value, np.timedelta64):
            return _number_of(type_, value, what)
        if not isinstance(value, dt.timedelta) or not isinstance(value.days, int):
            raise TypeError  # pandas' NaT is no timedelta of so many days
        seconds, nanos = value.days * 86_400 + value.seconds, getattr(value, "nanoseconds", 0)  # of pandas
        return in_unit((seconds * 10**6 + value.microseconds) * 1000 + nanos, value, what)

    return convert


def _time(type_: ColumnType) -> Callable[[Any, str], int]:
    in_unit = _in_unit(type_)

    def convert(value: Any, what: str) -> int:
        if not isinstance(value, dt.time):
            raise TypeError
        if value.tzinfo is not None:
            raise InvalidArgument(f"{what}: a {type_} has no zone; {shown(value)} has one")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return in_unit((seconds * 10**6 + value.microsecond) * 1000, value, what)

    return convert


def _in_unit(type_: ColumnType) -> Callable[[int, Any, str], int]:
    unit = unit_of(type_)
    divisor, most = TICKS["ns"] // TICKS[unit], 1 << 8 * type_.width - 1

    def convert(nanos: int, value: Any, what: str) -> int:
        number, rest = divmod(nanos, divisor)
        if rest:
            raise InvalidArgument(f"{what}: {shown(value)} is not a whole number of {_NAMES[unit]}")
        if not -most <= number < most:
            raise InvalidArgument(f"{what}: {shown(value)} is outside the range of {type_}")
        return number

    return convert


def _number_of(type_: ColumnType, value: Any, what: str) -> int:
    """Of numpy's datetime64 or timedelta64, by way of Python's integers, which do not wrap."""
    unit = unit_of(type_)
    given, count = np.datetime_data(value.dtype)
    if np.isnat(value) or given == "generic":
        raise TypeError
    if given in ("Y", "M"):
        value, given, count = value.astype(f"{value.dtype.kind}8[D]"), "D", 1
    per_second = {"W": (604_800, 1), "D": (86_400, 1), "h": (3600, 1), "m": (60, 1)}
    per_second |= {name: (1, ticks) for name, ticks in TICKS.items()}
    per_second |= {"ps": (1, 10**12), "fs": (1, 10**15), "as": (1, 10**18)}
    seconds, ticks = per_second[given]
    number, rest = divmod(int(value.astype(np.int64)) * count * seconds * TICKS[unit], ticks)
    if rest:
        raise InvalidArgument(f"{what}: {shown(value)} is not a whole number of {_NAMES[unit]}")
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgument(f"{what}: {shown(value)} is outside the range of {type_}")
    return number


def limits(type_: ColumnType) -> tuple[int, int, int] | None:
    """(first, end, step) of the numbers that the type has; None: any."""
    if type_.is_time_of_day:
        return 0, 86_400 * TICKS[unit_of(type_)], 1
    if type_.is_date and type_.width == 8:
        return -(1 << 63), 1 << 63, _DAY_MS
    return None


def scalar(type_: ColumnType, number: int) -> pa.Scalar:
    """A number as a ``pa.Scalar``, which holds what Python's types do not."""
    return pa.scalar(number, pa.int32() if type_.width == 4 else pa.int64()).cast(type_.arrow)
