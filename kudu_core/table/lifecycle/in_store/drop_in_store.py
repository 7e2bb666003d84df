"""A table in an object store is dropped.

An epoch begins first, with its fence (protocol B4): it ends every writer of before, also one that has lost
its lease and does not know.  Then TABLE goes, and without TABLE there is no table.  What has to stay, stays:
the fences, at which late writers stop (protocol B5), LEASE, which is never deleted (protocol B11), and
``DROPPED``, by which nobody makes another table there: names of objects are used once, and a late request of
this one could meet it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kudu_core.common.format.names import DROPPED
from kudu_core.errors import TableNotFound
from kudu_core.objects import object_lease
from kudu_core.table.lifecycle.in_store import table_object
from kudu_core.table.lifecycle.in_store.looking import is_of_a_job, is_of_a_tablet
from kudu_core.table.lifecycle.in_store.open_store_writer import end_writers
from kudu_core.table.lifecycle.in_store.table_object import place_of, read_table
from kudu_core.wal.objects.log_object import OBJECT_HEADER, parse_log_name

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.common.run.pool import Pool
    from kudu_core.objects.api import ObjectStore

_STAY: Final = (DROPPED, object_lease.NAME)


def drop_in_store(store: ObjectStore, root: str, clock: Clock, pool: Pool) -> tuple[str, ...]:
    """As ``drop_table``.  ``pool``: for requests side by side."""
    try:
        state, _ = read_table(store, root, restore=None)
    except TableNotFound:
        if not _is_dropped(store):
            raise
        return _clear(store)
    lease = end_writers(store, root, clock, pool, place_of(state).restore)
    try:
        store.put(DROPPED, state.uuid.hex().encode())
        store.delete_many([table_object.NAME])
        return _clear(store)
    finally:
        lease.release()


def _is_dropped(store: ObjectStore) -> bool:
    try:
        store.read_ranges(DROPPED, [(0, 1)])
    except FileNotFoundError:
        return False
    return True


def _clear(store: ObjectStore) -> tuple[str, ...]:
    """Delete what a LIST shows of the table; what it shows of others."""
    gone, left = [], []
    for entry in store.entries(""):
        if parse_log_name(entry.name) is not None:
            if entry.size != OBJECT_HEADER.size:
                gone.append(entry.name)
        elif is_of_a_tablet(entry.name) or is_of_a_job(entry.name):
            gone.append(entry.name)
        elif entry.name not in _STAY:
            left.append(entry.name)
    store.delete_many(gone)
    return tuple(left)


__all__ = ["drop_in_store"]
