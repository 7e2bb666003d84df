"""A close beside a flush, beside a write, in a fork, and by the collector."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

import kudu_core as kc
from tests.support.fs.faulty import Call
from tests.support.fs.slow import LATE_S, SCHEMA, SOON_S, Disk, Thread, create, log_sync, reopen, rows
from tests.support.inside import engine_of, watch_of


def test_close_waits_for_a_flush(disk: Disk) -> None:
    """No MANIFEST is written without the lease."""
    table = create(disk)
    table.insert(rows(0, 50))
    order: list[str] = []
    lease = engine_of(table).lease
    assert lease is not None
    release = lease.release

    def released() -> None:
        order.append("release")
        release()

    lease.release = released  # type: ignore[method-assign]

    def look(call: Call) -> None:
        if call.op in ("rename", "append") and call.path.endswith("/MANIFEST"):
            order.append("edit")

    disk.see = look
    with disk.held(lambda c: c.op == "sync_dir" and "/tablets/" in c.path, table.flush):
        closing = Thread(table.close)
        closing.join(SOON_S)
    closing.join(LATE_S)
    assert order == ["edit", "release"]
    with pytest.raises(kc.Closed):
        table.flush()


def test_o3_clean_end_names_no_record_that_a_power_cut_may_take(disk: Disk) -> None:
    """A write that comes during the last fsync of a close."""
    create(disk).close()
    disk.memory.sync_all()
    table = reopen(disk, durability="none")
    table.insert(rows(20, 22))
    engine = engine_of(table)
    decided, go = threading.Event(), threading.Event()
    synced, end = threading.Event(), threading.Event()
    reserve, fence = engine.memory.reserve, engine.log._fence_check

    def slow_reserve(layings: Any, record_bytes: int) -> None:
        decided.set()
        assert go.wait(LATE_S)
        reserve(layings, record_bytes)

    def slow_fence() -> None:
        if threading.current_thread().name == "closing" and not synced.is_set():
            synced.set()
            assert end.wait(LATE_S)
        fence()

    engine.memory.reserve = slow_reserve  # type: ignore[method-assign,assignment]
    engine.log._fence_check = slow_fence
    write = Thread(lambda: table.insert([rows(30, 32)]))  # a list of tables goes the general path
    assert decided.wait(LATE_S)
    closing = Thread(table.close, "closing")
    synced.wait(SOON_S)
    go.set()
    write.join(SOON_S)
    end.set()
    closing.join(LATE_S)
    write.join(LATE_S)
    assert not closing.is_alive() and not write.is_alive()
    for seed in range(10):
        reopen(disk.memory.crash_clone(random.Random(seed))).close()


def test_a_table_is_collected_on_its_own_thread(disk: Disk) -> None:
    """The collector runs wherever memory is asked for, also under the locks that a close needs."""
    table = create(disk, durability="group", group_interval_s=0.01)
    collect, done = watch_of(table), threading.Event()

    def by_the_log_thread(call: Call) -> None:
        if threading.current_thread().name == "kudu-log" and log_sync(call) and collect.alive:
            collect()
            done.set()

    disk.see = by_the_log_thread
    table.insert(rows(0, 2))
    assert done.wait(LATE_S)
    deadline = time.monotonic() + LATE_S
    while time.monotonic() < deadline:
        with suppress(kc.Locked):
            assert reopen(disk).count() == 2
            return
        time.sleep(0.02)
    pytest.fail("the table was not closed")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_p1_a_scan_that_was_begun_before_a_fork(tmp_path: Any) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"scan_threads": 2}) as table:
        table.insert(rows(0, 60_000))
        batches = iter(table.scan(batch_rows=100))
        next(batches)
        child = os.fork()
        if not child:
            code = 1
            try:
                list(batches)
            except kc.Closed:
                code = 0
            finally:
                os._exit(code)
        deadline = time.monotonic() + LATE_S
        ended = (0, 0)
        while not ended[0] and time.monotonic() < deadline:
            ended = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not ended[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended == (child, 0)
        assert sum(b.num_rows for b in batches) == 59_900
