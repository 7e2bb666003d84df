"""The walk of a delta compaction: REDO files of one rowset become fewer, or new base columns.

The rules are protocol M1 to M3.

Minor merges the first REDO files into one and keeps every version.  Major folds the updates of chosen
columns into columns written anew and puts what they held before into an UNDO file; deletions and the
other columns stay in one REDO file.  Rowids do not move, memory is never an input, and scans,
writes and delta flushes go on beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_UPDATE, UNDO_UPDATE
from kudu_core.cfile.files.delta_format import REDO, UNDO
from kudu_core.cfile.files.rows_writer import RowsFileSpec, write_rows_file
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.locks import Claim
from kudu_core.common.run.ordering import distinct
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.disk.entries import DeltaEntries, entries_of_file, replaced_values, write_deltas
from kudu_core.rowset.disk.warming import warm
from kudu_core.rowset.disk.writing import column_spec, discard
from kudu_core.rowset.rows.delta_view import patch
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, FileRef
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.tablet import Tablet


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a delta compaction did."""

    files: int
    entries: int
    columns: int
    """Columns written anew; 0 for a minor one."""
    output_bytes: int


def claimed(tablet: Tablet, rowset_id: int, claim: Claim) -> DiskRowSet | None:
    """At most one compaction works on a rowset (protocol M3); None: another does, or it has left the view.

    ``claim``: of ``tablet.compacting``, taken until the caller lets go of it.
    """
    with tablet.mutex:
        rowset = tablet.view.rowset(rowset_id)
        if rowset is None or rowset_id in tablet.compacting:
            return None
        claim.take((rowset_id,))
        return rowset


def redo_files(rowset: DiskRowSet) -> tuple[DeltaStore, ...]:
    """The REDO files before the first store in memory."""
    files: list[DeltaStore] = []
    for store in rowset.redo:
        if not isinstance(store, DeltaStore):
            break
        files.append(store)
    return tuple(files)


def compact_minor(tablet: Tablet, rowset_id: int) -> Compacted | None:
    """Merge a rowset's REDO files into one; None when there are fewer than two.

    Raises
    ------
    OSError
        Nothing was installed.
    """
    with Claim(tablet.compacting) as claim:
        rowset = claimed(tablet, rowset_id, claim)
        if rowset is None:
            return None
        inputs = redo_files(rowset)
        if len(inputs) < 2:
            return None
        written: list[str] = []
        try:
            fitting = _fitting(inputs)
            if fitting is None:
                return None
            inputs, entries = fitting
            rest = entries.within(tablet.context.stored())
            ref = _write(tablet, REDO, rest, written) if len(rest) else None
            tablet.sync_directory()
        except BaseException:
            discard(tablet.context.fs, written)
            raise
        _install(tablet, rowset_id, inputs, ref, None, None, written)
        return Compacted(len(inputs), len(entries), 0, ref.file.size if ref else 0)


