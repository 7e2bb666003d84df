"""A predicate's tree read as tests, each of one column against constants.

What a test is true of, ``analysis.py`` says.  Whatever is not such a test is not known (None).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.types import TYPE_BINARY, TYPE_BOOL, TYPE_FLOAT
from kudu_core.common.where.constants import Constant, is_steady
from kudu_core.common.where.expressions import FunctionCall, Literal, Node, Ref
from kudu_core.common.where.listed import Listed

FEW_VALUES = 8
"""Lists of so many values are read one by one, which takes less time than calls of Arrow."""
_MATCHES_NULL, _SKIPS_NULL = 0, 1  # SetLookupOptions
_COMPARISONS = {
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"
}  # fmt: skip
_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMBINING = ("and_kleene", "and", "or_kleene", "or", "invert", "if_else")


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """One column against constants.

    ``op`` is "eq", "ne", "lt", "le", "gt", "ge" (one constant), "in" (any number), "prefix" (``text``),
    "is_null", "not_null", "is_nan", or "is_true" (the column itself, a bool).
    """

    column: StoredColumn
    op: str
    constants: tuple[Constant, ...] = ()
    many: Listed | None = None
    """Of a list that is not short: the values."""
    is_steady: bool = True
    """Of such a list: whether its comparisons are those of ``Constant.is_steady``."""
    text: bytes = b""
    """With which strings begin."""
    is_all: bool = True
    """Of a prefix: there is no more to the pattern."""
    with_null: bool = False
    """Of a list: NULL is one of the values."""
    with_nan: bool = False
    """Of "is_null": NaN counts too."""


@dataclass(frozen=True, slots=True)
class Combined:
    """Tests of which a function makes one."""

    function: str
    arguments: tuple[Tested, ...]


Tested = ColumnTest | Combined | Literal | None
"""None: not known."""


def read(node: Node, schema: Schema) -> Tested:
    """What is tested in an expression over the schema's columns."""
    if isinstance(node, Literal):
        return node
    if isinstance(node, Ref):
        column = schema.by_name.get(node.name)
        return None if column is None or column.type.kind != TYPE_BOOL else ColumnTest(column, "is_true")
    if node.function in _COMBINING:
        return Combined(node.function, tuple(read(argument, schema) for argument in node.arguments))
    if node.function in _COMPARISONS:
        return _read_comparison(node, schema)
    if len(node.arguments) != 1 or not isinstance(node.arguments[0], Ref):
        return None
    column = schema.by_name.get(node.arguments[0].name)
    return None if column is None else _read_of_column(column, node.function, node.options or {})


def _read_comparison(node: FunctionCall, schema: Schema) -> ColumnTest | None:
    op = _COMPARISONS[node.function]
    left, right = node.arguments
    if isinstance(left, Literal):
        left, right, op = right, left, _FLIPPED[op]
    if not isinstance(left, Ref) or not isinstance(right, Literal):
        return None
    column = schema.by_name.get(left.name)
    if column is None or not (right.type is column.type or right.scalar.is_valid):
        return None
    return ColumnTest(column, op, (Constant.of(column.type, right),))


def _read_of_column(column: StoredColumn, function: str, options: dict[str, pa.Scalar]) -> ColumnTest | None:
    is_float = column.type.kind == TYPE_FLOAT
    if function == "is_valid":
        return ColumnTest(column, "not_null")
    if function == "is_null":
        nan_is_null = options.get("nan_is_null")
        with_nan = is_float and nan_is_null is not None and bool(nan_is_null.as_py())
        return ColumnTest(column, "is_null", with_nan=with_nan)
    if function == "is_nan" and is_float:
        return ColumnTest(column, "is_nan")
    if function == "is_in":
        return _read_list(column, options)
    if function in ("starts_with", "match_like") and column.type.kind == TYPE_BINARY:
        if column.type.is_long_decimal:
            return None  # Arrow sees numbers
        return _read_pattern(column, function, options)
    return None


def _read_list(column: StoredColumn, options: dict[str, pa.Scalar]) -> ColumnTest | None:
    value_set, matching = options.get("value_set"), options.get("null_matching_behavior")
    if value_set is None or matching is None or matching.as_py() not in (_MATCHES_NULL, _SKIPS_NULL):
        return None
    given = value_set.values
    valid = _without_nulls(given)
    if not len(valid) and given.type != column.type.arrow:
        return None  # no value tells whether Arrow compares the types
    with_null = len(valid) < len(given) and matching.as_py() == _MATCHES_NULL
    if not isinstance(valid, pa.Array) or len(valid) <= FEW_VALUES:
        constants = tuple(Constant.of(column.type, Literal(scalar)) for scalar in valid)
        return ColumnTest(column, "in", constants, with_null=with_null)
    many = Listed.of(column.type, valid)
    if many is None:
        return None
    steady = is_steady(column.type, valid.type)
    return ColumnTest(column, "in", many=many, is_steady=steady, with_null=with_null)


def _without_nulls(given: pa.Array) -> pa.Array | list[pa.Scalar]:
    """The values of a list that are not NULL; as scalars where Arrow cannot leave the others out."""
    if not given.null_count:
        return given
    if given.type == pa.string_view() or given.type == pa.binary_view():
        given = given.cast(pa.string() if given.type == pa.string_view() else pa.binary())
    try:
        return given.drop_null()
    except pa.ArrowNotImplementedError:
        return [scalar for scalar in given if scalar.is_valid]


def _read_pattern(column: StoredColumn, function: str, options: dict[str, pa.Scalar]) -> ColumnTest | None:
    ignore_case, found = options.get("ignore_case"), options.get("pattern")
    if ignore_case is None or ignore_case.as_py() or found is None:
        return None
    pattern = found.as_py()
    raw = pattern.encode() if isinstance(pattern, str) else bytes(pattern)
    if function == "starts_with":
        return ColumnTest(column, "prefix", text=raw)
    wild = [at for at in (raw.find(one) for one in b"%_\\") if at >= 0]
    end = min(wild, default=len(raw))
    return ColumnTest(column, "prefix", text=raw[:end], is_all=raw[end:] == b"%")
