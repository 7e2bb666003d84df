"""Tablets that have ended and are purged, of a table in an object store: TABLE names nothing of them."""

from __future__ import annotations

from tests.support.inside import table_file_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened, rows_of


def test_a_table_opens_after_a_purge_and_no_checkpoint() -> None:
    """The snapshots of purged tablets go with their other files."""
    store = MemoryObjectStore()
    table = created(store, tablets=2, history_retention_s=0, file_grace_s=0)
    for n in range(70):
        table.upsert([{"k": n, "v": n}])
    table.flush()
    table.close()  # with so many objects in the log a close makes a checkpoint
    table = opened(store, "rw")
    assert table_file_of(table).place.snapshots.keys() == {1, 2}  # type: ignore[union-attr]
    table.truncate()
    table.insert([{"k": 1, "v": 1}])
    table.gc()
    table.gc()
    assert not [name for name in store.objects if name.startswith("tablets/0000000")], "they are deleted"
    table.close()
    with opened(store) as reader:
        assert rows_of(reader) == {1: 1}
    with opened(store, "rw") as writer:
        assert rows_of(writer) == {1: 1}
