"""What a handle for reading sees: what is durable, until it is refreshed, whatever a writer does."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.wal import Log
from tests.support.inside import engine_of
from tests.support.tables import Make


def test_statistics_of_files_that_were_merged_meanwhile(path: Path) -> None:
    """Those of a wide table are in its files, of which a reader may know some that are gone."""
    names = [f"c{i}" for i in range(100)]
    schema = pa.schema([("k", pa.int64()), *((name, pa.int64()) for name in names)])
    manual = {"maintenance": "manual", "file_grace_s": 0}
    with kc.create_table(path, schema, "k", options=manual) as table:
        for part in range(3):
            table.insert({"k": list(range(part, 30, 3)), **{name: [part] * 10 for name in names}})
            table.flush()
        with kc.open_table(path) as reader:
            table.compact(full=True)
            table.gc()
            assert reader.stats("column")["column"].to_pylist() == ["k", *names]
            assert reader.stats("rowset").num_rows == 1


def test_refresh(make: Make, path: Path) -> None:
    table = make(durability="sync")
    table.insert({"k": [1]})
    with kc.open_table(path) as reader, kc.open_table(path) as other:
        snapshot, scan = reader.snapshot(), reader.scan(["k"])
        table.insert({"k": [2]})
        table.flush()
        table.delete([1])
        assert reader.scan(["k"]).to_pylist() == [{"k": 1}]
        reader.refresh()
        assert reader.scan(["k"]).to_pylist() == [{"k": 2}]
        assert reader.timestamp == table.timestamp
        # What was taken before stays at its moment.
        assert scan.to_pylist() == [{"k": 1}] and snapshot.scan(["k"]).to_pylist() == [{"k": 1}]
        assert other.count() == 1 and other.get(1) is not None
        table.refresh()  # nothing to do for a writer
    table.close()
    with kc.open_table(path, "rw") as again:
        assert again.count() == 1


def test_what_a_scan_would_read_is_counted_once(path: Path) -> None:
    """A reader that finds a file gone looks anew; what it had counted until then is not counted again."""
    schema = pa.schema([("k", pa.int64())])
    with kc.create_table(path, schema, "k", options={"maintenance": "manual", "file_grace_s": 0}) as table:
        for part in range(3):
            table.insert({"k": list(range(part, 30, 3))})
            table.flush()
        with kc.open_table(path) as reader:
            scan = reader.scan()
            table.compact(full=True)
            table.gc()
            would = scan.explain()
            assert (would.rowsets, would.rowsets_pruned, would.rows) == (1, 0, 30)


def test_what_a_refresh_has_left_behind_is_not_read_as_something_else(path: Path) -> None:
    """The writer knows nothing of a reader's scans: the history of their time may have gone."""
    options = {"maintenance": "manual", "file_grace_s": 0, "history_retention_s": 0}
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with kc.create_table(path, schema, "k", options=options) as table:
        table.insert({"k": [1], "v": [1]})
        table.flush()
        with kc.open_table(path) as reader:
            scan, changes = reader.scan(), reader.changes(reader.timestamp - 1)
            table.update({"k": [1], "v": [2]})
            table.flush()
            table.compact(full=True)
            table.maintain()
            table.gc()
            reader.refresh()
            with pytest.raises(kc.SnapshotTooOld):
                scan.to_table()
            with pytest.raises(kc.ChangesLost):
                changes.to_table()
            assert reader.get(1) == {"k": 1, "v": 2}


def test_refreshing_for_long_keeps_nothing_old(make: Make, path: Path) -> None:
    import gc

    table = make(durability="sync", ingest_threshold_rows=1)
    with kc.open_table(path) as reader:
        for k in range(30):
            table.upsert({"k": [k]})
            reader.refresh()
            assert reader.count() == k + 1
        gc.collect()
        links = Counter(os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        ours = {name: n for name, n in links.items() if name.startswith(str(path.resolve()))}
        assert max(ours.values()) <= 3, ours


def test_a_reader_survives_what_the_writer_does(make: Make, path: Path) -> None:
    table = make(durability="sync", file_grace_s=0)
    table.insert({"k": list(range(50)), "a": [0] * 50})
    table.flush()
    with kc.open_table(path) as reader:
        scan = iter(reader.scan(["a"], batch_rows=7))
        got = [next(scan)]
        for round_ in range(4):
            table.update({"k": list(range(50)), "a": [round_ + 1] * 50})
            table.flush()
        table.close()
        with kc.open_table(path, "rw") as again:
            again.delete(list(range(25)))
            again.flush()
        got += scan
        assert pa.Table.from_batches(got)["a"].to_pylist() == [0] * 50
        assert reader.count() == 50
        reader.refresh()
        assert reader.count() == 25


def test_what_was_not_durable_is_not_seen(make: Make, path: Path) -> None:
    """A reader sees what a power cut would leave: with "none" only what was flushed or synced."""
    table = make(durability="none")
    table.insert({"k": [1]})
    table.flush()
    with kc.open_table(path) as reader:
        assert reader.count() == 1
        seen = reader.timestamp
        table.insert({"k": [2]})
        assert table.count() == 2
        reader.refresh()
        assert reader.timestamp >= seen
        assert reader.count() in (1, 2)
        table.flush()
        reader.refresh()
        assert reader.count() == 2


def test_a_reader_at_the_moment_of_a_takeover_waits_for_it(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new writer has its segment, and COMMITTED is still the old one's: nothing would be readable."""
    table = make(durability="sync")
    table.insert({"k": list(range(50))})
    table.close()
    reader = kc.open_table(path)
    before = reader.timestamp
    real = Log._open_committed
    seen: list[int] = []

    def look() -> None:
        reader.refresh()
        seen.append(reader.count())

    threads = [threading.Thread(target=look)]

    def slowly(log: Log, counter: int) -> None:
        threads[0].start()
        time.sleep(0.3)
        assert not seen
        real(log, counter)

    monkeypatch.setattr(Log, "_open_committed", slowly)
    with kc.open_table(path, "rw"):
        threads[0].join()
    assert seen == [50]
    assert reader.timestamp >= before
    reader.close()


def test_a_refresh_while_a_writer_takes_over_does_not_go_back(
    make: Make, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody writes a reader sees records that nobody synced.  While the next writer has the lease, and
    no epoch yet, or none in the log, COMMITTED lies before them."""
    table = make(durability="none")
    table.insert({"k": [1]})
    table.flush()
    table.insert({"k": [2]})
    killed = tmp_path / "killed"
    shutil.copytree(path, killed)
    with kc.open_table(killed) as reader:
        before = reader.timestamp
        assert reader.count() == 2
        lease = engine_of(reader).fs.lease(f"{killed}/LOCK")
        lease.try_acquire(0)
        try:
            with kc.open_table(killed) as other:
                assert other.count() == 1, "it is at COMMITTED"
            for _ in range(2):
                reader.refresh()
                assert (reader.timestamp, reader.count()) == (before, 2)
        finally:
            lease.release()
        real, seen = Log.resume, []

        def resumed(*arguments: Any, **more: Any) -> Log:
            reader.refresh()  # TABLE has the epoch that begins
            seen.append((reader.timestamp, reader.count()))
            return real(*arguments, **more)

        monkeypatch.setattr(Log, "resume", resumed)
        with kc.open_table(killed, "rw") as writer:
            assert seen == [(before, 2)]
            assert writer.timestamp >= before
            writer.insert({"k": [3]})
            writer.flush()
            reader.refresh()
            assert reader.count() == 3
