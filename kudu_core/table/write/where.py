"""Writes by predicate: ``delete(where=)`` and ``update(where=, set=)``.

The predicate is evaluated under the mutexes, against the newest applied state (protocol W3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.idempotence.fingerprint import Fingerprint, of_predicate
from kudu_core.common.rows.arrow_in import batches
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.flattened import flags_around, flat_batch, needed_leaves
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.scalars import stored_scalar
from kudu_core.common.where import keybounds
from kudu_core.common.where.expressions import parse, references
from kudu_core.common.where.given import AsGiven
from kudu_core.common.where.nested.whole import Whole, evaluated, nested_of
from kudu_core.common.where.seen import seen
from kudu_core.errors import InvalidArgument, SchemaMismatch
from kudu_core.rowset.scan.by_index import ColumnsIndex
from kudu_core.rowset.scan.scan import ScanSpec, scan_rowset
from kudu_core.rowset.scan.scan_counts import ScanCounts
from kudu_core.sql.where_text import is_text, values_without_text
from kudu_core.table.opened.kept_plans import KeptPredicate
from kudu_core.table.opened.tablets import NEWEST
from kudu_core.table.read.expiry.expired import without_expired
from kudu_core.table.read.indexed.known_indexes import indexes_for_scans
from kudu_core.table.read.plan import kept_filters, prune_tablets
from kudu_core.table.write.found_walk import FoundRows

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
"""Of the new values that a batch of rows gets from a literal, if it has more than one row."""


def where_rows(
    engine: Engine, where: Any, set_: dict[str, Any] | None
) -> tuple[Callable[[], Sequence[FoundRows]], Callable[[], Fingerprint]]:
    """A function that, under the mutexes, finds the rows and makes what becomes of them; and another one that
    gives the fingerprint of what the write says.

    ``set_`` None: delete the rows.  Arguments are checked here, before anything is locked.
    """
    first, now_us = engine.schema, engine.clock.now_us()
    where = kept_filters(where)  # it may be read for two schemas

    def compiled(schema: Schema) -> tuple[KeptPredicate[Any], NewValues]:
        predicate = engine.plans_of(schema).predicate(where)
        if predicate.filter is None and not (isinstance(where, pc.Expression) or is_text(where)):
            raise InvalidArgument("where selects every row; say so with pyarrow.compute.scalar(True)")
        return predicate, NewValues.checked(schema, values_without_text(set_ or {}, schema))

    checked = compiled(first)

    def collect() -> Sequence[FoundRows]:
        schema = engine.schema
        predicate, new_values = checked if schema is first else compiled(schema)
        predicate = of_alive(predicate, schema, now_us)
        found = []
        for tablet, place, rowids, old in selected(engine, predicate, new_values):
            found.append(FoundRows(tablet, place, rowids, new_values.of(old)))
        return found

    def says() -> Fingerprint:
        predicate, new_values = checked
        expressions = None if set_ is None else new_values.said()
        every = pc.scalar(True) if is_text(where) else where
        return of_predicate(every if predicate.filter is None else predicate.filter.expression, expressions)

    return collect, says


def of_alive(
    predicate: KeptPredicate[Any], schema: Schema, now_us: int
) -> KeptPredicate[Any]:
    """The same predicate of the rows that have not expired."""
    if schema.ttl is None:
        return predicate
    return KeptPredicate(without_expired(predicate.filter, schema, now_us), predicate.size)


def selected(
    engine: Engine, predicate: KeptPredicate[Any], new_values: NewValues
) -> Iterator[tuple[Tablet, int, npt.NDArray[np.int64], RowBlock]]:
    """Rows of the newest state that a predicate selects, under all mutexes: (tablet, place in the stores of
    its view, rowids, what is read of them)."""
    indexes = indexes_for_scans(engine, only_known=True)
    spec = _spec_of(new_values.schema, predicate, new_values, indexes)
    for tablet in prune_tablets(engine, spec.filter, spec.lower, spec.upper, NEWEST):
        for place, source in tablet.view.places_at(NEWEST):
            for found in scan_rowset(source, spec, ScanCounts()):
                assert found.rowids is not None
                yield tablet, place, found.rowids, RowBlock(found.columns, found.rows)


def _spec_of(
    schema: Schema,
    predicate: KeptPredicate[Any],
    new_values: NewValues,
    indexes: tuple[ColumnsIndex, ...],
) -> ScanSpec:
    """What each rowset is asked for, which is kept with the predicate."""
    asked = "found", new_values.batch_rows, indexes, *(column.id for column in new_values.read)
    spec = predicate.get(asked)
    if spec is None:
        where = predicate.filter
        lower, upper = keybounds.key_bounds(schema, () if where is None else where.terms)
        spec = ScanSpec(
            schema, new_values.read, where, lower, upper, False, new_values.batch_rows,
            implied=(True, True), rowids=True, indexes=indexes,
        )  # fmt: skip
        predicate.put(asked, spec)
    return spec


@dataclass(frozen=True, slots=True)
class NewValues:
    """``set=``, checked against one schema: literals as they are stored, and expressions over the old row.

    Without any, the rows are deleted.
    """

    schema: Schema
    names: tuple[str, ...]
    """Of the stored columns that get new values."""
    literals: dict[str, Any]
    """As they were given."""
    cells: dict[str, ColumnBuffers]
    """Of each literal one cell, which every row gets."""
    expressions: dict[str, pc.Expression]
    """By the names of stored columns, or of nested ones."""
    wholes: dict[str, Whole]
    """Those of the expressions that see nested columns, as they are evaluated."""
    read: tuple[StoredColumn, ...]
    """What is read of the old rows: the key, and the columns that the expressions name."""

    @staticmethod
    def checked(schema: Schema, set_: dict[str, Any]) -> NewValues:
        """Expressions are tried out on no rows."""
        literals: dict[str, Any] = {}
        cells: dict[str, ColumnBuffers] = {}
        expressions: dict[str, pc.Expression] = {}
        wholes: dict[str, Whole] = {}
        names: set[str] = set(schema.key_names)
        made_names: list[str] = []
        flat, computed = _flat_values(schema, set_)
        for name, value in (flat | computed).items():
            if name in schema.by_name and schema.by_name[name].id in schema.key_ids:
                raise InvalidArgument(
                    f"{name!r} is a key column; a key does not change: delete and insert the row"
                )
            if isinstance(value, pc.Expression):
                value = _flat_expression(value, schema)
                expressions[name] = value
                whole, read_of = _seen_expression(value, schema)
                names.update(read_of)
                if whole is not None:
                    wholes[name] = whole
                made_names += _stored_names(schema, name)
            else:
                literals[name], cells[name] = value, _cell(schema, schema.column(name), value)
                made_names.append(name)
        read = tuple(c for c in schema.columns if c.name in names) if expressions else schema.key_columns
        made = NewValues(schema, tuple(made_names), literals, cells, expressions, wholes, read)
        if expressions:
            made._computed(pa.RecordBatch.from_pylist([], schema=_seen_schema(read)))
        return made

    @property
    def batch_rows(self) -> int:
        """How many rows are made at once."""
        largest = max((cell.nbytes for cell in self.cells.values() if not cell.width), default=0)
        return min(BATCH_ROWS, max(1, BATCH_BYTES // max(largest, 1)))

    def said(self) -> dict[str, pc.Expression]:
        """All of ``set=`` as expressions."""
        column = self.schema.column
        literals = {name: pc.scalar(_literal(column(name), value)) for name, value in self.literals.items()}
        return literals | self.expressions

    def of(self, old: RowBlock) -> RowBlock:
        """Keys and new values of selected rows, of which the block has the columns that are read."""
        schema = self.schema
        if not self.names:
            return old
        made = {id_: old.columns[id_] for id_ in schema.key_ids}
        if self.expressions:
            arrays = [seen(old.columns[c.id].to_arrow(c.type), c.type) for c in self.read]
            made |= self._computed(pa.RecordBatch.from_arrays(arrays, schema=_seen_schema(self.read)))
        every = np.zeros(old.rows, np.int64)
        made |= {schema.by_name[name].id: cell.take(every) for name, cell in self.cells.items()}
        told = {name: value for name, value in self.literals.items() if name.endswith(":null")}
        flags = [name for name, value in told.items() if value in (False, pa.scalar(False))]
        needed = needed_leaves(schema, flags, self.names) if flags else ()
        for name in self.names:
            column = schema.by_name[name]
            takes_null = column.nullable and name not in needed
            if not takes_null and made[column.id].null_count:
                raise InvalidArgument(
                    f"set: {name!r} takes no NULL, but a row would get one; nothing was changed"
                )
        return RowBlock({c.id: made[c.id] for c in schema.columns if c.id in made}, old.rows)

    def _computed(self, old: pa.RecordBatch) -> dict[int, ColumnBuffers]:
        """What the expressions give for rows."""
        arrays = []
        try:
            for name, expression in self.expressions.items():
                whole = self.wholes.get(name)
                if whole is None:
                    arrays.append(evaluated(expression, old))
                else:
                    arrays.append(evaluated(whole.expression, whole.extended(old)))
            batch = pa.RecordBatch.from_arrays(arrays, names=[*self.expressions])
            return conform(self.schema, batch, required=(), stored=True).block.columns
        except (InvalidArgument, SchemaMismatch) as error:
            raise type(error)(f"set: {error}") from None


def _flat_values(
    schema: Schema, set_: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, pc.Expression]]:
    """``set=`` by the names of stored columns, a nested column's value as its leaves; and what computes
    nested columns, by their names."""
    if not schema.nested:
        for name in set_:
            schema.column(name)
        return set_, {}
    flat: dict[str, Any] = {}
    computed: dict[str, pc.Expression] = {}
    parts: dict[str, list[Any]] = {}
    flags: set[str] = set()
    for name, value in set_.items():
        schema.seen(name)
        nested = schema.nested_by_name.get(name) or schema.part(name)
        if nested is None:
            flat[name] = value
            flags.update(flags_around(schema, name))
            continue
        if isinstance(value, pc.Expression):
            computed[name] = value
            flags.update(flags_around(schema, name))
            continue
        parts[name] = [value]
    if parts:
        [batch] = batches(parts, schema)
        cells, _, _ = flat_batch(schema, batch, beside=flat)
        _check_once(flat, cells.schema.names)
        flat.update({leaf: cells.column(leaf)[0] for leaf in cells.schema.names})
    made = set(flat)
    for name in computed:
        leaves = [leaf for leaf in _stored_names(schema, name) if leaf not in flags]
        _check_once(made, leaves)
        made.update(leaves)
    flags -= made
    needed_leaves(schema, flags, made)
    return flat | dict.fromkeys(flags, False), computed


def _check_once(given: Collection[str], more: Iterable[str]) -> None:
    twice = set(given) & set(more)
    if twice:
        raise InvalidArgument(f"set: {min(twice)!r} is given twice, also as a field of another")


def _stored_names(schema: Schema, name: str) -> list[str]:
    """The stored columns that one has, flat or nested."""
    nested = nested_of(schema, name)
    return [name] if nested is None else [schema.by_id[id_].name for id_ in nested.ids]


def _seen_expression(expression: pc.Expression, schema: Schema) -> tuple[Whole | None, set[str]]:
    """An expression with the nested columns that it sees, and the stored columns that it reads."""
    names = set(_names(expression, schema))
    try:
        whole = Whole.of(expression, sorted(names), schema) if schema.nested else None
    except InvalidArgument as error:
        raise InvalidArgument(f"set: {error}") from None
    return whole, {stored for name in names for stored in _stored_names(schema, name)}


def _seen_schema(columns: Sequence[StoredColumn]) -> pa.Schema:
    """Columns as expressions see them."""
    return pa.schema([pa.field(c.name, seen(pa.nulls(0, c.type.arrow), c.type).type) for c in columns])


def _flat_expression(expression: pc.Expression, schema: Schema) -> pc.Expression:
    """The expression over stored columns: fields of structs are some."""
    if not schema.nested:
        return expression
    given, _ = AsGiven(expression, None).of_stored_types(schema.null_test, schema.type_of)
    return given.expression


def _names(expression: pc.Expression, schema: Schema) -> Iterable[str]:
    """The columns that an expression of ``set=`` refers to: all, where it is not understood."""
    node = parse(expression)
    if node is None:
        return schema.names
    found = references(node)
    for name in sorted(found):
        if nested_of(schema, name) is None:
            schema.column(name)
    return found


def _literal(column: StoredColumn, value: Any) -> pa.Scalar:
    """A value of ``set=``, which every row gets.  Leaves of a nested one are as they are stored."""
    if isinstance(value, pa.Scalar):
        if value.type == column.type.arrow:
            return value
        if not value.is_valid:  # of whatever type it is
            return pa.scalar(None, column.type.arrow)
    if _is_own(column):
        try:
            return stored_scalar(column.type, value, f"column {column.name!r}")
        except InvalidArgument as exc:
            raise SchemaMismatch(f"set: {exc}") from exc
    try:
        return pa.scalar(value, column.type.arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as exc:
        raise SchemaMismatch(f"set: {column.name!r} is {column.type}, which {value!r} is not: {exc}") from exc


def _is_own(column: StoredColumn) -> bool:
    """Whether Arrow makes no scalar of every value that the column takes, or of some another one."""
    return column.type.is_converted or column.type.is_temporal


_PLAIN: dict[str, type] = {
    **{f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float64": float,
    "bool": bool,
    "binary": bytes,
}
"""Python's types whose values are stored as they are, by the column's type."""


def _cell(schema: Schema, column: StoredColumn, value: Any) -> ColumnBuffers:
    """A literal as one stored cell."""
    if type(value) is _PLAIN.get(column.type.name) or (
        column.type.name == "string" and type(value) is str and value.isascii()
    ):
        try:
            return ColumnBuffers.constant(column.type, value, 1)
        except InvalidArgument:
            pass  # Arrow says what does not fit
    batch = pa.RecordBatch.from_arrays([pa.repeat(_literal(column, value), 1)], names=[column.name])
    [cell] = conform(schema, batch, required=(), stored=True).block.columns.values()
    return cell
