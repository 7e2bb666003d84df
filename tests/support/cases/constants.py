"""Columns of every type, and constants to compare them with: of another width, sign, unit or zone, inexact,
out of range, NaN, -0.0, NULL."""

from __future__ import annotations

import decimal
import random

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.schema import Schema
from kudu_core.common.where.expressions import read_serialised, serialised
from kudu_core.common.where.rewritten import rewritten
from kudu_core.errors import InvalidArgument
from tests.support import cells

NAMES = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float32", "float64", "bool", "string", "binary", "date32"),
    *("timestamp[us]", "timestamp[us,UTC]", "decimal128(10,2)", "decimal128(38,0)"),
]
OTHERS = [
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()),
    *(pa.date32(), pa.date64(), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))),
    *(pa.timestamp("ns", "UTC"), pa.timestamp("us", "Asia/Tokyo")),
    *(pa.decimal128(5, 1), pa.decimal128(38, 10), pa.decimal256(60, 2)),
]
INTEGERS = [0, 1, -1, 5, 100, *(sign * 2**bits + more for bits in (7, 8, 31, 53, 63) for sign in (1, -1)
            for more in (-1, 0, 1)), 2**64 - 1]  # fmt: skip
FLOATS = [0.0, -0.0, 1.5, 2.5, -2.5, 3.0, 0.1, 127.5, -128.5, 255.0, 2.0**52, 2.0**53, 2.0**63, 1e300]
FLOATS += [float("inf"), float("-inf"), float("nan")]
DECIMALS = [decimal.Decimal(digits) for digits in ("0", "1", "1.5", "-3.25", "7.2", "99.9", "0.01", "-0.1")]
TIMES = [0, 1, -1, 1000, 86_400_000, 86_400_000_000, 1_704_164_645_000_000, 2**62, -(2**62), 19_000]


def constant(rng: random.Random, name: str) -> pa.Scalar:
    """A scalar of the column's type, or of another one."""
    own = cells.arrow_type(name)
    while rng.random() < 0.94:
        try:
            return drawn(rng, own if rng.random() < 0.5 else rng.choice(OTHERS))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            continue  # the type does not take it
    return pa.scalar(None, own)


def drawn(rng: random.Random, type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_floating(type_):
        return pa.scalar(rng.choice(FLOATS), type_)
    if pa.types.is_integer(type_):
        return pa.scalar(rng.choice(INTEGERS), type_)
    if pa.types.is_boolean(type_):
        return pa.scalar(rng.random() < 0.5)
    if pa.types.is_decimal(type_):
        return pa.scalar(rng.choice(DECIMALS), type_)
    if pa.types.is_timestamp(type_) or type_ == pa.date64():
        return pa.scalar(rng.choice(TIMES) // 86_400_000 * 86_400_000, pa.int64()).cast(type_)
    if pa.types.is_date(type_):
        return pa.scalar(rng.choice((0, 1, -1, 19_000, 2**31 - 1)), pa.int32()).cast(type_)
    if type_ in (pa.string(), pa.large_string(), pa.string_view()):
        return pa.scalar("".join(rng.choices("aé\0b%_~\U0001f600", k=rng.randrange(4))), type_)
    return pa.scalar(bytes(rng.choices((0, 97, 128, 254, 255), k=rng.randrange(4))), type_)


def of_stored_types(where: pc.Expression, schema: Schema | None = None) -> pc.Expression:
    """A predicate whose constants of views, half floats and dictionaries are strings, floats and values: what
    a predicate means is what pyarrow says of these.  With a schema, ``pa.ArrowInvalid`` for what is refused
    beside the types of its columns."""
    types = {} if schema is None else {name: column.type for name, column in schema.by_name.items()}
    try:
        other = rewritten(*read_serialised(serialised(where)), type_of=types.get)
    except InvalidArgument as error:
        raise pa.ArrowInvalid(str(error)) from None
    return where if other is None else pc.Expression._deserialize(other)
