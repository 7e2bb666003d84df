"""Whether what an ingest was decided on still stands (protocol G3).

``conflicts`` asks what memory has taken in since the cut, under the tablet's mutex; that is all there is
when the flush lane was held meanwhile.  Of a part that was built elsewhere, without the lane,
``still_holds`` first asks what has happened to the rowsets.
"""

from __future__ import annotations

import numpy as np

from kudu_core._ext.keys import keys as keys_kernel
from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.run.ordering import distinct
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.tablet.ingest.part import IngestPart
from kudu_core.tablet.view.view import KeyBatch

PROBED_ROWS = 1 << 16
"""Keys of a new rowset are looked for in the part so many at a time."""


def still_holds(part: IngestPart) -> bool:
    """Under the flush lane: whether no rowset has come, gone or changed so that the part is wrong (protocol
    J4).

    Whatever history holds of the time since the cut is evidence; so none of it may be forgotten.
    """
    tablet = part.tablet
    view = tablet.view
    assert part.seen is not None
    if tablet.state.horizon > part.cut:
        return False
    if any(view.rowset(rowset_id) is None for rowset_id in part.deltas):
        return False
    return not any(
        _seen_changed(part, rowset) if rowset.id in part.seen else _new_matters(part, rowset)
        for rowset in view.rowsets
    )


def _seen_changed(part: IngestPart, rowset: DiskRowSet) -> bool:
    """Of a rowset that was there: whether files say that rows of the part changed since the cut.

    UNDO files too: a compaction of deltas leaves there when a row was changed.
    """
    delta = part.deltas.get(rowset.id)
    for store in (*rowset.redo, *rowset.undo):
        if not isinstance(store, DeltaStore) or store.ref.max_ts <= part.cut:
            continue
        if part.undecided and store.ref.liveness:
            return True
        if delta is not None:
            rowids, stamps, _ = store.open().entries()
            since = slice(None) if stamps is None else stamps > part.cut
            if delta.changes(part.tablet.context.fs, rowids[since]):
                return True
    return False


def _new_matters(part: IngestPart, rowset: DiskRowSet) -> bool:
    """Of a rowset that a flush, an ingest or a merge has made since: whether a key of the part is in it
    that may not be what it was."""
    meta = rowset.meta
    stamps = [meta.max_insert_ts, *(ref.max_ts for ref in (*meta.redo, *meta.undo))]
    if max(stamps) <= part.cut:
        return False  # what was there before, at another place
    return part.undecided or _holds_known(part, rowset)


def _holds_known(part: IngestPart, rowset: DiskRowSet) -> bool:
    meta = rowset.meta
    bounds = [(r.min_key, r.max_key) for r in part.rowsets]
    for _, _, batch in part.by_key:
        keys, _ = batch.in_order
        bounds.append((keys[0], keys[len(keys) - 1]))
    lower = upper = None
    for first, last in bounds:
        if first <= meta.max_key and meta.min_key <= last:
            lower = first if lower is None else min(lower, first)
            upper = last if upper is None else max(upper, last)
    if lower is None or upper is None:
        return False
    file = rowset.base.open()
    row, end = file.lower_bound(lower), file.lower_bound(upper + b"\0")
    while row < end:
        until = min(row + PROBED_ROWS, end)
        if any_known(part, KeyBatch(EncodedKeys(*file.keys(row, until)))):
            return True
        row = until
    return False


def conflicts(part: IngestPart) -> bool:
    """Under the mutex: whether a record after the cut changed one of the part's keys (protocol G3)."""
    view = part.tablet.view
    for memory in (view.active, *view.frozen):
        first, last = memory.rows_at(part.cut), len(memory)
        if first < last:
            if part.undecided:
                return True
            keys = memory.keys(last)
            if any_known(part, KeyBatch(keys.slice(first, last), memory.inserted_hashes(first, last))):
                return True
        for changes in memory.logs:
            lower, upper = changes.limit(part.cut), len(changes)
            if lower < upper:
                if part.undecided and (changes.changes(lower, upper)[2] >= REDO_DELETE).any():
                    return True
                ordinals = distinct(changes.changes(lower, upper)[1]).astype(np.int64)
                if any_known(part, KeyBatch(memory.keys(last).take(ordinals))):
                    return True
    for rowset in view.changed:
        mine = part.deltas.get(rowset.id)
        stores: list[ChangeLog] = list(rowset.memory_stores)
        for store in stores:
            lower, upper = store.limit(part.cut), len(store)
            if lower == upper:
                continue
            _, rowids, ops = store.changes(lower, upper)
            if mine is not None and mine.changes(part.tablet.context.fs, rowids):
                return True
            if part.undecided and (ops >= REDO_DELETE).any():
                return True
            if part.by_key and part.seen is not None and rowset.id not in part.seen:
                return True  # a row that memory held at the cut may be one of these
    return False


def any_known(part: IngestPart, batch: KeyBatch) -> bool:
    """Whether one of the keys is among those that the part inserts or changes by key."""
    keys, hashes = batch.in_order
    if not len(keys):
        return False
    first, last = keys[0], keys[len(keys) - 1]
    fs = part.tablet.context.fs
    paths = {name: path for path, name in part.staged}
    for rowset in part.rowsets:
        if last < rowset.min_key or rowset.max_key < first:
            continue
        with RowsFile(fs, paths[rowset.base.name]) as file:
            if (file.locate(keys.data, keys.offsets, hashes) >= 0).any():
                return True
    for _, _, known in part.by_key:
        ordered, _ = known.in_order
        lower = keys_kernel.lower_bound(ordered.data, ordered.offsets, keys.data, keys.offsets)
        upper = keys_kernel.lower_bound(ordered.data, ordered.offsets, keys.data, keys.offsets, upper=True)
        if (lower < upper).any():
            return True
    return False


__all__ = ["conflicts", "still_holds"]
