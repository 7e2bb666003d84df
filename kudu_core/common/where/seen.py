"""In which Arrow type pyarrow sees a column when it evaluates an expression.

Most often it is the one in which the cells are stored, for which Arrow has the most functions.  Of decimals
of more than 38 digits the stored bytes do not mean what the numbers do.
"""

from __future__ import annotations

import pyarrow as pa

from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import ColumnType


def is_seen_as_declared(type_: ColumnType) -> bool:
    """Whether expressions see the column's values as they were declared."""
    return type_.is_long_decimal


def seen(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Stored cells as expressions see them."""
    return outward(array, type_.value) if is_seen_as_declared(type_) else array


def seen_scalar(type_: ColumnType, scalar: pa.Scalar) -> pa.Scalar:
    """The same of one value."""
    return seen(pa.array([scalar.as_py()], scalar.type), type_)[0] if is_seen_as_declared(type_) else scalar


__all__ = ["is_seen_as_declared", "seen", "seen_scalar"]
