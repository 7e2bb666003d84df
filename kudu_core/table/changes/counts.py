"""How many changes a window has: at most, by the manifests alone; and up to when there are so many."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.changes.changes import open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest, window

if TYPE_CHECKING:
    from kudu_core.rowset.disk.diskrowset import DiskRowSet
    from kudu_core.table.opened.handle import Handle
    from kudu_core.tablet.store.tablet import Tablet


@dataclass(frozen=True, slots=True)
class Told:
    """What one file, or one memory store, tells of a window."""

    first: int
    last: int
    """No change of it lies outside ``[first, last]``."""
    most: int
    """Changes, at most."""
    sure: int
    """Changes, at least, of which none lies after ``last``."""


def told(
    tablet: Tablet, since: int, until: int, switches: Collection[int] = frozenset()
) -> Iterator[Told]:
    """What a tablet's stores tell of ``(since, until]``.  Opens nothing.

    ``switches``: when the table got other partitions, of which nothing is told.
    """
    dropped = tablet.dropped_ts
    if dropped is not None and dropped <= since:
        return
    if dropped in switches:
        dropped = None
    if tablet.created_ts in switches:
        since = max(since, tablet.created_ts)
    for store in tablet.view.stores:
        rows = len(store) if isinstance(store, MemRowSet) else store.meta.rows
        if dropped is not None and dropped <= until and rows:
            yield Told(dropped, dropped, rows, 0)  # of rows that are dead by then it tells nothing
        if isinstance(store, MemRowSet):
            count = store.rows_at(until) - store.rows_at(since)
            count += store.count_changes(since, until)
            if count:
                yield Told(since + 1, until, count, count)
        else:
            yield from _of_rowset(store, since, until)


def _of_rowset(store: DiskRowSet, since: int, until: int) -> Iterator[Told]:
    meta = store.meta
    if meta.insert_ts is None:
        if meta.max_insert_ts > since:
            known = meta.max_insert_ts <= until
            yield Told(since + 1, min(until, meta.max_insert_ts), meta.rows, int(known))
    elif since < meta.insert_ts <= until:
        yield Told(meta.insert_ts, meta.insert_ts, meta.rows, meta.rows)
    for part in (*store.undo, *store.redo):
        if isinstance(part, ChangeLog):
            count = part.limit(until) - part.limit(since)
            if count:
                yield Told(since + 1, until, count, count)
        elif part.ref.min_ts <= until and part.ref.max_ts > since:
            first, last, entries = part.ref.min_ts, part.ref.max_ts, part.ref.entries
            within = since < first and last <= until
            yield Told(max(first, since + 1), min(last, until), entries, entries if within else 0)


def changes_within(handle: Handle, since: int, until: int, max_rows: int) -> int:
    """The latest time, ``until`` at most, up to which there are at most ``max_rows`` changes after ``since``;
    of more than that at one time, that time.  Always later than ``since``, unless ``until`` is not.

    Where the manifests say that there are fewer no file is opened; else only files of changes that lie
    before a time up to which there are surely more.
    """
    if until <= since:
        return since
    engine = handle.opened()
    window(engine, since, until)
    switches = engine.tablets.switches
    found = [part for tablet in engine.tablets for part in told(tablet, since, until, switches)]
    if sum(part.most for part in found) <= max_rows:
        return until
    surely = 0
    for part in sorted(found, key=lambda part: part.last):
        surely += part.sure
        if surely > max_rows:
            until = part.last
            break
    times, counts = open_changes(handle, ChangesRequest(columns=()), since, until).counts()
    kept = int(np.searchsorted(np.cumsum(counts), max_rows, side="right"))
    if kept == len(times):
        return until
    return int(times[max(0, kept - 1)])


__all__ = ["Told", "changes_within", "told"]
