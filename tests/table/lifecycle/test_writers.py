"""One writer: who comes second is told who is first, who was replaced acknowledges nothing."""

from __future__ import annotations

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from tests.support.models.overwriting import overwrite
from tests.support.processes import ROOT, in_child, python
from tests.support.tables import Make

HOLDER = """
    import sys, kudu_core as kc
    table = kc.open_table(sys.argv[1], "rw")
    print("open", flush=True)
    sys.stdin.read()
"""


def test_another_thread_is_told_who_holds_it(table: kc.Table, path: Path) -> None:
    told: list[BaseException] = []

    def second() -> None:
        try:
            kc.open_table(path, "rw")
        except kc.KuduError as error:
            told.append(error)

    threads = [threading.Thread(target=second) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 8
    for error in told:
        assert isinstance(error, kc.Locked), error
        assert (error.pid, error.host) == (os.getpid(), socket.gethostname())
        assert str(path) in str(error) and "timeout_s" in str(error)
    table.insert({"k": [1]})


def test_of_many_that_open_at_once_one_wins(table: kc.Table, path: Path) -> None:
    table.close()
    barrier = threading.Barrier(8)
    won: list[kc.Table] = []
    lost: list[kc.Locked] = []

    def attempt() -> None:
        barrier.wait()
        try:
            won.append(kc.open_table(path, "rw"))
        except kc.Locked as error:
            lost.append(error)

    for _ in range(5):
        threads = [threading.Thread(target=attempt) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1 and len(lost) == 7
        won[0].upsert({"k": [1]})
        won[0].close()
        won.clear()
        lost.clear()


def test_a_holder_in_another_process_and_its_death(table: kc.Table, path: Path) -> None:
    table.insert({"k": [1]})
    table.close()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(kc.Locked) as locked:
            kc.open_table(path, "rw")
        assert (locked.value.pid, locked.value.host) == (holder.pid, socket.gethostname())
        with kc.open_table(path) as reader:
            assert reader.count() == 1
        holder.kill()
    with kc.open_table(path, "rw") as again:  # the kernel has let go: no stale lock
        again.insert({"k": [2]})
        assert again.count() == 2


def test_the_text_of_LOCK_is_only_a_hint(table: kc.Table, path: Path) -> None:
    for text in (b"", b"\xff\xfe garbage", b"pid 99999999999999999999999\nhost \n", b"pid 1\n" * 1000):
        (path / "LOCK").write_bytes(text)
        with pytest.raises(kc.Locked) as locked:
            kc.open_table(path, "rw")
        assert str(locked.value)
    table.insert({"k": [1]})


# ---- a writer that was replaced while it slept


def replace_as_another_host_would(path: Path) -> None:
    """LOCK and TABLE become other files, as by a holder on whom the lock of this kernel has no hold."""
    for name in ("LOCK", "TABLE"):
        copy = path / f"{name}.new"
        shutil.copyfile(path / name, copy)
        os.replace(copy, path / name)


ACTIONS: dict[str, Callable[[kc.Table], Any]] = {
    "insert": lambda t: t.insert({"k": [2]}),
    "row": lambda t: t.insert([{"k": 2, "a": 1, "s": None, "must": 1}]),
    "update": lambda t: t.update({"k": [1], "a": [9]}),
    "delete": lambda t: t.delete([1]),
    "where": lambda t: t.delete(where=[("k", "=", 1)]),
    "ingest": lambda t: t.insert({"k": list(range(10, 60))}),
    "token": lambda t: t.upsert({"k": [2]}, txn=("app", 1)),
    "flush": lambda t: t.flush(),
    "overwrite": lambda t: overwrite(t, [{"k": 2, "must": 1}]),
    "close": lambda t: (t.upsert({"k": [2]}), t.close()),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_stale_writer_is_fenced(make: Make, path: Path, action: str) -> None:
    """What wakes up after another writer has taken over acknowledges nothing, and changes nothing of the
    other one's table."""
    table = make(durability="sync", ingest_threshold_rows=20)
    table.insert({"k": [1], "a": [5]})
    replace_as_another_host_would(path)
    other = kc.open_table(path, "rw", options={"durability": "sync"})  # another LOCK, so nobody holds it
    other.upsert({"k": [1, 100], "a": [6, 6]})
    other.flush()
    table_file = (path / "TABLE").read_bytes()
    manifest = next((path / "tablets").rglob("MANIFEST")).read_bytes()
    with pytest.raises(kc.Fenced, match="another writer"):
        ACTIONS[action](table)
    for later in ("insert", "update", "flush"):
        with pytest.raises((kc.Fenced, kc.Closed)):
            ACTIONS[later](table)
    assert table_file == (path / "TABLE").read_bytes()
    assert manifest == next((path / "tablets").rglob("MANIFEST")).read_bytes()
    table.close()
    assert table_file == (path / "TABLE").read_bytes(), "a fenced writer has written TABLE as it closed"
    other.insert({"k": [101]})
    other.close()
    with kc.open_table(path, "rw") as again:
        rows = {row["k"]: row["a"] for row in again.scan(["k", "a"]).to_pylist()}
        assert rows == {1: 6, 100: 6, 101: None}


def test_a_stale_overwrite_does_not_touch_the_tablets_that_have_its_numbers(make: Make, path: Path) -> None:
    table = make(durability="sync")
    table.insert({"k": [1], "a": [5]})
    replace_as_another_host_would(path)
    other = kc.open_table(path, "rw", options={"durability": "sync"})
    overwrite(other, [{"k": 3, "a": 3, "must": 1}])
    there = {file: file.read_bytes() for file in (path / "tablets").rglob("*") if file.is_file()}
    with pytest.raises(kc.Fenced, match="another writer"):
        overwrite(table, [{"k": 2, "must": 1}])
    with pytest.raises(kc.Fenced):
        table.close()
    assert {file: file.read_bytes() for file in (path / "tablets").rglob("*") if file.is_file()} == there
    other.close()
    with kc.open_table(path, "rw") as again:
        assert again.scan(["k"]).to_pylist() == [{"k": 3}]


def test_a_stale_writer_in_the_background(make: Make, path: Path) -> None:
    """The flush lane of a replaced writer stops, and leaves the other one's files alone."""
    table = make(durability="sync", maintenance="background", flush_age_s=0)
    replace_as_another_host_would(path)
    other = kc.open_table(path, "rw", options={"durability": "sync", "maintenance": "manual"})
    other.insert({"k": list(range(50))})
    other.flush()
    with pytest.raises(kc.Fenced):
        table.insert({"k": [1000]})
    time.sleep(1.2)  # two looks of the flush lane
    assert other.count() == 50
    other.close()
    table.close()
    with kc.open_table(path) as reader:
        assert reader.count() == 50


# ---- forks


def test_every_call_of_a_forked_handle_raises(make: Make, path: Path) -> None:
    table = make(durability="sync", maintenance="background")
    table.insert({"k": list(range(10))})
    table.flush()
    reader = kc.open_table(path)
    snapshot, scan, batches = table.snapshot(), table.scan(), iter(table.scan(batch_rows=2))
    next(batches)
    token = table.scan_tokens()[0]
    uses: dict[str, Callable[[], Any]] = {
        "insert": lambda: table.insert({"k": [99]}),
        "row": lambda: table.upsert([{"k": 99}]),
        "update": lambda: table.update(where=[("k", "=", 1)], set={"a": 1}),
        "delete": lambda: table.delete([1]),
        "get": lambda: table.get(1),
        "get_many": lambda: table.get_many([1]),
        "scan": lambda: table.scan().to_table(),
        "old scan": lambda: scan.to_table(),
        "count": lambda: table.count(),
        "half a scan": lambda: list(batches),
        "snapshot": lambda: snapshot.scan().to_table(),
        "token": lambda: table.scan_token(token).to_table(),
        "stats": lambda: table.stats(),
        "flush": lambda: table.flush(),
    }
    for name, use in uses.items():
        said = in_child(use)
        if name == "half a scan":  # what it has begun to read it may finish, or it refuses
            assert said.startswith(("Closed", "[")), f"{name}: {said}"
        else:
            assert said.startswith("Closed: ") and "fork" in said, f"{name}: {said}"
    for use in (reader.refresh, lambda: reader.scan().count(), lambda: reader.get(1)):
        assert not in_child(use).startswith("Closed"), "a reader opens the table anew"
    assert in_child(lambda: [gc.collect(), table.close(), reader.close()]).endswith("None, None]")
    with pytest.raises(kc.Locked):
        kc.open_table(path, "rw")
    table.insert({"k": [100]})
    table.flush()
    assert table.count() == 11
    reader.close()
    table.close()
    with kc.open_table(path, "rw") as again:
        assert again.count() == 11


def test_what_a_forked_child_still_has(table: kc.Table, path: Path) -> None:
    """Data files, as the page cache has a lock; and what is in memory, which answers (protocol P1)."""
    table.insert({"k": list(range(10))})
    table.flush()
    table.scan().to_table()

    def opened() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        paths = [os.readlink(link) for link in links if os.path.lexists(link)]
        return sorted(file.rpartition("/")[2] for file in paths if file.startswith(f"{path}/"))

    before = opened()
    assert {"LOCK", "MANIFEST"} < set(before)
    data = [name for name in before if name.endswith((".rows", ".delta"))]
    assert in_child(opened) == repr(data)
    assert opened() == before
    said = in_child(lambda: [table.schema.names, len(table.partitions.partitions), table.options.maintenance])
    assert said == repr([table.schema.names, 1, table.options.maintenance])


def test_children_that_live_on_hold_no_lock(table: kc.Table, path: Path) -> None:
    """A child made by fork has the parent's descriptors: the parent's close must free the lease."""
    table.insert({"k": [1]})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        os.close(read)
        table.close()
        with kc.open_table(path, "rw") as again:
            again.insert({"k": [2]})
            assert again.count() == 2
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_a_fork_amid_writing_threads(path: Path) -> None:
    """Locks that other threads hold at the fork are never waited for in the child."""
    code = """
        import os, sys, threading, kudu_core as kc, pyarrow as pa
        schema = pa.schema([("k", pa.int64())])
        table = kc.create_table(sys.argv[1], schema, "k", options={"durability": "group"})
        stop = threading.Event()
        def write(base):
            k = base
            while not stop.is_set():
                table.insert({"k": [k]})
                k += 1
        threads = [threading.Thread(target=write, args=(n * 10**9,)) for n in range(3)]
        for t in threads: t.start()
        said = set()
        for _ in range(15):
            pid = os.fork()
            if pid == 0:
                import signal
                signal.alarm(20)
                try:
                    table.count()
                except kc.Closed:
                    try:
                        table.insert({"k": [-1]})
                    except kc.Closed:
                        table.close()
                        os._exit(7)
                os._exit(1)
            said.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        stop.set()
        for t in threads: t.join()
        assert said == {7}, said
        table.close()
        with kc.open_table(sys.argv[1], "rw") as again:
            assert again.get(-1) is None and again.count() > 0
        print("fine")
    """
    done = python(code, path)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_a_spawned_process_gets_no_handle(table: kc.Table) -> None:
    """O_CLOEXEC: a program that this one starts inherits none of the table's files."""
    table.insert({"k": list(range(100))})
    table.flush()
    table.scan().to_table()
    done = python(
        """
        import json, os
        print(json.dumps([os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                          if os.path.exists(f"/proc/self/fd/{fd}")]))
        """
    )
    assert not [link for link in json.loads(done.stdout) if link.startswith(table.path)], done.stdout
