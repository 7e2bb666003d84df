"""Predicates of Polars as conditions of ours: those that mean the same, and no others.

A condition is taken over where it is true, false and NULL of the same rows: then so are ``and``, ``or`` and
``not`` of such ones.  Where Polars and Arrow differ, it is written so that they do not: to Polars NaN is
the largest number, and ``is_in`` of NULL is NULL.  What is not known to mean the same, such as NaN among
the constants or a column that is cast, is left to Polars.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.types import TYPE_FLOAT

if TYPE_CHECKING:
    import polars as pl

Node = Any
"""A part of an expression as Polars writes it as JSON."""

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": eq, "NotEq": ne, "Lt": lt, "LtEq": le, "Gt": gt, "GtEq": ge,
}  # fmt: skip
_SWAPPED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_ENDS = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}


def translated(predicate: pl.Expr, schema: Schema, types: pl.Schema) -> tuple[pc.Expression | None, bool]:
    """(What of a predicate every row satisfies that passes it, None for nothing; whether that is all of it.)

    ``types``: the columns as Polars has them.
    """
    import polars

    try:
        root = json.loads(predicate.meta.serialize(format="json"))
    except (polars.exceptions.PolarsError, ValueError):
        return None, False
    of = _Translation(schema, types)
    parts = [of.truth(part) for part in _conjuncts(root)]
    known = [part for part in parts if part is not None]
    return (reduce(and_, known) if known else None), len(known) == len(parts)


def _conjuncts(node: Node) -> list[Node]:
    binary = _binary(node)
    if binary is None or binary[1] not in ("And", "LogicalAnd"):
        return [node]
    return [*_conjuncts(binary[0]), *_conjuncts(binary[2])]


class _Translation:
    """Of expressions over the columns of one table."""

    def __init__(self, schema: Schema, types: pl.Schema) -> None:
        self._schema = schema
        self._types = types

    def truth(self, node: Node) -> pc.Expression | None:
        """The same condition, or None."""
        binary = _binary(node)
        if binary is not None:
            return self._of_binary(*binary)
        function = _function(node)
        if function is not None:
            return self._of_function(*function)
        column = self._column(node)
        if column is not None and self._types[column.name].is_(_boolean()):
            return pc.field(column.name)
        return None

    def _of_binary(self, left: Node, op: str, right: Node) -> pc.Expression | None:
        if op in ("And", "LogicalAnd", "Or", "LogicalOr"):
            sides = self.truth(left), self.truth(right)
            if sides[0] is None or sides[1] is None:
                return None
            return (and_ if op.endswith("And") else or_)(*sides)
        if self._column(left) is None:
            left, op, right = right, _SWAPPED.get(op, op), left
        column = self._column(left)
        if column is None:
            return None
        return self._compared(column, op, right)

    def _compared(self, column: StoredColumn, op: str, right: Node) -> pc.Expression | None:
        value = self._constant(right, column)
        if value is None:
            return None
        field = pc.field(column.name)
        if op == "EqValidity":
            return field.is_valid() & (field == value)
        if op == "NotEqValidity":
            return field.is_null() | (field != value)
        if op not in _COMPARED:
            return None
        said: pc.Expression = _COMPARED[op](field, value)
        if op in ("Gt", "GtEq") and column.type.kind == TYPE_FLOAT:
            return said | pc.is_nan(field)
        return said

    def _of_function(self, name: str, settings: Any, inputs: list[Node]) -> pc.Expression | None:
        if name == "Not":
            inner = self.truth(inputs[0])
            return None if inner is None else ~inner
        column = self._column(inputs[0])
        if column is None:
            return None
        field = pc.field(column.name)
        if name == "IsNull":
            return field.is_null()
        if name == "IsNotNull":
            return field.is_valid()
        if name in ("IsNan", "IsNotNan") and column.type.kind == TYPE_FLOAT:
            return pc.is_nan(field) if name == "IsNan" else ~pc.is_nan(field)
        if name == "StartsWith" and column.type.is_string:
            prefix = self._constant(inputs[1], column)
            return None if prefix is None else pc.starts_with(field, prefix.as_py())
        if name == "IsIn" and settings == {"nulls_equal": False}:
            return self._listed(column, inputs[1])
        if name == "IsBetween" and settings.get("closed") in _ENDS:
            ends = zip(_ENDS[settings["closed"]], inputs[1:], strict=True)
            said = [self._compared(column, op, end) for op, end in ends]
            return None if said[0] is None or said[1] is None else said[0] & said[1]
        return None

    def _listed(self, column: StoredColumn, node: Node) -> pc.Expression | None:
        """``is_in``; of floats, among which equal ones differ in their bits, it is left to Polars."""
        import polars

        cells = _literal(node)
        if cells is None or column.type.kind == TYPE_FLOAT or not isinstance(cells.dtype, polars.List):
            return None
        values = cells.explode(empty_as_null=False).drop_nulls()
        listed = self._as_stored(values, column)
        if listed is None:
            return None
        field = pc.field(column.name)
        return pc.if_else(field.is_valid(), field.isin(listed), pa.scalar(None, pa.bool_()))

    def _column(self, node: Node) -> StoredColumn | None:
        """The column that an expression is, or whose values it has: Polars makes decimals wider."""
        import polars

        if not isinstance(node, dict):
            return None
        cast = node.get("Cast")
        if isinstance(cast, dict):
            column = self._column(cast.get("expr"))
            own = None if column is None else self._types[column.name]
            match cast.get("dtype"):
                case {"Literal": {"Decimal": [int(digits), int(scale)]}} if isinstance(own, polars.Decimal):
                    wide = own.precision is not None and digits - scale >= own.precision - own.scale
                    return column if wide and scale >= own.scale else None
            return None
        name = node.get("Column")
        return self._schema.by_name.get(name) if isinstance(name, str) else None

    def _constant(self, node: Node, column: StoredColumn) -> pa.Scalar | None:
        """A constant as a value of the column; None where it is none, NULL, NaN or infinite."""
        cells = _literal(node)
        stored = None if cells is None else self._as_stored(cells, column)
        return None if stored is None or len(stored) != 1 or stored.null_count else stored[0]

    def _as_stored(self, cells: pl.Series, column: StoredColumn) -> pa.Array | None:
        """Values of exactly the column's type, to Polars too; of decimals, those that it can hold."""
        import polars

        type_ = column.type
        if type_.is_narrower or type_.arrow == pa.date64() or (type_.is_converted and type_.width):
            return None  # to Polars these are of other types than stored
        own = self._types[column.name]
        decimals = isinstance(own, polars.Decimal) and isinstance(cells.dtype, polars.Decimal)
        if cells.dtype != own and not decimals:
            return None
        try:
            return cells.to_arrow().cast(column.type.arrow)
        except pa.ArrowInvalid:
            return None  # more digits than the column has


