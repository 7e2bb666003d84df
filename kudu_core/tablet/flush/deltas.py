"""The walk of a delta flush: DeltaMemStores of rowsets become REDO files (protocol D1 to D3)."""

from __future__ import annotations

from collections.abc import Sequence

from kudu_core.cfile.files.delta_format import REDO
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.disk.entries import entries_of, write_deltas
from kudu_core.rowset.disk.warming import warm
from kudu_core.rowset.disk.writing import discard
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.rows.meta import DeltaRef
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.tablet import Tablet


def flush_deltas(tablet: Tablet, rowset_ids: Sequence[int]) -> int:
    """Write the DeltaMemStores of rowsets to REDO files and install them; return how many.

    Files that are written together share one fsync of their directory and one edit of the manifest.  Durable
    after the manifest's ``sync``, which is the caller's to call.

    Raises
    ------
    OSError
        Nothing was installed of the failed file, nor of those written with it; the frozen stores stay in
        their places and are tried again.
    """
    with tablet.flush_lane:
        return flush_deltas_held(tablet, rowset_ids)


def flush_deltas_held(tablet: Tablet, rowset_ids: Sequence[int]) -> int:
    """The same under the flush lane."""
    tablet.check_open()
    with tablet.mutex:
        for rowset in _there(tablet, rowset_ids):
            _freeze(tablet, rowset)
    done = 0
    # The stores of one rowset follow in the order of their freezes (protocol D3).
    while frozen := _oldest_frozen(_there(tablet, rowset_ids)):
        _flush(tablet, frozen)
        done += len(frozen)
    return done


def _there(tablet: Tablet, rowset_ids: Sequence[int]) -> list[DiskRowSet]:
    """Those of the rowsets that have not left the view."""
    view = tablet.view
    found = (view.rowset(rowset_id) for rowset_id in rowset_ids)
    return [rowset for rowset in found if rowset is not None]


def _freeze(tablet: Tablet, rowset: DiskRowSet) -> None:
    """Under the mutex: no change goes to the active store any more; it keeps its place (protocol D1)."""
    if rowset.active is not None:
        rowset.active.frozen_at = tablet.context.cut()


def _oldest_frozen(rowsets: Sequence[DiskRowSet]) -> list[tuple[int, ChangeLog]]:
    """Of each rowset that has one, with the rowset's id."""
    found = []
    for rowset in rowsets:
        store = next((s for s in rowset.memory_stores if s.frozen_at is not None), None)
        if store is not None:
            found.append((rowset.id, store))
    return found


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


def _flush(tablet: Tablet, frozen: Sequence[tuple[int, ChangeLog]]) -> None:
    """Write one frozen store of each of some rowsets, and install all by one edit."""
    context = tablet.context
    assert context.log is not None
    written: list[str] = []
    stored: list[tuple[int, ChangeLog, DeltaRef | None]] = []
    try:
        for rowset_id, store in frozen:
            with context.work.hold(store.nbytes):  # the entries are a copy
                stored.append((rowset_id, store, write_store(tablet, store, written)))
        tablet.sync_directory()
        context.log.wait_durable(max(_cut(store) for _, store, _ in stored))
    except BaseException:
        discard(context.fs, written)
        raise
    with tablet.mutex:
        flushed: list[DiskRowSet] = []
        for rowset_id, store, ref in stored:
            rowset = tablet.view.rowset(rowset_id)
            if rowset is None or not any(s is store for s in rowset.redo):
                # The rowset left the view, or an ingest was faster (protocol D3).
                discard(context.fs, [] if ref is None else [f"{tablet.directory}/{ref.file.name}"])
                continue
            flushed.append(rowset.with_flushed(store, ref, _cut(store)))
        if flushed:
            tablet.install(tablet.view.with_changed(flushed), Edit(add=tuple(r.meta for r in flushed)))
    for rowset in flushed:
        warm(rowset, rowset)


def _cut(frozen: ChangeLog) -> int:
    assert frozen.frozen_at is not None
    return frozen.frozen_at


def freeze_and_write(
    tablet: Tablet, rowset: DiskRowSet, written: list[str]
) -> list[tuple[ChangeLog, DeltaRef | None]]:
    """Under the mutex: every DeltaMemStore of a rowset, closed and written (protocol G3)."""
    _freeze(tablet, rowset)
    return [(store, write_store(tablet, store, written)) for store in rowset.memory_stores]
