"""Every door to long work tells its listener and who shows progress, in order, and can be cancelled whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run.measure import work as works
from kudu_core.events import Ended, Event, Progress, Started, WorkEvent
from tests.support.folders import everything

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
OPTIONS = {
    "maintenance": "manual", "ingest_threshold_rows": 1000, "rowset_target_bytes": 64 << 10,
    "memory_limit_bytes": 16 << 20, "scan_threads": 2,
}  # fmt: skip
ROWS = 12_000
WIDE = "x" * 400


@pytest.fixture(autouse=True)
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told whenever something is done."""
    monkeypatch.setattr(works, "PROGRESS_S", -1.0)


def rows(count: int, first: int = 0, step: int = 1) -> pa.Table:
    keys = np.arange(first, first + count * step, step)
    return pa.table({"k": keys, "v": keys * 2, "s": [WIDE] * count})


def stream(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2000))


def filled(folder: Path) -> kc.Table:
    return kc.open_table(folder / "t", "rw")


def load(folder: Path, **how: Any) -> None:
    with kc.open_table(folder / "t", "rw", listener=how.get("listener")) as table:
        table.insert(rows(ROWS, ROWS), progress=how.get("progress"))


def spill(folder: Path, **how: Any) -> None:
    with kc.open_table(folder / "t", "rw", listener=how.get("listener")) as table:
        table.upsert(stream(rows(ROWS, ROWS)), progress=how.get("progress"))


def compact(folder: Path, **how: Any) -> None:
    with kc.open_table(folder / "t", "rw", listener=how.get("listener")) as table:
        table.compact(full=True, progress=how.get("progress"))


def back_up(folder: Path, **how: Any) -> None:
    with kc.open_table(folder / "t", listener=how.get("listener")) as table:
        table.backup(folder / "more", progress=how.get("progress"))


def restore(folder: Path, **how: Any) -> None:
    kc.restore(folder / "backups", folder / "restored", **how).close()


def verify(folder: Path, **how: Any) -> None:
    with kc.open_table(folder / "t", listener=how.get("listener")) as table:
        table.verify(progress=how.get("progress"))


def repair(folder: Path, **how: Any) -> None:
    kc.repair(folder / "t", folder / "repaired", dry_run=False, **how)


def look_at(folder: Path, **how: Any) -> None:
    kc.repair(folder / "t", **how)


