"""Tablets of dropped ranges, and of before an overwrite, whose history nobody may read (protocol H3).

TABLE first, then, when no view holds them, their files.  What is left at the end of the process is an
orphan for the next open.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kudu_core.common.run.locks import HeldLocks
from kudu_core.events import TabletsPurged
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.opened.pins import Purged
from kudu_core.table.stored.table_state import TableState
from kudu_core.tablet.view.view import View

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet


def purge(engine: Engine) -> bool:
    """Let go of dropped tablets that lie behind the horizon; whether there were any."""
    dropped = [tablet for tablet in engine.tablets if tablet.dropped_ts is not None]
    if not dropped:
        return False
    wanted = engine.horizon()
    if not any(_is_behind(tablet, wanted) for tablet in dropped):
        return False
    with engine.altering:
        engine.check_writable()
        horizon = engine.horizon(drop=True)
        waiting = [tablet for tablet in engine.tablets if _is_behind(tablet, horizon)]
        with HeldLocks([tablet.flush_lane for tablet in waiting] + [tablet.mutex for tablet in waiting]):
            gone = _let_go(engine, waiting, horizon)
        if not gone:
            return False
    engine.tell(TabletsPurged(horizon=horizon, tablets=gone))
    return True


def _is_behind(tablet: Tablet, horizon: int) -> bool:
    return tablet.dropped_ts is not None and tablet.dropped_ts <= horizon


def _let_go(engine: Engine, waiting: Sequence[Tablet], horizon: int) -> int:
    """Take tablets out of TABLE and of memory, but for those on which a compaction works; how many.

    Under the flush lanes and mutexes of all of them.  Only when TABLE has forgotten a tablet, and knows the
    horizon, may memory let go of its rows: else the flush lane drops them from the log, and a crash leaves a
    tablet without rows that is still to be read.
    """
    gone = [tablet for tablet in waiting if not tablet.compacting]
    if not gone:
        return 0
    ids = {tablet.id for tablet in gone}

    def without(state: TableState) -> TableState:
        left = tuple(entry for entry in state.tablets if entry.id not in ids)
        place = None if state.place is None else state.place.without(ids)
        partitions = state.partitions.kept_for(entry.partition for entry in left)
        return replace(
            state, tablets=left, partitions=partitions, horizon=max(state.horizon, horizon), place=place
        )

    engine.table_file.change(without)
    engine.replace_tablets(engine.tablets.without(ids))
    for tablet in gone:
        _retire(engine, tablet)
    return len(gone)


def _retire(engine: Engine, tablet: Tablet) -> None:
    """Under the tablet's flush lane and mutex: it has nothing to flush or to compact any more."""
    view = tablet.view
    tablet.view = View(MemRowSet(engine.schema), types_version=view.types_version)
    tablet.close()
    holders: list[object] = []
    for rowset in view.rowsets:
        holders += [rowset.base, *(s for s in (*rowset.redo, *rowset.undo) if isinstance(s, DeltaStore))]
        rowset.let_go()
    ready_s = engine.clock.monotonic_s() + engine.options.file_grace_s
    engine.purged.append(Purged(tablet.directory, tuple(map(weakref.ref, holders)), ready_s))


def delete_purged(engine: Engine) -> int:
    """Delete the files of purged tablets that nobody can read any more; of how many tablets."""
    if not engine.purged:
        return 0
    now = engine.clock.monotonic_s()
    deleted = 0
    with engine.altering:
        for purged in list(engine.purged):
            if purged.ready_s <= now and all(holder() is None for holder in purged.holders):
                engine.check_writable()
                engine.table_file.fence()
                if engine.fs.exists(purged.directory):  # not where an interrupt came after it went
                    engine.fs.rmtree(purged.directory)
                engine.purged.remove(purged)
                deleted += 1
    return deleted


__all__ = ["delete_purged", "purge"]
