"""Changes of one rowset's rows as arrays: out of a store, sorted, put together, and into a DeltaFile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_UPDATE
from kudu_core.cfile.files.delta_format import REDO, in_order
from kudu_core.cfile.files.delta_writer import write_delta_file
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.writing import column_spec
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.rows.meta import DeltaRef, FileRef

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

FOREVER = (1 << 64) - 1
"""A timestamp that no change has."""

ALL_ROWS = 1 << 32


@dataclass(slots=True)
class DeltaEntries:
    """Entries of a DeltaFile before they are sorted."""

    rowids: np.ndarray
    """(n,) uint32."""
    timestamps: np.ndarray | None
    """(n,) uint64, or None: the record's."""
    ops: np.ndarray
    """(n,) uint8."""
    columns: dict[int, tuple[np.ndarray, ColumnBuffers]]
    """By column id: positions of the entries that carry a value (uint32), and the values."""

    def __len__(self) -> int:
        return len(self.rowids)

    def take(self, entries: np.ndarray) -> DeltaEntries:
        """Some of the entries (ascending positions), in the order given."""
        place = np.full(len(self.rowids), -1, np.int64)
        place[entries] = np.arange(len(entries))
        columns = {}
        for column_id, (positions, values) in self.columns.items():
            at = place[positions]
            mine = np.flatnonzero(at >= 0)
            if len(mine):
                columns[column_id] = (at[mine].astype(np.uint32), values.take(mine))
        return DeltaEntries(
            self.rowids[entries],
            None if self.timestamps is None else self.timestamps[entries],
            self.ops[entries],
            columns,
        )

    def moved(self, rowid: np.ndarray) -> DeltaEntries:
        """The same entries at other rowids: ``rowid[old]``."""
        return self.at_rows(rowid[self.rowids])

    def at_rows(self, rows: np.ndarray) -> DeltaEntries:
        """The same entries at these rowids, (n,) int."""
        return DeltaEntries(rows.astype(np.uint32, copy=False), self.timestamps, self.ops, self.columns)

    def within(self, schema: Schema) -> DeltaEntries:
        """Without what was changed in columns that the schema does not have; an update that is left with no
        column is none."""
        columns = {i: part for i, part in self.columns.items() if i in schema.by_id}
        if len(columns) == len(self.columns):
            return self
        kept = self.ops != REDO_UPDATE
        for positions, _ in columns.values():
            kept[positions] = True
        rest = DeltaEntries(self.rowids, self.timestamps, self.ops, columns)
        return rest if kept.all() else rest.take(np.flatnonzero(kept))

    @staticmethod
    def concat(parts: Sequence[DeltaEntries]) -> DeltaEntries:
        """All entries of the parts, each with its timestamp."""
        columns: dict[int, list[tuple[np.ndarray, ColumnBuffers]]] = {}
        first = 0
        for part in parts:
            for column_id, (positions, values) in part.columns.items():
                columns.setdefault(column_id, []).append((positions + np.uint32(first), values))
            first += len(part)
        return DeltaEntries(
            np.concatenate([part.rowids for part in parts]),
            np.concatenate([part.timestamps for part in parts]),
            np.concatenate([part.ops for part in parts]),
            {
                column_id: (
                    np.concatenate([positions for positions, _ in pieces]),
                    ColumnBuffers.concat([values for _, values in pieces]),
                )
                for column_id, pieces in columns.items()
            },
        )

    def _order(self, kind: str) -> np.ndarray:
        """The permutation that sorts the entries, (n,) int64."""
        rowids = self.rowids
        if len(rowids) < 2 or bool((rowids[1:] > rowids[:-1]).all()):
            return np.arange(len(rowids))
        # Entries come in order of time, or all at one; rowid and number in one word sort fastest.
        times = self.timestamps
        if times is not None and in_order(kind, rowids, times):
            return np.arange(len(rowids))
        if times is None or bool((times[1:] >= times[:-1]).all()):
            numbers = np.arange(len(rowids), dtype=np.uint64)
            last = np.uint64(len(rowids) - 1)
            if times is not None and kind != REDO:
                numbers = last - numbers
            words = (rowids.astype(np.uint64) << np.uint64(32)) | numbers
            words.sort()
            order = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
            return int(last) - order if times is not None and kind != REDO else order
        return np.lexsort((times if kind == REDO else ~times, rowids))

    def in_order(self, kind: str) -> DeltaEntries:
        """Sorted by rowid, then by time: ascending for REDO, descending for UNDO."""
        order = self._order(kind)
        columns = {}
        carries = np.empty(len(order), np.int64)
        for column_id, (positions, values) in self.columns.items():
            if len(positions) == len(order) and bool((positions[1:] > positions[:-1]).all()):
                # Every entry has a value.
                columns[column_id] = (np.arange(len(order), dtype=np.uint32), values.take(order))
                continue
            carries.fill(-1)
            carries[positions] = np.arange(len(positions))
            source = carries[order]
            at = np.flatnonzero(source >= 0)
            columns[column_id] = (at.astype(np.uint32), values.take(source[at]))
        return DeltaEntries(
            self.rowids[order],
            None if self.timestamps is None else self.timestamps[order],
            self.ops[order],
            columns,
        )

    def united(self, kind: str) -> DeltaEntries:
        """Sorted, and one entry where several tell of one change of a row: each of other columns."""
        entries = self.in_order(kind)
        if not len(entries):
            return entries
        times = entries.timestamps
        assert times is not None
        first = np.ones(len(entries), bool)
        first[1:] = (entries.rowids[1:] != entries.rowids[:-1]) | (times[1:] != times[:-1])
        if first.all():
            return entries
        place = np.cumsum(first) - 1
        assert (entries.ops[first][place] == entries.ops).all(), "one change that is of two kinds"
        columns = {i: (place[at].astype(np.uint32), values) for i, (at, values) in entries.columns.items()}
        return DeltaEntries(entries.rowids[first], times[first], entries.ops[first], columns)