DOORS: dict[str, tuple[Callable[..., None], str]] = {
    "load": (load, "ingest"),
    "spill": (spill, "ingest"),
    "compact": (compact, "compact"),
    "backup": (back_up, "backup"),
    "restore": (restore, "restore"),
    "verify": (verify, "verify"),
    "repair": (repair, "repair"),
    "dry repair": (look_at, "repair"),
}
BEFORE = {k: k * 2 for k in range(ROWS)}
LOADED = BEFORE | {k: k * 2 for k in range(ROWS, 2 * ROWS)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of rowsets that overlap, and a backup of it."""
    folder = tmp_path_factory.mktemp("made")
    with kc.create_table(folder / "t", SCHEMA, "k", options=OPTIONS) as table:
        for first in range(3):
            table.insert(rows(ROWS // 3, first, 3))
        table.update({"k": np.arange(0, ROWS, 50), "v": np.arange(0, ROWS, 50) * 2})
        table.flush()
        table.backup(folder / "backups")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "f"))


def content(path: Path) -> dict[int, int]:
    with kc.open_table(path) as table:
        found = table.scan(["k", "v"]).to_table()
        table.verify()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def of_one(told: list[WorkEvent], operation: str) -> list[WorkEvent]:
    [work] = {event.work_id for event in told if event.operation == operation}
    return [event for event in told if event.work_id == work]


def check_order(events: list[WorkEvent], *, failed: bool = False) -> None:
    kinds = [type(event) for event in events]
    assert kinds[0] is Started and kinds[-1] is Ended and set(kinds[1:-1]) <= {Progress}, kinds
    assert (events[-1].error is not None) == failed
    for before, after in pairwise(events):
        assert before.elapsed_s <= after.elapsed_s
        if before.phase == after.phase:
            assert before.done <= after.done
    assert {event.unit for event in events} <= {"rows", "bytes"}


@pytest.mark.parametrize("door", DOORS)
def test_events_come_in_order(folder: Path, door: str) -> None:
    act, operation = DOORS[door]
    heard: list[Event] = []
    shown: list[WorkEvent] = []
    act(folder, listener=heard.append, progress=shown.append)
    told = [event for event in heard if isinstance(event, WorkEvent)]
    mine = of_one(told, operation)
    check_order(mine)
    assert [(type(e), e.done, e.phase) for e in mine] == [(type(e), e.done, e.phase) for e in shown]
    assert any(isinstance(event, Progress) for event in mine)
    last = mine[-1]
    assert last.done > 0
    if last.total is not None and door != "compact":
        assert last.done == last.total
    if door == "compact":
        assert last.total is not None and last.done >= last.total
    for work in {event.work_id for event in told}:
        check_order([event for event in told if event.work_id == work])


@pytest.mark.parametrize("door", ["load", "spill", "restore"])
def test_a_load_is_one_work(folder: Path, door: str) -> None:
    """That tells of its reading, where that is apart, and of its writing."""
    act, operation = DOORS[door]
    shown: list[WorkEvent] = []
    act(folder, progress=shown.append)
    assert {event.operation for event in shown} == {operation}
    phases = list(dict.fromkeys(event.phase for event in shown))
    assert phases == ["", "reading", "writing"]
    assert max(e.done for e in shown if e.phase == "reading") == ROWS
    assert max(e.done for e in shown if e.phase == "writing") == ROWS


def test_progress_without_a_listener_and_the_other_way_round(folder: Path) -> None:
    heard: list[Event] = []
    load(folder, listener=heard.append)
    check_order(of_one([event for event in heard if isinstance(event, WorkEvent)], "ingest"))


class CancelAt:
    """Cancels at one event."""

    def __init__(self, number: int) -> None:
        self.number, self.told = number, list[WorkEvent]()

    def __call__(self, event: WorkEvent) -> None:
        self.told.append(event)
        if len(self.told) - 1 == self.number:
            event.cancel()


def numbers(count: int, long: bool) -> list[int]:
    """Events but the last: all of them with ``--long``."""
    return list(range(count - 1)) if long else sorted({1, count // 2, count - 2})


@pytest.mark.parametrize("door", DOORS)
def test_cancelled_at_any_time_nothing_is_half_done(
    made: Path, tmp_path: Path, door: str, long: bool
) -> None:
    act, operation = DOORS[door]

    def fresh(name: str) -> Path:
        return Path(shutil.copytree(made, tmp_path / name))

    shown: list[WorkEvent] = []
    act(fresh("whole"), progress=shown.append)
    after = content(tmp_path / "whole" / "t")
    assert after == (LOADED if operation == "ingest" else BEFORE)
    cancelled = 0
    for number in numbers(len(shown), long):
        folder, cancel = fresh(f"at-{number}"), CancelAt(number)
        files = everything(folder / "t") if door in ("verify", "repair", "dry repair") else None
        try:
            act(folder, progress=cancel)
        except kc.Cancelled:
            cancelled += 1
            check_order(cancel.told, failed=True)
            assert content(folder / "t") == BEFORE
            for new in ("restored", "repaired"):
                assert not (folder / new).exists()
            assert door != "backup" or not list(kc_backups(folder / "more"))
        else:  # asked too late: all is done
            assert content(folder / "t") == after
        assert files is None or everything(folder / "t").keys() >= files.keys()
        act(folder, progress=None)  # and again, it does what it does
        assert content(folder / "t") == after
    assert cancelled, "else nothing was tried"


def kc_backups(folder: Path) -> Iterator[str]:
    """Backups that are whole: those with a number."""
    if folder.exists():
        yield from (entry.name for entry in folder.iterdir() if entry.name.isdigit())


@pytest.mark.parametrize("door", DOORS)
def test_a_listener_that_raises_hurts_nothing(
    folder: Path, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("of the listener")

    act, operation = DOORS[door]
    act(folder, listener=broken, progress=broken)
    assert content(folder / "t") == (LOADED if operation == "ingest" else BEFORE)
    assert any("listener raised" in record.message for record in caplog.records)


def test_a_load_that_fails_ends_with_its_error(folder: Path) -> None:
    shown: list[WorkEvent] = []
    with kc.open_table(folder / "t", "rw") as table:
        with pytest.raises(kc.RowErrors):
            table.insert(rows(ROWS), progress=shown.append)
        check_order(shown, failed=True)
        assert "RowErrors" in str(shown[-1].error)
        assert table.count() == ROWS


def test_maintenance_is_told_of_each_operation(folder: Path) -> None:
    heard: list[Event] = []
    with filled(folder) as table:
        table.compact(full=True)  # the updates become history
    with kc.open_table(
        folder / "t", "rw", listener=heard.append, options={"history_retention_s": 0}
    ) as table:
        table.insert(rows(ROWS // 3, ROWS // 2 * 7 + 1, 3))
        table.gc()
        table.upsert({"k": [1, 2, -1], "v": [5, 6, 7]})
        table.flush()
        table.alter(add=[kc.Column("more", "int64")])
        table.gc()
        table.compact(full=True)
        with pytest.raises(kc.InvalidArgument):
            table.alter(drop=["nothing"])
    works_ = [event for event in heard if isinstance(event, WorkEvent)]
    by_work: dict[int, list[WorkEvent]] = {}
    for event in works_:
        by_work.setdefault(event.work_id, []).append(event)
    found = {events[0].operation for events in by_work.values()}
    assert {"flush", "delta flush", "alter", "history gc", "compact", "merge"} <= found
    [failed] = [events for events in by_work.values() if events[-1].error is not None]
    assert failed[0].operation == "alter"
    whole = of_one(works_, "compact")[0].work_id
    merges = [events[0] for events in by_work.values() if events[0].operation == "merge"]
    assert {event.parent_id for event in merges} == {whole}
    order = [type(event).__name__ for event in heard if getattr(event, "operation", "flush") == "flush"]
    assert order.index("Started") < order.index("FlushEnd") < order.index("Ended")


def test_a_merge_is_cancelled_and_tried_later(folder: Path) -> None:
    """A listener that cancels what maintenance does: it is left alone for a while, and told as no error."""
    heard: list[Event] = []

    def listener(event: Event) -> None:
        heard.append(event)
        if isinstance(event, Started) and event.operation == "merge":
            event.cancel()

    with kc.open_table(folder / "t", "rw", listener=listener) as table:
        with pytest.raises(kc.Cancelled):
            table.maintain()
        assert table.maintain() == 0
        assert table.metrics()["maintenance_errors"] == 0
    assert content(folder / "t") == BEFORE
