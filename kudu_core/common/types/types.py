"""The column types of a table, and how each lies in memory.

A type has a canonical name (what is stored), an Arrow type (what goes in and out), a physical
width and a kind (what kernels are told).  Single values are the subject of ``values.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kudu_core.errors import InvalidArgument

TYPE_UNSIGNED = 0
TYPE_SIGNED = 1
TYPE_FLOAT = 2
TYPE_BINARY = 3
TYPE_DECIMAL = 4
TYPE_BOOL = 5

DECIMAL_MAX_PRECISION = 38

# Spellings of UTC that other systems put into Arrow types.
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "+00:00", "Z", "GMT", "Etc/GMT"})


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column type.  Two are equal when their names are.

    ``width`` is the number of bytes of a fixed cell, 0 for strings and binary.  A date is a signed
    4-byte number of days, a timestamp a signed 8-byte number of microseconds, a decimal the signed
    16-byte unscaled integer, a bool one byte.
    """

    name: str
    arrow: pa.DataType
    width: int
    kind: int

    @staticmethod
    def parse(name: str) -> ColumnType:
        """The type of that canonical name; ``InvalidArgument`` when there is none."""
        return _parse(name)

    @staticmethod
    def from_arrow(arrow: pa.DataType) -> ColumnType:
        """The type that stores exactly this Arrow type; ``InvalidArgument`` when there is none."""
        if pa.types.is_timestamp(arrow) and arrow.unit == "us":
            if arrow.tz is None:
                return _parse("timestamp[us]")
            if arrow.tz in _UTC_NAMES:
                return _parse("timestamp[us,UTC]")
        elif pa.types.is_decimal128(arrow):
            return _parse(f"decimal128({arrow.precision},{arrow.scale})")
        else:
            found = _BY_ARROW.get(arrow)
            if found is not None:
                return found
        raise InvalidArgument(f"{arrow} is not a column type{_advice(arrow)}; use one of {TYPE_NAMES}")

    @property
    def is_key_type(self) -> bool:
        """Whether a primary key may hold it: anything but float and bool."""
        return self.kind not in (TYPE_FLOAT, TYPE_BOOL)

    @property
    def is_timestamp(self) -> bool:
        return bool(pa.types.is_timestamp(self.arrow))

    @property
    def is_date(self) -> bool:
        return bool(pa.types.is_date32(self.arrow))

    @property
    def is_string(self) -> bool:
        return bool(pa.types.is_string(self.arrow))

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """numpy's type of the physical values; only for widths 1, 2, 4 and 8."""
        assert self.width in (1, 2, 4, 8), f"{self.name} has no numpy type"
        return np.dtype(f"<{_DTYPE_CODE[self.kind]}{self.width}")

    def __reduce__(self) -> tuple[Callable[[str], ColumnType], tuple[str]]:
        return ColumnType.parse, (self.name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnType) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


_DTYPE_CODE = {TYPE_UNSIGNED: "u", TYPE_SIGNED: "i", TYPE_FLOAT: "f", TYPE_BOOL: "u"}

TYPE_NAMES = (
    "int8..int64, uint8..uint64, float32, float64, bool, string, binary, date32, "
    "timestamp[us], timestamp[us,UTC], decimal128(p,s)"
)

_SIMPLE = [
    ColumnType("int8", pa.int8(), 1, TYPE_SIGNED),
    ColumnType("int16", pa.int16(), 2, TYPE_SIGNED),
    ColumnType("int32", pa.int32(), 4, TYPE_SIGNED),
    ColumnType("int64", pa.int64(), 8, TYPE_SIGNED),
    ColumnType("uint8", pa.uint8(), 1, TYPE_UNSIGNED),
    ColumnType("uint16", pa.uint16(), 2, TYPE_UNSIGNED),
    ColumnType("uint32", pa.uint32(), 4, TYPE_UNSIGNED),
    ColumnType("uint64", pa.uint64(), 8, TYPE_UNSIGNED),
    ColumnType("float32", pa.float32(), 4, TYPE_FLOAT),
    ColumnType("float64", pa.float64(), 8, TYPE_FLOAT),
    ColumnType("bool", pa.bool_(), 1, TYPE_BOOL),
    ColumnType("string", pa.string(), 0, TYPE_BINARY),
    ColumnType("binary", pa.binary(), 0, TYPE_BINARY),
    ColumnType("date32", pa.date32(), 4, TYPE_SIGNED),
    ColumnType("timestamp[us]", pa.timestamp("us"), 8, TYPE_SIGNED),
    ColumnType("timestamp[us,UTC]", pa.timestamp("us", "UTC"), 8, TYPE_SIGNED),
]
_BY_NAME = {type_.name: type_ for type_ in _SIMPLE}
_BY_ARROW = {type_.arrow: type_ for type_ in _SIMPLE if not type_.is_timestamp}

_DECIMAL = re.compile(r"decimal128\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")


@lru_cache(maxsize=1024)
def _parse(name: str) -> ColumnType:
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    match = _DECIMAL.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise InvalidArgument(f"{name!r} is not a column type; use one of {TYPE_NAMES}")
    precision, scale = int(match[1]), int(match[2])
    if not 1 <= precision <= DECIMAL_MAX_PRECISION or not 0 <= scale <= precision:
        raise InvalidArgument(
            f"{name}: a decimal has a precision of 1 to {DECIMAL_MAX_PRECISION} and a scale of 0 to the "
            "precision"
        )
    return ColumnType(f"decimal128({precision},{scale})", pa.decimal128(precision, scale), 16, TYPE_DECIMAL)


def _advice(arrow: pa.DataType) -> str:
    """What to use instead, where that is obvious."""
    types = pa.types
    if types.is_large_string(arrow) or arrow == pa.string_view():
        return " (declare string: data of this type is accepted)"
    if types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow) or arrow == pa.binary_view():
        return " (declare binary: data of this type is accepted)"
    if types.is_timestamp(arrow):
        zone = "" if arrow.tz is None else ", 'UTC'"
        return f" (declare timestamp('us'{zone}): data of this type is accepted where it is exact)"
    if types.is_dictionary(arrow):
        return f" (declare {arrow.value_type}: dictionaries are decoded)"
    if types.is_date64(arrow):
        return " (declare date32: data of this type is accepted)"
    return ""
