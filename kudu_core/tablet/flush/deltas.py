"""The walk of a delta flush: DeltaMemStores of one rowset become REDO files (protocol D1 to D3)."""

from __future__ import annotations

from kudu_core.cfile.files.delta_format import REDO
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.disk.entries import entries_of, write_deltas
from kudu_core.rowset.disk.writing import discard
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.rows.meta import DeltaRef
from kudu_core.tablet.store.manifest import Edit
from kudu_core.tablet.store.tablet import Tablet


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
    """Under the mutex: no change goes to the active store any more; it keeps its place (protocol D1)."""
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
        with context.work.hold(frozen.nbytes):  # the entries are a copy
            ref = write_store(tablet, frozen, written)
        tablet.sync_directory()
        context.log.wait_durable(cut)
    except BaseException:
        discard(context.fs, written)
        raise
    with tablet.mutex:
        rowset = tablet.view.rowset(rowset_id)
        if rowset is None or not any(s is frozen for s in rowset.redo):
            discard(context.fs, written)  # the rowset left the view, or an ingest was faster (protocol D3)
            return
        rowset = rowset.with_flushed(frozen, ref, cut)
        tablet.install(tablet.view.with_rowset(rowset), Edit(add=(rowset.meta,)))
    assert tablet.manifest is not None
    tablet.manifest.sync()


def freeze_and_write(
    tablet: Tablet, rowset: DiskRowSet, written: list[str]
) -> list[tuple[ChangeLog, DeltaRef | None]]:
    """Under the mutex: every DeltaMemStore of a rowset, closed and written (protocol G3)."""
    _freeze(tablet, rowset)
    return [(store, write_store(tablet, store, written)) for store in rowset.memory_stores]
