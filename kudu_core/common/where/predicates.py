"""``where=``: which rows a scan, update or delete is about.

A predicate is a ``pyarrow.compute`` expression (or pyarrow's filter lists, which become one), and
pyarrow evaluates it, so its rules for NULL and NaN hold by construction; a row passes when the
result is true.  Beside it stand the terms that can be read off the expression, for pruning, and the
conditions that part of it amounts to, which are evaluated on what is stored.

An expression may fail on a row (a division by zero, a cast that does not fit).  Whether a query fails must
not depend on where rows lie, so it is evaluated as if row by row, on rows of the answer's snapshot alone,
and there only where the conditions hold and no term rules the row out: those come first, whatever their
place in the expression.  It fails iff it fails on one of these rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.scalars import stored_array, stored_scalar
from kudu_core.common.types.types import TYPE_FLOAT, ColumnType
from kudu_core.common.where import expressions
from kudu_core.common.where.analysis import Condition, Term, analyse, merged
from kudu_core.common.where.filter_lists import read_lists
from kudu_core.common.where.given import AsGiven
from kudu_core.common.where.listed import Listed
from kudu_core.common.where.nested.whole import ASKS, Whole, nested_of
from kudu_core.common.where.seen import is_seen_as_declared, seen, seen_scalar
from kudu_core.errors import InvalidArgument

_RESULT = "passes"
_OF_TYPES = ("Cannot compare timestamp", "Precision is not great enough")
"""Parts of what Arrow says of types not when it binds, but when there is a row: where only one of two times
has a zone, and where the integers of a column do not fit the decimals of a list."""
_OWN_TYPE = "a constant of the column's own type, as pyarrow.scalar(value, type) makes it, compares with it"


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A checked predicate over the columns of one schema.  Pickles."""

    given: AsGiven
    columns: frozenset[str]
    """What ``mask`` must be given; at least one column."""
    terms: tuple[Term, ...]
    """Every row that passes satisfies them all."""
    conditions: tuple[Condition, ...] = ()
    """Exact: with the rest, they are the predicate.  At most one a column."""
    rest: Filter | None = None
    """What the conditions leave to pyarrow; None: nothing.  It has neither terms nor conditions itself."""
    guard: pc.Expression | None = None
    """Conditions and terms as an expression that fails on no row; None: there are none."""
    converted: tuple[tuple[str, ColumnType], ...] = ()
    """Columns that the expression sees as they were declared (``seen``)."""
    whole: Whole | None = None
    """The expression with the nested columns that it sees put together; None: it sees none."""

    @property
    def expression(self) -> pc.Expression:
        return self.given.expression

    @property
    def nested(self) -> tuple[NestedColumn, ...]:
        """The nested columns, or fields of structs, that the expression reads whole."""
        return () if self.whole is None else self.whole.columns

    def fixes(self, column_ids: Sequence[int]) -> bool:
        """Whether it says that the first of these columns have one value each, and no more than that."""
        if self.rest is not None or not 0 < len(self.conditions) <= len(column_ids):
            return False
        fixed = {c.column_id for c in self.conditions if c.passing.is_one_value}
        return fixed == set(column_ids[: len(self.conditions)])

    def beyond(self, column_ids: Collection[int]) -> Filter | None:
        """What is left to test on rows that meet the conditions on these columns; None: nothing."""
        left = tuple(c for c in self.conditions if c.column_id not in column_ids)
        if not left and self.rest is None and self.conditions:
            return None
        return self if len(left) == len(self.conditions) else replace(self, conditions=left)

    def mask(self, batch: pa.RecordBatch, live: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.bool_]:
        """(rows,) bool: which rows pass.  ``batch`` has the filter's columns, by name.

        ``live``: (rows,) bool, which rows there are at all; of the others what comes out is as it may be.
        ``InvalidArgument`` when Arrow cannot evaluate it, for types or for values (overflow) of rows that
        are there and that the guard lets pass.
        """
        if self.whole is not None and live is not None and not live.all():
            return self._mask_of(batch, np.flatnonzero(live))  # leaves of others need not go together
        given = batch
        for name, type_ in self.converted:
            place = batch.schema.get_field_index(name)
            if place >= 0:
                batch = batch.set_column(place, name, seen(batch.column(place), type_))
        try:
            if self.whole is not None:
                return _evaluated(self.whole.expression, self.whole.extended(batch))
            return _evaluated(self.expression, batch)
        except InvalidArgument:
            # Perhaps of rows that do not count, which is seldom: only now are they told from the others.
            counted = np.ones(batch.num_rows, np.bool_) if live is None else live.copy()
            if self.guard is not None:
                counted &= _evaluated(self.guard, batch)
            rows = np.flatnonzero(counted)
            if len(rows) == batch.num_rows:
                raise
        return self._mask_of(given, rows)

    def _mask_of(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """The same, of which no other rows are looked at."""
        passes = np.zeros(batch.num_rows, np.bool_)
        if len(rows):
            passes[rows] = replace(self, guard=None).mask(batch.take(pa.array(rows)))
        return passes

    def __str__(self) -> str:
        return str(self.expression)


def _evaluated(expression: pc.Expression, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """(rows,) bool: of which rows an expression is true.

    One project node for the whole expression costs 5 microseconds more than calling its
    functions one by one, and leaves casts, NULL and NaN to the code that defines them.
    """
    from pyarrow import acero  # it imports pyarrow.dataset, and that pandas

    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", source),
            acero.Declaration("project", acero.ProjectNodeOptions([expression], [_RESULT])),
        ]
    )
    try:
        passes = plan.to_table(use_threads=False).column(0)
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise InvalidArgument(f"where {expression}: {error}") from None
    if not pa.types.is_boolean(passes.type):
        raise InvalidArgument(f"where gives {passes.type}, not bool: {expression}")
    parts = [chunk.fill_null(False).to_numpy(zero_copy_only=False) for chunk in passes.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.bool_), *parts])


