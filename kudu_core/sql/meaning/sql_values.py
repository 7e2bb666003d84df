"""Constants in SQL text: what they are by themselves, and as values of the type that they meet."""

from __future__ import annotations

import re
import uuid
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.types.foreign import check_chunks, check_layout, check_text
from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.sql_types import MOST_DIGITS
from kudu_core.sql.meaning.steps import exact
from kudu_core.sql.meaning.typed import INTERVAL, Typed, constant, is_text, named, null_of
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_LARGEST = (1 << 63) - 1
_ZONED = re.compile(r"(Z|[+-]\d\d(:?\d\d)?|\s+UTC)\s*$", re.IGNORECASE)
_BOOLS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_BLOB_BYTE = re.compile(r"\\x([0-9A-Fa-f]{2})")


def number(tree: exp.Expr, text: str) -> Typed:
    """A number as it is written: a whole one, a decimal, or with an exponent a float."""
    plain = text.replace("_", "")
    if "e" in plain.lower():
        return constant(tree, pa.scalar(float(plain)), loose=True)
    try:
        value = Decimal(plain)
    except InvalidOperation:
        raise InvalidArgument(f"SQL: {quoted(tree)} is no number") from None
    return constant(tree, _number_scalar(tree, value), loose=True)


def _number_scalar(tree: exp.Expr, value: Decimal) -> pa.Scalar:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if exponent >= 0 and abs(value) <= _LARGEST:
        return pa.scalar(int(value))
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > MOST_DIGITS:
        raise InvalidArgument(f"SQL: {quoted(tree)} has more than {MOST_DIGITS} digits; write it as 1e40")
    return pa.scalar(value, pa.decimal128(precision, scale))


