"""``where=``: which rows a scan, update or delete is about.

A predicate is a ``pyarrow.compute`` expression (or pyarrow's filter lists, which become one), and
pyarrow evaluates it, so its rules for NULL and NaN hold by construction; a row passes when the
result is true.  Beside it stand the terms that can be read off the expression, for pruning, and the
conditions that part of it amounts to, which are evaluated on what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from kudu_core.common import expressions
from kudu_core.common.casts import cast
from kudu_core.common.conditions import Condition, conditions_of
from kudu_core.common.schema import Schema
from kudu_core.common.terms import Term, terms_of
from kudu_core.errors import InvalidArgument, SchemaMismatch

_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
_RESULT = "passes"


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A checked predicate over the columns of one schema.  Pickles."""

    expression: pc.Expression
    columns: frozenset[str]
    """What ``mask`` must be given; at least one column."""
    terms: tuple[Term, ...]
    """Every row that passes satisfies them all."""
    conditions: tuple[Condition, ...] = ()
    """Exact: with the rest, they are the predicate.  At most one a column."""
    rest: Filter | None = None
    """What the conditions leave to pyarrow; None: nothing.  It has neither terms nor conditions itself."""

    def mask(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """(rows,) bool: which rows pass.  ``batch`` has the filter's columns, by name.

        One project node for the whole expression costs 5 microseconds more than calling its
        functions one by one, and leaves casts, NULL and NaN to the code that defines them.
        ``InvalidArgument`` when Arrow cannot evaluate it, for types or for values (overflow).
        """
        source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", source),
                acero.Declaration("project", acero.ProjectNodeOptions([self.expression], [_RESULT])),
            ]
        )
        try:
            passes = plan.to_table(use_threads=False).column(0)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidArgument(f"where {self.expression}: {error}") from None
        if not pa.types.is_boolean(passes.type):
            raise InvalidArgument(f"where gives {passes.type}, not bool: {self.expression}")
        parts = [chunk.fill_null(False).to_numpy(zero_copy_only=False) for chunk in passes.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.bool_), *parts])

    def may_match(self, zones: dict[int, tuple[Any, Any, int, int, int]]) -> bool:
        """Whether rows may pass, from ``{column id: arguments of Term.may_match}``."""
        return all(t.column_id not in zones or t.may_match(*zones[t.column_id]) for t in self.terms)

    def __str__(self) -> str:
        return str(self.expression)


def compile_where(where: Any, schema: Schema) -> Filter | None:
    """Check a predicate: an expression, or filter lists in disjunctive normal form.

    None when every row passes.  ``InvalidArgument`` for an unknown column (which it names), an
    operator there is none of, or types that do not compare.
    """
    if where is None:
        return None
    if isinstance(where, Filter):
        where = where.expression
    if not isinstance(where, pc.Expression):
        where = _from_lists(where, schema)
        if where is None:
            return None
    node = expressions.parse(where)
    # Not understood, it may refer to any column.
    names = set(schema.names) if node is None else expressions.references(node)
    for name in sorted(names):
        schema.column(name)
    terms = () if node is None else terms_of(node, schema)
    if not names:
        names = {schema.key_columns[0].name}  # for the number of rows
        if _constant(where):
            return None
    conditions, rest = ((), None) if node is None else _parts(where, node, schema)
    result = Filter(where, frozenset(names), terms, conditions, rest)
    _try_out(result, schema)
    return result


def _parts(
    where: pc.Expression, node: expressions.Node, schema: Schema
) -> tuple[tuple[Condition, ...], Filter | None]:
    """What of a predicate is evaluated on stored values, and the rest of it."""
    parts = expressions.conjuncts(where)
    nodes = [node] if len(parts) == 1 else [expressions.parse(part) for part in parts]
    conditions, left = conditions_of(nodes, schema)
    if not left:
        return conditions, None
    rest = parts[left[0]]
    for place in left[1:]:
        rest = rest & parts[place]
    names: set[str] = set()
    for place in left:
        own = nodes[place]
        names |= set(schema.names) if own is None else expressions.references(own)
    return conditions, Filter(rest, frozenset(names or {schema.key_columns[0].name}), ())


def _constant(expression: pc.Expression) -> bool:
    """The value of an expression over no columns."""
    one_row = pa.record_batch({"row": pa.array([0])})
    return bool(Filter(expression, frozenset(("row",)), ()).mask(one_row)[0])


def _try_out(predicate: Filter, schema: Schema) -> None:
    """Evaluate over one row of NULLs: what does not bind is the caller's mistake, found before a scan.

    A row there must be: Arrow refuses to compare times with and without a zone only then.
    """
    columns = [c for c in schema.columns if c.name in predicate.columns]
    nulls = [pa.nulls(1, c.type.arrow) for c in columns]
    predicate.mask(pa.RecordBatch.from_arrays(nulls, names=[c.name for c in columns]))


# ---------------------------------------------------------------------------------- filter lists


def _from_lists(where: Any, schema: Schema) -> pc.Expression | None:
    """``[(column, op, value), ...]`` all of which hold, or a list of such lists, one of which does."""
    if isinstance(where, str | bytes) or not isinstance(where, Sequence):
        raise InvalidArgument(f"where is a pyarrow.compute expression or a list of filters, not {where!r}")
    if not where:
        return None
    # One tuple alone, one list of tuples, or a list of lists.
    groups: Sequence[Any] = where if isinstance(where[0], list) else [list(where)]
    if isinstance(where, tuple) and isinstance(where[0], str):
        groups = [[where]]
    result = None
    for group in groups:
        every = _all_of(group, schema)
        result = every if result is None else result | every
    return result


def _all_of(group: Any, schema: Schema) -> pc.Expression:
    if isinstance(group, tuple) and group and isinstance(group[0], str):
        group = [group]
    if isinstance(group, str) or not isinstance(group, Sequence) or not group:
        raise InvalidArgument(f"a filter is a list of (column, op, value), not {group!r}")
    result = None
    for item in group:
        if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != 3:
            raise InvalidArgument(f"a filter is (column, op, value), not {item!r}")
        name, op, value = item
        one = _comparison(name, op, value, schema)
        result = one if result is None else result & one
    return result


def _comparison(name: Any, op: Any, value: Any, schema: Schema) -> pc.Expression:
    """One triple, with pyarrow's meanings; values take the column's type where they are exact in it."""
    column = schema.column(name)
    if op not in _OPERATORS:
        raise InvalidArgument(f"filter on {name!r}: no operator {op!r}; there are {', '.join(_OPERATORS)}")
    reference = pc.field(name)
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise InvalidArgument(f"filter on {name!r}: {op!r} takes a list, not {value!r}")
        try:
            listed = pa.array(list(value)) if not isinstance(value, pa.Array) else value
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InvalidArgument(f"filter on {name!r}: {error}") from None
        found = reference.isin(_typed(listed, column.type, name))
        return ~found if op == "not in" else found
    literal = expressions.as_scalar(value)
    literal = _typed(pa.repeat(literal, 1), column.type, name)[0]
    compare = {
        "=": reference.__eq__,
        "==": reference.__eq__,
        "!=": reference.__ne__,
        "<": reference.__lt__,
        ">": reference.__gt__,
        "<=": reference.__le__,
        ">=": reference.__ge__,
    }
    return compare[op](literal)


def _typed(array: pa.Array, type_: Any, name: str) -> pa.Array:
    """In the column's type, so that Arrow compares without casting; as it is where that is not exact."""
    try:
        return cast(array, type_, name)
    except SchemaMismatch:
        return array
