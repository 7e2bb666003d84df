"""What the inputs of a merge tell of their rows: changes, older values, deletions, and copies of one key.

Rows without a past are told of by nothing here.  Only the entries of delta files, and keys that several
inputs hold, are looked at one by one, and these as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, UNDO_ALIVE, UNDO_UPDATE
from kudu_core.cfile.files.delta_format import REDO
from kudu_core.common.run.ordering import distinct
from kudu_core.errors import Corruption
from kudu_core.rowset.disk.entries import DeltaEntries, changes_between
from kudu_core.rowset.history.joining import NEVER, Copies, Joined, LifetimeTurns, Unjoinable, join
from kudu_core.rowset.history.merging import MergedRows, SourceRows
from kudu_core.tablet.compact.merge_task import MergeTask


@dataclass(slots=True, eq=False)
class Past:
    """What the delta stores of one source say of its rows."""

    changes: DeltaEntries | None
    """REDO through the cut, in its order."""
    undo: DeltaEntries | None
    """UNDO above the horizon."""
    deleted: tuple[np.ndarray, np.ndarray]
    """(rows source after source int64, timestamps)."""


def past_of(task: MergeTask, part: SourceRows, start: int) -> Past:
    """Of the rows of one source, which are numbered from ``start`` on."""
    rowset, rows = part.source.rowset, (part.lower, part.upper)
    changes = _known(task, [changes_between(store, 0, task.cut, rows) for store in rowset.redo])
    undo = _known(task, [changes_between(store, task.horizon, rows=rows) for store in rowset.undo])
    if changes is None:
        return Past(None, undo, (np.empty(0, np.int64), np.empty(0, np.uint64)))
    changes = changes.in_order(REDO)
    at = np.flatnonzero(changes.ops == REDO_DELETE)
    assert changes.timestamps is not None
    deleted = changes.rowids[at].astype(np.int64) + (start - part.lower), changes.timestamps[at]
    return Past(changes, undo, deleted)


def _known(task: MergeTask, found: list[DeltaEntries | None]) -> DeltaEntries | None:
    """What several stores say of the columns that there are."""
    some = [entries for part in found if part is not None and len(entries := part.within(task.schema))]
    return DeltaEntries.concat(some) if some else None


@dataclass(slots=True, eq=False)
class SharedKeys:
    """The rows whose key several sources hold."""

    numbers: np.ndarray
    """(copies,) int64: the rows, source after source."""
    at: np.ndarray
    """(copies,) int64: their places in the order of keys."""
    key: np.ndarray
    """(copies,) int64: number of the key, from 0."""
    of: np.ndarray
    """(rows,) int64: the number of the copy that a row is, -1 where no other row has its key."""
    joined: Joined
    told: dict[int, np.ndarray]
    """By source: which of its UNDO entries are told by an insert time now."""

    @staticmethod
    def found(
        task: MergeTask, merged: MergedRows, pasts: list[Past], deleted: tuple[np.ndarray, np.ndarray]
    ) -> SharedKeys:
        rows = len(merged)
        assert merged.repeated is not None
        shared = merged.repeated.copy()
        shared[:-1] |= merged.repeated[1:]
        at = np.flatnonzero(shared)
        numbers = merged.order()[at]
        key = np.cumsum(~merged.repeated[at]) - 1
        of = np.full(rows, -1, np.int64)
        of[numbers] = np.arange(len(at))
        ends = np.full(rows, NEVER, np.uint64)
        ends[deleted[0]] = deleted[1]
        turns = _turns(merged, pasts, of)
        copies = Copies(key, merged.insert_times_of(numbers), ends[numbers])
        try:
            joined = join(copies, LifetimeTurns(*(np.concatenate(part) for part in turns[:3])), task.horizon)
        except Unjoinable as exc:
            row = int(at[np.searchsorted(key, exc.key)])
            raise Corruption(task.place.directory, 0, f"key {merged.keys[row]!r:.200}: {exc}") from exc
        entries = np.concatenate(turns[3])[joined.told]
        which = np.repeat(np.arange(len(pasts)), [len(part) for part in turns[0]])[joined.told]
        told = {number: entries[which == number] for number in distinct(which).tolist()}
        return SharedKeys(numbers, at, key, of, joined, told)


def _turns(merged: MergedRows, pasts: list[Past], of: np.ndarray) -> tuple[list[np.ndarray], ...]:
    """Source by source: copies, timestamps, whether a lifetime ended, numbers of the UNDO entries."""
    turns: tuple[list[np.ndarray], ...] = ([], [], [], [])
    for part, start, past in zip(merged.source_rows, merged.starts.tolist(), pasts, strict=False):
        found = np.empty(0, np.int64)
        undo = past.undo
        if undo is not None:
            copy = of[undo.rowids.astype(np.int64) + (start - part.lower)]
            found = np.flatnonzero((undo.ops != UNDO_UPDATE) & (copy >= 0))
        if undo is None or not len(found):
            for column, dtype in zip(turns, (np.int64, np.uint64, np.bool_, np.int64), strict=True):
                column.append(np.empty(0, dtype))
            continue
        assert undo.timestamps is not None
        turns[0].append(copy[found])
        turns[1].append(undo.timestamps[found])
        turns[2].append(undo.ops[found] == UNDO_ALIVE)
        turns[3].append(found)
    return turns


__all__ = ["Past", "SharedKeys", "past_of"]
