"""``set=`` and ``values=``: what columns get, from expressions over both rows, or as values for every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.arrow_in import batches
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.common.where.rewritten import plain
from kudu_core.errors import InvalidArgument, SchemaMismatch
from kudu_core.table.merge.sides import Column, Sided, sided, values


@dataclass(frozen=True, slots=True)
class Assigned:
    """Columns and what they get, checked against one schema."""

    schema: Schema
    place: str
    """For messages."""
    expressions: Mapping[str, Sided]
    literals: Mapping[str, Any]
    """As they were given."""
    cells: pa.RecordBatch | None
    """One row of the literals."""

    @staticmethod
    def of(schema: Schema, given: Mapping[str, Any], bare: str, place: str) -> Assigned:
        """``bare``: as of ``sides.sided``.  ``InvalidArgument``: a column is unknown or of the key."""
        if not isinstance(given, Mapping) or not given:
            raise InvalidArgument(f"{place}: a mapping from columns to values or expressions, not {given!r}")
        expressions: dict[str, Sided] = {}
        literals: dict[str, Any] = {}
        for name, value in given.items():
            column = schema.seen(name)
            if column.name in schema.key_names:
                raise InvalidArgument(
                    f"{place}: {name!r} is a key column; a key does not change, and a new row has that given"
                )
            if isinstance(value, pc.Expression):
                expressions[name] = sided(schema, value, bare)
            else:
                literals[name] = value
        made = Assigned(schema, place, expressions, literals, _cells(schema, literals, place))
        made._check()
        return made

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.expressions, *self.literals)

    def block(self, column: Column, rows: int) -> tuple[RowBlock, np.ndarray | None]:
        """The new cells of some rows as they are stored, and which rows are refused for a NULL, (rows,) uint8
        or None."""
        arrays: list[pa.Array] = []
        if self.expressions:
            arrays += values(self.expressions, column, rows, self.place)
        if self.cells is not None:
            every = pa.array(np.zeros(rows, np.int64))
            arrays += [array.take(every) for array in self.cells.columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=[*self.names])
        try:
            made = conform(self.schema, batch, required=(), stored=not self.schema.nested)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"{self.place}: {error}") from None
        return made.block, made.status

    def _check(self) -> None:
        """Columns of the table that are named but not there are found before anything is locked."""
        for made in self.expressions.values():
            for name in sorted(made.old):
                self.schema.seen(name)

    def said(self) -> dict[str, Any]:
        """All of it as expressions, for a fingerprint."""
        said = {name: made.expression for name, made in self.expressions.items()}
        if self.cells is not None:
            said |= {
                name: pc.scalar(cell[0]) for name, cell in zip(self.literals, self.cells.columns, strict=True)
            }
        return said


def _cells(schema: Schema, literals: Mapping[str, Any], place: str) -> pa.RecordBatch | None:
    """Values that every row gets, as one row; ``SchemaMismatch`` names the column."""
    if not literals:
        return None
    arrays: list[pa.Array] = []
    for name, value in literals.items():
        if isinstance(value, pa.Scalar):
            arrays.append(plain(pa.repeat(value, 1)))
            continue
        try:
            [batch] = batches({name: [value]}, schema)
        except InvalidArgument as error:
            raise type(error)(f"{place}: {error}") from None
        arrays.append(plain(batch.column(0)))
    return pa.RecordBatch.from_arrays(arrays, names=[*literals])


__all__ = ["Assigned"]
