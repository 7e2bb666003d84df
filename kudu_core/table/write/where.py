"""Writes by predicate: ``delete(where=)`` and ``update(where=, set=)``.

The predicate is evaluated under the mutexes, against the newest applied state (protocol W3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core._ext.rules import decide as rules
from kudu_core.common.idempotence.fingerprint import Fingerprint, of_predicate
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.schema import Schema, StoredColumn, arrow_schema
from kudu_core.common.where import keybounds
from kudu_core.common.where.expressions import parse, references
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.errors import ColumnTooLarge, InvalidArgument, SchemaMismatch
from kudu_core.rowset.scan.scan import ScanCounts, ScanSpec, scan_rowset, to_batch
from kudu_core.table.calls.call import Call
from kudu_core.table.opened.tablets import NEWEST
from kudu_core.table.read.plan import prune_tablets

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

BATCH_ROWS = 65_536


def where_calls(
    engine: Engine, where: Any, set_: dict[str, Any] | None
) -> tuple[Callable[[], Sequence[Call]], Callable[[], Fingerprint]]:
    """A function that, under the mutexes, makes the call which the predicate stands for; and another one that
    gives the fingerprint of what the write says.

    ``set_`` None: delete the rows.  Arguments are checked here, before anything is locked.
    """
    first = engine.schema

    def compiled(schema: Schema) -> tuple[Filter | None, NewValues | None]:
        predicate = compile_where(where, schema)
        if predicate is None and not isinstance(where, pc.Expression):
            raise InvalidArgument("where selects every row; say so with pyarrow.compute.scalar(True)")
        return predicate, None if set_ is None else NewValues.checked(schema, set_)

    checked = compiled(first)

    def collect() -> Sequence[Call]:
        schema = engine.schema
        predicate, new_values = checked if schema is first else compiled(schema)
        lower, upper = keybounds.key_bounds(schema, () if predicate is None else predicate.terms)
        columns = schema.key_columns if new_values is None else new_values.read
        spec = ScanSpec(schema, columns, predicate, lower, upper, False, BATCH_ROWS, implied=(True, True))
        blocks: list[RowBlock] = []
        for tablet in prune_tablets(engine, predicate, lower, upper, NEWEST):
            for source in tablet.view.at(NEWEST):
                for selected in scan_rowset(source, spec, ScanCounts()):
                    if new_values is None:
                        blocks.append(RowBlock(selected.columns, selected.rows))
                    else:
                        old = to_batch(columns, selected.columns, selected.rows, arrow_schema(columns))
                        blocks.append(new_values.of(old))
        if not blocks:
            return ()
        op = rules.CALL_DELETE if new_values is None else rules.CALL_UPDATE
        written = [] if new_values is None else new_values.column_ids
        blocks = [block.select([*schema.key_ids, *written]) for block in blocks]
        try:
            return (Call(op, RowBlock.concat(blocks)),)
        except ColumnTooLarge:  # too much for memory anyway: it goes to files, which take it in pieces
            return [Call(op, block, continues=at > 0) for at, block in enumerate(blocks)]

    def says() -> Fingerprint:
        predicate, new_values = checked
        expressions = None if new_values is None else new_values.expressions
        return of_predicate(where if predicate is None else predicate.expression, expressions)

    return collect, says


@dataclass(frozen=True, slots=True)
class NewValues:
    """``set=`` as expressions over the old row, checked against one schema."""

    schema: Schema
    expressions: dict[str, pc.Expression]
    read: tuple[StoredColumn, ...]
    """What is read of the old rows: the key, and the columns that the expressions name."""

    @staticmethod
    def checked(schema: Schema, set_: dict[str, Any]) -> NewValues:
        """Tried out on no rows."""
        expressions: dict[str, pc.Expression] = {}
        names: set[str] = set(schema.key_names)
        for name, value in set_.items():
            column = schema.column(name)
            if column.id in schema.key_ids:
                raise InvalidArgument(
                    f"{name!r} is a key column; a key does not change: delete and insert the row"
                )
            if isinstance(value, pc.Expression):
                names.update(_names(value, schema))
            else:
                value = _literal(column, value)
            expressions[name] = value
        made = NewValues(schema, expressions, tuple(c for c in schema.columns if c.name in names))
        made.of(pa.RecordBatch.from_pylist([], schema=arrow_schema(made.read)))
        return made

    @property
    def column_ids(self) -> list[int]:
        """Of the columns that get new values."""
        return [self.schema.by_name[name].id for name in self.expressions]

    def of(self, old: pa.RecordBatch) -> RowBlock:
        """Keys and new values of selected rows, of which the batch has the columns that are read."""
        import pyarrow.acero as acero

        schema, expressions = self.schema, self.expressions
        keys = {name: pc.field(name) for name in schema.key_names}
        try:
            table = pa.Table.from_batches([old])
            source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
            names = [*keys, *expressions]
            project = acero.Declaration(
                "project",
                acero.ProjectNodeOptions([*keys.values(), *expressions.values()], names),
                inputs=[source],
            )
            new = project.to_table(use_threads=False).combine_chunks()
        except pa.ArrowMemoryError:
            raise
        except pa.ArrowException as exc:
            raise InvalidArgument(f"set: {exc}") from exc
        batches = new.to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=new.schema)
        conformed = conform(schema, batch)
        if conformed.status is not None:
            name = next(
                n for n in expressions if batch.column(n).null_count and not schema.by_name[n].nullable
            )
            raise InvalidArgument(
                f"set: {name!r} takes no NULL, but a row would get one; nothing was changed"
            )
        return conformed.block


def _names(expression: pc.Expression, schema: Schema) -> Iterable[str]:
    """The columns that an expression of ``set=`` refers to: all, where it is not understood."""
    node = parse(expression)
    if node is None:
        return schema.names
    found = references(node)
    for name in sorted(found):
        schema.column(name)
    return found


def _literal(column: StoredColumn, value: Any) -> pc.Expression:
    """A value of ``set=``, which every row gets."""
    try:
        return pc.scalar(pa.scalar(value, column.type.arrow))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as exc:
        raise SchemaMismatch(f"set: {column.name!r} is {column.type}, which {value!r} is not: {exc}") from exc
