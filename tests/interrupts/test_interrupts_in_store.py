"""Ctrl-C in calls on a table in an object store: as in ``test_interrupts``."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from tests.support.cases.interrupted import CALLS, SCHEMA, World, go_on, prepare
from tests.support.inside import engine_of, log_of
from tests.support.interrupts import chosen, interrupted, locks_of, places_of, poisoned
from tests.support.objects.memory import MemoryObjectStore

ROOT = "s3://bucket"
OWN = (
    "upsert", "row", "ticket", "batch", "bulk", "alter", "get_many", "flush", "full compact", "gc", "backup",
    "restore", "create", "refresh", "close", "open",
)  # fmt: skip
"""Calls that go ways of their own here; the others in the long run only."""


@dataclass
class StoreWorld(World):
    """In stores in memory: one of the table, one of each of the others."""

    stores: dict[str, MemoryObjectStore] = field(default_factory=dict)

    def store(self, name: str) -> Any:
        return self.stores.setdefault(name, MemoryObjectStore())

    def create(self, name: str, **more: Any) -> kc.Table:
        return kc.create_table(f"{ROOT}/{name}", SCHEMA, "k", _requests=self.store(name), **more)

    def opened(self, mode: str = "r") -> kc.Table:
        return kc.open_table(f"{ROOT}/t", mode, _requests=self.store("t"))

    def backup(self, name: str) -> object:
        return self.table.backup(f"{ROOT}/{name}", _requests=self.store(name))

    def restored(self, name: str) -> kc.Table:
        return kc.restore(
            f"{ROOT}/kept", f"{ROOT}/{name}", _requests=self.store(name), _src_requests=self.store("kept")
        )

    def settle(self) -> None:
        """Who waits next puts what an interrupted call has left in the buffer."""
        if not poisoned(self.table):
            log_of(self.table).wait_durable(log_of(self.table).cut())
        super().settle()

    def staging_left(self) -> list[str]:
        return []


@pytest.mark.usefixtures("watchdog")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", CALLS)
def test_places_of_a_call(tmp_path: Path, name: str, long: bool, seed: int) -> None:
    if name not in OWN and not long:
        pytest.skip("--long")
    call = CALLS[name]
    w = StoreWorld(tmp_path, {"memory_limit_bytes": 32 << 20} if name == "spilled" else {})
    prepare(w, name)
    places, turns = places_of(lambda: call(w), locks_of(engine_of(w.table)))
    for at in chosen(places, turns, long, random.Random(seed), 2):
        if name in ("close", "open"):
            w.table = w.made.pop() if w.made else w.opened("rw")
            w.made.clear()
        prepare(w, name)
        before = w.number
        _, interruption = interrupted(lambda: call(w), at)
        go_on(w, before, name, f"place {at} of {places}: {interruption.where}")
        if name in ("close", "open"):
            w.table.close()
    if name not in ("close", "open"):
        w.table.close()
    with w.opened() as table:
        table.verify()
