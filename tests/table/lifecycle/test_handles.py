"""What a handle is good for, and what becomes of it: closing, forks, locks, the end of the interpreter."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.processes import in_child, python
from tests.support.tables import Make


def our_threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("kudu")}


def test_what_does_not_travel(table: kc.Table) -> None:
    """Tables, snapshots and scans do: ``tests/table/travel``."""
    table.insert({"k": [1]})
    line = re.escape(f"kudu_core.spark.table({table.path!r}")
    with pytest.raises(TypeError, match=f"not travel.*{line}"):  # the line to write instead
        pickle.dumps(table.changes(table.timestamp))
    token = pickle.loads(pickle.dumps(table.scan_tokens()[0]))
    assert table.scan_token(token).count() == 1
    assert pickle.loads(pickle.dumps(table.options)) == table.options


def test_errors_travel(table: kc.Table) -> None:
    table.insert({"k": [1]})
    with pytest.raises(kc.RowErrors) as refused:
        table.insert({"k": [1]})
    again = pickle.loads(pickle.dumps(refused.value))
    assert str(again) == str(refused.value) and again.errors.equals(refused.value.errors)
    locked = pickle.loads(pickle.dumps(kc.Locked("/a", 5, "host")))
    assert (locked.path, locked.pid, locked.host) == ("/a", 5, "host")


def test_use_after_close(table: kc.Table, path: Path) -> None:
    table.insert({"k": [1, 2]})
    snapshot, scan = table.snapshot(), table.scan()
    table.close()
    table.close()
    uses: list[Callable[[], Any]] = [
        lambda: table.insert({"k": [3]}),
        lambda: table.upsert({"k": [3]}),
        lambda: table.delete([1]),
        lambda: table.batch().__enter__().insert({"k": [1]}),
        lambda: table.get(1),
        lambda: table.get_many([1]),
        lambda: table.scan(),
        lambda: table.count(),
        lambda: table.snapshot(),
        lambda: table.flush(),
        lambda: table.stats(),
        lambda: table.refresh(),
        lambda: table.timestamp,
        lambda: snapshot.get(1),
        lambda: snapshot.scan().to_table(),
        lambda: scan.to_table(),
        lambda: scan.count(),
    ]
    for use in uses:
        with pytest.raises(kc.Closed, match="was closed"):
            use()
    assert table.path == str(path) and "rw" in repr(table), "what needs no files still answers"
    with pytest.raises(kc.Closed), kc.open_table(path) as reader:
        reader.close()
        reader.get(1)


def test_a_batch_that_outlives_its_table(table: kc.Table, path: Path) -> None:
    with pytest.raises(kc.Closed), table.batch() as batch:
        batch.insert({"k": [1]})
        table.close()
    with kc.open_table(path) as again:
        assert again.count() == 0


def test_readers_do_not_write(table: kc.Table, path: Path) -> None:
    table.insert({"k": [1]})
    table.close()
    with kc.open_table(path) as reader:
        assert reader.mode == "r"
        writes: list[Callable[[], Any]] = [
            lambda: reader.insert({"k": [2]}),
            lambda: reader.upsert({"k": [2]}),
            lambda: reader.update({"k": [1], "a": [1]}),
            lambda: reader.update(where=[("k", "=", 1)], set={"a": 1}),
            lambda: reader.delete([1]),
            lambda: reader.delete(where=[("k", "=", 1)]),
            lambda: reader.apply({"k": [1], "_op": ["delete"]}),
            lambda: reader.flush(),
        ]
        for write in writes:
            with pytest.raises(kc.ReadOnly, match='mode="rw"'):
                write()
        with pytest.raises(kc.ReadOnly), reader.batch() as batch:
            batch.insert({"k": [2]})
        assert reader.count() == 1


# ---- one writer


def test_a_second_writer_is_locked_out(table: kc.Table, path: Path) -> None:
    with pytest.raises(kc.Locked) as locked:
        kc.open_table(path, "rw")
    assert (locked.value.pid, locked.value.host) == (os.getpid(), socket.gethostname())
    assert str(os.getpid()) in str(locked.value)
    started = time.monotonic()
    with pytest.raises(kc.Locked):
        kc.open_table(path, "rw", timeout_s=0.2)
    assert time.monotonic() - started >= 0.2
    table.insert({"k": [1]})
    table.close()
    with kc.open_table(path, "rw") as again:
        assert again.count() == 1


def test_a_writer_in_another_process_is_locked_out(table: kc.Table, path: Path) -> None:
    code = """
        import json, sys, kudu_core as kc
        with kc.open_table(sys.argv[1]) as reader:
            seen = reader.count()
        try:
            kc.open_table(sys.argv[1], "rw")
        except kc.Locked as error:
            print(json.dumps([error.pid, error.host, seen]))
    """
    table.insert({"k": [1]})
    table.flush()
    done = python(code, path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [os.getpid(), socket.gethostname(), 1]


def test_waiting_for_the_writer(table: kc.Table, path: Path) -> None:
    timer = threading.Timer(0.3, table.close)
    timer.start()
    with kc.open_table(path, "rw", timeout_s=20) as again:
        again.insert({"k": [1]})
    timer.join()


# ---- forks


def test_a_forked_child_cannot_use_a_writers_handle(make: Make, path: Path) -> None:
    """Protocol P1.  A reader's opens the table anew there."""
    table = make(durability="sync", maintenance="background")
    table.insert({"k": [1]})
    snapshot, scan = table.snapshot(), table.scan()
    reader = kc.open_table(path)
    for use in (
        lambda: table.get(1),
        lambda: table.insert({"k": [2]}),
        lambda: table.flush(),
        lambda: snapshot.get(1),
        lambda: scan.to_table(),
    ):
        assert in_child(use).startswith("Closed: "), in_child(use)
    assert "fork" in in_child(lambda: table.get(1))
    assert in_child(lambda: reader.count()) == "1"
    # Closing there does nothing to the parent's table, and neither does the child's end.
    assert in_child(table.close) == "None"
    assert in_child(reader.close) == "None"
    assert in_child(gc.collect).isdigit()
    with pytest.raises(kc.Locked):
        kc.open_table(path, "rw")
    assert in_child(lambda: kc.open_table(path, "rw")).startswith("Locked: ")
    assert in_child(lambda: kc.open_table(path).count()) == "1", "a table opened in the child works"
    # The parent goes on.
    table.insert({"k": [3]})
    table.flush()
    assert table.count() == 2 and reader.count() == 1
    reader.refresh()
    assert reader.count() == 2
    reader.close()


