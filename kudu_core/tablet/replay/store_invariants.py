"""The invariants of docs/protocol.md over the stores of one tablet: protocol N2, N7, N8 and N15.

They read delta files whole, so they are for tests and for the search for a fault (``invariants``).
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_REINSERT, UNDO_ALIVE, UNDO_DEAD, UNDO_UPDATE
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.tablet.store.tablet import Tablet


class BrokenInvariant(AssertionError):
    """An invariant of docs/protocol.md does not hold."""


def hold(truth: object, name: str, what: str) -> None:
    """``BrokenInvariant`` unless it is true."""
    if not truth:
        raise BrokenInvariant(f"{name}: {what}")


def check_rowset(tablet: Tablet, rowset: DiskRowSet) -> None:
    """Protocol N2 and N7: the stores of one rowset, their order and their distance from D."""
    where = f"tablet {tablet.id}, rowset {rowset.id}"
    meta, state = rowset.meta, tablet.state
    hold(
        meta.max_insert_ts <= max(state.inserts_durable, state.ingests_durable),
        "N2",
        f"{where}: a row of {meta.max_insert_ts}, I {state.inserts_durable}, G {state.ingests_durable}",
    )
    hold(meta.max_insert_ts <= meta.durable, "N2", f"{where}: inserts above D = {meta.durable}")
    newest = 0
    in_memory = False
    last_ts: dict[int, int] = {}
    for store in rowset.redo:
        if isinstance(store, ChangeLog):
            in_memory = True
            if not len(store):
                continue
            timestamps, rowids, ops = (a.copy() for a in store.changes(0, len(store)))
            hold(
                int(timestamps[0]) > meta.durable,
                "N2",
                f"{where}: memory holds a change of {int(timestamps[0])}, D is {meta.durable}",
            )
            hold(bool((timestamps[1:] >= timestamps[:-1]).all()), "N7", f"{where}: memory out of order")
            if store.frozen_at is not None:
                hold(int(timestamps[-1]) <= store.frozen_at, "N8", f"{where}: a change after the freeze")
        else:
            hold(not in_memory, "N7", f"{where}: a file behind a store in memory")
            rowids, timestamps, ops = _entries(store, undo=False)
            hold(
                int(timestamps.max(initial=0)) <= meta.durable,
                "N2",
                f"{where}: {store.ref.file.name} holds a change above D = {meta.durable}",
            )
            _check_ref(where, store, timestamps)
        if len(timestamps):
            hold(
                int(timestamps.min()) > newest,
                "N7",
                f"{where}: a store begins at {int(timestamps.min())}, the one before ends at {newest}",
            )
            newest = int(timestamps.max())
        hold(not (ops == REDO_REINSERT).any(), "N7", f"{where}: a REINSERT outside a MemRowSet")
        hold(not len(rowids) or int(rowids.max()) < meta.rows, "N7", f"{where}: a rowid too large")
        for row, ts in zip(rowids.tolist(), timestamps.tolist(), strict=True):
            hold(last_ts.get(row, 0) < ts, "N7", f"{where}: REDO of row {row} does not ascend at {ts}")
            last_ts[row] = ts
    _check_undo(where, rowset)


def _check_undo(where: str, rowset: DiskRowSet) -> None:
    """Per row and column, and per row for what removes or revives it, times descend: a compaction of
    some columns puts their UNDO before older files that hold newer records of other columns."""
    oldest: dict[tuple[int, int], int] = {}

    def descend(thing: int, rowids: np.ndarray, timestamps: np.ndarray) -> None:
        for row, ts in zip(rowids.tolist(), timestamps.tolist(), strict=True):
            known = oldest.get((row, thing))
            hold(known is None or ts < known, "N7", f"{where}: UNDO of row {row} does not descend at {ts}")
            oldest[row, thing] = ts

    for store in rowset.undo:
        rowids, timestamps, ops = _entries(store, undo=True)
        hold(int(timestamps.max(initial=0)) <= rowset.meta.durable, "N2", f"{where}: UNDO above D")
        _check_ref(where, store, timestamps)
        hold(
            bool(np.isin(ops, (UNDO_UPDATE, UNDO_DEAD, UNDO_ALIVE)).all()),
            "N7",
            f"{where}: an UNDO operation",
        )
        lives = ops != UNDO_UPDATE
        descend(-1, rowids[lives], timestamps[lives])
        for column_id in store.open().column_ids:
            _, _, entries, _ = store.open().updates_with_entries(column_id)
            descend(column_id, rowids[entries], timestamps[entries])


def _check_ref(where: str, store: DeltaStore, timestamps: np.ndarray) -> None:
    """The statistics by which readers skip a file are those of its contents."""
    ref = store.ref
    if len(timestamps):
        found = int(timestamps.min()), int(timestamps.max())
        hold(
            found == (ref.min_ts, ref.max_ts),
            "N15",
            f"{where}: {ref.file.name} holds {found}, the manifest says {(ref.min_ts, ref.max_ts)}",
        )
    hold(len(timestamps) == ref.entries, "N15", f"{where}: {ref.file.name} has another number of entries")


def _entries(store: DeltaStore, *, undo: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rowids, timestamps, ops) of a file."""
    file = store.open()
    assert (file.kind == "undo") == undo or file.kind.lower() in ("redo", "undo")
    rowids, timestamps, ops = file.entries()
    if timestamps is None:
        hold(store.ref.record_ts is not None, "N7", f"{store.ref.file.name} has no time at all")
        timestamps = np.full(len(rowids), store.ref.record_ts or 0, np.uint64)
    return rowids, timestamps, ops


def check_memory(tablet: Tablet) -> None:
    """Protocol N2 and N8 over the MemRowSets."""
    where = f"tablet {tablet.id}"
    newest = tablet.state.inserts_durable
    for memory in (*tablet.view.frozen, tablet.view.active):
        count = len(memory)
        if count:
            times = memory.inserted(0, count)
            hold(
                int(times[0]) > newest,
                "N2",
                f"{where}: memory holds an insert of {int(times[0])} <= {newest}",
            )
            hold(bool((times[1:] >= times[:-1]).all()), "N7", f"{where}: inserts out of order")
            newest = int(times[-1])
        if memory.frozen_at is not None:
            hold(
                newest <= memory.frozen_at, "N8", f"{where}: an insert after the freeze at {memory.frozen_at}"
            )
            newest = memory.frozen_at
        last_ts: dict[int, int] = {}
        parts = [zip(*(a.tolist() for a in log.changes(0, len(log))), strict=True) for log in memory.logs]
        for ts, row, op in chain.from_iterable(parts):
            hold(row < count, "N7", f"{where}: a change of ordinal {row} of {count}")
            born = int(memory.inserted(row, row + 1)[0])
            hold(
                last_ts.get(row, born) < ts, "N7", f"{where}: changes of ordinal {row} do not ascend at {ts}"
            )
            hold(
                op != REDO_REINSERT or memory.frozen_at is None or ts <= memory.frozen_at,
                "N8",
                f"{where}: a REINSERT at {ts} into a MemRowSet frozen at {memory.frozen_at}",
            )
            last_ts[row] = ts
    frozen_at = [m.frozen_at for m in tablet.view.frozen]
    hold(None not in frozen_at, "N8", f"{where}: a frozen MemRowSet without its cut")


__all__ = ["BrokenInvariant", "check_memory", "check_rowset", "hold"]
