"""Cells of one type as cells of another, of a column whose type has changed while its files and records stay.

Numbers become other numbers of the same value, and times the same times in another unit.  What is given out
for a cell that has no such value is any value: whoever changes a type has looked that there is none
(``lossless``, ``broken``), and rows that a reader does not see do not matter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types.types import TYPE_FLOAT, TYPE_SIGNED, TYPE_UNSIGNED, ColumnType

U8 = npt.NDArray[np.uint8]

_PER_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXACT_BITS = {4: 24, 8: 53}
"""Of floats of so many bytes: integers of so many bits are numbers of theirs."""


def recastable(old: ColumnType, new: ColumnType) -> bool:
    """Whether values of one type may be values of the other, of other cells."""
    if old.is_named or new.is_named or old.is_dictionary or new.is_dictionary:
        return False
    if _is_integer(old):
        return _is_integer(new) or (new.kind == TYPE_FLOAT and _is_exact(old, new))
    if old.kind == TYPE_FLOAT:
        return new.kind == TYPE_FLOAT and new.name != "float16"
    if old.is_timestamp and new.is_timestamp:
        return (old.arrow.tz is None) == (new.arrow.tz is None)
    if old.name == "date32":
        return new.name == "date64" or (new.is_timestamp and new.arrow.tz is None)
    return (old.is_duration and new.is_duration) or (old.is_time_of_day and new.is_time_of_day)


def readable(old: ColumnType, new: ColumnType) -> bool:
    """Whether cells of one type can be read as those of the other: what ``recastable`` leads to by any number
    of steps, there and back."""
    return _family(old) is not None and _family(old) == _family(new)


def _family(type_: ColumnType) -> str | None:
    if _is_integer(type_) or type_.kind == TYPE_FLOAT:
        return "number"
    if type_.is_timestamp or type_.is_date:
        return "instant"
    return "duration" if type_.is_duration else "time" if type_.is_time_of_day else None


def lossless(old: ColumnType, new: ColumnType) -> bool:
    """Whether each value of one type is one of the other."""
    if _is_integer(old) and _is_integer(new):
        if old.kind == new.kind:
            return new.width >= old.width
        return old.kind == TYPE_UNSIGNED and new.width > old.width
    if new.kind == TYPE_FLOAT:
        return new.width >= old.width if old.kind == TYPE_FLOAT else _is_exact(old, new)
    if old.kind == TYPE_FLOAT:
        return False
    if old.is_time_of_day:
        return _ratio(old, new) >= 1
    return old.name == "date32" and new.name in ("date64", "timestamp[s]", "timestamp[ms]")


def broken(old: ColumnType, new: ColumnType, field: pc.Expression) -> pc.Expression:
    """True of values of the one that are none of the other; of a pair that is not ``lossless``."""
    if new.kind == TYPE_FLOAT:
        back = field.cast(new.declared, safe=False).cast(old.declared, safe=False)
        return (back != field) & (field == field)  # NaN is NaN in both
    if _is_integer(old):
        low, high = _limits(old, new, 1)
        return (field < pa.scalar(low, old.declared)) | (field > pa.scalar(high, old.declared))
    ratio = _ratio(old, new)
    if ratio >= 1:
        low, high = (_of(number, old) for number in _limits(old, new, int(ratio)))
        return (field < low) | (field > high)
    return field.cast(new.declared, safe=False).cast(old.declared, safe=False) != field


def recast(old: ColumnType, new: ColumnType, cells: U8) -> U8:
    """Cells, (n * old.width,) uint8, as the other type has them, (n * new.width,) uint8."""
    given = np.ascontiguousarray(cells).view(old.dtype)
    if _is_integer(old) or old.kind == TYPE_FLOAT:
        with np.errstate(over="ignore", invalid="ignore"):
            return given.astype(new.dtype).view(np.uint8)
    ratio = _ratio(old, new)
    wide = given.astype(np.int64, copy=False)
    wide = wide * np.int64(ratio) if ratio >= 1 else wide // np.int64(round(1 / ratio))
    return wide.astype(new.dtype, copy=False).view(np.uint8)


def recast_bounds(old: ColumnType, new: ColumnType, cells: U8) -> U8:
    """Likewise bounds of cells, those that are no value of the other drawn together: they still enclose all
    that are."""
    if new.kind == TYPE_FLOAT or lossless(old, new):
        return recast(old, new, cells)
    given = np.ascontiguousarray(cells).view(old.dtype)
    if old.kind == TYPE_FLOAT:
        most = np.iinfo(new.dtype.name)
        high = given.dtype.type(most.max)
        if int(high) > most.max:
            high = np.nextafter(high, given.dtype.type(0))
        return recast(old, new, np.clip(given, given.dtype.type(most.min), high).view(np.uint8))
    low, high = _limits(old, new, 1 if _is_integer(old) else _ratio(old, new))
    return recast(old, new, np.clip(given, given.dtype.type(low), given.dtype.type(high)).view(np.uint8))


def fitting(old: ColumnType, new: ColumnType, cells: U8) -> npt.NDArray[np.bool_]:
    """Which of the cells have a value of the other type, (n,) bool."""
    if lossless(old, new) or not len(cells):
        return np.ones(len(cells) // old.width, np.bool_)
    given, made = cells.view(old.dtype), recast(old, new, cells)
    same = recast(new, old, made).view(old.dtype) == given
    if old.kind == new.kind == TYPE_FLOAT:
        same |= np.isnan(given)
    elif _is_integer(old):
        same &= (given < 0) == (made.view(new.dtype) < 0)
    found: npt.NDArray[np.bool_] = same
    return found


def _is_integer(type_: ColumnType) -> bool:
    return type_.kind in (TYPE_SIGNED, TYPE_UNSIGNED) and type_.name == type_.dtype.name


def _is_exact(old: ColumnType, new: ColumnType) -> bool:
    """Whether a float has each of an integer's values."""
    return new.name != "float16" and 8 * old.width <= _EXACT_BITS[new.width]


def _unit(type_: ColumnType) -> float:
    """How many units a second has."""
    if type_.is_date:
        return 1 / _PER_DAY if type_.width == 4 else _PER_SECOND["ms"]
    return _PER_SECOND[type_.arrow.unit]


def _ratio(old: ColumnType, new: ColumnType) -> float:
    """By which a number of units of one is to be multiplied."""
    one, other = _unit(old), _unit(new)
    return round(other / one) if other >= one else other / one


def _limits(old: ColumnType, new: ColumnType, ratio: float) -> tuple[int, int]:
    """The least and the largest number of the one that the other has too."""
    mine, other = np.iinfo(old.dtype.name), np.iinfo(new.dtype.name)
    low, high = int(other.min), int(other.max)
    if ratio > 1:
        low, high = -(-low // int(ratio)), high // int(ratio)
    elif ratio < 1:
        low, high = low * round(1 / ratio), high * round(1 / ratio)
    return max(low, int(mine.min)), min(high, int(mine.max))


def _of(number: int, type_: ColumnType) -> pa.Scalar:
    """A number of units as a value."""
    return pa.array([number], type_.dtype.name).view(type_.declared)[0]


__all__ = ["broken", "fitting", "lossless", "readable", "recast", "recast_bounds", "recastable"]
