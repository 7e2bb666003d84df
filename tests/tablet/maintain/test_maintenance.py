"""Durability, background flushes, the length of the log, events and options."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core import events
from kudu_core.fs.posix import PosixFileSystem
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import rowsets_of, tablets_of
from tests.support.tables import Make

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def eventually(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.02)
    return true()


def stat(table: kc.Table, name: str) -> Any:
    return table.stats()[name].to_pylist()[0]


def delta_files(table: kc.Table) -> int:
    """REDO files, and UNDO files that a compaction has made of them."""
    metas = [meta for tablet in tablets_of(table) for meta in tablet.rowset_metas]
    return sum(len(meta.redo) + len(meta.undo) for meta in metas)


# ---- durability


@pytest.mark.parametrize("durability", ["sync", "group", "none"])
def test_what_a_power_cut_leaves(durability: str) -> None:
    """ "sync" keeps every write that returned, the others a beginning of them; flush() keeps all."""
    fs = MemoryFileSystem()
    options = {"durability": durability, "maintenance": "manual", "group_interval_s": 30}
    table = kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs)
    for k in range(10):
        table.insert({"k": [2 * k, 2 * k + 1]})

    def left() -> list[int]:
        with kc.open_table("/t", _fs=fs.crash_clone(keep="none")) as reader:
            keys: list[int] = reader.scan(["k"], order="key").to_table()["k"].to_pylist()
            return keys

    if durability == "sync":
        assert left() == list(range(20))
    else:
        assert left() == list(range(len(left()))) and len(left()) % 2 == 0
    table.flush()
    assert left() == list(range(20))
    table.insert({"k": [100]})
    table.close()
    assert left() == [*range(20), 100], "close makes everything durable"


def test_group_durability_syncs_by_itself() -> None:
    fs = MemoryFileSystem()
    options = {"durability": "group", "maintenance": "manual", "group_interval_s": 0.01}
    table = kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs)
    table.insert({"k": [1]})

    def durable() -> bool:
        with kc.open_table("/t", _fs=fs.crash_clone(keep="none")) as reader:
            return reader.count() == 1

    assert eventually(durable)
    table.close()


def test_sync_costs_one_fsync_a_write(path: Path) -> None:
    fs = FaultyFileSystem(PosixFileSystem())
    costs = {}
    for durability in ("sync", "none"):
        options = {"durability": durability, "maintenance": "manual"}
        with kc.create_table(f"{path}-{durability}", SCHEMA, "k", options=options, _fs=fs) as table:
            table.insert({"k": [-1]})
            before = fs.counts["sync"]
            for k in range(20):
                table.insert({"k": [k]})
            costs[durability] = fs.counts["sync"] - before
    assert 20 <= costs["sync"] <= 24
    assert costs["none"] <= 1


def test_a_failed_fsync_poisons(path: Path) -> None:
    from tests.support.fs.faulty import Rule

    fs = FaultyFileSystem(PosixFileSystem())
    told: list[events.Event] = []
    kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}).close()
    table = kc.open_table(path, "rw", listener=told.append, _fs=fs)
    table.insert({"k": [1]})
    fs.rules.append(Rule({"sync"}, path_glob="*/wal/*"))
    with pytest.raises((kc.Poisoned, OSError)):
        table.insert({"k": [2]})
    fs.rules.clear()
    for write in (lambda: table.insert({"k": [3]}), lambda: table.flush(), lambda: table.delete([1])):
        with pytest.raises(kc.Poisoned, match="reopen"):
            write()
    assert table.get(1) is not None, "what was committed stays readable"
    assert table.count() == 1
    with contextlib.suppress(kc.Poisoned, OSError):
        table.close()
    with kc.open_table(path, "rw") as again:
        assert again.count() in (1, 2), "in doubt: wholly there or not at all"
        assert again.insert({"k": [3]}).inserted == 1


# ---- flushes in the background


def test_a_flush_by_size(make: Make) -> None:
    table = make(SCHEMA, maintenance="background", flush_threshold_bytes=65_536, flush_age_s=3600)
    text = "x" * 100
    for start in range(0, 4000, 200):
        table.insert({"k": list(range(start, start + 200)), "s": [text] * 200})
    assert eventually(lambda: stat(table, "rowsets") >= 1)
    assert table.count() == 4000
    for k in range(0, 3000, 500):
        table.update({"k": list(range(k, k + 500)), "s": [text + "y"] * 500})
    assert eventually(lambda: delta_files(table) >= 1), "deltas too"
    assert table.get(2999, ["s"]) == {"s": text + "y"}


def test_a_flush_by_age(make: Make) -> None:
    table = make(SCHEMA, maintenance="background", flush_age_s=0.1)
    table.insert({"k": [1]})
    assert eventually(lambda: stat(table, "rowsets") == 1 and stat(table, "memory_rows") == 0)
    table.update({"k": [1], "s": ["x"]})
    assert eventually(lambda: delta_files(table) == 1)
    assert table.get(1) == {"k": 1, "s": "x"}


def test_writers_wait_when_memory_is_full(path: Path) -> None:
    told: list[events.Event] = []
    options = {
        "maintenance": "manual", "durability": "none", "memory_limit_bytes": 16 << 20,
        "ingest_threshold_bytes": 64 << 30,
    }  # fmt: skip
    kc.create_table(path, SCHEMA, "k", options=options).close()
    with kc.open_table(path, "rw", listener=told.append) as table:
        for start in range(40):
            table.insert({"k": list(range(start * 1000, start * 1000 + 1000)), "s": ["x" * 1000] * 1000})
            assert stat(table, "memory_bytes") < 24 << 20
        assert any(isinstance(e, events.WritersThrottled) for e in told)
        assert stat(table, "rowsets") > 0, "flushed by the writer itself"
        assert table.count() == 40_000


# ---- the log


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("maintenance", ["manual", "background"])
def test_segments_go_when_nothing_needs_them(path: Path, maintenance: str) -> None:
    told: list[events.Event] = []
    options = {"maintenance": maintenance, "durability": "none", "flush_age_s": 3600}
    kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2), options=options).close()
    with kc.open_table(path, "rw", listener=told.append) as table:
        for k in range(60):
            table.insert({"k": [k], "s": ["x" * 500]})
        grown = stat(table, "log_segments")
        assert grown > 4
        table.flush()
        assert stat(table, "log_segments") <= 2
        assert any(isinstance(e, events.LogTruncated) for e in told)
        # One row in memory holds everything after it.
        table.insert({"k": [100], "s": ["y"]})
        for k in range(200, 240):
            table.upsert({"k": [k], "s": ["x" * 500]})
        table.close()
    with kc.open_table(path, "rw") as again:
        assert again.count() == 101
        again.flush()
    names = [p.name for p in (path / "wal").iterdir()]
    assert sum(p.endswith(".log") for p in names) <= 4, names
    with kc.open_table(path) as reader:
        assert reader.count() == 101


# ---- events


def test_a_listener_is_told(path: Path) -> None:
    told: list[events.Event] = []
    kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual", "ingest_threshold_rows": 50}).close()
    with kc.open_table(path, "rw", listener=told.append) as table:
        opened = told.pop(0)
        assert isinstance(opened, events.TableOpened)
        assert (opened.path, opened.mode, opened.tablets) == (str(path), "rw", 1)
        assert opened.elapsed_s > 0 and opened.error is None
        table.insert({"k": list(range(10))})
        table.flush()
        flushed = next(e for e in told if isinstance(e, events.FlushEnd))
        assert (flushed.rows, flushed.rowsets_added) == (10, 1) and flushed.output_bytes > 0
        table.update({"k": [1, 2], "s": ["x", "x"]})
        table.flush()
        deltas = next(e for e in told if isinstance(e, events.DeltaFlushEnd))
        assert deltas.changes == 2 and deltas.output_bytes > 0
        result = table.insert({"k": list(range(100, 200))})
        ingested = [e for e in told if isinstance(e, events.IngestEnd)]
        assert [(e.rows, e.timestamp, e.tablets) for e in ingested] == [(100, result.timestamp, 1)]
    with kc.open_table(path, listener=told.append) as reader:
        assert isinstance(told[-1], events.TableOpened) and told[-1].mode == "r"
        assert reader.count() == 110


def test_a_listener_that_raises_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: events.Event) -> None:
        raise RuntimeError("my own fault")

    kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}).close()
    with kc.open_table(path, "rw", listener=broken) as table:
        table.insert({"k": [1]})
        table.flush()
        assert table.count() == 1
    assert "my own fault" in caplog.text


# ---- options


def test_options_are_stored_and_overridden(path: Path) -> None:
    schema = SCHEMA
    kc.create_table(path, schema, "k", options=kc.Options(durability="none", flush_age_s=7.5)).close()
    with kc.open_table(path, "rw") as table:
        assert (table.options.durability, table.options.flush_age_s) == ("none", 7.5)
    with kc.open_table(path, "rw", options={"durability": "sync", "maintenance": "manual"}) as table:
        assert (table.options.durability, table.options.flush_age_s) == ("sync", 7.5)
        assert table.options.maintenance == "manual"
    with kc.open_table(path, options=kc.Options(scan_threads=1)) as table:
        assert (table.options.durability, table.options.scan_threads) == ("none", 1)
    with kc.open_table(path) as table:
        assert table.options == kc.Options(durability="none", flush_age_s=7.5), "an override is not stored"
    for wrong in ({"flush_age": 1}, {"flush_age_s": -1}, {"durability": "maybe"}, {"memory_limit_bytes": 1}):
        with pytest.raises(kc.InvalidArgument):
            kc.open_table(path, options=wrong)


def test_rowsets_roll_at_their_size(make: Make) -> None:
    table = make(SCHEMA, rowset_target_bytes=65_536)
    table.insert({"k": list(range(5000)), "s": [f"{k * 7919 % 100_003:050d}" for k in range(5000)]})
    table.flush()
    sizes = table.stats("rowset")["base_bytes"].to_pylist()
    assert len(sizes) >= 2 and max(sizes) < 200_000
    assert table.count() == 5000
    bounds = [r.meta for r in rowsets_of(table)]
    ordered = sorted(bounds, key=lambda m: m.min_key)
    assert all(a.max_key < b.min_key for a, b in itertools.pairwise(ordered)), "disjoint"


def test_ingests_by_rows_and_by_bytes(path: Path) -> None:
    told: list[events.Event] = []
    options = {"maintenance": "manual", "ingest_threshold_rows": 100, "ingest_threshold_bytes": 65_536}
    kc.create_table(path, SCHEMA, "k", options=options).close()

    def ingests() -> int:
        return sum(isinstance(e, events.IngestEnd) for e in told)

    with kc.open_table(path, "rw", listener=told.append) as table:
        table.insert({"k": list(range(99))})
        assert ingests() == 0 and stat(table, "rowsets") == 0
        table.insert({"k": list(range(100, 200))})
        assert ingests() == 1 and stat(table, "rowsets") == 1
        table.insert({"k": [300], "s": ["x" * 70_000]})
        assert ingests() == 2 and stat(table, "rowsets") == 2
        assert list((path / "staging").iterdir()) == []
        assert table.count() == 200
