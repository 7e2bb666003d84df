"""What a table in an object store costs: the rows of docs/objects.md that ``test_requests.py`` and
``test_reading.py`` do not count, and what an idle table asks for in a month."""

from __future__ import annotations

import threading
import time

import pytest

import kudu_core as kc
from kudu_core.objects.files.object_files import MOST_COMING
from kudu_core.objects.object_lease import RENEW_S, ObjectLease
from kudu_core.table.lifecycle.in_store import store_home
from kudu_core.table.opened import debug
from kudu_core.wal.objects import object_log
from tests.support.clock import ManualClock
from tests.support.inside import compaction_lane_of, engine_of, flush_lane_of, log_of, renewed
from tests.support.objects.fates import Fates, Op
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened, requests_of, spent

PUT_DOLLARS, GET_DOLLARS = 5e-6, 0.4e-6
"""Of a request to Amazon's store; a listing costs what a put does, and a deletion nothing."""
DAY_S, DAYS = 86_400, 30
WAVE = 16
"""So many objects of the log are asked for at a time."""


def dollars_of(requests: dict[str, int]) -> float:
    dear = requests.get("put", 0) + requests.get("list", 0)
    return PUT_DOLLARS * dear + GET_DOLLARS * requests.get("get", 0)


def asked_of(fates: Fates, since: int) -> dict[tuple[Op, str], int]:
    """How often each kind of request went to which folder, or to which object beside them."""
    found: dict[tuple[Op, str], int] = {}
    for request, _ in fates.log[since:]:
        what = (request.op, request.path.split("/")[0])
        found[what] = found.get(what, 0) + 1
    return found


# -- idle


@pytest.mark.parametrize("tablets", [1, 8])
def test_an_idle_table_open_for_writing_costs_its_lease(tablets: int) -> None:
    """A day by a clock that is moved: the lease is renewed, and all that threads do now and then is done."""
    store, clock = MemoryObjectStore(), ManualClock()
    with created(store, tablets=tablets, clock=clock) as table:
        table.upsert([{"k": n, "v": n} for n in range(1000)])
    table = opened(store, "rw", clock=clock, options={"maintenance": "background"})
    lease = engine_of(table).lease
    assert isinstance(lease, ObjectLease)
    flushes, compactions = flush_lane_of(table), compaction_lane_of(table)
    before, renewals = requests_of(store), 0
    for second in range(0, DAY_S, int(RENEW_S)):
        clock.advance(RENEW_S)
        assert renewed(lease)
        renewals += 1
        if second % 60 == 0:
            flushes.run_due()
            compactions.run_all(lambda: True, None, 1)
            compactions.collect_garbage()
    found = spent(store, before)
    table.close()
    assert renewals == DAY_S / RENEW_S
    assert renewals <= found["put"] <= renewals + 3 * tablets + 8, "and what lay in memory is flushed once"
    assert found.get("list", 0) <= 2 + 2 * 4, "what earlier writers have left; jobs, each six hours"
    assert found.get("get", 0) <= tablets + 60
    assert dollars_of(found) * DAYS < 2.0


def test_a_follower_of_an_idle_table_costs_its_probes() -> None:
    """An hour of one look each second."""
    store, clock = MemoryObjectStore(), ManualClock()
    with created(store, tablets=8, clock=clock) as table:
        table.upsert([{"k": 1, "v": 1}])
        with opened(store, clock=clock) as reader:
            before = requests_of(store)
            for _ in range(3600):
                clock.advance(1.0)
                reader.refresh()
            found = spent(store, before)
    assert set(found) == {"get"}
    assert 3600 <= found["get"] <= 3600 + 2 * 4, "TABLE, and the probe again, once in half of file_grace_s"
    assert dollars_of(found) * 24 * DAYS < 1.10


# -- rows of the table of requests