def test_a_child_that_exits_as_usual_does_not_unlock(path: Path) -> None:
    """With the interpreter's whole exit: finalizers, atexit, garbage collection."""
    code = """
        import os, sys, kudu_core as kc, pyarrow as pa
        table = kc.create_table(sys.argv[1], pa.schema([("k", pa.int64())]), "k")
        table.insert({"k": [1]})
        pid = os.fork()
        if pid == 0:
            try:
                table.insert({"k": [2]})
            except kc.Closed:
                sys.exit(7)
            sys.exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        try:
            kc.open_table(sys.argv[1], "rw")
        except kc.Locked as error:
            assert error.pid == os.getpid()
        else:
            raise AssertionError("the child has let go of the lease")
        table.insert({"k": [3]})
        assert table.scan(order="key").to_table()["k"].to_pylist() == [1, 3]
        print("fine")
    """
    done = python(code, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")
    with kc.open_table(path) as table:
        assert table.count() == 2


# ---- the end without close()


@pytest.mark.parametrize("durability", ["sync", "group", "none"])
def test_the_interpreter_ends_without_close(path: Path, durability: str) -> None:
    code = """
        import sys, kudu_core as kc, pyarrow as pa
        options = kc.Options(durability=sys.argv[2], group_interval_s=30)
        table = kc.create_table(sys.argv[1], pa.schema([("k", pa.int64())]), "k", options=options)
        for k in range(20):
            table.insert({"k": [k]})
        table.flush()
        table.insert({"k": [100]})
        scan = iter(table.scan(batch_rows=1))
        next(scan)
    """
    done = python(code, path, durability)
    assert (done.returncode, done.stderr) == (0, "")
    with kc.open_table(path, "rw") as table:
        assert table.count() == 21


def test_an_exception_that_nobody_catches(path: Path) -> None:
    code = """
        import sys, kudu_core as kc, pyarrow as pa
        options = {"durability": "none"}
        table = kc.create_table(sys.argv[1], pa.schema([("k", pa.int64())]), "k", options=options)
        table.insert({"k": [1]})
        raise SystemExit(3)
    """
    assert python(code, path).returncode == 3
    with kc.open_table(path) as table:
        assert table.count() == 1


def test_no_thread_is_left(make: Make, path: Path) -> None:
    before = our_threads()
    table = make(maintenance="background", durability="group")
    table.insert({"k": list(range(100))})
    table.scan().to_table()
    with kc.open_table(path) as reader:
        reader.scan().to_table()
    assert our_threads() - before
    table.close()
    for _ in range(100):
        if our_threads() <= before:
            break
        time.sleep(0.02)
    assert our_threads() <= before


def test_garbage_collection_closes(path: Path) -> None:
    options = {"durability": "none", "maintenance": "background"}
    table = kc.create_table(path, pa.schema([("k", pa.int64())]), "k", options=options)
    table.insert({"k": [1]})
    before = our_threads()
    assert before
    del table
    gc.collect()
    with kc.open_table(path, "rw") as again:
        assert again.count() == 1


def test_a_scan_keeps_its_table_alive(path: Path) -> None:
    scan = kc.create_table(path, pa.schema([("k", pa.int64())]), "k").scan()
    gc.collect()
    assert scan.count() == 0
    with pytest.raises(kc.Locked):
        kc.open_table(path, "rw")
    del scan
    gc.collect()
    kc.open_table(path, "rw").close()


@contextlib.contextmanager
def open_files() -> Iterator[Callable[[], set[str]]]:
    def now() -> set[str]:
        found = set()
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/self/fd/{fd}"))
        return found

    yield now


def test_no_file_is_left_open(make: Make, path: Path) -> None:
    table = make()
    table.insert({"k": list(range(100))})
    table.flush()
    with kc.open_table(path) as reader:
        reader.scan().to_table()
        reader.refresh()
    table.scan().to_table()
    table.close()
    gc.collect()
    with open_files() as now:
        assert [f for f in now() if f.startswith(str(path))] == []


def test_context_managers_close(path: Path) -> None:
    with kc.create_table(path, pa.schema([("k", pa.int64())]), "k") as table:
        table.insert({"k": [1]})
        with table.snapshot() as snapshot:
            assert snapshot.get(1) == {"k": 1}
        with pytest.raises(kc.Closed):
            snapshot.get(1)
    with pytest.raises(kc.Closed):
        table.get(1)