def _boolean() -> Any:
    import polars

    return polars.Boolean


def _binary(node: Node) -> tuple[Node, str, Node] | None:
    """(left, operator, right)"""
    inner = node.get("BinaryExpr") if isinstance(node, dict) else None
    if not isinstance(inner, dict) or inner.keys() != {"left", "op", "right"}:
        return None
    return inner["left"], inner["op"], inner["right"]


def _function(node: Node) -> tuple[str, Any, list[Node]] | None:
    """(name, settings or None, arguments) of a function on booleans or text."""
    inner = node.get("Function") if isinstance(node, dict) else None
    if not isinstance(inner, dict) or inner.keys() != {"input", "function"}:
        return None
    function = inner["function"]
    named = function.get("Boolean", function.get("StringExpr")) if isinstance(function, dict) else None
    if isinstance(named, str):
        return named, None, inner["input"]
    if isinstance(named, dict) and len(named) == 1:
        [(name, settings)] = named.items()
        return name, settings, inner["input"]
    return None


def _literal(node: Node) -> pl.Series | None:
    """The value of a constant as Polars has it; None where it is none, or JSON has no word for it."""
    import polars

    while isinstance(node, dict) and node.keys() == {"Alias"}:
        node = node["Alias"][0]
    if not isinstance(node, dict) or node.keys() != {"Literal"}:
        return None
    kind, value = next(iter(node["Literal"].items())) if isinstance(node["Literal"], dict) else ("", None)
    if kind != "Series" and (kind != "Scalar" or not isinstance(value, dict) or None in value.values()):
        return None
    constant = polars.Expr.deserialize(json.dumps(node).encode(), format="json")
    return polars.select(constant).to_series()


__all__ = ["translated"]