@pytest.mark.parametrize(("tablets", "commits"), [(1, 0), (8, 5), (64, 30)])
def test_an_open_for_writing(tablets: int, commits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """LEASE, TABLE three times, T snapshots, the log in waves, which ask for some behind its end; and puts of
    LEASE, TABLE and a fence."""
    monkeypatch.setenv(debug.SWITCH, "0")  # the checks of an open read files too
    store = MemoryObjectStore()
    monkeypatch.setattr(store_home, "CLOSE_OBJECTS", 0)
    with created(store, tablets=tablets) as table:
        table.upsert([{"k": n, "v": n} for n in range(1000)])
        table.flush()
    monkeypatch.setattr(store_home, "CLOSE_OBJECTS", 1000)
    with opened(store, "rw") as table:
        for n in range(commits):
            table.upsert([{"k": n, "v": -n}])
        kept = len(log_of(table).segments)
    faulty = FaultyStore(store)
    table = opened(faulty, "rw")
    asked = asked_of(faulty.fates, 0)
    table.close()
    log, of_tablets = asked.pop(("get", "log")), asked.pop(("get", "tablets"))
    assert kept <= log <= kept + WAVE, "each object since the checkpoint, and the first that is missing"
    assert asked == {
        ("get", "LEASE"): 1, ("put", "LEASE"): 1, ("get", "TABLE"): 3, ("put", "TABLE"): 1,
        ("put", "log"): 1,
    }  # fmt: skip
    ends = min(tablets, MOST_COMING) if commits else 0
    assert of_tablets == tablets + ends, "keys of records are looked for in the rowsets that are there"


def test_an_alter_is_one_put() -> None:
    store = MemoryObjectStore()
    with created(store, tablets=8) as table:
        table.upsert([{"k": 1, "v": 1}])
        before = requests_of(store)
        table.alter(add=[kc.Column("n", "int64", nullable=True)])
        assert spent(store, before) == {"put": 1}


def test_a_checkpoint_puts_what_has_changed_and_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of tablets there is, and of objects that go: these are deleted a thousand at a time."""
    monkeypatch.setattr(object_log, "CHECKPOINT_OBJECTS", 20)
    store = MemoryObjectStore()
    faulty = FaultyStore(store)
    with created(faulty, tablets=16, file_grace_s=0.0) as table:
        table.insert([{"k": n, "v": n} for n in range(1000)])
        for number in range(2):
            for n in range(22):
                table.upsert([{"k": 5, "v": n}, {"k": 6, "v": n}])
            there, since = set(store.objects), len(faulty.fates.log)
            table.flush()
            made = [name.rsplit(".")[-1] for name in set(store.objects) - there]
            changed = made.count("manifest")
            assert 1 <= changed <= 2 if number else changed == 16, "those that no snapshot has, and no other"
            asked = asked_of(faulty.fates, since)
            assert 1 <= asked.pop(("put", "log")) <= changed, "edits that wait for a put share the next one"
            assert asked == {
                ("put", "tablets"): changed + made.count("rows") + made.count("delta"),
                ("put", "TABLE"): 1,
            }
        table.gc()
        for n in range(22):
            table.upsert([{"k": 5, "v": n}, {"k": 6, "v": n}])
        table.flush()
        since = len(faulty.fates.log)
        table.gc()
        deleted = asked_of(faulty.fates, since)
        assert sum(deleted.values()) <= 3 and {op for op, _ in deleted} == {"delete"}, deleted
        assert len([name for name in store.objects if name.startswith("log/")]) < 20


def test_thirty_two_committers_share_puts() -> None:
    """Each put waits, as for an answer, until nobody else is on the way to the log.  With 20 calls in a put
    that takes 40 ms there are 500 calls a second."""
    threads, calls = 32, 10
    store = MemoryObjectStore()
    real, mutex = store.put, threading.Lock()
    begun = acknowledged = 0

    def put(path: str, data: bytes, condition: object) -> str:
        if path.startswith("log/"):
            until_s = time.monotonic() + 5.0
            while begun - acknowledged < threads and begun < threads * calls and time.monotonic() < until_s:
                time.sleep(0.001)
            time.sleep(0.005)  # who has begun comes to the log
        return real(path, data, condition)  # type: ignore[arg-type]

    table = created(store)
    store.put = put  # type: ignore[method-assign,assignment]

    def committer(number: int) -> None:
        nonlocal begun, acknowledged
        for n in range(calls):
            with mutex:
                begun += 1
            table.upsert([{"k": 1000 * number + n, "v": n}])
            with mutex:
                acknowledged += 1

    before = requests_of(store)
    workers = [threading.Thread(target=committer, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    puts = spent(store, before)["put"]
    assert puts <= threads * calls / 20
    assert table.count() == threads * calls
    table.close()
