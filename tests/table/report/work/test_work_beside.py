"""Events and metrics beside other threads, in the child of a fork, and of a table that was closed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import kudu_core as kc
from kudu_core.common.run.measure import work as works
from kudu_core.events import Ended, Event, Progress, Started, WorkEvent

SCHEMA = [("k", "int64"), ("v", "int64")]
OPTIONS = {"maintenance": "manual", "ingest_threshold_rows": 1000, "rowset_target_bytes": 64 << 10}


@pytest.fixture(autouse=True)
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "PROGRESS_S", -1.0)


def rows(count: int, first: int = 0) -> dict[str, np.ndarray]:
    return {"k": np.arange(first, first + count), "v": np.arange(count)}


def test_loads_beside_each_other_are_told_apart(path: Path) -> None:
    """And beside scrapes, whose counters never go back."""
    heard: list[Event] = []
    shown: dict[int, list[WorkEvent]] = {n: [] for n in range(4)}
    failed: list[BaseException] = []
    with kc.create_table(path, SCHEMA, "k", options=OPTIONS, listener=heard.append) as table:

        def load(number: int) -> None:
            try:
                table.insert(rows(5000, number * 5000), progress=shown[number].append)
                table.flush()
            except BaseException as error:  # noqa: BLE001  told below
                failed.append(error)

        threads = [threading.Thread(target=load, args=(n,)) for n in shown]
        for thread in threads:
            thread.start()
        seen = []
        while any(thread.is_alive() for thread in threads):
            seen.append(table.metrics())
            assert "kudu_core_rowsets" in kc.prometheus_text(table)
        for thread in threads:
            thread.join()
        assert not failed, failed
        seen.append(table.metrics())
        for metric in seen[0].described:
            if metric.kind == "counter":
                values = [found[metric.key] for found in seen]
                assert values == sorted(values), metric
        assert table.metrics()["ingest_rows"] == 20_000 == table.count()
        assert table.metrics()["write_count"] == 4
    ids = set()
    for events in shown.values():
        assert len({event.work_id for event in events}) == 1
        ids.add(events[0].work_id)
        assert isinstance(events[0], Started) and isinstance(events[-1], Ended)
        assert events[-1].done == 5000
    assert len(ids) == 4


def test_cancelled_by_another_thread(path: Path) -> None:
    """By the event that was kept: the load ends at its next step, and others go on."""
    begun, asked = threading.Event(), threading.Event()
    kept: list[WorkEvent] = []

    def progress(event: WorkEvent) -> None:
        kept.append(event)
        if isinstance(event, Progress) and not begun.is_set():
            begun.set()
            assert asked.wait(60)

    def cancel() -> None:
        assert begun.wait(60)
        kept[0].cancel()
        asked.set()

    with kc.create_table(path, SCHEMA, "k", options=OPTIONS) as table:
        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(kc.Cancelled):
            table.insert(rows(20_000), progress=progress)
        thread.join()
        assert table.count() == 0
        assert table.insert(rows(20_000)).inserted == 20_000


def test_a_child_of_a_fork_hears_of_its_own_work(path: Path) -> None:
    with kc.create_table(path, SCHEMA, "k", options=OPTIONS) as table:
        table.insert(rows(5000))
        table.flush()
    heard: list[Event] = []
    with kc.open_table(path, listener=heard.append) as reader:
        reader.get(1)
        child = os.fork()
        if not child:
            status = 1
            try:
                heard.clear()
                reader.verify()
                found = reader.metrics()
                told = [type(event).__name__ for event in heard if isinstance(event, WorkEvent)]
                right = told[0] == "Started" and told[-1] == "Ended" and found["get_count"] == 0
                status = 0 if right else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert reader.metrics()["get_count"] == 1


def test_the_table_is_closed_by_who_hears_of_the_end(path: Path) -> None:
    tables: list[kc.Table] = []

    def listener(event: Event) -> None:
        if isinstance(event, Ended) and event.operation == "ingest":
            tables[0].close()

    table = kc.create_table(path, SCHEMA, "k", options=OPTIONS, listener=listener)
    tables.append(table)
    assert table.insert(rows(5000)).inserted == 5000
    with pytest.raises(kc.Closed):
        table.count()
    with kc.open_table(path) as reader:
        assert reader.count() == 5000


@pytest.mark.parametrize("door", ["create", "restore", "repair"])
def test_every_door_takes_a_listener(tmp_path: Path, door: str) -> None:
    heard: list[Event] = []
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=OPTIONS, listener=heard.append) as table:
        table.insert(rows(2000))
        table.backup(tmp_path / "b")
    if door == "create":
        assert {"TableOpened", "IngestEnd", "Started", "Ended"} <= {type(e).__name__ for e in heard}
        heard.clear()
        with kc.create_table(tmp_path / "t", SCHEMA, "k", exist_ok=True, listener=heard.append) as table:
            table.upsert([{"k": 1, "v": 9}])
            table.flush()
        assert "DeltaFlushEnd" in {type(e).__name__ for e in heard}
        return
    heard.clear()
    if door == "restore":
        with kc.restore(tmp_path / "b", tmp_path / "r", listener=heard.append) as table:
            table.insert([{"k": -1}])
            table.flush()
        assert "FlushEnd" in {type(e).__name__ for e in heard}, "it is the new table's too"
    else:
        kc.repair(tmp_path / "t", listener=heard.append)
    told = [event for event in heard if isinstance(event, WorkEvent) and event.operation == door]
    assert isinstance(told[0], Started) and isinstance(told[-1], Ended) and told[-1].error is None
