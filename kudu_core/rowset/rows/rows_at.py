"""One rowset as one snapshot sees it: columns with the changes laid over, and which rows live.

``RowsAt`` is what scans and point reads work on, the same for rowsets in memory and on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from kudu_core._ext.changes import delta
from kudu_core._ext.changes.replay import Updates, replay
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.values import raw_bytes
from kudu_core.rowset.rows.delta_view import DeltaView, lay_over, patch_all

_BLOCK_BITS = 18
"""Rows of a block for which changes are looked up at once: four units of a scan."""

_FEW_ROWS = 1 << 14
"""Ranges of fewer rows look for their own changes only."""

_BLOCKS = 8
"""So many (column, block)s are remembered: neighbouring units are read at the same time."""

_LIVENESS = -1
"""Stands for a column id."""


class RowsAt(ABC):
    """Rows ``0 .. rows`` of one rowset at one snapshot.  Safe to use from several threads."""

    in_key_order: bool

    def __init__(self, rows: int, views: tuple[DeltaView, ...]) -> None:
        self.rows = rows
        self.views = views
        self._recent: tuple[tuple[tuple[int, int, int], list[Updates] | None], ...] = ()
        self._touched: dict[int, bool] = {}

    @abstractmethod
    def base(self, column_id: int, lower: int, upper: int) -> tuple[ColumnBuffers | None, bool]:
        """(values before changes, whether they may be written); None: the column is not stored."""

    @abstractmethod
    def base_cells(self, column_id: int, rows: np.ndarray) -> ColumnBuffers | None:
        """Values before changes of single rows, (n,) int64."""

    @abstractmethod
    def inserted_later(self, lower: int, upper: int) -> np.ndarray | None:
        """(n,) bool, true for rows inserted after the snapshot; None: there are none."""

    @abstractmethod
    def inserted_later_cells(self, rows: np.ndarray) -> np.ndarray | None:
        """The same for single rows, (n,) int64."""

    @abstractmethod
    def find(self, keys: EncodedKeys, hashes: np.ndarray) -> np.ndarray:
        """Row that holds each key, live or not, (n,) int64, -1 where none does."""

    @abstractmethod
    def has(self, column_id: int) -> bool:
        """Whether the column was there when the rows were written; else they hold its default."""

    def default_bytes(self, columns: Iterable[StoredColumn]) -> int:
        """What defaults of strings take in a row, of those columns that are not stored."""
        return sum(
            len(raw_bytes(column.type, column.read_default))
            for column in columns
            if not column.type.width and column.read_default is not None and not self.has(column.id)
        )

    @abstractmethod
    def stored_bytes(self, column_id: int) -> float:
        """About how many bytes a cell of a column takes as it is stored, changes aside; 0: it is not."""

    @property
    def all_live(self) -> bool:
        """True only if every row is present at the snapshot."""
        return not any(view.changes_liveness() for view in self.views)

    def touches(self, column_id: int) -> bool:
        """False only if no change that this snapshot sees sets the column."""
        found = self._touched.get(column_id)
        if found is None:
            found = self._touched[column_id] = any(view.touches(column_id) for view in self.views)
        return found

    def parts(
        self, column_id: int, lower: int, upper: int, views: tuple[DeltaView, ...] | None = None
    ) -> list[Updates] | None:
        """What all views (``views``: the last ones) change of a column in rows ``[lower, upper)``; None: ask
        them one by one.

        Neighbouring ranges share what was found for a block of rows that holds them.
        """
        block = lower >> _BLOCK_BITS
        views = self.views if views is None else views
        if upper - lower < _FEW_ROWS or (upper - 1) >> _BLOCK_BITS != block:
            return self._find_parts(column_id, lower, upper, views)
        for key, parts in self._recent:
            if key == (column_id, block, len(views)):
                return parts
        first, end = block << _BLOCK_BITS, min((block + 1) << _BLOCK_BITS, self.rows)
        parts = self._find_parts(column_id, first, end, views)
        self._recent = (((column_id, block, len(views)), parts), *self._recent[: _BLOCKS - 1])
        return parts

    @staticmethod
    def _find_parts(
        column_id: int, lower: int, upper: int, views: tuple[DeltaView, ...]
    ) -> list[Updates] | None:
        found: list[Updates] = []
        for view in views:
            if column_id == _LIVENESS:
                if view.changes_liveness():
                    found += view.liveness_parts(lower, upper)
            elif view.touches(column_id):
                parts = view.parts(column_id, lower, upper)
                if parts is None:
                    return None
                found += parts
        return found

    def column(self, column: StoredColumn, lower: int, upper: int) -> ColumnBuffers:
        """Values of rows ``[lower, upper)`` at the snapshot; dead rows hold anything.

        ``ColumnTooLarge``: ask for fewer rows.
        """
        values, owned = self.base(column.id, lower, upper)
        if values is None:
            values, owned = _default(column, upper - lower), True
        parts = self.parts(column.id, lower, upper) if values.width and upper > lower else None
        if parts is not None:
            return lay_over(values, lower, parts, owned=owned)
        found = (view.updates(column.id, lower, upper) for view in self.views if view.touches(column.id))
        return patch_all(values, lower, [part for part in found if part is not None], owned=owned)

    def columns(self, columns: Sequence[StoredColumn], lower: int, upper: int) -> dict[int, ColumnBuffers]:
        """``column`` of several columns, by id."""
        return {column.id: self.column(column, lower, upper) for column in columns}

    def columns_of(self, columns: Sequence[StoredColumn], rows: np.ndarray) -> dict[int, ColumnBuffers]:
        """Values of rows that ascend strictly and lie close together, (n,) int64, at least one; by id."""
        lower = int(rows[0])
        found = self.columns(columns, lower, int(rows[-1]) + 1)
        return {column_id: values.take(rows - lower) for column_id, values in found.items()}

    def cells(self, column: StoredColumn, rows: np.ndarray) -> ColumnBuffers:
        """Values of single rows, (n,) int64 in any order without repeats."""
        values = self.base_cells(column.id, rows)
        if values is None:
            values = _default(column, len(rows))
        return self.lay_over_cells(column.id, rows, values)

    def lay_over_cells(
        self, column_id: int, rows: np.ndarray, values: ColumnBuffers, places: np.ndarray | None = None
    ) -> ColumnBuffers:
        """The cells of single rows, with what was changed of them laid over; they may be written.

        ``places``: which cells they are, ``(n,)``; None: the first n.
        """
        found = (view.updates_of(column_id, rows) for view in self.views if view.touches(column_id))
        changes = [part for part in found if part is not None]
        if not changes:
            return values
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        here: list[tuple[np.ndarray, ColumnBuffers]] = []
        for rowids, new in changes:
            positions, known = _positions(order, ordered, rowids)
            if not known.all():
                positions, new = positions[known], new.take(np.flatnonzero(known))
            if len(positions):
                here.append(((positions if places is None else places[positions]).astype(np.uint32), new))
        return patch_all(values, 0, here, owned=True)

    def cells_of(self, columns: Sequence[StoredColumn], rows: np.ndarray) -> dict[int, ColumnBuffers]:
        """``cells`` of several columns, by id."""
        return {column.id: self.cells(column, rows) for column in columns}

    def live(self, lower: int, upper: int) -> np.ndarray | None:
        """(n,) uint8, 1 for rows present at the snapshot; None when all of them are."""
        live: np.ndarray | None = None
        parts = self.parts(_LIVENESS, lower, upper) if upper > lower else None
        if parts:
            live = np.ones(upper - lower, np.uint8)
            replay(parts, live, 1, lower, upper - lower)
        # Last: an UNDO record may revive a row of which nothing had been inserted yet.
        later = self.inserted_later(lower, upper)
        if later is not None:
            if live is None:
                return (~later).view(np.uint8)
            live[later] = 0
        return live

    def live_cells(self, rows: np.ndarray) -> np.ndarray:
        """Whether single rows, (n,) int64, are present at the snapshot, (n,) bool."""
        if not len(rows):
            return np.zeros(0, bool)
        if len(rows) > 1 and any(view.changes_liveness() for view in self.views):
            distinct, back = np.unique(rows, return_inverse=True)
            if len(distinct) < len(rows):
                found: np.ndarray = self.live_cells(distinct)[back.reshape(-1)]
                return found
        live = np.ones(len(rows), np.uint8)
        order: np.ndarray | None = None
        for view in self.views:
            if view.changes_liveness():
                changed = view.liveness_of(rows)
                if changed is not None:
                    rowids, present = changed
                    if order is None:
                        order = np.argsort(rows, kind="stable")
                        ordered = rows[order]
                    positions, known = _positions(order, ordered, rowids)
                    delta.set_live(live, 0, positions[known].astype(np.uint32), present[known])
        later = self.inserted_later_cells(rows)
        if later is not None:
            live[later] = 0
        return live.view(np.bool_)


def encoded_keys_of(schema: Schema, columns: dict[int, ColumnBuffers], rows: int) -> EncodedKeys:
    """Encode the key columns of decoded rows."""
    return EncodedKeys.from_columns([(schema.by_id[i], columns[i]) for i in schema.key_ids], rows)


def _default(column: StoredColumn, rows: int) -> ColumnBuffers:
    """What rows written before the column existed hold in it."""
    return ColumnBuffers.constant(column.type, column.read_default, rows)


def _positions(order: np.ndarray, ordered: np.ndarray, rowids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each rowid stands among rows, and which of them do at all; ``ordered``: the rows, ascending, and
    ``order``: where each of them stands."""
    at = np.searchsorted(ordered, rowids)
    at[at == len(ordered)] = 0
    return order[at], ordered[at] == rowids