def write_deltas(
    fs: FileSystem, schema: Schema, directory: str, name: str, kind: str, entries: DeltaEntries
) -> DeltaRef:
    """Write entries to one DeltaFile, fsynced; its name is not.

    A file without timestamps gets zeros here; whoever knows its record's puts it in with ``stamped``.
    """
    entries = entries.in_order(kind)
    columns = {
        column_id: (column_spec(schema, schema.by_id[column_id]), positions, values)
        for column_id, (positions, values) in entries.columns.items()
        if column_id in schema.by_id
    }
    written = write_delta_file(
        fs, f"{directory}/{name}", kind, entries.rowids, entries.timestamps, entries.ops, columns
    )
    return DeltaRef(
        file=FileRef.of(name, written),
        entries=written.entries,
        min_ts=written.min_ts or 0,
        max_ts=written.max_ts or 0,
        record_ts=None,
        liveness=written.delete_count + written.reinsert_count,
        updates=written.updates,
    )


def entries_of(log: ChangeLog) -> DeltaEntries:
    """All changes of a DeltaMemStore that has some."""
    entries = _of_log(log, 0, FOREVER, None)
    assert entries is not None
    return entries


def entries_of_file(store: DeltaStore) -> DeltaEntries:
    """All entries of a DeltaFile, each with its timestamp."""
    return _of_file(store, 0, ALL_ROWS, None)


def changes_between(
    store: DeltaStore | ChangeLog,
    since: int,
    until: int = FOREVER,
    rows: tuple[int, int] = (0, ALL_ROWS),
    columns: Collection[int] | None = None,
) -> DeltaEntries | None:
    """The entries in ``(since, until]`` of rows ``[lower, upper)``, each with its timestamp; None: none.

    ``columns``: those that are asked for, None: all.  In the store's order.
    """
    lower, upper = rows
    if isinstance(store, ChangeLog):
        entries = _of_log(store, since, until, columns)
        if entries is None:
            return None
        keep = (entries.rowids >= lower) & (entries.rowids < upper)
    else:
        if store.ref.max_ts <= since or store.ref.min_ts > until:
            return None
        entries = _of_file(store, lower, upper, columns)
        assert entries.timestamps is not None
        keep = (entries.timestamps > np.uint64(since)) & (entries.timestamps <= np.uint64(until))
    if not keep.all():
        entries = entries.take(np.flatnonzero(keep))
    return entries if len(entries) else None


def _of_log(log: ChangeLog, since: int, until: int, wanted: Collection[int] | None) -> DeltaEntries | None:
    first, last = log.limit(since), log.limit(until)
    if first >= last:
        return None
    timestamps, rowids, ops = log.changes(first, last)
    columns = {}
    for column_id in log.column_ids:
        if wanted is None or column_id in wanted:
            numbers, _, values = log.column_changes(column_id, first, last)
            if len(numbers):
                columns[column_id] = (numbers - np.uint32(first), values)
    return DeltaEntries(rowids, timestamps, ops, columns)


def _of_file(store: DeltaStore, lower: int, upper: int, wanted: Collection[int] | None) -> DeltaEntries:
    rowids, timestamps, ops, columns = store.open().changes(lower, upper, wanted)
    if timestamps is None:
        assert store.ref.record_ts is not None
        timestamps = np.full(len(rowids), store.ref.record_ts, np.uint64)
    return DeltaEntries(rowids, timestamps, ops, columns)


def replaced_values(
    entries: DeltaEntries,
    column_id: int,
    before: Callable[[np.ndarray], ColumnBuffers],
    above: int | None = None,
) -> tuple[np.ndarray, ColumnBuffers]:
    """What the updates of a column replaced: (positions in ``entries``, old values).

    ``entries`` in REDO order; ``before`` gives the values of rows (int64, ascending) before all of them.
    ``above``: only of updates after that time.
    """
    positions, values = entries.columns[column_id]
    rowids = entries.rowids[positions]
    # Sorted by row and time: what an update replaced is the update before it, or the base.
    first = np.ones(len(rowids), bool)
    first[1:] = rowids[1:] != rowids[:-1]
    source = np.arange(len(rowids), dtype=np.int64) - 1
    wanted = np.ones(len(rowids), bool)
    if above is not None:
        assert entries.timestamps is not None
        wanted = entries.timestamps[positions] > np.uint64(above)
    starts = np.flatnonzero(first & wanted)
    source[starts] = len(rowids) + np.arange(len(starts))
    pool = ColumnBuffers.concat([values, before(rowids[starts].astype(np.int64))])
    kept = np.flatnonzero(wanted)
    return positions[kept], pool.take(source[kept])


__all__ = [
    "ALL_ROWS",
    "FOREVER",
    "DeltaEntries",
    "changes_between",
    "entries_of",
    "entries_of_file",
    "replaced_values",
    "write_deltas",
]
