"""Cells as plain values that compare exactly, and the ugliest ones of each type.

A *cell* is an int (integers, days, microseconds, unscaled decimals, the **bits** of floats), a bool,
str or bytes, or None.  So NaN equals itself, -0.0 is not 0.0, and dates that Python cannot hold are
cells like any other.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from kudu_core.common.types.types import ColumnType

Cell = Any
_EXACT = decimal.Context(prec=100)


def arrow_type(name: str) -> pa.DataType:
    return ColumnType.parse(name).declared


def to_arrow(cells: Iterable[Cell], type_: pa.DataType) -> pa.Array:
    cells = list(cells)
    if pa.types.is_float64(type_):
        return pa.array(cells, pa.int64()).view(type_)
    if pa.types.is_float32(type_):
        return pa.array(cells, pa.int32()).view(type_)
    if pa.types.is_float16(type_):
        return pa.array(cells, pa.int16()).view(type_)
    if pa.types.is_decimal(type_):
        scaled = [None if c is None else decimal.Decimal(c).scaleb(-type_.scale, _EXACT) for c in cells]
        return pa.array(scaled, type_)
    if pa.types.is_temporal(type_):
        return pa.array(cells, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    return pa.array(cells, type_)


def from_arrow(array: pa.Array | pa.ChunkedArray) -> list[Cell]:
    if isinstance(array, pa.ChunkedArray):
        return [cell for chunk in array.chunks for cell in from_arrow(chunk)]
    type_ = array.type
    if pa.types.is_float16(type_):
        return list(array.view(pa.int16()).to_pylist())
    if pa.types.is_floating(type_) or pa.types.is_temporal(type_):
        return list(array.view(pa.int32() if type_.bit_width == 32 else pa.int64()).to_pylist())
    if isinstance(type_, pa.BaseExtensionType):
        return from_arrow(array.storage)
    if pa.types.is_decimal(type_):
        return [None if c is None else int(c.scaleb(type_.scale, _EXACT)) for c in array.to_pylist()]
    return list(array.to_pylist())


def as_seen(array: pa.Array) -> pa.Array:
    """As predicates see it: views and dictionaries as strings, half floats as floats."""
    if pa.types.is_float16(array.type):
        return array.cast(pa.float32())
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    return array.cast(_SEEN[array.type]) if array.type in _SEEN else array


_SEEN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def scalar(cell: Cell, type_: pa.DataType) -> pa.Scalar:
    return to_arrow([cell], type_)[0]


def rows_of(table: pa.Table) -> list[tuple[Cell, ...]]:
    """The rows of a table as tuples of cells."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(from_arrow(column) for column in table.columns), strict=True))


def bits64(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def bits32(value: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


_LONG = "https://example.org/a/very/long/common/prefix/" * 3
_TEXT = (
    "", "\0", "\0\0", "a", "a\0", "a\0\0", "a\0b", "ab", "A", "~", "é", "e\u0301", "\u0080", "\uffff",
    "\U0001f600", "\U0010ffff", "日本", _LONG, _LONG + "\0", _LONG + "x", _LONG + "y", " ", "\n", "0", "00",
)  # fmt: skip
_BYTES = (
    b"", b"\0", b"\0\0", b"\0\1", b"\0\xff", b"\1", b"a", b"a\0", b"a\0b", b"\x7f", b"\x80", b"\xff",
    b"\xff\0", b"\xff\xff", b"\xff" * 9, b"\0" * 9, b"p" * 90, b"p" * 90 + b"\0", b"p" * 90 + b"\xff",
)  # fmt: skip
_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.1, 2.25, 123.45, -99.99, 1e16, 1e-7, float("inf"), float("-inf"), float("nan"),
    1.7e30, 5e-39,
)  # fmt: skip


def ugly(type_: pa.DataType) -> Sequence[Cell]:
    """Cells of a type that something has gone wrong with somewhere."""
    if pa.types.is_boolean(type_):
        return (False, True)
    if pa.types.is_dictionary(type_):
        return ugly(type_.value_type)
    if pa.types.is_integer(type_):
        signed = pa.types.is_signed_integer(type_)
        low, high = -(1 << type_.bit_width - 1), (1 << type_.bit_width - 1) - 1
        if not signed:
            low, high = 0, (1 << type_.bit_width) - 1
        middle = (1 << type_.bit_width - 1) - (0 if signed else 1)
        near = {low, low + 1, -2, -1, 0, 1, 2, 10, 127, 128, 255, 256, 65535, 65536, middle, high - 1, high}
        return tuple(sorted(n for n in near if low <= n <= high))
    if pa.types.is_float64(type_):
        odd = (0x7FF0000000000001, -0x0008000000000000, 1, 0x7FEFFFFFFFFFFFFF)  # NaNs, denormal, largest
        return (*map(bits64, _FLOATS), *odd)
    if pa.types.is_float32(type_):
        return (*map(bits32, _FLOATS), 0x7F800001, -0x00400000, 1, 0x7F7FFFFF)
    if pa.types.is_float16(type_):
        return (0, -0x8000, 0x3C00, -0x4400, 1, 0x7BFF, 0x7C00, -0x0400, 0x7E00, 0x2E66)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or type_ == pa.string_view():
        return _TEXT
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or type_ == pa.binary_view():
        return _BYTES
    if pa.types.is_fixed_size_binary(type_):
        size = type_.byte_width
        return tuple({(cell * size)[:size] for cell in _BYTES if cell} | {b"\0" * size, b"\xff" * size})
    if pa.types.is_time(type_):
        most = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit] - 1
        return (0, 1, 1000, 1001, most // 2, most - 1, most)
    if pa.types.is_date64(type_):
        days = (-719162, -719163, -1, 0, 1, 19_000, 19_001, 2932896, 2932897, 10**8)
        return tuple(86_400_000 * day for day in days)
    if pa.types.is_duration(type_):
        return (-(2**63), -(10**9), -1001, -1000, -1, 0, 1, 1000, 86_400_000_000, 2**63 - 1)
    if pa.types.is_date32(type_):
        return (-(2**31), -719162, -719163, -1, 0, 1, 19_000, 19_001, 2932896, 2932897, 2**31 - 1)
    if pa.types.is_timestamp(type_):
        now = 1_700_000_000_000_000
        return (-(2**63), -62_135_596_800_000_000, -1, 0, 1, now, now + 1, now + 3_600_000_000, 2**63 - 1)
    if pa.types.is_decimal(type_):
        most = 10**type_.precision - 1
        near = {-most, 1 - most, -256, -1, 0, 1, 5, 10**type_.scale, most - 1, most, 2**31, 2**63, -(2**64)}
        return tuple(sorted(n for n in near if abs(n) <= most))
    raise AssertionError(type_)