def compile_where(where: Any, schema: Schema) -> Filter | None:
    """Check a predicate: an expression, or filter lists in disjunctive normal form.

    None when every row passes.  ``InvalidArgument`` for an unknown column (which it names), an
    operator there is none of, or types that do not compare.
    """
    if where is None:
        return None
    if isinstance(where, Filter):
        return compile_given(where.given, schema)
    if isinstance(where, pc.Expression):
        return compile_given(AsGiven(where), schema)
    node = read_lists(where, schema)
    return None if node is None else compile_given(AsGiven.listed(node), schema)


def compile_given(given: AsGiven, schema: Schema) -> Filter | None:
    """The same of a predicate that was given before."""
    given, node = given.of_stored_types(schema.null_test, schema.type_of)
    # Not understood, it may refer to any column.
    names = set(schema.names) if node is None else expressions.references(node)
    for name in sorted(names):
        if nested_of(schema, name) is None:
            schema.column(name)
    if not names:
        names = {schema.key_columns[0].name}  # for the number of rows
        if _constant(given):
            return None
    if node is None:
        result = _filter(given, names, schema)
    else:
        result = _taken_apart(given, node, names, schema)
    if node is None or result.rest is not None:
        _try_out(result, schema)
    return result


def _filter(given: AsGiven, names: Collection[str], schema: Schema) -> Filter:
    """A predicate over columns of these names, of which nothing else is known."""
    try:
        whole = Whole.of(given.expression, sorted(names), schema) if schema.nested else None
    except InvalidArgument as error:
        raise InvalidArgument(f"where {error}; {ASKS}") from None
    flat = {name for name in names if nested_of(schema, name) is None}
    converted = _converted(flat, schema)
    nested = () if whole is None else whole.columns
    leaves = {schema.by_id[id_].name for column in nested for id_ in column.ids}
    return Filter(given, frozenset(flat | leaves), (), converted=converted, whole=whole)


