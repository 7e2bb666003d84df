"""Rows that were brought into the form of a schema which an ALTER has replaced meanwhile.

As if they had come after it: columns that were dropped are left out, a NULL in a column that takes none any
more refuses its row, and a field that was added to a struct is NULL in the structs that a row gives whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow.compute as pc

from kudu_core._ext.rules.decide import NULL_IN_REQUIRED
from kudu_core.common.rows.recast.recast_columns import column_fits, recast_column
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.widening import changes_cells, most_decimal, narrows
from kudu_core.errors import SchemaMismatch

_SEPARATORS = ".:["


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
        self._added = list(_added(before, after))

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

    def added(self, given: Collection[int]) -> list[StoredColumn]:
        """Columns that rows with these have besides now, with the cell of rows that are older than those."""
        return [column for column, beside in self._added if beside.issubset(given)]

    def block(self, block: RowBlock) -> RowBlock:
        columns = {i: self.cells(i, column) for i, column in block.columns.items() if i in self._known}
        for column in self.added(columns):
            columns[column.id] = ColumnBuffers.constant(column.type, column.read_default, block.rows)
        return RowBlock(columns, block.rows)

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


def _added(before: Schema, after: Schema) -> Iterator[tuple[StoredColumn, frozenset[int]]]:
    """Leaves of fields that were added to a struct, each with the older leaves of that struct."""
    for nested in after.nested:
        old = {after.by_id[id_].name: id_ for id_ in nested.ids if id_ in before.by_id}
        for id_ in nested.ids if old else ():
            if id_ not in before.by_id:
                column = after.by_id[id_]
                yield column, frozenset(_beside(column.name, old))


def _beside(name: str, old: Mapping[str, int]) -> Collection[int]:
    """Of the leaves by their names, those of the innermost place that has some, and a leaf of this name."""
    for at in reversed([at for at, character in enumerate(name) if character in _SEPARATORS]):
        place = name[:at]
        inside = tuple(f"{place}{separator}" for separator in _SEPARATORS)
        found = [id_ for other, id_ in old.items() if other.startswith(inside)]
        if found:
            return found
    return ()


__all__ = ["Refit"]
