"""Rows that were brought into the form of a schema which an ALTER has replaced meanwhile.

As if they had come after it: columns that were dropped are left out, and a NULL in a column that takes none
any more refuses its row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from kudu_core._ext.rules.decide import NULL_IN_REQUIRED
from kudu_core.common.rows.recast_columns import column_fits, recast_column
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.widening import changes_cells, most_decimal, narrows
from kudu_core.errors import SchemaMismatch


class Refit:
    """From one version of a schema into a later one."""

    def __init__(self, before: Schema, after: Schema) -> None:
        self._known = after.by_id
        pairs = [(before.by_id[i], column) for i, column in after.by_id.items() if i in before.by_id]
        self._narrower = {new.id: new for old, new in pairs if narrows(old.type, new.type)}
        self._recast = {
            new.id: (new.name, old.type.value, new.type.value)
            for old, new in pairs
            if changes_cells(old.type, new.type)
        }
        self._required = frozenset(new.id for old, new in pairs if old.nullable and not new.nullable)
        self.is_other = any(
            (old.type, old.nullable, old.write_default) != (new.type, new.nullable, new.write_default)
            for old, new in pairs
        )
        """Whether what was made of rows before, as a rowset, may not be what is made of them now."""

    def keeps(self, column_id: int) -> bool:
        return column_id in self._known

    @property
    def required(self) -> frozenset[int]:
        """Columns that take no NULL any more."""
        return self._required

    def cells(self, column_id: int, column: ColumnBuffers) -> ColumnBuffers:
        """The cells of a column as they are stored now; ``SchemaMismatch``: one is no value of its type."""
        if column_id in self._recast:
            name, old, new = self._recast[column_id]
            if not column_fits(column, old, new):
                raise SchemaMismatch(f"column {name!r} has become {new} meanwhile: a value of {old} is none")
            return recast_column(column, old, new)
        found = self._narrower.get(column_id)
        if found is not None:
            most = most_decimal(found.type)
            given = pc.min_max(column.to_arrow(found.type)).as_py()
            if given["min"] is not None and not -most <= given["min"] <= given["max"] <= most:
                raise SchemaMismatch(
                    f"column {found.name!r} has become {found.type} meanwhile: {given['max']} is none"
                )
        return column

    def block(self, block: RowBlock) -> RowBlock:
        return RowBlock(
            {i: self.cells(i, column) for i, column in block.columns.items() if i in self._known}, block.rows
        )

    def status(
        self, columns: Mapping[int, ColumnBuffers], rows: int, status: np.ndarray | None
    ) -> np.ndarray | None:
        """(rows,) uint8 as ``Call.status``, with the rows that cannot be taken any more."""
        for column_id in self._required & columns.keys():
            column = columns[column_id]
            if column.validity is not None and column.null_count:
                status = np.zeros(rows, np.uint8) if status is None else status.copy()
                status[~column.valid_mask() & (status == 0)] = NULL_IN_REQUIRED
        return status


__all__ = ["Refit"]
