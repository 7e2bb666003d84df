"""Code of others that runs in the middle of a call: inputs that are generators, and listeners.

Whether it raises, writes to the table or closes it: nothing is half applied, and nothing waits for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core import events
from tests.support.inside import flush_lane_of
from tests.support.interrupts import assert_at_rest, staging_left

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
WIDE = "x" * 40_000
LATE_S = 120.0


def rows(first: int, count: int, value: int, wide: str = "") -> pa.RecordBatch:
    keys = range(first, first + count)
    return pa.record_batch([list(keys), [value] * count, [wide] * count], schema=SCHEMA)


def reader(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def make(path: Path, listener: Any = None, **options: Any) -> kc.Table:
    settings = {"maintenance": "manual", "durability": "none", **options}
    kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2), options=settings).close()
    return kc.open_table(path, "rw", listener=listener)


def values(table: kc.Table) -> dict[int, int]:
    found = table.scan(["k", "v"]).to_table()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def finishes(work: Callable[[], object]) -> None:
    """In a thread of its own, which a call that waits for itself would never leave."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(LATE_S)
    assert not thread.is_alive(), "it waits for itself"
    if errors:
        raise errors[0]


# ---- inputs ----

# How much the batches come to: through the log, straight to files, spilled while they come.
SIZES = {
    "log": ({}, 10, ""),
    "files": ({"ingest_threshold_rows": 50}, 40, ""),
    "spilled": ({"memory_limit_bytes": 32 << 20, "ingest_threshold_rows": 50}, 40, WIDE),
}


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> tuple[dict[str, Any], int, str]:
    return SIZES[request.param]


