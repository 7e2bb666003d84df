"""The walk of a flush: a MemRowSet becomes DiskRowSets (protocol F1 to F3).

freeze at a cut -> rows sorted, changes folded -> files -> log durable up to the cut -> later changes moved,
view exchanged with one edit.

Changes up to the cut are folded into the rows; what they replaced goes into UNDO files.  Scans and writes
go on: until the install they use the frozen MemRowSet, after it the new rowsets, and both hold the same rows.
Changes since the cut are moved over under the mutex, from memory to memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kudu_core._ext.keys import keys as keys_kernel
from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_REINSERT, UNDO_ALIVE, UNDO_DEAD, UNDO_UPDATE
from kudu_core.cfile.files.delta_format import REDO, UNDO
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.held_memory import release_free
from kudu_core.errors import InternalError
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.disk.entries import DeltaEntries, write_deltas
from kudu_core.rowset.disk.writing import OrderedRows, cuts, discard, rowset_meta, write_rows
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.tablet import Tablet, freeze_memrowset

ROW_BYTES = 56
"""What a row takes while it is flushed beside its key and a cell of its largest column: order, offset of the
key, hash, insert time and place in the outputs, and what is being encoded."""


_COLUMN_DIVISOR = 8
_COLUMN_BYTES = 8 << 20
"""Of the memory limit, and at least: what a column of one output takes in order, beside the MemRowSet."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """What a flush did."""

    rows: int
    rowsets: int
    output_bytes: int


def flush_memrowset(tablet: Tablet) -> Flushed | None:
    """Write the tablet's rows in memory to disk and install the result.

    Durable after the manifest's ``sync``, which is the caller's to call: a flush of changes may come before
    (protocol E3).

    Raises
    ------
    OSError
        Nothing was installed; the frozen MemRowSet stays readable and is tried again.
    """
    with tablet.flush_lane:
        return flush_memrowset_held(tablet)


def flush_memrowset_held(tablet: Tablet) -> Flushed | None:
    """The same under the flush lane."""
    tablet.check_open()
    done: Flushed | None = None
    # Oldest first: installs follow the freeze order.  What failed before comes before the freeze,
    # so that a full disk does not pile up frozen MemRowSets.
    for freeze in (False, True):
        if freeze and not freeze_memrowset(tablet):
            break
        while tablet.view.frozen:
            one = _flush_counted(tablet, tablet.view.frozen[0])
            before = done or Flushed(0, 0, 0)
            done = Flushed(
                before.rows + one.rows,
                before.rowsets + one.rowsets,
                before.output_bytes + one.output_bytes,
            )
    return done


def work_bytes(memory: MemRowSet, limit_bytes: int) -> int:
    """About how many bytes a flush holds beside the MemRowSet, with so large a memory limit."""
    column = -(-_widest(memory) // _outputs(memory, limit_bytes))
    return len(memory) * ROW_BYTES + memory.key_bytes + column + sum(log.nbytes for log in memory.logs)


def _widest(memory: MemRowSet) -> int:
    return max(memory.column_bytes(c.id) for c in memory.schema.columns)


def _outputs(memory: MemRowSet, limit_bytes: int) -> int:
    """How many files a flush makes at least, so that a column of one is no large share of memory."""
    return max(1, -(-_widest(memory) // max(limit_bytes // _COLUMN_DIVISOR, _COLUMN_BYTES)))


def _flush_counted(tablet: Tablet, frozen: MemRowSet) -> Flushed:
    """``_flush``, with what it holds counted while it runs and given back to the system after it."""
    nbytes = work_bytes(frozen, tablet.context.options.memory_bytes)
    with tablet.context.work.hold(nbytes):
        flushed = _flush(tablet, frozen)
    release_free(nbytes)
    return flushed


def _flush(tablet: Tablet, frozen: MemRowSet) -> Flushed:
    context = tablet.context
    cut = frozen.frozen_at
    assert cut is not None and context.log is not None
    written: list[str] = []
    try:
        metas, home, rowid = _write(tablet, frozen, cut, written)
        tablet.sync_directory()
        context.log.wait_durable(cut)
    except BaseException:
        discard(context.fs, written)
        raise
    with tablet.mutex:
        outputs = [tablet.rowset(m) for m in metas]
        outputs = _move_later_changes(frozen, cut, outputs, home, rowid)
        view = replace(tablet.view, frozen=tablet.view.frozen[1:])
        view = view.with_rowsets((*view.rowsets, *outputs))
        tablet.install(view, Edit(add=tuple(metas), inserts_durable=cut))
    return Flushed(
        rows=sum(m.rows for m in metas),
        rowsets=len(metas),
        output_bytes=sum(m.size_bytes for m in metas),
    )


def _write(
    tablet: Tablet, frozen: MemRowSet, cut: int, written: list[str]
) -> tuple[list[RowSetMeta], np.ndarray, np.ndarray]:
    """Fold the changes through ``cut`` into rows and write them (protocol F2).

    Returns the new rowsets and, by ordinal, the output (int32) and the rowid (uint32) there.
    """
    context = tablet.context
    # Columns that were dropped since stay behind; those that were added since are not in these rows.
    stored = context.stored()
    columns = tuple(stored.by_id[c.id] for c in frozen.schema.columns if c.id in stored.by_id)
    schema = replace(frozen.schema, columns=columns)
    rows = len(frozen)
    source = frozen.at(cut)
    if source.rows != rows:
        raise InternalError("a frozen MemRowSet holds rows above its cut")
    keys = frozen.keys(rows)
    order: np.ndarray = keys_kernel.sort(keys.data, keys.offsets)
    ordered = OrderedRows(
        keys=keys.take(order),
        hashes=frozen.hashes(rows)[order],
        column=lambda i, lower, upper: source.column(schema.by_id[i], 0, rows).take(order[lower:upper]),
        nbytes=len(keys.data) + sum(source.column(c, 0, rows).nbytes for c in schema.columns),
        insert_times=frozen.inserted(0, rows)[order],
    )
    undo, redo = (part.within(stored) for part in fold_history(frozen, cut))
    home = np.full(rows, -1, np.int32)
    rowid = np.empty(rows, np.uint32)
    metas = []
    least = _outputs(frozen, context.options.memory_bytes)
    for number, (lower, upper) in enumerate(cuts(ordered, context.options.rowset_target_bytes, least)):
        name = tablet.new_file("rows")
        written.append(f"{tablet.directory}/{name}")
        meta = rowset_meta(
            tablet.new_rowset_id(),
            name,
            write_rows(context.fs, schema, context.options, ordered, lower, upper, written[-1]),
            times=ordered.insert_times[lower:upper],  # type: ignore[index]
            record_ts=None,
            durable=cut,
        )
        mine = order[lower:upper]
        home[mine] = number
        rowid[mine] = np.arange(upper - lower, dtype=np.uint32)
        undo_ref = _write_part(tablet, UNDO, undo, home, rowid, number, written)
        redo_ref = _write_part(tablet, REDO, redo, home, rowid, number, written)
        metas.append(
            replace(
                meta,
                undo=() if undo_ref is None else (undo_ref,),
                redo=() if redo_ref is None else (redo_ref,),
            )
        )
    return metas, home, rowid


def _write_part(
    tablet: Tablet,
    kind: str,
    entries: DeltaEntries,
    home: np.ndarray,
    rowid: np.ndarray,
    number: int,
    written: list[str],
) -> DeltaRef | None:
    """The entries of rows that went to output ``number``, as a file."""
    # Entries of rows of later outputs have no home yet: compare only known ones.
    mine = np.flatnonzero(home[entries.rowids] == number)
    if not len(mine):
        return None
    part = entries.take(mine)
    name = tablet.new_file("delta")
    written.append(f"{tablet.directory}/{name}")
    return write_deltas(
        tablet.context.fs, tablet.context.stored(), tablet.directory, name, kind, part.moved(rowid)
    )


def fold_history(frozen: MemRowSet, cut: int) -> tuple[DeltaEntries, DeltaEntries]:
    """(UNDO, REDO) of a MemRowSet's changes through ``cut``, addressed by ordinal.

    UNDO takes the newest image back: an UPDATE record holds the values before an update, DEAD
    says that the row was absent before its reinsertion, ALIVE restores the image before a
    deletion that a reinsertion followed.  A trailing deletion stays a REDO entry.
    """
    log = frozen.logs[0]  # what follows it lies above the cut
    limit = log.limit(cut)
    timestamps, rowids, ops = (a.copy() for a in log.changes(0, limit))
    if not limit:
        none = DeltaEntries(rowids, timestamps, ops, {})
        return none, none
    # Changes by (row, time): the change before and after each one of the same row.
    by_row = np.lexsort((np.arange(limit), rowids))
    sorted_rows = rowids[by_row]
    last_of_row = np.ones(limit, bool)
    last_of_row[:-1] = sorted_rows[1:] != sorted_rows[:-1]
    before = np.full(limit, -1, np.int64)
    before[by_row[1:]] = np.where(last_of_row[:-1], -1, by_row[:-1])
    trailing = np.zeros(limit, bool)
    trailing[by_row] = last_of_row
    trailing &= ops == REDO_DELETE
    redo_numbers = np.flatnonzero(trailing)
    redo = DeltaEntries(
        rowids[redo_numbers],
        timestamps[redo_numbers],
        np.full(len(redo_numbers), REDO_DELETE, np.uint8),
        {},
    )
    undo_numbers = np.flatnonzero(~trailing)
    undo_ops = np.full(limit, UNDO_UPDATE, np.uint8)
    undo_ops[ops == REDO_REINSERT] = UNDO_DEAD
    undo_ops[ops == REDO_DELETE] = UNDO_ALIVE
    position = np.full(limit, -1, np.int64)
    position[undo_numbers] = np.arange(len(undo_numbers))
    columns: dict[int, tuple[np.ndarray, ColumnBuffers]] = {}
    for column_id in log.column_ids:
        numbers, changed, values = log.column_changes(column_id, 0, limit)
        if not len(numbers):
            continue
        # Old value of each update: the update before it of the same row, else the inserted one.
        order = np.lexsort((numbers, changed))
        first = np.ones(len(order), bool)
        first[1:] = changed[order][1:] != changed[order][:-1]
        base = frozen.read(column_id, 0, len(frozen))
        assert base is not None, "a column that came after the freeze has no change before it"
        pool = ColumnBuffers.concat([values, base])
        old = np.empty(len(order), np.int64)
        old[order[1:]] = order[:-1]
        old[order[first]] = len(numbers) + changed[order[first]].astype(np.int64)
        # What a REINSERT overwrote is the image before the DELETE that precedes it: it belongs there.
        owner = numbers.astype(np.int64)
        revived = ops[owner] == REDO_REINSERT
        owner[revived] = before[owner[revived]]
        assert (ops[owner[revived]] == REDO_DELETE).all(), "a REINSERT follows a DELETE"
        columns[column_id] = (position[owner].astype(np.uint32), pool.take(old))
    undo = DeltaEntries(rowids[undo_numbers], timestamps[undo_numbers], undo_ops[undo_numbers], columns)
    return undo, redo


def _move_later_changes(
    frozen: MemRowSet, cut: int, outputs: list[DiskRowSet], home: np.ndarray, rowid: np.ndarray
) -> list[DiskRowSet]:
    """Changes above ``cut`` go to the outputs' DeltaMemStores, in their order (protocol F3)."""
    for log in frozen.logs:
        outputs = _move_later_of(log, cut, outputs, home, rowid)
    return outputs


def _move_later_of(
    log: ChangeLog, cut: int, outputs: list[DiskRowSet], home: np.ndarray, rowid: np.ndarray
) -> list[DiskRowSet]:
    lower, upper = log.limit(cut), len(log)
    if lower == upper:
        return outputs
    _, ordinals, ops = log.changes(lower, upper)
    assert not (ops == REDO_REINSERT).any(), "a frozen MemRowSet revives no row"
    moved = []
    for number, output in enumerate(outputs):
        mine = np.flatnonzero(home[ordinals] == number)
        if len(mine):
            if output.active is not None:  # of an earlier log: one store each, so that none is too large
                output.active.frozen_at = output.active.last_ts
            later = log.moved(lower + mine, rowid[ordinals[mine]])
            output = replace(output, redo=(*output.redo, later))
        moved.append(output)
    return moved
