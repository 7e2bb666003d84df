"""Writes with ``wait=False``: tickets (protocol W9)."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.run.workers import Worker
from kudu_core.wal.sync import SyncedLog
from tests.support.fs.faulty import Call
from tests.support.fs.slow import (
    LATE_S,
    PATH,
    SOON_S,
    Disk,
    Thread,
    create,
    log_sync,
    reopen,
    rows,
    values_of,
)
from tests.support.inside import log_of, poison_of

CALLS: dict[str, Callable[[kc.Table, int], Any]] = {
    "row": lambda table, k: table.insert([{"k": k, "a": k, "s": "x"}], wait=False),
    "few dicts": lambda table, k: table.insert([{"k": k, "a": k}, {"k": -k, "a": k}], wait=False),
    "few rows": lambda table, k: table.upsert(rows(k, k + 1), wait=False),
    "rows": lambda table, k: table.upsert({"k": [k], "a": [k]}, wait=False),
    "token": lambda table, k: table.upsert(rows(k, k + 1), wait=False, txn=("app", k)),
    "mixed": lambda table, k: table.apply({"_op": ["upsert"], "k": [k], "a": [k]}, wait=False),
    "where": lambda table, k: table.update(where=pc.field("k") == 0, set={"a": k}, wait=False),
    "delete where": lambda table, k: table.delete(where=pc.field("k") == 0, wait=False),
    "delete": lambda table, k: table.delete([0], on_missing="ignore", wait=False),
}


class Gate:
    """Holds up fsyncs of the log, and counts those that have begun and ended."""

    def __init__(self, disk: Disk) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        self.begun = 0
        self._inner = disk.see
        disk.see = self

    def __call__(self, call: Call) -> None:
        if log_sync(call):
            self.begun += 1
            self.reached.set()
            assert self.open.wait(LATE_S)


@contextmanager
def shut(disk: Disk) -> Iterator[Gate]:
    """No fsync of the log comes to its end before the block does."""
    gate = Gate(disk)
    try:
        yield gate
    finally:
        gate.open.set()


def first(disk: Disk, **options: Any) -> kc.Table:
    table = create(disk, **options)
    table.insert(rows(0, 1))
    return table


@pytest.mark.parametrize("name", CALLS)
def test_w9_a_ticket_is_done_after_an_fsync_that_covers_it(disk: Disk, name: str) -> None:
    table = first(disk)
    before = values_of(table)
    with shut(disk) as gate:
        ticket = CALLS[name](table, 5)
        assert gate.reached.wait(LATE_S), "the log's thread syncs although nobody asks"
        assert not ticket.done()
        with pytest.raises(TimeoutError):
            ticket.result(timeout=0.01)
        assert values_of(table) == before, "readers see what W says"
        assert repr(ticket).startswith("<kudu_core.WriteTicket not done")
    result = ticket.result(timeout=LATE_S)
    assert ticket.done() and sum(result.counts) == (2 if name == "few dicts" else 1)
    assert values_of(table) != before and log_of(table).durable_ts >= result.timestamp
    assert ticket.result() is result


def test_w9_many_calls_of_one_caller_share_an_fsync(disk: Disk) -> None:
    table = first(disk)
    with shut(disk) as gate:
        tickets = [CALLS["row"](table, 1)]
        assert gate.reached.wait(LATE_S)
        tickets += [CALLS[name](table, 10 + i) for i in range(100) for name in ("row", "rows")[i % 2 :][:1]]
        assert not any(ticket.done() for ticket in tickets), "the fsync that runs may not cover them"
    results = [ticket.result() for ticket in tickets]
    assert gate.begun == 2, "the one that was under way, and one for all others"
    assert [r.timestamp for r in results] == sorted(r.timestamp for r in results)
    assert table.count() == 102


def test_w9_who_waits_runs_the_fsync_itself(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncedLog, "ask_log_thread", lambda log: None)
    table = first(disk)
    before = log_of(table).fsyncs
    tickets = [CALLS["row"](table, k) for k in range(1, 9)]
    assert not tickets[0].done() and log_of(table).fsyncs == before
    assert tickets[3].result().inserted == 1
    assert all(ticket.done() for ticket in tickets) and log_of(table).fsyncs == before + 1


def test_w9_without_a_thread_the_call_waits(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(worker: Worker) -> None:
        raise RuntimeError("can't start new thread")

    table = first(disk)
    monkeypatch.setattr(Worker, "start", none)
    assert CALLS["row"](table, 1).done() and table.count() == 2


@pytest.mark.parametrize("durability", ["group", "none"])
def test_w9_where_calls_do_not_wait_tickets_are_done_at_once(disk: Disk, durability: str) -> None:
    table = first(disk, durability=durability)
    with shut(disk):
        assert CALLS["rows"](table, 1).done() and table.count() == 2


def test_w4_a_refusal_is_raised_by_the_call_after_what_it_rests_on(disk: Disk) -> None:
    table = first(disk)
    with shut(disk) as gate:
        ticket = CALLS["row"](table, 1)
        assert gate.reached.wait(LATE_S)
        other = Thread(lambda: table.insert(rows(1, 2), wait=False))
        other.join(SOON_S)
        assert other.is_alive(), "the row that refuses it is not durable"
    other.join(LATE_S)
    assert isinstance(other.answer[0], kc.RowErrors) and ticket.done()
    ignored = table.insert(rows(0, 3), on_error="return", wait=False).result()
    assert (ignored.inserted, ignored.refused) == (1, 2)
    with pytest.raises(kc.SchemaMismatch):
        table.insert({"k": [1], "nothing": [2]}, wait=False)


@pytest.mark.parametrize("what", ["ignored", "repeated"])
def test_w9_a_ticket_of_what_changes_nothing_rests_on_what_it_saw(disk: Disk, what: str) -> None:
    table = first(disk)

    def nothing() -> Any:
        if what == "ignored":
            return table.insert(rows(1, 2), on_conflict="ignore", wait=False)
        return table.upsert(rows(1, 2), txn=("app", 1), wait=False)

    with shut(disk) as gate:
        table.upsert(rows(1, 2), txn=("app", 1), wait=False)
        assert gate.reached.wait(LATE_S)
        ticket = nothing()
        assert not ticket.done()
    result = ticket.result()
    assert result.ignored == 1 if what == "ignored" else result.deduplicated


def test_a_batch_gives_a_ticket(disk: Disk) -> None:
    table = first(disk)
    with table.batch(wait=False) as batch:
        batch.insert(rows(1, 3))
        batch.delete([0])
    with pytest.raises(kc.InvalidArgument, match="no result: with wait=False ask its ticket"):
        _ = batch.result
    assert batch.ticket.result().counts == (2, 0, 1, 0)
    assert sorted(values_of(table)) == [1, 2]


def test_an_ingest_gives_a_ticket_that_is_done(disk: Disk) -> None:
    table = first(disk, ingest_threshold_rows=3)
    ticket = table.insert(rows(1, 9), wait=False)
    assert ticket.done() and ticket.result().inserted == 8
    assert table.upsert(pa.table({"k": pa.array([], pa.int64())}), wait=False).done()


def test_flush_and_close_wait_for_what_is_outstanding(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncedLog, "ask_log_thread", lambda log: None)
    table = first(disk)
    flushed = CALLS["row"](table, 1)
    assert not flushed.done()
    table.flush()
    assert flushed.done()
    nothing = table.delete([77], on_missing="ignore", txn=("app", 1), wait=False)  # in the log alone
    assert not nothing.done()
    table.flush()
    assert nothing.done()
    closed = CALLS["row"](table, 2)
    table.close()
    assert closed.done() and closed.result().inserted == 1
    with reopen(disk) as table:
        assert sorted(values_of(table)) == [0, 1, 2]


def test_a_ticket_that_nobody_asks_for_is_made_durable(disk: Disk) -> None:
    table = first(disk)
    log = log_of(table)
    with shut(disk):
        CALLS["row"](table, 1)
        ts = log.last_record_ts
    log.wait_visible(ts)
    assert log.durable_ts >= ts


def test_w8_a_failed_fsync_reaches_every_ticket_that_it_concerns(disk: Disk) -> None:
    table = first(disk)
    sound = CALLS["row"](table, 1)
    sound.result()
    reached, go = threading.Event(), threading.Event()

    def fail(call: Call) -> None:
        if log_sync(call):
            reached.set()
            assert go.wait(LATE_S)
            raise OSError(5, "broken")

    disk.see = fail
    tickets = [CALLS["row"](table, k) for k in range(2, 7)]
    assert reached.wait(LATE_S)
    waiting = Thread(lambda: tickets[0].result())
    go.set()
    waiting.join(LATE_S)
    assert isinstance(waiting.answer[0], kc.Poisoned)
    for ticket in tickets:
        assert ticket.done()
        for timeout in (None, 5):
            with pytest.raises(kc.Poisoned) as told:
                ticket.result(timeout)
            assert isinstance(told.value.__cause__, OSError)
    assert sound.result().inserted == 1 and sorted(values_of(table)) == [0, 1]
    with pytest.raises(kc.Poisoned):
        CALLS["row"](table, 9)
    disk.see = lambda call: None
    table.close()
    assert isinstance(poison_of(table), OSError)
    with pytest.raises(kc.Poisoned):
        tickets[0].result()


def test_a_full_disk_is_told_by_the_call(disk: Disk) -> None:
    table = first(disk)
    path = log_of(table).active.path
    failed: list[int] = []

    def full(call: Call) -> None:
        if call.op == "pwrite" and call.path == path and not failed:
            failed.append(1)
            raise OSError(28, "no space")

    disk.see = full
    with pytest.raises(OSError, match="no space"):
        CALLS["rows"](table, 1)
    assert failed
    assert CALLS["rows"](table, 1).result().inserted == 1


def test_an_interrupted_wait_may_be_repeated(disk: Disk) -> None:
    table = first(disk)
    done: list[int] = []

    def see(call: Call) -> None:
        if log_sync(call) and not done:
            done.append(1)
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SyncedLog, "ask_log_thread", lambda log: None)
        ticket = CALLS["row"](table, 1)
        disk.see = see
        with pytest.raises(KeyboardInterrupt):
            ticket.result()
    assert done and ticket.result().inserted == 1 and table.count() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_p1_in_a_forked_child_only_what_was_done_is_done(disk: Disk) -> None:
    table = first(disk)
    done = CALLS["row"](table, 1)
    done.result()
    with shut(disk) as gate:
        ticket = CALLS["row"](table, 2)
        assert gate.reached.wait(LATE_S)  # a thread that the child lacks holds the log's lock
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert done.result().inserted == 1 and ticket.done()
                for timeout in (None, 1):
                    try:
                        ticket.result(timeout)
                    except kc.Closed:
                        continue
                    os._exit(2)
                status = 0
            finally:
                os._exit(status)
        _, code = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(code) == 0
    assert ticket.result().inserted == 1


def test_await_does_not_block_the_loop(disk: Disk) -> None:
    table = first(disk)

    async def main() -> None:
        turns = 0
        with shut(disk) as gate:
            tickets = [CALLS["row"](table, k) for k in range(1, 6)]
            waiting = asyncio.gather(*tickets, return_exceptions=True)
            while not gate.reached.is_set() or turns < 10:
                await asyncio.sleep(0.001)
                turns += 1
            assert not waiting.done()
        results = await asyncio.wait_for(waiting, LATE_S)
        assert [r.inserted for r in results if isinstance(r, kc.WriteResult)] == [1] * 5
        assert (await tickets[0]) is tickets[0].result()

        def fail(call: Call) -> None:
            if log_sync(call):
                raise OSError(5, "broken")

        disk.see = fail
        with pytest.raises(kc.Poisoned):
            await CALLS["row"](table, 9)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_what_a_ticket_has_said_survives_a_power_cut(disk: Disk, seed: int) -> None:
    """Photographs at any fsync or write: each holds at least what tickets had answered by then, and whole
    calls alone, the newest missing."""
    rng = random.Random(seed)
    table = create(disk, ingest_threshold_rows=20)
    made: list[kc.WriteTicket] = []
    photographs = []
    lock = threading.Lock()

    def see(call: Call) -> None:
        if call.op in ("sync", "pwrite") and rng.random() < 0.1:
            with lock:
                promised = sum(ticket.done() for ticket in made)
                photographs.append((promised, disk.memory.crash_clone(rng.randrange(1 << 30))))

    disk.see = see
    state: dict[int, int] = {}
    states = [dict(state)]
    for n in range(1, 60):
        width = rng.choice((1, 1, 4, 30))
        keys = rng.sample(range(60), width)
        ticket = table.upsert({"k": keys, "a": [n] * width}, wait=False)
        state.update(dict.fromkeys(keys, n))
        states.append(dict(state))
        made.append(ticket)
        if rng.random() < 0.2:
            rng.choice(made).result()
        if rng.random() < 0.05:
            table.flush()
    disk.see = lambda call: None
    table.close()
    assert photographs
    for promised, after in photographs[:12]:
        with kc.open_table(PATH, "rw", _fs=after) as found:
            seen = values_of(found)
        assert seen in states
        assert max(i for i, s in enumerate(states) if s == seen) >= promised