def _taken_apart(given: AsGiven, node: expressions.Node, names: Collection[str], schema: Schema) -> Filter:
    """A predicate with its terms, what of it is evaluated on stored values, the rest, and the guards."""
    nodes = expressions.parts(node)
    known = [analyse(part, schema) for part in nodes]
    terms = tuple(term for conjunct in known for term in conjunct.terms)
    left = [place for place, conjunct in enumerate(known) if conjunct.condition is None]
    conditions = merged(conjunct.condition for conjunct in known if conjunct.condition is not None)
    if not left:  # only flat columns have conditions
        return Filter(given, frozenset(names), terms, conditions, converted=_converted(names, schema))
    every = _filter(given, names, schema)
    parts = expressions.conjuncts(given.expression)
    if len(parts) != len(nodes):
        guard = _all(_guards(terms, schema))
        return replace(every, terms=terms, rest=replace(every, guard=guard), guard=guard)
    guards = _guards((term for place in left for term in known[place].terms), schema)
    tested = [part for place, part in enumerate(parts) if place not in left]
    named = (expressions.references(nodes[place]) for place in left)
    left_names = set().union(*named) or schema.key_names[:1]
    rest = _filter(AsGiven(_all([parts[place] for place in left])), left_names, schema)
    rest = replace(rest, guard=_all(guards))
    return replace(
        every, terms=terms, conditions=conditions, rest=rest, guard=_all([*tested, *guards])
    )


def _converted(names: Iterable[str], schema: Schema) -> tuple[tuple[str, ColumnType], ...]:
    """Of these columns those that expressions see as they were declared."""
    types = ((name, schema.by_name[name].type) for name in sorted(names))
    return tuple((name, type_) for name, type_ in types if is_seen_as_declared(type_))


def _all(parts: Sequence[pc.Expression]) -> pc.Expression | None:
    """What is true where all parts are; None where there are none."""
    return reduce(operator.and_, parts) if parts else None


def _guards(terms: Iterable[Term], schema: Schema) -> list[pc.Expression]:
    """Terms as expressions in the columns' own types, which fail on no row."""
    return [_guard(term, pc.field(schema.by_id[term.column_id].name)) for term in terms]


def _guard(term: Term, field: pc.Expression) -> pc.Expression:
    if term.op == "is_null":
        return field.is_null()
    if term.op == "not_null":
        return field.is_valid()
    if term.op == "prefix":
        return pc.starts_with(field, term.value)
    if term.op == "in":
        return _in_list(term, field)
    compare: Callable[[Any, Any], pc.Expression] = getattr(operator, term.op)
    return compare(field, seen_scalar(term.type, stored_scalar(term.type, term.value)))


def _in_list(term: Term, field: pc.Expression) -> pc.Expression:
    """To Arrow's lists the two zeros are two values, to its comparisons one; a term has either for both."""
    many = isinstance(term.value, Listed)
    listed = seen(term.value.array if many else stored_array(term.type, term.value), term.type)
    found = field.isin(listed)
    if term.type.kind == TYPE_FLOAT and pc.any(pc.equal(listed, 0.0)).as_py():
        found = found | (field == pa.scalar(0.0, term.type.arrow))
    return found


def _constant(given: AsGiven) -> bool:
    """The value of an expression over no columns."""
    one_row = pa.record_batch({"row": pa.array([0])})
    return bool(Filter(given, frozenset(("row",)), ()).mask(one_row)[0])


def _try_out(predicate: Filter, schema: Schema) -> None:
    """What does not bind is the caller's mistake, found before a scan, whatever rows there are.

    A row of NULLs there must be, because Arrow refuses some types only then.  Where that row fails for
    another reason, it counts like any other: not if the guard does not let it pass.
    """
    left = predicate.rest or predicate  # conditions bind
    columns = [c for c in schema.columns if c.name in predicate.columns | left.columns]
    nulls = [seen(pa.nulls(1, c.type.arrow), c.type) for c in columns]
    row = pa.RecordBatch.from_arrays(nulls, names=[c.name for c in columns])
    if left.whole is not None:
        _try_whole(left.whole, row)
        return
    try:
        _evaluated(left.expression, row)
    except InvalidArgument as error:
        if any(part in str(error) for part in _OF_TYPES):
            raise
        try:
            _evaluated(left.expression, row.slice(0, 0))
        except InvalidArgument as unbound:
            raise InvalidArgument(f"{unbound}; {_OWN_TYPE}") from None
        counted = np.ones(1, np.bool_) if predicate.guard is None else _evaluated(predicate.guard, row)
        if counted[0]:
            _evaluated(predicate.expression, row)


def _try_whole(whole: Whole, row: pa.RecordBatch) -> None:
    """The same of an expression that sees nested columns; a row of which it fails is none of any table."""
    try:
        _evaluated(whole.expression, whole.nulls(row.slice(0, 0)))
    except InvalidArgument as unbound:
        raise InvalidArgument(f"{unbound}; {ASKS}") from None
