"""New values in SQL as values of the columns that get them."""

from __future__ import annotations

import pyarrow as pa

from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.sql_types import MOST_DIGITS, as_decimal, in_common
from kudu_core.sql.meaning.sql_values import fitted, uuid_bytes
from kudu_core.sql.meaning.typed import Typed, is_number, is_text, named, null_of
from kudu_core.sql.sqlglot_trees import quoted

_t = pa.types


def assigned(part: Typed, column: Typed) -> Typed:
    """A value in a column's type.  What is not exactly one is refused, here or by the row that has it; floats
    are rounded to a narrower float.  ``InvalidArgument`` names both types where no value of the one is one of
    the other."""
    type_ = column.type
    if part.is_null:
        return null_of(part.tree, type_)
    if part.type == type_:
        return part
    if column.is_uuid and part.is_constant and is_text(part.type):
        return uuid_bytes(part)
    if part.constant is not None and part.loose:
        found = fitted(part, type_)
        if found is not None:
            return found
    elif is_number(part.type) and is_number(type_):
        return _number(part, type_)
    elif in_common(part.type, type_) is not None:
        return part.as_type(type_)
    raise InvalidArgument(
        f"SQL: {quoted(part.tree)} is {named(part.type)}, and no value of the column, which is "
        f"{named(type_)}: CAST or ROUND it"
    )


def _number(part: Typed, type_: pa.DataType) -> Typed:
    if _t.is_decimal(type_) and _t.is_integer(part.type):
        whole = as_decimal(part.type).precision
        part = part.as_type(pa.decimal128(min(whole + type_.scale, MOST_DIGITS), type_.scale))
    return part.as_type(type_, safe=not _t.is_floating(type_))


__all__ = ["assigned"]
