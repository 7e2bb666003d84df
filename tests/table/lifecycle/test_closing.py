"""Closing a table while it is busy: bounded, repeatable, from any thread, and the lease goes last."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run.gates import Gates
from kudu_core.table.opened.travel.unheld import close_unheld as finalize
from kudu_core.tablet.compact import merge as merge_compaction
from kudu_core.tablet.maintain import compaction_lane, together
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.tablet import Tablet
from tests.support.inside import closing_of, compaction_lane_of, engine_of, is_ended, tablets_of, watch_of
from tests.support.interrupts import Interruption, under_way
from tests.support.processes import python

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
LATE_S = 120.0


def make(path: Path, **options: Any) -> kc.Table:
    settings = {"maintenance": "manual", "durability": "none", **options}
    return kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2), options=settings)


def layers(table: kc.Table, rows: int = 200) -> None:
    """Rowsets that overlap."""
    for value in range(4):
        keys = list(range(value, rows, 4))
        table.upsert({"k": keys, "v": [value] * len(keys)})
        table.flush()


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  the test looks at it
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread, errors


class Merge:
    """A merge that another thread does and that stands still at a step until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        self.there, self.go = threading.Event(), threading.Event()
        usual = merge_compaction.merge_rowsets

        def at_step(now: str) -> None:
            if now == step:
                self.there.set()
                assert self.go.wait(LATE_S)

        def slow(*args: Any, **kwargs: Any) -> Any:
            return usual(*args, at_step=at_step, **kwargs)

        monkeypatch.setattr(compaction_lane, "merge_rowsets", slow)


@pytest.mark.parametrize("maintenance", ["manual", "background"])
@pytest.mark.parametrize("step", ["begun", "ready"])
def test_a_close_during_a_merge_waits_and_keeps_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, maintenance: str
) -> None:
    table = make(tmp_path / "t", maintenance=maintenance)
    merge = Merge(monkeypatch, step)
    layers(table)
    thread, _ = in_thread(lambda: table.compact(full=True))
    assert merge.there.wait(LATE_S)
    closing, errors = in_thread(table.close)
    assert closing_of(compaction_lane_of(table)).wait(LATE_S)
    with pytest.raises(kc.Locked):
        kc.open_table(tmp_path / "t", "rw")
    merge.go.set()
    closing.join(LATE_S)
    thread.join(LATE_S)
    assert not closing.is_alive() and not thread.is_alive() and not errors
    with kc.open_table(tmp_path / "t", "rw") as again:
        assert again.count() == 200
        again.verify()


