"""Reading is pure: it creates and changes nothing, also where nobody may write, or beside a busy writer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.fs.posix import PosixFileSystem
from tests.support.folders import everything
from tests.support.fs.faulty import CHANGES, FaultyFileSystem, Rule
from tests.support.processes import NOBODY, ROOT, in_child
from tests.support.tables import Make


def fill(table: kc.Table) -> None:
    """Every kind of file and of memory, and a log to replay."""
    table.insert({"k": list(range(300)), "a": [1] * 300, "s": [f"s{k % 9}" for k in range(300)]})
    table.flush()
    for step in range(6):
        table.update({"k": list(range(step * 10, step * 10 + 60)), "a": [step] * 60})
        table.flush()
    table.delete(list(range(50, 80)))
    table.compact()
    table.insert({"k": list(range(1_000, 1_500))})  # an ingest
    table.update({"k": [1], "a": [77]})
    table.insert({"k": [5_000]})


def read(table: kc.Table) -> list[Any]:
    """In every way there is."""
    first = table.timestamp
    token = table.scan_tokens()[0]
    found: list[Any] = [
        sorted(table.scan(["k", "a"]).to_table().to_pylist(), key=lambda row: row["k"]),
        table.scan(order="key", where=[("a", ">", 2)], limit=10).to_pylist(),
        table.count(),
        table.get(1),
        table.get_many([1, 2, 99_999]).to_pylist(),
        table.scan_token(token).count() > 0,
        table.scan(["k"], key_range=(10, 20)).count(),
        table.stats("table").num_rows,
        table.stats("rowset").num_rows,
        len(table.layout()) > 0,
        table.scan().explain().tablets,
        table.changes().to_table().num_rows,
    ]
    with table.snapshot() as snapshot:
        found.append(snapshot.get(1_499))
    table.refresh()
    assert table.timestamp >= first
    return found


@pytest.fixture(params=["closed", "open", "killed"])
def written(others: Path, make: Make, request: pytest.FixtureRequest) -> Path:
    """A table that was closed, one that is open for writing, and one whose writer was killed."""
    path = others / "t"
    table = make(at=path, durability="sync", ingest_threshold_rows=400, partition_by=kc.HashPartition("k", 2))
    fill(table)
    if request.param == "closed":
        table.close()
    elif request.param == "killed":
        import shutil

        shutil.copytree(path, others / "copy")
        path = others / "copy"
    return path


def test_nothing_is_created_or_changed(written: Path) -> None:
    before = everything(written)
    with kc.open_table(written) as reader:
        whole = read(reader)
    assert everything(written) == before
    fs = FaultyFileSystem(PosixFileSystem(), [Rule(CHANGES | {"open_write"}, sticky=True)])
    with kc.open_table(written, _fs=fs) as reader:
        assert read(reader) == whole
    assert not any(fs.counts[op] for op in (*CHANGES, "open_write", "lease")), "a reader asked for a change"
    assert everything(written) == before


def test_a_folder_that_lets_nobody_write(written: Path) -> None:
    entries = [written, *written.rglob("*")]
    modes = {entry: entry.stat().st_mode for entry in entries}
    for entry in entries:
        entry.chmod(0o555 if entry.is_dir() else 0o444)
    try:
        before = everything(written)
        user = NOBODY if os.geteuid() == 0 else None

        def look() -> int:
            with kc.open_table(written) as reader:
                return len(read(reader))

        assert in_child(look, user=user).isdigit()
        refused = in_child(lambda: kc.open_table(written, "rw"), user=user)
        assert refused.startswith(("PermissionError", "Locked")), refused
        assert everything(written) == before
    finally:
        for entry, mode in modes.items():
            entry.chmod(mode)


def test_a_refused_write_changes_nothing(written: Path) -> None:
    before = everything(written)
    with kc.open_table(written) as reader:
        writes: list[Callable[[], Any]] = [
            lambda: reader.insert({"k": [9_999]}),
            lambda: reader.upsert([{"k": 9_999}]),
            lambda: reader.delete(where=[("k", ">", 0)]),
            reader.flush,
            reader.compact,
            reader.gc,
        ]
        for write in writes:
            with pytest.raises(kc.ReadOnly, match="rw"):
                write()
    assert everything(written) == before


READER = """
    import json, sys, time
    import kudu_core as kc
    path, seconds = sys.argv[1], float(sys.argv[2])
    end = time.monotonic() + seconds
    opened = refreshed = points = gone = 0
    last = 0
    while time.monotonic() < end:
        with kc.open_table(path) as table:
            opened += 1
            for _ in range(5):
                try:
                    rows = table.scan(["k", "v", "w"]).to_table()
                    assert rows.num_rows in (0, 400), rows.num_rows
                    # Each call sets v of every row to one number, and w to its negative.
                    v, w = set(rows["v"].to_pylist()), set(rows["w"].to_pylist())
                    assert len(v) <= 1 and {-x for x in v} == w, (v, w)
                    now = v.pop() if v else 0
                    assert now >= last, f"time went back: {now} after {last}"
                    last = now
                    row = table.get(7)
                    assert row is None or row["v"] == -row["w"] and row["v"] >= now, (row, now)
                    points += 1
                except (kc.SnapshotTooOld, kc.SnapshotInFuture):
                    gone += 1
                table.refresh()
                refreshed += 1
    print(json.dumps([opened, refreshed, points, gone, last]))
