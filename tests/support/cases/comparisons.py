"""Predicates of every kind of column against constants of every type, near the ends of what they hold."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NEXT_TO_WHOLE = Decimal("0." + "9" * 38)
_LARGEST = Decimal("9" * 38)


def _times(type_: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(type_)


COLUMNS: dict[str, pa.Array] = {
    "int8": pa.array([-128, 0, 127, None], pa.int8()),
    "int32": pa.array([-(2**31), 0, 5, None], pa.int32()),
    "int64": pa.array([-(2**63), 0, 2**63 - 1, None], pa.int64()),
    "uint8": pa.array([0, 1, 255, None], pa.uint8()),
    "uint64": pa.array([0, 1, 2**64 - 1, None], pa.uint64()),
    "float32": pa.array([0.0, math.nan, 2.0**60, None], pa.float32()),
    "float64": pa.array([-0.0, math.nan, 2.0**60, None], pa.float64()),
    "string": pa.array(["", "a", "b", None]),
    "binary": pa.array([b"", b"a", b"\xff", None], pa.binary()),
    "bool": pa.array([True, False, True, None]),
    "decimal_5_2": pa.array([Decimal("1.00"), Decimal("-999.99"), None, None], pa.decimal128(5, 2)),
    "decimal_20_10": pa.array([Decimal("0.5"), Decimal(1), Decimal(0), None], pa.decimal128(20, 10)),
    "decimal_38_0": pa.array([_LARGEST, Decimal(1), Decimal(0), None], pa.decimal128(38, 0)),
    "decimal_38_38": pa.array([_NEXT_TO_WHOLE, Decimal(0), Decimal("0.5"), None], pa.decimal128(38, 38)),
    "time": _times(pa.timestamp("us"), -(2**62), 0, 2**62, None),
    "zoned": _times(pa.timestamp("us", "UTC"), -(2**62), 0, 2**62, None),
    "date": pa.array([-(2**31), 0, 2**31 - 1, None], pa.int32()).cast(pa.date32()),
}
"""Four cells of each, the last of them NULL."""

_NUMBERS: list[tuple[pa.DataType, tuple[Any, ...]]] = [
    (pa.int8(), (1, -1)),
    (pa.int16(), (300,)),
    (pa.int32(), (2**24, 2**25)),
    (pa.int64(), (1, 2**24, 2**25, 2**53, 2**53 + 1, 2**54, 2**60, -(2**63))),
    (pa.uint8(), (1,)),
    (pa.uint64(), (1, 2**63, 2**64 - 1)),
    (pa.float16(), (1.0,)),
    (pa.float32(), (1.0,)),
    (pa.float64(), (1.0, 2.0**60, 0.1, math.inf)),
    (pa.decimal32(5, 2), (Decimal(1),)),
    (pa.decimal64(10, 2), (Decimal(1),)),
    (pa.decimal128(1, 0), (Decimal(1),)),
    (pa.decimal128(3, 2), (Decimal("1.00"),)),
    (pa.decimal128(38, 0), (Decimal(1),)),
    (pa.decimal128(38, 2), (Decimal("1.00"),)),
    (pa.decimal128(38, 38), (Decimal("0.5"),)),
    (pa.decimal128(38, -2), (Decimal(100),)),
    (pa.decimal256(40, 2), (Decimal(1),)),
]
_OTHERS: list[tuple[pa.DataType, tuple[Any, ...]]] = [
    *((type_, ("a",)) for type_ in (pa.string(), pa.large_string(), pa.string_view())),
    *((type_, (b"a",)) for type_ in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))),
    (pa.bool_(), (True,)),
    (pa.date32(), (dt.date(1970, 1, 1),)),
    (pa.date64(), (dt.date(1970, 1, 1),)),
    (pa.time64("us"), (dt.time(0),)),
    (pa.duration("us"), (dt.timedelta(0),)),
]
_MOMENTS = [
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "ns")),
]
LISTS: list[pa.Array] = [
    *(pa.array([value], type_) for type_, values in (*_NUMBERS, *_OTHERS) for value in values),
    *(_times(type_, 0) for type_ in _MOMENTS),
]
"""One value each; the last is of the epoch."""


def comparisons(column: str, values: pa.Array) -> Iterator[pc.Expression]:
    """Such a column against one value, and against lists of it, of it and NULL, of NULL and of nothing."""
    field, literal = pc.field(column), pc.scalar(values[0])
    yield field == literal
    yield literal > field
    null = pa.nulls(1, values.type)
    for listed in (values, pa.concat_arrays([values, null]), null, values[:0]):
        yield field.isin(listed)


PREDICATES: list[pc.Expression] = [
    one for column in COLUMNS for values in LISTS for one in comparisons(column, values)
]