def _fitting(inputs: tuple[DeltaStore, ...]) -> tuple[tuple[DeltaStore, ...], DeltaEntries] | None:
    """As many of the first files as fit into one, and what they say; None: not even two do."""
    while len(inputs) > 1:
        try:
            return inputs, DeltaEntries.concat([entries_of_file(store) for store in inputs])
        except ColumnTooLarge:
            inputs = inputs[: max(1, len(inputs) // 2)]
    return None


def compact_major(
    tablet: Tablet, rowset_id: int, column_ids: Sequence[int] | None = None
) -> Compacted | None:
    """Fold the updates in a rowset's REDO files into new base columns; None when there are none.

    ``column_ids``: the columns to write anew, None: all that the files change.

    Raises
    ------
    OSError
        Nothing was installed.
    """
    with Claim(tablet.compacting) as claim:
        rowset = claimed(tablet, rowset_id, claim)
        if rowset is None:
            return None
        schema = tablet.context.stored()
        inputs = redo_files(rowset)
        changed = {i for store in inputs for i in store.ref.updates if i in schema.by_id}
        chosen = sorted(changed if column_ids is None else changed & set(column_ids))
        if not chosen:
            return None
        written: list[str] = []
        try:
            try:
                entries = DeltaEntries.concat([entries_of_file(store) for store in inputs]).in_order(REDO)
                columns, undo = _fold(tablet, schema, rowset, entries, chosen, written)
            except ColumnTooLarge:
                # A column of the rowset does not fit into memory's offsets whole: a merge cuts the rowset.
                discard(tablet.context.fs, written)
                return None
            rest = _without(entries, set(chosen)).within(schema)
            redo_ref = _write(tablet, REDO, rest, written) if len(rest) else None
            undo_ref = _write(tablet, UNDO, undo, written)
            tablet.sync_directory()
        except BaseException:
            discard(tablet.context.fs, written)
            raise
        _install(tablet, rowset_id, inputs, redo_ref, undo_ref, columns, written)
        size = columns.file.size + undo_ref.file.size + (redo_ref.file.size if redo_ref else 0)
        return Compacted(len(inputs), len(entries), len(chosen), size)


def _fold(
    tablet: Tablet,
    schema: Schema,
    rowset: DiskRowSet,
    entries: DeltaEntries,
    chosen: Sequence[int],
    written: list[str],
) -> tuple[ColumnsRef, DeltaEntries]:
    """Write the chosen columns with all updates applied; the UNDO entries that take them back."""
    context = tablet.context
    rows = rowset.meta.rows
    base = rowset.base.open().uncached()  # what the cache has of the columns is what scans had
    columns = []
    old_values: dict[int, tuple[np.ndarray, ColumnBuffers]] = {}
    for column_id in chosen:
        column = schema.by_id[column_id]
        positions, values = entries.columns[column_id]
        rowids = entries.rowids[positions]
        if base.has(column_id):
            before = base.read(column_id, 0, rows)
        else:
            before = ColumnBuffers.constant(column.type, column.read_default, rows)
        old_values[column_id] = replaced_values(entries, column_id, before.take)
        columns.append((column_spec(schema, column), patch(before, 0, rowids, values, owned=True)))
    name = tablet.new_file("rows")
    written.append(f"{tablet.directory}/{name}")
    meta = write_rows_file(context.fs, written[-1], RowsFileSpec(columns))
    undo = DeltaEntries(
        entries.rowids, entries.timestamps, np.full(len(entries), UNDO_UPDATE, np.uint8), old_values
    )
    touched = distinct(np.concatenate([positions for positions, _ in old_values.values()]))
    ref = ColumnsRef(FileRef.of(name, meta), tuple(chosen), meta.statistics)
    return ref, undo.take(touched.astype(np.int64))


def _without(entries: DeltaEntries, column_ids: set[int]) -> DeltaEntries:
    """The entries without these columns; updates that are left with none are dropped."""
    columns = {i: part for i, part in entries.columns.items() if i not in column_ids}
    kept = entries.ops != REDO_UPDATE
    for positions, _ in columns.values():
        kept[positions] = True
    rest = DeltaEntries(entries.rowids, entries.timestamps, entries.ops, columns)
    return rest.take(np.flatnonzero(kept))


def _write(tablet: Tablet, kind: str, entries: DeltaEntries, written: list[str]) -> DeltaRef:
    name = tablet.new_file("delta")
    written.append(f"{tablet.directory}/{name}")
    return write_deltas(tablet.context.fs, tablet.context.stored(), tablet.directory, name, kind, entries)


def _install(
    tablet: Tablet,
    rowset_id: int,
    inputs: Sequence[DeltaStore],
    redo: DeltaRef | None,
    undo: DeltaRef | None,
    columns: ColumnsRef | None,
    written: list[str],
) -> None:
    with tablet.mutex:
        rowset = tablet.view.rowset(rowset_id)
        if rowset is None:  # an overwrite of the table was faster
            discard(tablet.context.fs, written)
            return
        before = {file.name for file in rowset.meta.files}
        old, old_base = rowset, rowset.base
        rowset = rowset.with_compacted(inputs, redo, undo, columns)
        tablet.install(tablet.view.with_rowset(rowset), Edit(add=(rowset.meta,)))
        gone = before - {file.name for file in rowset.meta.files}
        tablet.retire(gone, [*inputs, old_base] if columns is not None else inputs)
    assert tablet.manifest is not None
    tablet.manifest.sync()
    warm(old, rowset)


__all__ = ["Compacted", "claimed", "compact_major", "compact_minor", "redo_files"]
