"""Data of a write call brought into the table's shape: checked, cast, as a ``RowBlock``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kudu_core._ext.columns import bitmaps
from kudu_core._ext.rules.decide import NULL_IN_REQUIRED
from kudu_core.common.rows.flattened import flat_batch
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock, U8Array
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.casts import cast
from kudu_core.common.types.foreign import broken, extent_of, names_of
from kudu_core.common.types.stored_arrays import check_stored
from kudu_core.errors import SchemaMismatch


@dataclass(slots=True, eq=False)
class Conformed:
    """One batch in the table's types."""

    block: RowBlock
    """The columns that were given, by id, key columns first in key order."""
    given: frozenset[int]
    extra: dict[str, pa.Array]
    """Columns of ``allow_extra`` that were there, as they came."""
    status: U8Array | None
    """(rows,) ``NULL_IN_REQUIRED`` where a NOT NULL column is null; None when there is no such row."""


def conform(
    schema: Schema,
    batch: pa.RecordBatch,
    *,
    required: Iterable[str] | None = None,
    allow_extra: Collection[str] = (),
    first_row: int = 0,
    stored: bool = False,
) -> Conformed:
    """Check a batch against the schema and cast it.

    Parameters
    ----------
    required : names that must be among the batch's columns; None = the key columns
    allow_extra : names that are not the table's, handed back uncast and unchecked
    first_row : number of the batch's first row in the call, for messages
    stored : columns may also come as they are stored

    Raises
    ------
    SchemaMismatch
        A column is unknown, there twice, missing, or holds what its type cannot.  A NULL in a
        column that takes none is a matter of its row: see ``Conformed.status``.
    """
    needed: Collection[str] = ()
    leaves: Collection[str] = ()
    if schema.nested:
        batch, needed, leaves = flat_batch(schema, batch, allow_extra, first_row, stored=stored)
    positions = _positions(schema, names_of(batch.schema), allow_extra)
    missing = [n for n in (schema.key_names if required is None else required) if n not in positions]
    if missing:
        raise SchemaMismatch(f"column {missing[0]!r} is missing; {_columns_of(schema)}")
    columns: dict[int, ColumnBuffers] = {}
    status: U8Array | None = None
    for column in schema.keys_first(positions.keys()):
        position = positions[column.name]
        given = batch.column(position)
        rows, _ = extent_of(given, column.name)
        if rows != batch.num_rows:
            raise broken(column.name, f"{rows} rows in a batch of {batch.num_rows}")
        if (stored or column.name in leaves) and given.type == column.type.arrow:
            check_stored(given, column.type, column.name, first_row)
            array = given
        else:
            array = cast(given, column.type, column.name, first_row)
        buffers = ColumnBuffers.from_arrow(array, column.type, column.name, first_row)
        columns[column.id] = buffers
        if buffers.validity is not None and (not column.nullable or column.name in needed):
            status = _mark_nulls(status, buffers)
    extra = {name: batch.column(positions[name]) for name in allow_extra if name in positions}
    return Conformed(RowBlock(columns, batch.num_rows), frozenset(columns), extra, status)


def _positions(schema: Schema, names: list[str], allow_extra: Collection[str]) -> dict[str, int]:
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        if name not in schema.by_name and name not in allow_extra:
            raise SchemaMismatch(f"column {name!r} is unknown; {_columns_of(schema)}")
        if name in positions:
            raise SchemaMismatch(f"column {name!r} is there twice")
        positions[name] = position
    return positions


def _mark_nulls(status: U8Array | None, column: ColumnBuffers) -> U8Array | None:
    assert column.validity is not None
    valid = bitmaps.bits_to_bytes(column.validity, column.length)
    if valid.all():
        return status
    if status is None:
        status = np.zeros(column.length, np.uint8)
    status[valid == 0] = NULL_IN_REQUIRED
    return status


def _columns_of(schema: Schema) -> str:
    return f"the table has {', '.join(schema.declared_names)}"