def test_an_interrupted_close_keeps_the_lease_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it waits for another thread's merge: that thread may still write."""
    table = make(tmp_path / "t")
    merge = Merge(monkeypatch, "ready")
    layers(table)
    thread, _ = in_thread(lambda: table.compact(full=True))
    assert merge.there.wait(LATE_S)
    usual = Gates.wait

    def wait(gates: Gates, *args: Any, **kwargs: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        usual(gates, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Gates, "wait", wait)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                table.close()
    for use in (table.count, table.flush, lambda: table.upsert({"k": [1], "v": [1]})):
        with pytest.raises(kc.Closed):
            use()
    with pytest.raises(kc.Locked):
        kc.open_table(tmp_path / "t", "rw")
    merge.go.set()
    table.close()
    table.close()
    thread.join(LATE_S)
    with kc.open_table(tmp_path / "t", "rw") as again:
        assert again.count() == 200


def test_a_close_that_was_interrupted_anywhere_is_repeated(tmp_path: Path, long: bool) -> None:
    """What it writes last, the end of the log and TABLE, the second call writes, and the close is clean."""
    at = 0
    while True:
        at += 1 if long else 37
        path = tmp_path / f"t{at}"
        before = set(threading.enumerate())
        table = make(path, maintenance="background", durability="group")
        table.upsert({"k": [1], "v": [at]})
        with Interruption(at) as interruption:
            try:  # noqa: SIM105  contextlib would be interrupted too
                table.close()
            except KeyboardInterrupt:
                pass
        if interruption.count < at:
            table.close()
            break
        table.close()
        engine = engine_of(table)
        assert is_ended(table) and engine.lease is not None and not engine.lease.held
        assert engine.table_file.state.clean_end == engine.log.last_lsn, interruption.where
        begun = set(threading.enumerate()) - before
        left = [thread for thread in begun if thread.name.startswith("kudu")]
        for thread in left:  # its work is over; Python may not have taken it off the list
            thread.join(LATE_S)
        assert not any(thread.is_alive() for thread in left), f"{left} after {interruption.where}"
        with kc.open_table(path, "rw") as again:
            assert again.get(1) == {"k": 1, "v": at}
    assert at > 100


def test_many_threads_close_at_once(tmp_path: Path) -> None:
    table = make(tmp_path / "t", maintenance="background")
    layers(table)
    closers = [in_thread(table.close) for _ in range(8)]
    for thread, errors in closers:
        thread.join(LATE_S)
        assert not thread.is_alive() and not errors
    kc.open_table(tmp_path / "t", "rw").close()


def test_a_second_close_returns_when_the_table_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes a table that another thread is closing may rely on it too."""
    table = make(tmp_path / "t")
    there, go = threading.Event(), threading.Event()
    usual = Tablet.close

    def slow(tablet: Tablet, **kwargs: Any) -> None:
        there.set()
        assert go.wait(LATE_S)
        usual(tablet, **kwargs)

    monkeypatch.setattr(Tablet, "close", slow)
    first, _ = in_thread(table.close)
    assert there.wait(LATE_S)
    second, errors = in_thread(table.close)
    second.join(0.3)
    assert second.is_alive()
    go.set()
    second.join(LATE_S)
    assert not second.is_alive() and not errors
    kc.open_table(tmp_path / "t", "rw").close()
    first.join(LATE_S)


@pytest.mark.parametrize("maintenance", ["manual", "background"])
def test_a_body_that_raises_still_closes(tmp_path: Path, maintenance: str) -> None:
    with pytest.raises(ZeroDivisionError), make(tmp_path / "t", maintenance=maintenance) as table:
        layers(table)
        1 / 0  # noqa: B018
    kc.open_table(tmp_path / "t", "rw").close()


@pytest.mark.parametrize("work", ["upsert", "ingest", "flush", "compact"])
def test_close_beside_a_busy_thread(tmp_path: Path, work: str) -> None:
    """The thread is told that the table is closed, at whatever point; what was acknowledged is there."""
    table = make(tmp_path / "t", ingest_threshold_rows=100)
    layers(table)
    done = [1]
    begun = threading.Event()

    def loop() -> None:
        value = 1
        while True:
            value += 1
            if work in ("upsert", "ingest"):
                rows = 20 if work == "upsert" else 200
                table.upsert({"k": list(range(rows)), "v": [value] * rows})
                done[0] = value
            else:
                table.upsert({"k": [0, 1, 2], "v": [value] * 3})
                done[0] = value
                table.flush()
                if work == "compact":
                    table.compact(full=True)
            begun.set()

    thread, errors = in_thread(loop)
    assert begun.wait(LATE_S)
    table.close()
    thread.join(LATE_S)
    assert not thread.is_alive() and isinstance(errors[0], kc.Closed), errors
    with kc.open_table(tmp_path / "t", "rw") as again:
        row = again.get(1)
        assert row is not None and row["v"] in (done[0], done[0] + 1)
        again.verify()


def test_a_table_that_nobody_closed_is_closed_when_it_is_collected(tmp_path: Path) -> None:
    """In whatever thread, and in a cycle."""
    path = tmp_path / "t"
    make(path).close()
    for where in ("here", "there"):

        def leave() -> None:
            table: Any = kc.open_table(path, "rw", options={"maintenance": "background"})
            table.upsert({"k": [1], "v": [1]})
            holder: Any = [table]
            holder.append(holder)
            del table, holder
            gc.collect()

        if where == "here":
            leave()
        else:
            thread, errors = in_thread(leave)
            thread.join(LATE_S)
            assert not thread.is_alive() and not errors
        kc.open_table(path, "rw", timeout_s=LATE_S).close()


def test_a_finalizer_that_is_interrupted_is_finished_elsewhere(tmp_path: Path) -> None:
    """Nobody catches what a finalizer raises, nor calls it again."""
    path = tmp_path / "t"
    for at in (4, 60, 200):
        table: Any = kc.create_table(path, SCHEMA, "k", exist_ok=True)
        table.upsert({"k": [1], "v": [at]})
        engine = engine_of(table)
        watch_of(table).detach()
        with Interruption(at) as interruption:
            try:  # noqa: SIM105  contextlib would be interrupted too
                finalize([engine])
            except KeyboardInterrupt:
                pass
        assert interruption.count == at
        with kc.open_table(path, "rw", timeout_s=LATE_S) as again:
            assert again.get(1) == {"k": 1, "v": at}


@pytest.mark.parametrize("durability", ["sync", "group", "none"])
def test_the_interpreter_ends_with_threads_at_work(tmp_path: Path, durability: str) -> None:
    """Open tables are closed cleanly, beside threads that write, flush and compact."""
    code = """
        import sys, threading, kudu_core as kc, pyarrow as pa
        path, durability = sys.argv[1:]
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
        table = kc.create_table(path, schema, "k", options={"durability": durability})
        begun = threading.Event()
        def work(work):
            while True:
                work()
                begun.set()
        def write(): table.upsert({"k": list(range(500)), "v": [1] * 500})
        for one in (write, table.flush, lambda: table.compact(full=True), table.count):
            threading.Thread(target=work, args=(one,), daemon=True).start()
        begun.wait()
        write()
    """
    done = python(code, tmp_path / "t", durability)
    assert done.returncode == 0, done.stderr
    with kc.open_table(tmp_path / "t", "rw") as table:
        assert table.count() == 500
        table.verify()


def test_a_call_beside_a_close_leaves_nothing_under_way(tmp_path: Path) -> None:
    table = make(tmp_path / "t", maintenance="background", durability="sync")
    layers(table)
    table.close()
    assert not under_way(engine_of(table))


@pytest.mark.parametrize("at_once", [1, 8])
def test_no_compaction_begins_after_a_close(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several that one call does: the listener closes the table after the first of them, or of those that
    are made at a time."""
    if at_once == 1:
        monkeypatch.setattr(together, "SMALL_BYTES", -1)
    path = tmp_path / "t"
    table = make(path)
    for value in range(3):
        table.upsert({"k": list(range(200)), "v": [value] * 200})
        table.flush()
    table.close()
    done: list[kc.events.DeltaCompactionEnd] = []

    def listen(event: kc.events.Event) -> None:
        if isinstance(event, kc.events.DeltaCompactionEnd):
            done.append(event)
            table.close()

    table = kc.open_table(path, "rw", listener=listen)
    files = {p: p.read_bytes() for p in path.rglob("MANIFEST*")}
    with pytest.raises(kc.Closed):
        table.compact(full=True)
    assert 1 <= len(done) <= at_once
    changed = [p for p, data in files.items() if p.name == "MANIFEST" and p.read_bytes() != data]
    assert len(changed) == len({event.tablet_id for event in done}), (
        "of the tablets that were compacted before the close"
    )
    with kc.open_table(path, "rw") as again:
        assert again.count() == 200
        again.verify()
        assert again.metrics()["lost_files"] == 0, "files of a compaction that was not installed"


def test_a_closed_tablet_takes_no_edit(tmp_path: Path) -> None:
    """Whatever operation a close has overlooked: the lease is another's by then."""
    table = make(tmp_path / "t")
    layers(table)
    [tablet, _] = tablets_of(table)
    table.close()
    before = (tmp_path / "t" / "tablets" / "00000001" / "MANIFEST").read_bytes()
    [rowset, *_] = tablet.view.rowsets
    assert tablet.manifest is not None
    with pytest.raises(kc.Closed):
        tablet.install(tablet.view, Edit(remove=(rowset.id,)))
    assert (tmp_path / "t" / "tablets" / "00000001" / "MANIFEST").read_bytes() == before
