"""Changes gathered for one DeltaFile, and the walk of a delta flush (PROTOCOL D1 to D3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.cfile.delta_file import REDO, write_delta_file
from kudu_core.common.rowblock import ColumnBuffers
from kudu_core.common.schema import Schema
from kudu_core.rowset.changelog import ChangeLog
from kudu_core.rowset.deltas import UPDATE
from kudu_core.rowset.deltastore import DeltaStore
from kudu_core.rowset.diskrowset import DiskRowSet
from kudu_core.rowset.meta import DeltaRef, FileRef
from kudu_core.rowset.writing import column_spec, discard
from kudu_core.tablet.manifest import Edit
from kudu_core.tablet.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


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
        return DeltaEntries(rowid[self.rowids], self.timestamps, self.ops, self.columns)

    def within(self, schema: Schema) -> DeltaEntries:
        """Without what was changed in columns that the schema does not have; an update that is left with no
        column is none."""
        columns = {i: part for i, part in self.columns.items() if i in schema.by_id}
        if len(columns) == len(self.columns):
            return self
        kept = self.ops != UPDATE
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
        file=FileRef(name, written.size, written.footer_crc),
        entries=written.entries,
        min_ts=written.min_ts or 0,
        max_ts=written.max_ts or 0,
        record_ts=None,
        liveness=written.delete_count + written.reinsert_count,
        updates=written.updates,
    )


def entries_of(log: ChangeLog) -> DeltaEntries:
    """All changes of a DeltaMemStore."""
    count = len(log)
    timestamps, rowids, ops = log.changes(0, count)
    columns = {}
    for column_id in log.column_ids:
        numbers, _, values = log.column_changes(column_id, 0, count)
        columns[column_id] = (numbers, values)
    return DeltaEntries(rowids, timestamps, ops, columns)


def entries_of_file(store: DeltaStore) -> DeltaEntries:
    """All entries of a DeltaFile, each with its timestamp."""
    file = store.open()
    rowids, timestamps, ops = file.entries()
    if timestamps is None:
        assert store.ref.record_ts is not None
        timestamps = np.full(len(rowids), store.ref.record_ts, np.uint64)
    columns = {}
    for column_id in file.column_ids:
        _, _, positions, values = file.updates_with_entries(column_id)
        columns[column_id] = (positions, values)
    return DeltaEntries(rowids, timestamps, ops, columns)


def flush_deltas(tablet: Tablet, rowset_id: int) -> int:
    """Write a rowset's DeltaMemStores to REDO files and install them; return how many.

    Raises
    ------
    OSError
        Nothing of the failed file was installed; the frozen store stays in its place and is tried
        again.
    """
    with tablet.flush_lane:
        tablet.check_open()
        with tablet.mutex:
            rowset = tablet.view.rowset(rowset_id)
            if rowset is None:
                return 0
            _freeze(tablet, rowset)
        done = 0
        while True:
            rowset = tablet.view.rowset(rowset_id)
            frozen = None if rowset is None else _oldest_frozen(rowset)
            if rowset is None or frozen is None:
                return done
            _flush(tablet, rowset_id, frozen)
            done += 1


def _freeze(tablet: Tablet, rowset: DiskRowSet) -> None:
    """Under the mutex: no change goes to the active store any more; it keeps its place (D1)."""
    if rowset.active is not None:
        rowset.active.frozen_at = tablet.context.cut()


def _oldest_frozen(rowset: DiskRowSet) -> ChangeLog | None:
    return next((s for s in rowset.memory_stores if s.frozen_at is not None), None)


def write_store(tablet: Tablet, store: ChangeLog, written: list[str]) -> DeltaRef | None:
    """A frozen DeltaMemStore as a REDO file; None when it is empty."""
    if not len(store):
        return None
    schema = tablet.context.stored()
    entries = entries_of(store).within(schema)
    if not len(entries):
        return None
    name = tablet.new_file("delta")
    written.append(f"{tablet.directory}/{name}")
    return write_deltas(tablet.context.fs, schema, tablet.directory, name, REDO, entries)


def _flush(tablet: Tablet, rowset_id: int, frozen: ChangeLog) -> None:
    context = tablet.context
    cut = frozen.frozen_at
    assert cut is not None and context.log is not None
    written: list[str] = []
    try:
        ref = write_store(tablet, frozen, written)
        tablet.sync_directory()
        context.log.wait_durable(cut)
    except BaseException:
        discard(context.fs, written)
        raise
    with tablet.mutex:
        rowset = tablet.view.rowset(rowset_id)
        if rowset is None or not any(s is frozen for s in rowset.redo):
            discard(context.fs, written)  # the rowset left the view, or an ingest was faster (D3)
            return
        rowset = rowset.with_flushed(frozen, ref, cut)
        tablet.install(tablet.view.with_rowset(rowset), Edit(add=(rowset.meta,)))
    assert tablet.manifest is not None
    tablet.manifest.sync()


def freeze_and_write(
    tablet: Tablet, rowset: DiskRowSet, written: list[str]
) -> list[tuple[ChangeLog, DeltaRef | None]]:
    """Under the mutex: every DeltaMemStore of a rowset, closed and written (PROTOCOL G3)."""
    _freeze(tablet, rowset)
    return [(store, write_store(tablet, store, written)) for store in rowset.memory_stores]
