"""A fork beside threads that write: the child has none of them, nor waits for what they held."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run import cycles, workers
from kudu_core.common.run.cached import cached_property
from kudu_core.fs.lease import PosixLease

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
LATE_S = 60.0


def child(work: Callable[[], None]) -> int:
    """The exit status of a child that does the work; -1: it hung, and was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  the status tells
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + LATE_S
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_use_tables_of_their_own(tmp_path: Path, long: bool) -> None:
    """They write, read and close while the parent's threads sort, flush, compact and scan."""
    forks = 200 if long else 8
    keys = np.random.default_rng(1).permutation(60_000)
    data = pa.table({"k": keys, "v": keys})
    options = {"durability": "none", "ingest_threshold_rows": 1 << 30}
    with kc.create_table(tmp_path / "warm", SCHEMA, "k") as warm:  # what is made once is made
        warm.upsert({"k": [1], "v": [1]})
        warm.flush()
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        stop = threading.Event()
        rounds = [0]

        def busy(work: Callable[[], object]) -> None:
            while not stop.is_set():
                work()
                rounds[0] += 1

        def merge() -> None:
            table.flush()
            table.compact(full=True)

        works = (lambda: table.upsert(data), merge, lambda: table.scan().to_table())
        threads = [threading.Thread(target=busy, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            for number in range(forks):
                path = tmp_path / str(number)

                def work(path: Path = path) -> None:
                    with pytest.raises(kc.Closed):
                        table.count()
                    with kc.create_table(path, SCHEMA, "k", options={"durability": "group"}) as mine:
                        mine.upsert({"k": list(range(500)), "v": list(range(500))})
                        mine.flush()
                        mine.update({"k": [3], "v": [33]})
                        assert mine.get_many([5, 3, 999])["_found"].to_pylist() == [True, True, False]
                        mine.compact(full=True)
                        assert mine.count() == 500
                    assert gc.isenabled()

                status = child(work)
                assert status == 0, f"child {number} of {forks}: {'hung' if status < 0 else 'failed'}"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert rounds[0]


def leases_open() -> list[str]:
    """The files of leases that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if os.path.basename(path) in ("LOCK", "BUSY")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_no_child_keeps_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes one, and whatever it knows of it when another thread forks: a table is made, opened for
    writing, backed up, restored and repaired."""
    taken: list[str] = []
    usual = PosixLease.try_acquire

    def forking(lease: PosixLease, wait_s: float = 0.0) -> None:
        usual(lease, wait_s)
        taken.append(os.path.basename(lease.path))
        assert lease.path in leases_open()

        def work() -> None:
            assert not leases_open()

        assert child(work) == 0, f"{lease.path}: the child has {taken[-1]} open"

    monkeypatch.setattr(PosixLease, "try_acquire", forking)
    with kc.create_table(tmp_path / "t", SCHEMA, "k") as table:  # two leases: it is made, then opened
        table.upsert({"k": [1], "v": [1]})
        table.backup(tmp_path / "b")
    assert taken == ["LOCK"] * 3
    kc.restore(tmp_path / "b", tmp_path / "r")
    kc.repair(tmp_path / "t", dry_run=False)
    assert taken.count("BUSY") == 2
    assert not leases_open()


def test_a_child_goes_on_collecting_cycles() -> None:
    """A thread of the parent may hold the collector back, and mark its threads, at the moment of the fork."""

    def work() -> None:
        assert gc.isenabled() and not cycles._holders and not workers._idents

    marks = workers._idents
    with cycles.cycles_left(cycles.MANY):
        assert not gc.isenabled()
        marks.add(-1)
        try:
            assert child(work) == 0
        finally:
            marks.discard(-1)
        assert not gc.isenabled()
    assert gc.isenabled()


def test_cached_properties_have_no_lock() -> None:
    """Of several threads that compute a value at once each gets one, all equal, and one is kept."""
    barrier = threading.Barrier(4, timeout=LATE_S)
    computed: list[int] = []

    class Thing:
        @cached_property
        def value(self) -> list[int]:
            """Its value."""
            barrier.wait()  # with a lock the others would never come
            computed.append(1)
            return [7]

    thing = Thing()
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(thing.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[7]] * 4 and len(computed) == 4
    assert any(thing.value is value for value in found) and len(computed) == 4
    assert Thing.value.__doc__ == "Its value."
    assert isinstance(Thing.value, cached_property)


def locks_of_tables() -> list[Any]:
    """Every lock that an object of the package has as a member."""
    kinds = (type(threading.Lock()), type(threading.RLock()))
    owners = [o for o in gc.get_objects() if str(type(o).__module__).startswith("kudu_core.")]
    members = [m for o in owners for m in getattr(o, "__dict__", {}).values()]
    return list({id(m): m for m in members if isinstance(m, kinds)}.values())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_waits_for_no_lock_of_a_thread_that_it_does_not_have(tmp_path: Path) -> None:
    """Whatever threads of the parent held at the fork, nobody gives back there."""
    held, done = threading.Event(), threading.Event()
    taken: list[Any] = []

    def hold() -> None:
        taken.extend(lock for lock in locks_of_tables() if lock.acquire(timeout=0))
        held.set()
        done.wait(2 * LATE_S)
        for lock in taken:
            lock.release()

    def work() -> None:
        with pytest.raises(kc.Closed):
            table.count()
        with kc.create_table(tmp_path / "child", SCHEMA, "k") as mine:
            mine.insert({"k": [1], "v": [1]})
            mine.flush()
            assert mine.count() == 1

    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        table.insert({"k": list(range(10)), "v": list(range(10))})
        table.flush()
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        try:
            assert len(taken) > 10
            assert child(work) == 0
        finally:
            done.set()
            holder.join()
        assert table.count() == 10