def batches(count: int, wide: str, at: int, act: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    for number in range(10):
        if number == at:
            act()
        yield rows(number * count, count, 1, wide)


def test_an_input_that_raises_applies_nothing(tmp_path: Path, size: tuple[dict[str, Any], int, str]) -> None:
    options, count, wide = size
    with make(tmp_path / "t", **options) as table:
        table.upsert([{"k": 0, "v": 7, "s": ""}])

        class Mine(Exception):
            pass

        def act() -> None:
            raise Mine

        for error, at in ((Mine, 0), (Mine, 9)):
            with pytest.raises(error):
                table.upsert(reader(batches(count, wide, at, act)), txn=("app", 1))
            assert values(table) == {0: 7}
            assert_at_rest(table)
            assert not staging_left(table)
        table.upsert(reader(batches(count, wide, 99, act)), txn=("app", 1))
        assert table.count() == 10 * count


def test_an_interrupt_in_an_input_applies_nothing(
    tmp_path: Path, size: tuple[dict[str, Any], int, str]
) -> None:
    options, count, wide = size

    def act() -> None:
        raise KeyboardInterrupt

    with make(tmp_path / "t", **options) as table:
        with pytest.raises(KeyboardInterrupt):
            table.upsert(reader(batches(count, wide, 8, act)))
        assert table.count() == 0
        assert_at_rest(table)
        assert not staging_left(table)


def test_an_input_may_write_to_the_table(tmp_path: Path, size: tuple[dict[str, Any], int, str]) -> None:
    options, count, wide = size
    with make(tmp_path / "t", **options) as table:

        def act() -> None:
            table.upsert([{"k": 0, "v": 5, "s": ""}, {"k": -1, "v": 5, "s": ""}])
            table.update({"k": [-1], "v": [6]})
            table.flush()
            table.alter(add=[kc.Column("more", "int64", default=3)])
            table.compact(full=True)

        finishes(lambda: table.upsert(reader(batches(count, wide, 5, act))))
        found = values(table)
        assert found.pop(-1) == 6
        assert found == dict.fromkeys(range(10 * count), 1), "the outer call is the later one"
        assert_at_rest(table)


def test_an_input_may_write_under_the_token_of_its_call(
    tmp_path: Path, size: tuple[dict[str, Any], int, str]
) -> None:
    """The inner write has the version; the outer one is its repetition, of other rows, and is refused."""
    options, count, wide = size
    with make(tmp_path / "t", **options) as table:

        def act() -> None:
            table.upsert([{"k": -1, "v": 5, "s": ""}], txn=("app", 1))

        with pytest.raises(kc.KuduError):
            finishes(lambda: table.upsert(reader(batches(count, wide, 5, act)), txn=("app", 1)))
        assert values(table) == {-1: 5}
        assert_at_rest(table)


def test_an_input_may_close_the_table(tmp_path: Path, size: tuple[dict[str, Any], int, str]) -> None:
    options, count, wide = size
    table = make(tmp_path / "t", **options)
    with pytest.raises(kc.Closed):
        finishes(lambda: table.upsert(reader(batches(count, wide, 9, table.close))))
    with kc.open_table(tmp_path / "t", "rw") as again:
        assert again.count() == 0
        assert not staging_left(again)


# ---- listeners ----


def provoke(table: kc.Table) -> None:
    """Every operation that tells."""
    table.upsert(reader(iter([rows(0, 60, 1)])))
    table.upsert(reader(iter([rows(0, 10, 2)])))
    table.flush()
    for value in range(13):  # so many files are worth one
        table.update({"k": [1, 2], "v": [value, value]})
        table.flush()
    table.compact()
    table.upsert(reader(iter([rows(100, 10, 2)])))
    table.flush()
    table.compact(full=True)
    table.upsert(reader(iter([rows(0, 40, 3)])))
    table.alter(add=[kc.Column("more", "int64")])
    table.gc()
    table.maintain()


OPTIONS = {"ingest_threshold_rows": 50, "history_retention_s": 0, "file_grace_s": 0}


def test_a_listener_may_use_the_table(tmp_path: Path, small_segments: None) -> None:
    """It writes, reads and flushes at every event, in the middle of what is told."""
    told: list[str] = []
    busy = False

    def listener(event: events.Event) -> None:
        nonlocal busy
        told.append(type(event).__name__)
        if busy or not opened:
            return
        busy = True
        opened[0].upsert([{"k": -1, "v": len(told), "s": ""}])
        assert values(opened[0])[-1] == len(told)
        opened[0].flush()
        opened[0].alter(add=[kc.Column(f"c{len(told)}", "int64")])
        opened[0].compact(full=True)
        opened[0].gc()
        busy = False

    opened: list[kc.Table] = []
    with make(tmp_path / "t", listener, **OPTIONS) as table:
        opened.append(table)
        finishes(lambda: provoke(table))
        assert not busy, "what a listener raises is dropped: it raised nothing"
        assert {
            "TableOpened", "FlushEnd", "DeltaFlushEnd", "DeltaCompactionEnd", "MergeEnd", "IngestEnd",
            "TableAltered", "HistoryCollected", "FilesDeleted", "LogTruncated",
        } <= set(told)  # fmt: skip
        assert_at_rest(table)
        opened.clear()


def test_a_listener_that_raises_is_not_heard(tmp_path: Path) -> None:
    def listener(_event: events.Event) -> None:
        raise RuntimeError("the listener's own fault")

    with make(tmp_path / "t", listener, **OPTIONS) as table:
        provoke(table)
        assert values(table)[1] == 3
        assert_at_rest(table)


@pytest.mark.parametrize("maintenance", ["manual", "background"])
@pytest.mark.parametrize(
    "at",
    [
        "FlushEnd",
        "DeltaFlushEnd",
        "DeltaCompactionEnd",
        "MergeEnd",
        "IngestEnd",
        "TableAltered",
        "FilesDeleted",
    ],
)
def test_a_listener_may_close_the_table(tmp_path: Path, at: str, maintenance: str) -> None:
    closed = threading.Event()

    def listener(event: events.Event) -> None:
        if type(event).__name__ == at and opened:
            opened[0].close()
            closed.set()

    opened: list[kc.Table] = []
    table = make(tmp_path / "t", listener, maintenance=maintenance, **OPTIONS)
    opened.append(table)

    def work() -> None:
        with pytest.raises((kc.Closed, AssertionError)):
            provoke(table)
            raise AssertionError("the last event was the one")

    finishes(work)
    assert closed.wait(LATE_S)
    finishes(table.close)
    with kc.open_table(tmp_path / "t", "rw") as again:
        again.verify()


def test_writers_that_relieve_memory_tell_under_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event of a flush that a writer did itself: its listener writes, and has to flush in its turn."""
    told: list[str] = []

    def listener(event: events.Event) -> None:
        told.append(type(event).__name__)
        if isinstance(event, events.FlushEnd) and told.count("FlushEnd") == 1:
            opened[0].upsert([{"k": -1, "v": 1, "s": ""}])
            flush_lane_of(opened[0]).relieve()

    opened: list[kc.Table] = []
    with make(tmp_path / "t", listener) as table:
        opened.append(table)
        table.upsert(reader(iter([rows(0, 60, 1)])))
        finishes(flush_lane_of(table).relieve)
        assert told.count("FlushEnd") >= 2
        opened.clear()
