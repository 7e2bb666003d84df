"""Writes by predicate: ``delete(where=)`` and ``update(where=, set=)``.

The predicate is evaluated under the mutexes, against the newest applied state (protocol W3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core._ext.rules import decide as rules
from kudu_core.common.idempotence.fingerprint import Fingerprint, of_predicate
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.schema import Schema, arrow_schema
from kudu_core.common.where import keybounds
from kudu_core.common.where.expressions import check_literals
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

    def compiled(schema: Schema) -> tuple[Filter | None, dict[str, pc.Expression] | None]:
        predicate = compile_where(where, schema)
        if predicate is None and not isinstance(where, pc.Expression):
            raise InvalidArgument("where selects every row; say so with pyarrow.compute.scalar(True)")
        return predicate, None if set_ is None else _checked(schema, set_)

    checked = compiled(first)

    def collect() -> Sequence[Call]:
        schema = engine.schema
        predicate, expressions = checked if schema is first else compiled(schema)
        lower, upper = keybounds.key_bounds(schema, () if predicate is None else predicate.terms)
        columns = schema.key_columns if expressions is None else schema.columns
        spec = ScanSpec(schema, columns, predicate, lower, upper, False, BATCH_ROWS, implied=(True, True))
        blocks: list[RowBlock] = []
        for tablet in prune_tablets(engine, predicate, lower, upper, NEWEST):
            for source in tablet.view.at(NEWEST):
                for selected in scan_rowset(source, spec, ScanCounts()):
                    if expressions is None:
                        blocks.append(RowBlock(selected.columns, selected.rows))
                    else:
                        old = to_batch(columns, selected.columns, selected.rows, arrow_schema(columns))
                        blocks.append(_new_values(schema, old, expressions))
        if not blocks:
            return ()
        op = rules.CALL_DELETE if expressions is None else rules.CALL_UPDATE
        blocks = [block.select([*schema.key_ids, *_ids(schema, expressions)]) for block in blocks]
        try:
            return (Call(op, RowBlock.concat(blocks)),)
        except ColumnTooLarge:  # too much for memory anyway: it goes to files, which take it in pieces
            return [Call(op, block, continues=at > 0) for at, block in enumerate(blocks)]

    def says() -> Fingerprint:
        predicate, expressions = checked
        return of_predicate(where if predicate is None else predicate.expression, expressions)

    return collect, says


def _ids(schema: Schema, expressions: dict[str, pc.Expression] | None) -> list[int]:
    return [] if expressions is None else [schema.by_name[name].id for name in expressions]


def _checked(schema: Schema, set_: dict[str, Any]) -> dict[str, pc.Expression]:
    """``set=`` as expressions over the old row; tried out on no rows."""
    expressions = {}
    for name, value in set_.items():
        column = schema.column(name)
        if column.id in schema.key_ids:
            raise InvalidArgument(
                f"{name!r} is a key column; a key does not change: delete and insert the row"
            )
        if isinstance(value, pc.Expression):
            check_literals(value)
        else:
            try:
                value = pc.scalar(pa.scalar(value, column.type.arrow))
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as exc:
                raise SchemaMismatch(
                    f"set: {name!r} is {column.type}, which {value!r} is not: {exc}"
                ) from exc
        expressions[name] = value
    empty = pa.RecordBatch.from_pylist([], schema=schema.arrow)
    _new_values(schema, empty, expressions)
    return expressions


def _new_values(schema: Schema, old: pa.RecordBatch, expressions: dict[str, pc.Expression]) -> RowBlock:
    """Keys and new values of selected rows."""
    keys = {name: pc.field(name) for name in schema.key_names}
    try:
        table = pa.Table.from_batches([old])
        import pyarrow.acero as acero

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
        name = next(n for n in expressions if batch.column(n).null_count and not schema.by_name[n].nullable)
        raise InvalidArgument(f"set: {name!r} takes no NULL, but a row would get one; nothing was changed")
    return conformed.block
