"""What `changes` puts together: blocks of changes, of the stores that have changes in a window of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import stable_order
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.memory.memrowset import MemRowSet

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

    @property
    def length(self) -> int:
        """How many rows it has, of those that are asked for."""
        return self.every if self.rows is None else len(self.rows)

    @property
    def every(self) -> int:
        """How many rows it has."""
        return len(self.store) if isinstance(self.store, MemRowSet) else self.store.meta.rows

    def history(self, schema: Schema, since: int, until: int) -> RowSetHistory:
        """What happened to its rows in ``(since, until]``."""
        return RowSetHistory(schema, self.store, since, until, self.rows)


__all__ = ["ChangeBlock", "Store", "WindowStore"]
