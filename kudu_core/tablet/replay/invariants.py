"""The invariants of docs/protocol.md as assertions over a live tablet, its log and its files.

A debug switch: ``check_install`` is what ``TabletContext.check`` may be set to, called under the
tablet's mutex after every install; ``check_open`` looks at a table that has just been opened.  The
functions read files, so they are for tests and for the search for a fault, not for use in service.
Broken invariants raise ``BrokenInvariant``, which names the one.  What one store must be like is in
``store_invariants``.

Not here, because one process at one moment cannot show it: protocol N12 to N14 (states compared over time
and between processes) and protocol N15 (statistics against contents); tests compare those.  Protocol N16 is
``Corruption`` in replay; protocol N17 is the log reader's.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.common.format.names import file_path
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.rows_at import RowsAt
from kudu_core.tablet.ingest.install import named_files
from kudu_core.tablet.replay.store_invariants import BrokenInvariant, check_memory, check_rowset, hold
from kudu_core.tablet.store import records
from kudu_core.tablet.store.edits import TabletState
from kudu_core.tablet.store.tablet import Tablet
from kudu_core.wal import RECORD_KIND_INGEST

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.wal import Record
    from kudu_core.wal.appending import AppendingLog

SNAPSHOTS_SAMPLED = 6
ROWS_READ = 200_000
"""A store with more rows than this is not read for protocol N3; its order and its files still are."""


_before: weakref.WeakKeyDictionary[Tablet, TabletState] = weakref.WeakKeyDictionary()
"""What each tablet's manifest said at the check before."""


# ---- one tablet ----


def check_install(tablet: Tablet) -> None:
    """All that one tablet shows, under its mutex."""
    _check_state(tablet)
    for rowset in tablet.view.rowsets:
        check_rowset(tablet, rowset)
    check_memory(tablet)
    check_files(tablet.context.fs, tablet.directory, tablet.state)
    check_one_copy(tablet)
    if tablet.context.log is not None:
        check_log(tablet.context.log)


def _check_state(tablet: Tablet) -> None:
    """Protocol N5, N6 and N9 over the manifest; what it says and what the view holds are one."""
    state, log = tablet.state, tablet.context.log
    where = f"tablet {tablet.id}"
    before = _before.get(tablet)
    if before is not None:
        for name in ("inserts_durable", "ingests_durable", "horizon", "mark", "epoch", "number"):
            old, new = getattr(before, name), getattr(state, name)
            hold(new >= old, "N6", f"{where}: {name} went from {old} to {new}")
        for rowset_id, meta in before.rowsets.items():
            after = state.rowsets.get(rowset_id)
            if after is not None:
                hold(after.durable >= meta.durable, "N6", f"{where}: D of rowset {rowset_id} decreased")
    _before[tablet] = state
    named = [state.inserts_durable, state.ingests_durable, state.mark]
    for meta in state.rowsets.values():
        named += [meta.durable, meta.max_insert_ts, *(d.max_ts for d in (*meta.redo, *meta.undo))]
    if log is not None:
        hold(
            max(named) <= log.durable_ts,
            "N5",
            f"{where}: an edit names {max(named)}, the log is durable through {log.durable_ts}",
        )
    hold(
        state.mark >= max(state.inserts_durable, state.ingests_durable, 0),
        "N6",
        f"{where}: mark {state.mark} lies below a watermark",
    )
    in_view = {r.id: r.meta for r in tablet.view.rowsets}
    hold(len(in_view) == len(tablet.view.rowsets), "N11", f"{where}: a rowset id is used twice")
    hold(in_view == dict(state.rowsets), "E2", f"{where}: the view and the manifest differ")
    names = [file.name for meta in state.rowsets.values() for file in meta.files]
    hold(len(names) == len(set(names)), "N11", f"{where}: a file name is used twice: {sorted(names)}")


def check_one_copy(tablet: Tablet, snapshots: Iterable[int] = ()) -> None:
    """Protocol N3: at every sampled snapshot at most one store holds a key live."""
    view = tablet.view
    stores: list[MemRowSet | DiskRowSet] = [
        s for s in view.stores if (len(s) if isinstance(s, MemRowSet) else s.meta.rows) <= ROWS_READ
    ]
    # While a log is replayed, rowsets may hold what lies ahead: A is the last record laid in.
    applied = tablet.context.cut() if tablet.context.log is not None else 2**64 - 1
    for snapshot in {*snapshots, *_moments(tablet)}:
        if snapshot > applied:
            continue
        seen: dict[bytes, int] = {}
        for index, store in enumerate(stores):
            if isinstance(store, MemRowSet) and not len(store):
                continue
            rows_at = store.at(snapshot)
            if rows_at is None:
                continue
            for key in _live_keys(store, rows_at):
                other = seen.setdefault(key, index)
                hold(
                    other == index,
                    "N3",
                    f"tablet {tablet.id}: key {key!r} is live in two stores at {snapshot}: "
                    f"{_name(stores[other])} and {_name(store)}",
                )


def _name(store: MemRowSet | DiskRowSet) -> str:
    return f"rowset {store.id}" if isinstance(store, DiskRowSet) else "a MemRowSet"


