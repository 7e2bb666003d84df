"""The types of SQL, those of Arrow that they are, and the type that two have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kudu_core.errors import InvalidArgument
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_OF_SQL = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "INT128": pa.decimal128(38, 0),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINT": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "VARBINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "UUID": pa.binary(),
}
MOST_DIGITS = 38
_DIGITS = {1: 3, 2: 5, 4: 10, 8: 20}
"""Of integers of so many bytes."""
_UNITS = ("s", "ms", "us", "ns")


def type_of(tree: exp.Expr) -> pa.DataType:
    """The Arrow type of a type in SQL; ``InvalidArgument`` where there is none here."""
    name = tree.this.name if hasattr(tree.this, "name") else str(tree.this)
    if name == "DECIMAL":
        given = [part.name for part in tree.expressions]
        digits = [int(one) if one.isdecimal() else -1 for one in given]
        precision, scale = (*digits, 0)[:2] if digits else (18, 3)
        if not 1 <= precision <= MOST_DIGITS or not 0 <= scale <= precision:
            raise InvalidArgument(f"SQL: {quoted(tree)}: a decimal has 1 to {MOST_DIGITS} digits")
        return pa.decimal128(precision, scale)
    found = _OF_SQL.get(name)
    if found is None:
        raise InvalidArgument(
            f"SQL: no value is cast to {quoted(tree)} here; there are BOOLEAN, TINYINT to BIGINT, UTINYINT "
            "to UBIGINT, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, BLOB, DATE, TIME and TIMESTAMP"
        )
    return found


def in_common(one: pa.DataType, two: pa.DataType) -> pa.DataType | None:
    """The type to which values of both are brought before they meet; None: there is none."""
    if one == two or _t.is_null(two):
        return one
    if _t.is_null(one):
        return two
    if _is_number(one) and _is_number(two):
        return _number_in_common(one, two)
    if _is_moment(one) and _is_moment(two):
        if _t.is_date(one) and _t.is_date(two):
            return pa.date32()
        stamps = [type_ for type_ in (one, two) if _t.is_timestamp(type_)]
        unit = max((type_.unit for type_ in stamps), key=_UNITS.index)
        return pa.timestamp(unit, next((type_.tz for type_ in stamps if type_.tz), None))
    for is_kind, make in ((_t.is_time, _time), (_t.is_duration, pa.duration)):
        if is_kind(one) and is_kind(two):
            return make(max(one.unit, two.unit, key=_UNITS.index))
    return None


def _time(unit: str) -> pa.DataType:
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def _is_number(type_: pa.DataType) -> bool:
    return bool(_t.is_integer(type_) or _t.is_floating(type_) or _t.is_decimal(type_))


def _is_moment(type_: pa.DataType) -> bool:
    return bool(_t.is_date(type_) or _t.is_timestamp(type_))


def _number_in_common(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    if _t.is_floating(one) or _t.is_floating(two):
        floats = [type_ for type_ in (one, two) if _t.is_floating(type_)]
        return pa.float32() if all(_t.is_float32(type_) for type_ in floats) else pa.float64()
    if _t.is_decimal(one) or _t.is_decimal(two):
        one, two = as_decimal(one), as_decimal(two)
        scale = max(one.scale, two.scale)
        whole = max(one.precision - one.scale, two.precision - two.scale)
        most = 76 if max(one.bit_width, two.bit_width) > 128 else MOST_DIGITS
        make = pa.decimal256 if most == 76 else pa.decimal128
        return make(min(whole + scale, most), scale)
    wider = one if one.bit_width >= two.bit_width else two
    if _t.is_signed_integer(one) == _t.is_signed_integer(two):
        return wider
    unsigned = one if _t.is_unsigned_integer(one) else two
    signed = two if unsigned is one else one
    if signed.bit_width > unsigned.bit_width:
        return signed
    return {8: pa.int16(), 16: pa.int32()}.get(unsigned.bit_width, pa.int64())


def as_decimal(type_: pa.DataType) -> pa.DataType:
    """The decimal that holds every value of an integer type; a decimal as it is."""
    if _t.is_decimal(type_):
        return type_
    digits = _DIGITS[type_.bit_width // 8]
    return pa.decimal128(19 if _t.is_int64(type_) else digits, 0)


__all__ = ["MOST_DIGITS", "as_decimal", "in_common", "type_of"]