def parameter(tree: exp.Expr, name: str, parameters: Any) -> Typed:
    """What a ``$name`` stands for: a value of Python or of Arrow."""
    if name not in parameters:
        known = ", ".join(f"${one}" for one in parameters) or "none"
        raise InvalidArgument(f"SQL: no value is given for ${name}; given are: {known}")
    value = parameters[name]
    check_text(value, f"SQL: ${name}")
    if value is None:
        return null_of(tree, pa.null())
    if isinstance(value, pa.Array | pa.ChunkedArray):
        check_chunks(value, f"${name}")
        value = value.to_pylist()
    if isinstance(value, Decimal) and value.is_finite():
        return constant(tree, _number_scalar(tree, value), loose=True)
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        check_layout(pa.repeat(scalar, 1), f"${name}")
    except OverflowError:
        return constant(tree, _number_scalar(tree, Decimal(value)), loose=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgument(f"SQL: ${name} is {value!r}, which is no value: {error}") from None
    if not scalar.is_valid:
        return null_of(tree, pa.null())
    return constant(tree, plain_scalar(scalar), loose=True)


def plain_scalar(scalar: pa.Scalar) -> pa.Scalar:
    """A value of a type for which Arrow has functions."""
    type_ = scalar.type
    if _t.is_large_string(type_) or type_ == pa.string_view():
        return scalar.cast(pa.string())
    if _t.is_large_binary(type_) or _t.is_fixed_size_binary(type_) or type_ == pa.binary_view():
        return scalar.cast(pa.binary())
    if _t.is_float16(type_):
        return scalar.cast(pa.float32())
    if isinstance(type_, pa.BaseExtensionType):
        return plain_scalar(scalar.value)
    return plain_scalar(scalar.as_py()) if _t.is_dictionary(type_) else scalar


def fitted(part: Typed, type_: pa.DataType) -> Typed | None:
    """A constant as a value of a type; None where no value of the type is exactly it.

    Floats are rounded to the type's.  ``InvalidArgument`` for text that is not how such a value is written.
    """
    scalar = part.constant
    assert scalar is not None
    if scalar.type == type_:
        return part
    if part.is_null:
        return null_of(part.tree, type_)
    if part.loose and is_text(part.type) and not is_text(type_):
        return constant(part.tree, of_text(part, type_))
    if _t.is_floating(type_) and (_t.is_floating(part.type) or exactly_numeric(part.type)):
        return constant(part.tree, pa.scalar(float(scalar.as_py()), type_))
    if not may_meet(part.type, type_):
        return None
    found = exact(scalar, type_)
    return None if found is None else constant(part.tree, found)


def exactly_numeric(type_: pa.DataType) -> bool:
    return bool(_t.is_integer(type_) or _t.is_decimal(type_))


def may_meet(one: pa.DataType, two: pa.DataType) -> bool:
    """Whether values of the two types are counted by the same steps."""
    kinds = (
        lambda t: exactly_numeric(t) or _t.is_floating(t),
        lambda t: _t.is_date(t) or _t.is_timestamp(t),
        _t.is_time,
        lambda t: _t.is_duration(t) or t == INTERVAL,
    )
    return any(kind(one) and kind(two) for kind in kinds)


def of_text(part: Typed, type_: pa.DataType) -> pa.Scalar:
    """Text as a value of a type; ``InvalidArgument`` where it is none."""
    assert part.constant is not None
    text = str(part.constant.as_py())
    try:
        found = _parsed(text.strip(), type_)
    except (ValueError, ArithmeticError, pa.ArrowException):
        found = None
    if found is None:
        raise InvalidArgument(f"SQL: {quoted(part.tree)} is no {named(type_)}, which it meets there")
    return found


def met_by_text(part: Typed, type_: pa.DataType) -> Typed:
    """Text that is compared with values of a type: as one of them, or a moment that lies between two."""
    if _t.is_timestamp(type_) and part.constant is not None:
        found = timestamp_of(str(part.constant.as_py()).strip())
        if found is not None and (type_.tz or not found.type.tz):
            return constant(part.tree, found)
    return constant(part.tree, of_text(part, type_))


def _parsed(text: str, type_: pa.DataType) -> pa.Scalar | None:
    if _t.is_boolean(type_):
        known = _BOOLS.get(text.lower())
        return None if known is None else pa.scalar(known)
    if _t.is_floating(type_):
        return pa.scalar(float(text), type_)
    if exactly_numeric(type_):
        value = Decimal(text)
        whole = pa.scalar(int(value)) if value == int(value) and abs(value) <= _LARGEST else None
        return exact(pa.scalar(value) if whole is None else whole, type_)
    if _t.is_timestamp(type_):
        found = timestamp_of(text)
        if found is not None and found.type.tz and not type_.tz:
            return None
        return None if found is None else exact(found, type_)
    if _t.is_date(type_):
        return pa.scalar(date.fromisoformat(text)).cast(type_)
    if _t.is_time(type_):
        return exact(pa.scalar(text).cast(pa.time64("ns")), type_)
    if _t.is_binary(type_):
        return pa.scalar(blob(text))
    if _t.is_duration(type_):
        return None
    return pa.scalar(text).cast(type_)


def uuid_bytes(part: Typed) -> Typed:
    """The text of a UUID as its bytes."""
    assert part.constant is not None
    try:
        return constant(part.tree, pa.scalar(uuid.UUID(part.constant.as_py()).bytes))
    except ValueError:
        raise InvalidArgument(f"SQL: {quoted(part.tree)} is no UUID, which it meets there") from None


def timestamp_of(text: str) -> pa.Scalar | None:
    """A moment in ISO 8601, in nanoseconds or, far away, in microseconds; of UTC where its zone is said."""
    zoned = len(text) > 10 and _ZONED.search(text)
    if zoned:
        if zoned[1].strip().upper() == "UTC":
            text = text[: zoned.start()] + "Z"
        elif zoned[2] is None and zoned[1].upper() != "Z":
            text = text.rstrip() + ":00"
    for unit in ("ns", "us", "s"):
        try:
            return pa.scalar(text).cast(pa.timestamp(unit, "UTC" if zoned else None))
        except pa.ArrowInvalid:
            continue
    return None


def blob(text: str) -> bytes:
    """DuckDB's text of a BLOB: ASCII, and ``\\xAB`` for other bytes."""
    return _BLOB_BYTE.sub(lambda found: chr(int(found[1], 16)), text).encode("latin-1")


__all__ = [
    "blob", "exactly_numeric", "fitted", "may_meet", "met_by_text", "number", "of_text", "parameter",
    "plain_scalar", "uuid_bytes",
]  # fmt: skip
