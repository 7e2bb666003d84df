"""What `changes` puts together: blocks of changes, of the stores that have changes in a window of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import stable_order
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.window import concerned
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.opened.tablets import NEWEST

Store = MemRowSet | DiskRowSet


@dataclass(slots=True)
class ChangeBlock:
    """Changes of one store, or of several put together."""

    timestamps: np.ndarray
    ops: np.ndarray
    after: dict[int, ColumnBuffers]
    before: dict[int, ColumnBuffers]
    """Empty where nobody asked."""

    def __len__(self) -> int:
        return len(self.ops)

    def take(self, rows: np.ndarray) -> ChangeBlock:
        return ChangeBlock(
            self.timestamps[rows],
            self.ops[rows],
            {i: c.take(rows) for i, c in self.after.items()},
            {i: c.take(rows) for i, c in self.before.items()},
        )

    def by_time(self) -> ChangeBlock:
        """The changes in the order of their times."""
        order = stable_order(self.timestamps)
        return self if order is None else self.take(order)

    @staticmethod
    def concat(parts: Sequence[ChangeBlock]) -> ChangeBlock:
        if len(parts) == 1:
            return parts[0]
        return ChangeBlock(
            np.concatenate([p.timestamps for p in parts]),
            np.concatenate([p.ops for p in parts]),
            {i: ColumnBuffers.concat([p.after[i] for p in parts]) for i in parts[0].after},
            {i: ColumnBuffers.concat([p.before[i] for p in parts]) for i in parts[0].before},
        )


@dataclass(slots=True)
class WindowStore:
    """A store of a tablet, in a window of time."""

    store: Store
    dropped_ts: int | None
    """When its tablet ended, if that is in the window."""
    rows: np.ndarray | None = None
    """Those that are asked for, (n,) int64 that ascend strictly; None: all."""
    since: int = 0
    until: int = NEWEST
    """Where the table got other partitions: what is told of the store lies in ``(since, until]``.  At the one
    end its tablet took over the rows of others, at the other end others took over its own."""
    era: int = 0
    """How often the table had got other partitions when its tablet began, in the window or before."""

    def within(self, since: int, until: int) -> tuple[int, int]:
        """The part of a window in which something is told of the store."""
        return max(since, self.since), min(until, self.until)

    def concerns(self, since: int, until: int) -> bool:
        """Whether something may be told of it in a window."""
        first, last = self.within(since, until)
        return first < last and concerned(self.store, first, last)

    @property
    def length(self) -> int:
        """How many rows it has, of those that are asked for."""
        return self.every if self.rows is None else len(self.rows)

    @property
    def every(self) -> int:
        """How many rows it has."""
        return len(self.store) if isinstance(self.store, MemRowSet) else self.store.meta.rows

    def history(self, schema: Schema, since: int, until: int) -> RowSetHistory:
        """What happened to its rows in ``(since, until]``, as far as it is told of the store."""
        first, last = self.within(since, until)
        return RowSetHistory(schema, self.store, first, max(first, last), self.rows)


class TakenRows:
    """Which rows are taken of each of some columns."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self._in_order = bool((rows == np.arange(len(rows))).all())

    def of(self, column: ColumnBuffers) -> ColumnBuffers:
        return column if self._in_order and column.length == len(self._rows) else column.take(self._rows)


def same_cells(old: ColumnBuffers, new: ColumnBuffers, column: StoredColumn) -> np.ndarray:
    """Whether cells are equal, NULL to NULL and bit by bit, (n,) bool."""
    left, right = old.valid_mask(), new.valid_mask()
    if old.width in (1, 2, 4, 8):
        a, b = (c.values[: c.length * c.width].view(f"<u{c.width}") for c in (old, new))
        equal = a == b
    elif old.width:
        a, b = (c.values[: c.length * c.width].reshape(c.length, c.width) for c in (old, new))
        equal = (a == b).all(axis=1)
    else:
        filled = pc.equal(old.to_arrow(column.type), new.to_arrow(column.type)).fill_null(False)
        equal = filled.to_numpy(zero_copy_only=False)
    same: np.ndarray = (left == right) & (equal | ~left)
    return same


__all__ = ["ChangeBlock", "Store", "TakenRows", "WindowStore", "same_cells"]
