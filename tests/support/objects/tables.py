"""Tables in an object store in memory; for tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.objects.api import Requests
from tests.support.objects.memory import MemoryObjectStore

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
    store.objects.pop("LEASE", None)
    return opened(requests or store, "rw")


def rows_of(table: kc.Table, **scan: Any) -> dict[int, int]:
    found = table.scan(**scan).to_table()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


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
    "opened",
    "requests_of",
    "rows_of",
    "spent",
    "taken_over",
]