def _moments(tablet: Tablet) -> list[int]:
    """Snapshots worth looking at: the newest, and spread ones at and before recorded times."""
    horizon = tablet.state.horizon
    known = {tablet.newest_applied, tablet.state.mark}
    for memory in (tablet.view.active, *tablet.view.frozen):
        known.update(memory.inserted(0, len(memory)).tolist())
        for log in memory.logs:
            known.update(log.changes(0, len(log))[0].tolist())
    for rowset in tablet.view.rowsets:
        known.update((rowset.meta.max_insert_ts, rowset.meta.durable))
        for store in (*rowset.redo, *rowset.undo):
            if isinstance(store, ChangeLog):
                known.update(store.changes(0, len(store))[0].tolist())
            else:
                known.update((store.ref.min_ts, store.ref.max_ts, store.ref.min_ts - 1))
    ordered = sorted(ts for ts in known if ts >= max(1, horizon))
    if not ordered:
        return []
    picked = np.linspace(0, len(ordered) - 1, SNAPSHOTS_SAMPLED).astype(int)
    return sorted({ordered[i] for i in picked.tolist()})


def _live_keys(store: MemRowSet | DiskRowSet, rows_at: RowsAt) -> list[bytes]:
    rows = rows_at.rows
    live = rows_at.live(0, rows) if rows else None
    if isinstance(store, MemRowSet):
        keys = store.keys(rows)
    else:
        keys = EncodedKeys(*store.base.open().keys(0, rows))
    data, offsets = keys.data.tobytes(), keys.offsets.tolist()
    wanted = range(rows) if live is None else np.flatnonzero(live).tolist()
    return [data[offsets[i] : offsets[i + 1]] for i in wanted]


# ---- files and log ----


def check_files(fs: FileSystem, directory: str, state: TabletState) -> None:
    """Protocol N11: every file that the manifest names is there, with its size and its footer's checksum."""
    for meta in state.rowsets.values():
        path = file_path(directory, meta.base.name)
        with RowsFile(fs, path, size=meta.base.size, footer_crc=meta.base.footer_crc) as rows:
            hold(rows.rows == meta.rows, "N11", f"{path} has {rows.rows} rows, not {meta.rows}")
        for ref in (*meta.redo, *meta.undo):
            path = file_path(directory, ref.file.name)
            with DeltaFile(fs, path, size=ref.file.size, footer_crc=ref.file.footer_crc) as deltas:
                hold(deltas.entry_count == ref.entries, "N11", f"{path}: another number of entries")


def check_log(log: AppendingLog) -> None:
    """Protocol N10 as far as the log alone shows it."""
    # Read before the others, which only grow.
    committed = log.committed_ts
    hold(committed <= log.applied_ts, "N10", f"W {committed} > A {log.applied_ts}")
    hold(committed <= log.durable_ts, "N10", f"W {committed} > durable {log.durable_ts}")


def check_records(
    taken: Sequence[Record], states: dict[int, TabletState], *, through: int, fs: FileSystem, root: str
) -> None:
    """Protocol N1, N9 and N11 over retained records, and manifests as they were read with them.

    ``root`` is the folder of the tablets' directories, named by their ids with eight digits.
    """
    last = 0
    for record in taken:
        hold(record.ts > last, "N1", f"record {record.lsn} has {record.ts} after {last}")
        last = record.ts
        if record.kind != RECORD_KIND_INGEST or record.ts <= through:
            continue
        payload = records.decode(memoryview(record.payload), f"log record {record.lsn}", 0)
        for tablet_id in payload.tablets:
            state = states.get(tablet_id)
            if state is None:
                continue
            if record.ts > state.ingests_durable:
                for meta in state.rowsets.values():
                    hold(
                        meta.durable < record.ts,
                        "N9",
                        f"tablet {tablet_id}: D of rowset {meta.id} is {meta.durable}, the ingest of "
                        f"{record.ts} is not installed",
                    )
                hold(
                    state.inserts_durable < record.ts,
                    "N9",
                    f"tablet {tablet_id}: I is {state.inserts_durable} at the ingest of {record.ts}",
                )
                value = payload.extra.get("parts", {}).get(str(tablet_id), {})
                for name in named_files(value):
                    path = f"{root}/{tablet_id:08d}/{name}"
                    hold(fs.exists(path), "N11", f"{path}, which the log names, is not there")


def check_open(tablets: Sequence[Tablet], log: AppendingLog | None, *, floor: int, through: int) -> None:
    """What must hold of a table that has just been opened."""
    for tablet in tablets:
        with tablet.mutex:
            _check_state(tablet)
            for rowset in tablet.view.rowsets:
                check_rowset(tablet, rowset)
            check_memory(tablet)
            check_files(tablet.context.fs, tablet.directory, tablet.state)
            check_one_copy(tablet)
            first = tablet.first_ts
            hold(
                first is None or first > through,
                "N4",
                f"tablet {tablet.id} holds {first} in memory, the CHECKPOINT is through {through}",
            )
    if log is not None:
        check_log(log)
        hold(floor <= log.committed_ts, "N10", f"floor {floor} > W {log.committed_ts}")


def check_pins(floor: int, committed: int, oldest_pin: int | None) -> None:
    """Protocol N10: the horizon lies below the committed watermark and below every pin."""
    hold(floor <= committed, "N10", f"floor {floor} > W {committed}")
    hold(oldest_pin is None or floor <= oldest_pin, "N10", f"floor {floor} > pin {oldest_pin}")


__all__ = [
    "BrokenInvariant",
    "check_files",
    "check_install",
    "check_log",
    "check_one_copy",
    "check_open",
    "check_pins",
    "check_records",
]