"""


def test_beside_a_busy_writer(make: Make, path: Path, long: bool, small_segments: None) -> None:
    """Another process opens, reads and refreshes while this one writes, ingests, flushes, compacts and
    recycles its log; what it sees is always one whole moment, and never an earlier one than before."""

    seconds = 3600.0 if long else 6.0
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
    table = make(schema, durability="sync", file_grace_s=1, ingest_threshold_rows=300, maintenance="manual")
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(READER), str(path), str(seconds)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    keys = list(range(400))
    step = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and all(reader.poll() is None for reader in readers):
        step += 1
        table.upsert({"k": keys, "v": [step] * 400, "w": [-step] * 400})  # by ingest
        if step % 3 == 0:
            step += 1
            table.update(where=[("k", ">=", 0)], set={"v": step, "w": -step})
        if step % 4 == 0:
            table.flush()
        if step % 15 == 0:
            table.compact()
            table.gc()
    for reader in readers:
        out, err = reader.communicate(timeout=120)
        assert reader.returncode == 0, err
        opened, refreshed, points, gone, last = json.loads(out)
        assert opened and refreshed and points and last, "it has seen nothing"
        assert gone <= points, "hardly any moment could be read"


@pytest.mark.parametrize("state", ["closed", "open", "not closed"])
def test_reading_changes_nothing(make: Make, path: Path, state: str) -> None:
    table = make(partition_by=kc.HashPartition("k", 3), durability="sync")
    table.insert({"k": list(range(100)), "a": [1] * 100})
    table.flush()
    table.update({"k": list(range(50)), "a": [2] * 50})
    table.insert({"k": [1000]})
    if state == "closed":
        table.close()
    elif state == "not closed":  # as after a crash
        import shutil

        shutil.copytree(path, path.parent / "copy")
        path = path.parent / "copy"
    before = everything(path)
    # Any call that would change a file fails.
    fs = FaultyFileSystem(PosixFileSystem(), [Rule(CHANGES | {"open_write"}, sticky=True)])
    with kc.open_table(path, _fs=fs) as reader:
        assert reader.count() == 101
        assert reader.scan(where=[("a", "=", 2)]).count() == 50
        assert reader.get(1000) is not None
        reader.refresh()
        assert reader.scan(order="key").to_table().num_rows == 101
        assert reader.stats("column").num_rows == 4 and reader.layout()
        tokens = reader.scan_tokens()
        assert sum(reader.scan_token(t).count() for t in tokens) == 101
    assert not any(fs.counts[op] for op in CHANGES)
    assert everything(path) == before


def test_a_directory_without_write_rights(make: Make, others: Path) -> None:
    """Reading needs the right to read, no more."""
    path = others / "t"
    table = make(at=path, durability="sync")
    table.insert({"k": [1]})
    table.flush()
    table.insert({"k": [2]})
    table.close()
    found = [path, *path.rglob("*")]
    for p in found:
        p.chmod(0o555 if p.is_dir() else 0o444)
    user = NOBODY if os.geteuid() == 0 else None
    before = everything(path)
    assert in_child(lambda: kc.open_table(path).count(), user=user) == "2"
    assert in_child(lambda: kc.open_table(path, "rw"), user=user).startswith("PermissionError")
    assert everything(path) == before
    for p in found:
        p.chmod(0o755 if p.is_dir() else 0o644)
