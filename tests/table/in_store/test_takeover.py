"""Writers of one table in an object store: one is replaced by another, whatever it was at (protocol B4)."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.clock import Clock, ManualClock
from tests.support.differential import Store
from tests.support.inside import forget
from tests.support.objects.fates import Rule
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import (
    MANUAL,
    SCHEMA,
    created,
    opened,
    requests_of,
    rows_of,
    taken_over,
)

ROWS = pa.table({"k": list(range(20_000)), "v": list(range(20_000))})

ACTS: dict[str, Callable[[kc.Table], object]] = {
    "one row": lambda table: table.upsert([{"k": 1, "v": -1}]),
    "many rows": lambda table: table.upsert(ROWS),
    "flush": lambda table: table.flush(),
    "compact": lambda table: table.compact(full=True),
    "alter": lambda table: table.alter(add=[kc.Column("n", "int64", nullable=True)]),
    "update where": lambda table: table.update(where=[("k", "<", 3)], set={"v": 9}),
    "close": lambda table: table.close(),
}


@pytest.mark.parametrize("act", ACTS)
def test_who_was_replaced_can_do_nothing_any_more(act: str) -> None:
    store = MemoryObjectStore()
    old = created(store, tablets=2)
    old.upsert(ROWS)
    old.flush()
    old.upsert([{"k": 0, "v": 100}])
    new = taken_over(store)
    new.upsert([{"k": 0, "v": 200}, {"k": 1, "v": 201}])
    want = rows_of(new)
    with pytest.raises((kc.Fenced, kc.Poisoned)):
        ACTS[act](old)
        old.upsert([{"k": 5, "v": 1}])  # what wrote nothing is fenced at the next write
    if act == "close":
        new.upsert([{"k": 6, "v": 6}])
        want[6] = 6
    assert rows_of(new) == want
    new.close()
    with opened(store) as reader:
        assert rows_of(reader) == want
    forget(old)


def test_the_fence_outlives_the_log_before_it() -> None:
    """However long it slept: the number that it would put next holds its successor's fence."""
    store = MemoryObjectStore(now_s=time.time)
    clock = Clock()
    old = created(store, file_grace_s=0.0, clock=clock)
    old.upsert([{"k": 0, "v": 0}])
    before = max(name for name in store.objects if name.startswith("log/"))
    new = taken_over(store)
    for n in range(300):
        new.upsert([{"k": n, "v": n}])
    new.flush()
    new.gc()
    assert before not in store.objects, "the log of that time is gone"
    with pytest.raises(kc.Fenced):
        old.upsert([{"k": 0, "v": 666}])
    assert new.get(0) == {"k": 0, "v": 0}
    new.close()
    forget(old)


def test_who_slept_for_an_hour_looks_at_table_before_it_answers() -> None:
    """Also where the fence is gone, which is kept for a month."""
    store = MemoryObjectStore()
    clock = ManualClock()
    old = created(store, clock=clock)
    old.upsert([{"k": 0, "v": 0}])
    number = len([name for name in store.objects if name.startswith("log/")])
    new = taken_over(store)
    new.upsert([{"k": 0, "v": 1}])
    fence = f"log/{number + 1:020d}"
    del store.objects[fence]
    clock.advance(3601)
    with pytest.raises(kc.Fenced):
        old.upsert([{"k": 0, "v": 666}])
    forget(old)
    forget(new)


def test_a_second_writer_waits_for_the_lease_and_is_told_who_has_it() -> None:
    store = MemoryObjectStore()
    clock = ManualClock()
    table = created(store, clock=clock)
    with pytest.raises(kc.Locked, match="is open for writing by process"):
        opened(store, "rw", clock=clock)
    table.close()
    opened(store, "rw", clock=clock).close()


def test_a_lease_that_nobody_renews_is_taken_over_after_its_time() -> None:
    store = MemoryObjectStore()
    clock = ManualClock()
    old = created(store, clock=clock)
    old.upsert([{"k": 1, "v": 1}])
    forget(old)
    with pytest.raises(kc.Locked):
        opened(store, "rw", clock=clock, timeout_s=10.0)
    new = opened(store, "rw", clock=clock, timeout_s=40.0)
    assert rows_of(new) == {1: 1}
    new.close()


def test_two_openers_at_once_have_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though both believe that they have the lease: the epoch is put by one of them."""
    store = MemoryObjectStore()
    created(store).close()
    first = taken_over(store)
    second = taken_over(store)
    with pytest.raises(kc.Fenced):
        first.upsert([{"k": 1, "v": 1}])
    second.upsert([{"k": 2, "v": 2}])
    assert rows_of(second) == {2: 2}
    second.close()
    forget(first)


def test_a_reader_follows_over_a_takeover() -> None:
    store = MemoryObjectStore()
    old = created(store)
    old.upsert([{"k": 1, "v": 1}])
    reader = opened(store)
    new = taken_over(store)
    new.upsert([{"k": 2, "v": 2}])
    reader.refresh()
    assert rows_of(reader) == {1: 1, 2: 2}
    reader.close()
    new.close()
    forget(old)


def test_a_child_of_a_fork_has_nothing_and_takes_nothing() -> None:
    store = MemoryObjectStore()
    table = created(store)
    table.upsert([{"k": 1, "v": 1}])
    puts = requests_of(store)["put"]
    pid = os.fork()
    if not pid:
        try:
            table.get(1)
        except kc.Closed:
            try:
                table.upsert([{"k": 2, "v": 2}])
            except kc.Closed:
                table.close()
                os._exit(7 if requests_of(store)["put"] == puts else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    table.upsert([{"k": 3, "v": 3}])
    assert rows_of(table) == {1: 1, 3: 3}
    table.close()


def test_a_handle_that_nobody_holds_is_closed_cleanly() -> None:
    store = MemoryObjectStore()
    table = created(store, durability="group", group_interval_s=60)
    table.upsert([{"k": 1, "v": 1}])
    del table
    gc.collect()
    with opened(store, "rw") as table:
        assert rows_of(table) == {1: 1}


def test_a_late_put_of_the_first_lease_does_not_bring_back_who_died_in_a_case() -> None:
    """LEASE is replaced and never deleted (protocol B11): what was to make it finds it made."""
    ground = Store()
    ground.faulty.fates.rules.append(Rule("late", ops=frozenset({"put"}), path_glob="LEASE", after=10**6))
    dead = kc.create_table(ground.path, SCHEMA, "k", options=MANUAL, **ground.how)
    ground.crash(random.Random(0))
    assert ground.faulty.land_late() == 1
    with kc.open_table(ground.path, "rw", **ground.how) as table:
        table.upsert([{"k": 1, "v": 1}])
    forget(dead)
