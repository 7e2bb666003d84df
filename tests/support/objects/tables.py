"""Tables in an object store in memory; for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.common.format.names import file_path
from kudu_core.common.run.pool import Pool
from kudu_core.objects.api import Requests
from kudu_core.table.lifecycle.checks import followed_by
from kudu_core.table.lifecycle.in_store.found import snapshots_of, tail_of, with_edits
from kudu_core.table.lifecycle.in_store.put_ids import new_id, put_id_of
from kudu_core.table.lifecycle.in_store.table_object import place_of, read_table
from kudu_core.table.stored.table_state import tablet_directory
from kudu_core.wal.objects.log_object import log_name
from tests.support.objects.memory import MemoryObjectStore, client

URL = "s3://bucket/folder/t"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MANUAL = {"maintenance": "manual"}


def created(store: Requests, *, tablets: int = 1, **options: Any) -> kc.Table:
    """A new table of keys and values, open for writing, in which nothing happens by itself."""
    parts = [] if tablets == 1 else [kc.HashPartition("k", tablets)]
    clock = options.pop("clock", None)
    return kc.create_table(
        URL, SCHEMA, "k", partition_by=parts, options={**MANUAL, **options}, _requests=store, _clock=clock
    )


def opened(store: Requests, mode: str = "r", **how: Any) -> kc.Table:
    """A table that is there."""
    clock = how.pop("clock", None)
    return kc.open_table(URL, mode, _requests=store, _clock=clock, **how)


def taken_over(store: MemoryObjectStore, requests: Requests | None = None) -> kc.Table:
    """The table opened for writing, though another has it: as if that had slept for long."""
    end_lease(store)
    return opened(requests or store, "rw")


def end_lease(store: MemoryObjectStore) -> None:
    """Whoever has the lease has it no longer, sooner than it would expire: nothing rests on it.

    It is replaced and never deleted, as by those who take it over.  Without LEASE a late put of its first
    holder, which must find it absent, would make it that holder's again.
    """
    with store.mutex:
        if "LEASE" in store.objects:
            value = json.loads(store.objects["LEASE"].data)
            ended = {**value, "nonce": new_id().hex(), "released": True}
            store.store("LEASE", json.dumps(ended).encode())


def rows_of(table: kc.Table, **scan: Any) -> dict[int, int]:
    found = table.scan(**scan).to_table()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def referenced(store: MemoryObjectStore, root: str = URL) -> set[str]:
    """The objects that the table leads to, as they are in the store at this moment."""
    asked = client(store, ids=put_id_of)
    pool = Pool(1)
    state, _ = read_table(asked, root)
    snapshots = snapshots_of(asked, root, state, pool)
    tail = tail_of(asked, root, state, pool)
    tail.read_on()
    whole, _ = followed_by(state, tail)
    found = {"TABLE", *(log_name(one.n) for one in tail.objects)}
    for tablet_id, content in with_edits(whole, snapshots, tail, state.epoch).items():
        folder = tablet_directory("", tablet_id)[1:]
        found |= {file_path(f"/{folder}", name)[1:] for name in content.files}
        if tablet_id in place_of(state).snapshots:
            found.add(f"{folder}/{place_of(state).snapshots[tablet_id].name}")
    return found


def guard_deletes(store: MemoryObjectStore, root: str = URL) -> None:
    """From now on nothing is deleted that the table leads to."""
    delete = store.delete

    def guarded(paths: Sequence[str]) -> None:
        gone = referenced(store, root) & set(paths)
        assert not gone, f"the table needs {sorted(gone)}"
        delete(paths)

    store.delete = guarded  # type: ignore[method-assign]


def requests_of(store: MemoryObjectStore) -> dict[str, int]:
    """Counts by kind."""
    return {
        kind.removeprefix("requests_"): number
        for kind, number in store.counts().items()
        if kind.startswith("requests_")
    }


def spent(store: MemoryObjectStore, before: dict[str, int]) -> dict[str, int]:
    """The requests since ``before``, those of no kind left out."""
    now = requests_of(store)
    return {kind: now[kind] - before[kind] for kind in now if now[kind] > before[kind]}


__all__ = [
    "MANUAL",
    "SCHEMA",
    "URL",
    "created",
    "end_lease",
    "guard_deletes",
    "opened",
    "referenced",
    "requests_of",
    "rows_of",
    "spent",
    "taken_over",
]
