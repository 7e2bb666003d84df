"""Rows of a rowset by an index of the table: those that may hold an answer.

An index gives rows by their cells before any change.  A row that a visible change gives another cell of an
indexed column, in whichever direction of time, is a candidate beside them.  The predicate is tested on all
candidates as on rows that zone maps leave, so an index is right at every snapshot, and only ever a shortcut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.rowset.disk.cell_order import order_of

if TYPE_CHECKING:
    from kudu_core.common.where.sets import ValueSet
    from kudu_core.rowset.disk.diskrowset import DiskRowsAt

_FEW_ROWS = 1 << 12
"""So many rows are tested as fast as they are looked up."""
_GOOD_PART = 16
"""An index that leaves more than this part of the rows is of no use: pages are read whole then."""


@dataclass(frozen=True, slots=True)
class ColumnsIndex:
    """An index as scans know it."""

    name: str
    id: int
    column_ids: tuple[int, ...]
    only_known: bool = False
    """Whether it is used only where the order of the cells is in the page cache already."""

    def tested(self, sets: Mapping[int, ValueSet]) -> tuple[int, ...]:
        """Its first columns of which a predicate says something."""
        return tuple(takewhile(sets.__contains__, self.column_ids))


def by_index(
    source: DiskRowsAt, sets: Mapping[int, ValueSet], indexes: Sequence[ColumnsIndex], rows: int
) -> tuple[str, np.ndarray] | None:
    """The index used, and ranges of rows (m, 2) outside of which no row passes; None: no index is of use.

    ``sets``: by column, values that all rows have that pass; NULL is in none.  ``rows``: how many are left
    without an index.
    """
    if rows <= _FEW_ROWS:
        return None
    fitting = [one for one in indexes if one.tested(sets) and all(map(source.file.has, one.column_ids))]
    for index in sorted(fitting, key=lambda one: -len(one.tested(sets))):
        tested = index.tested(sets)
        order = order_of(source, index.id, index.column_ids, make=not index.only_known)
        if order is None:
            continue
        spans = order.spans([sets[column_id] for column_id in tested])
        counts = spans[:, 1] - spans[:, 0]
        most = rows // _GOOD_PART
        if int(counts.sum()) > most:
            continue
        found = order.rows[_listed(spans[:, 0], counts)]
        changed = _changed(source, tested)
        if changed is not None:
            found = np.concatenate([found, changed])
        if len(found) <= most:
            return index.name, _ranges(found)
    return None


def _listed(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """All numbers of some ranges."""
    if len(first) == 1:
        return np.arange(int(first[0]), int(first[0] + counts[0]))
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))


def _changed(source: DiskRowsAt, column_ids: Sequence[int]) -> np.ndarray | None:
    """Rows with a visible change of one of the columns, some of them perhaps more than once."""
    found = []
    for view in source.views:
        for column_id in filter(view.touches, column_ids):
            updates = view.updates(column_id, 0, source.rows)
            if updates is not None:
                found.append(updates[0])
    return np.concatenate(found) if found else None


def _ranges(rows: np.ndarray) -> np.ndarray:
    """Rows in any order as ranges, ascending and apart, (m, 2) int64."""
    rows = np.sort(rows.astype(np.int64))
    if not len(rows):
        return np.empty((0, 2), np.int64)
    gaps = np.flatnonzero(np.diff(rows) > 1)
    first = rows[np.concatenate(([0], gaps + 1))]
    last = rows[np.concatenate((gaps, [len(rows) - 1]))]
    return np.stack([first, last + 1], axis=1)


__all__ = ["ColumnsIndex", "by_index"]
