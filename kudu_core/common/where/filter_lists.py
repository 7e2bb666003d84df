"""pyarrow's filter lists, ``[(column, op, value), ...]``, as the tree of the expression that they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from kudu_core.common.rows.misfits import fitted
from kudu_core.common.rows.python_columns import of_columns
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types import values
from kudu_core.common.types.casts import cast
from kudu_core.common.types.foreign import check_chunks, check_layout, check_text
from kudu_core.common.types.nested.nested_casts import nested_cast
from kudu_core.common.types.scalars import stored_array, stored_scalar
from kudu_core.common.types.types import TYPE_FLOAT, ColumnType
from kudu_core.common.where import expressions
from kudu_core.common.where.expressions import FunctionCall, Literal, Node, Ref
from kudu_core.common.where.meant import meant
from kudu_core.common.where.nested.whole import nested_of
from kudu_core.common.where.seen import seen, seen_scalar
from kudu_core.errors import InvalidArgument, SchemaMismatch

_FUNCTIONS = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    ">": "greater",
    "<=": "less_equal",
    ">=": "greater_equal",
}
_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
# Column type -> Python's type whose values are as they are those of the column.
_NATIVE: dict[str, type] = {
    **{f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float64": float,
    "string": str,
    "binary": bytes,
    "bool": bool,
}


def read_lists(where: Any, schema: Schema) -> Node | None:
    """``[(column, op, value), ...]`` all of which hold, or a list of such lists, one of which does.

    None for an empty list.  ``InvalidArgument`` for what is no filter list, an unknown column or operator.
    """
    if isinstance(where, str | bytes) or not isinstance(where, Sequence):
        raise InvalidArgument(
            f"where is a pyarrow.compute expression, a list of filters or SQL text, not {where!r}"
        )
    if not where:
        return None
    # One tuple alone, one list of tuples, or a list of lists.
    groups: Sequence[Any] = where if isinstance(where[0], list) else [list(where)]
    if isinstance(where, tuple) and isinstance(where[0], str):
        groups = [[where]]
    result: Node | None = None
    for group in groups:
        every = _all_of(group, schema)
        result = every if result is None else FunctionCall("or_kleene", (result, every), None)
    return result


def _all_of(group: Any, schema: Schema) -> Node:
    if isinstance(group, tuple) and group and isinstance(group[0], str):
        group = [group]
    if isinstance(group, str) or not isinstance(group, Sequence) or not group:
        raise InvalidArgument(f"a filter is a list of (column, op, value), not {group!r}")
    result: Node | None = None
    for item in group:
        if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != 3:
            raise InvalidArgument(f"a filter is (column, op, value), not {item!r}")
        name, op, value = item
        one = _comparison(name, op, value, schema)
        result = one if result is None else FunctionCall("and_kleene", (result, one), None)
    assert result is not None
    return result


def _comparison(name: Any, op: Any, value: Any, schema: Schema) -> Node:
    """One triple, with pyarrow's meanings; values take the column's type where they are exact in it."""
    nested = nested_of(schema, name) if isinstance(name, str) else None
    if nested is not None:
        return _of_nested(name, op, value, nested, schema)
    column = schema.column(name)
    if op not in _OPERATORS:
        raise InvalidArgument(f"filter on {name!r}: no operator {op!r}; there are {', '.join(_OPERATORS)}")
    reference = Ref(name)
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise InvalidArgument(f"filter on {name!r}: {op!r} takes a list, not {value!r}")
        listed = _typed(_listed(value, column.type, name), column.type, name)
        listed = meant(listed, column.type, name, "is_in")
        found = expressions.is_in(reference, listed)
        return FunctionCall("invert", (found,), None) if op == "not in" else found
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        nots = "~" if op == "!=" else ""
        raise InvalidArgument(
            f"filter on {name!r}: a comparison with NULL, {op} None, is true of no row; "
            f'"is {"not " if nots else ""}null" is written {nots}pc.field({name!r}).is_null(), as where= or '
            "among others with &"
        )
    check_text(value, f"filter on {name!r}")
    literal = _literal(value, column.type)
    if literal is None:
        one = pa.repeat(expressions.as_scalar(value), 1)
        check_layout(one, name)
        literal = Literal(meant(_typed(one, column.type, name), column.type, name, _FUNCTIONS[op])[0])
    elif literal.type is None:
        meant(pa.array([literal.scalar.as_py()], literal.scalar.type), column.type, name, _FUNCTIONS[op])
    return FunctionCall(_FUNCTIONS[op], (reference, literal), None)


def _of_nested(name: str, op: Any, value: Any, nested: NestedColumn, schema: Schema) -> Node:
    """One triple of a column of lists, structs or maps, whose values are given as in rows."""
    if op not in ("=", "==", "!=", "in", "not in"):
        raise InvalidArgument(
            f"filter on {name!r}: it is {nested.type}, and has no order; ask by ==, !=, in, or of a field"
        )
    in_list = op in ("in", "not in")
    if not in_list and (value is None or (isinstance(value, pa.Scalar) and not value.is_valid)):
        raise InvalidArgument(
            f"filter on {name!r}: a comparison with NULL is true of no row; "
            f"write pc.field({name!r}).is_null()"
        )
    if in_list and (isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__")):
        raise InvalidArgument(f"filter on {name!r}: {op!r} takes a list of values, not {value!r}")
    try:
        [batch] = of_columns({name: value if in_list else [value]}, schema)
        constants = nested_cast(batch.column(0), nested.type, name, leaf=fitted)
    except (SchemaMismatch, InvalidArgument) as error:
        raise InvalidArgument(f"filter on {name!r}: {error}") from None
    if in_list:
        found = expressions.is_in(Ref(name), constants)
        return FunctionCall("invert", (found,), None) if op == "not in" else found
    return FunctionCall(_FUNCTIONS[op], (Ref(name), Literal(constants[0])), None)


def _listed(value: Any, type_: ColumnType, name: str) -> pa.Array:
    if isinstance(value, pa.Array | pa.ChunkedArray):
        check_chunks(value, name)
        return value if isinstance(value, pa.Array) else value.combine_chunks()
    cells = list(value)
    for cell in cells:
        check_text(cell, f"filter on {name!r}")
    if type_.is_temporal or type_.is_narrower:
        try:
            return seen(stored_array(type_, cells), type_)
        except InvalidArgument:
            pass  # one that the type does not have; what Arrow says of it stands
    try:
        try:
            return pa.array(cells)
        except OverflowError:  # Arrow takes integers for int64 unless it is told otherwise
            return pa.array(cells, type_.arrow)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidArgument(f"filter on {name!r}: {error}") from None


def _literal(value: Any, type_: ColumnType) -> Literal | None:
    """A literal of exactly the column's type; None for values that are not plainly of it."""
    if type_.kind == TYPE_FLOAT and type(value) is int:
        return _float(value, type_)
    if (type_.is_temporal or type_.is_narrower) and not isinstance(value, pa.Scalar) and value is not None:
        try:
            return Literal(seen_scalar(type_, stored_scalar(type_, value)))
        except InvalidArgument:
            return None
    if type(value) is not _NATIVE.get(type_.value.name) or value != value:
        return None
    try:
        return Literal.plain(type_, values.exact(type_, value))
    except InvalidArgument:
        return None


def _float(value: int, type_: ColumnType) -> Literal | None:
    """An integer of any size, if it is exact as a float.  Arrow's own cast takes none that is large."""
    try:
        scalar = pa.scalar(float(value), type_.arrow)
    except OverflowError:
        return None
    return Literal(scalar) if scalar.as_py() == value else None


def _typed(array: pa.Array, type_: Any, name: str) -> pa.Array:
    """In the column's type, so that Arrow compares without casting; as it is where that is not exact."""
    try:
        return seen(cast(array, type_, name), type_)
    except SchemaMismatch:
        return array
