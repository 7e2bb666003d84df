"""The walk of history GC: what no legal snapshot needs goes (protocol H2).

UNDO files whose records all lie at or below the horizon are dropped without being read, and so are
rowsets whose rows are all dead since before it.  Single dead rows go when their rowset is merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.common.run.locks import Claim
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.tablet.compact.delta_compaction import claimed
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.tablet import Tablet


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collection dropped from a tablet."""

    undo_files: int
    rowsets: int
    bytes: int


def ancient(rowset: DiskRowSet, horizon: int) -> bool:
    """Whether ``collect`` would find something in the rowset, asked without reading a file."""
    return ancient_bytes(rowset, horizon) > 0


def ancient_bytes(rowset: DiskRowSet, horizon: int) -> int:
    """What ``collect`` would free of the rowset, at most; asked without reading a file."""
    if rowset.meta.redo and _may_be_dead(rowset, horizon):
        return rowset.meta.size_bytes
    return sum(undo.ref.file.size for undo in rowset.undo if undo.ref.max_ts <= horizon)


def collect(tablet: Tablet, horizon: int) -> Collected:
    """Drop history at or below ``horizon``, which the caller has made the table's floor before.

    Raises
    ------
    OSError
        A rowset's files could not be read; what was dropped before stays dropped.
    """
    undo_files = rowsets = freed = 0
    for seen in tablet.view.rowsets:
        if not ancient(seen, horizon):
            continue
        with Claim(tablet.compacting) as claim:
            rowset = claimed(tablet, seen.id, claim)
            if rowset is None:
                continue
            dead = _may_be_dead(rowset, horizon) and _all_dead(rowset, horizon)
            with tablet.mutex:
                now = tablet.view.rowset(seen.id)
                assert now is not None, "a claimed rowset stays"
                if dead:
                    # Nothing can have come after the deletion of every row: no store takes a REINSERT.
                    _drop_rowset(tablet, now, horizon)
                    rowsets, freed = rowsets + 1, freed + now.meta.size_bytes
                    continue
                fewer = now.without_undo(horizon)
                if fewer is None:
                    continue
                gone = [store for store in now.undo if store.ref.max_ts <= horizon]
                tablet.install(tablet.view.with_rowset(fewer), Edit(add=(fewer.meta,), horizon=horizon))
                tablet.retire([store.ref.file.name for store in gone], gone)
                undo_files += len(gone)
                freed += sum(store.ref.file.size for store in gone)
    if undo_files or rowsets:
        assert tablet.manifest is not None
        tablet.manifest.sync()
    return Collected(undo_files, rowsets, freed)


def _drop_rowset(tablet: Tablet, rowset: DiskRowSet, horizon: int) -> None:
    view = tablet.view.with_rowsets(tuple(r for r in tablet.view.rowsets if r.id != rowset.id))
    tablet.install(view, Edit(remove=(rowset.id,), horizon=horizon))
    files = [store for store in (*rowset.redo, *rowset.undo) if isinstance(store, DeltaStore)]
    tablet.retire([file.name for file in rowset.meta.files], [rowset.base, *files])


def _may_be_dead(rowset: DiskRowSet, horizon: int) -> bool:
    """By the statistics alone: enough deletions in files, none of a row that memory changes."""
    if rowset.memory_stores:
        return False
    old = [ref for ref in rowset.meta.redo if ref.min_ts <= horizon]
    return sum(ref.liveness for ref in old) >= rowset.meta.rows


def _all_dead(rowset: DiskRowSet, horizon: int) -> bool:
    """Whether every row was deleted at or below the horizon."""
    dead = np.zeros(rowset.meta.rows, bool)
    for store in rowset.redo:
        if not isinstance(store, DeltaStore):
            return False
        rowids, timestamps, ops = store.open().liveness()
        old = ops == REDO_DELETE
        if timestamps is not None:
            old &= timestamps <= np.uint64(horizon)
        elif store.ref.record_ts is None or store.ref.record_ts > horizon:
            continue
        dead[rowids[old]] = True
    return bool(dead.all())


__all__ = ["Collected", "ancient", "ancient_bytes", "collect"]
