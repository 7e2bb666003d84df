"""Promises that rest on one line each, in the places where leaving it out is not seen at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.pages.container import CONTAINER_ROWS, FileReader
from kudu_core.common.run.clock import last_of_microsecond
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.clock import ManualClock
from tests.support.faults import TINY, drop, segments_of
from tests.support.inside import engine_of, log_of, tablets_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MANUAL = {"maintenance": "manual", "file_grace_s": 0}


def test_updates_that_only_memory_holds_keep_their_log(tmp_path: Path) -> None:
    """A DeltaMemStore counts like a MemRowSet where the log asks what may go."""
    path = tmp_path / "t"
    with segments_of(TINY):
        table = kc.create_table(path, SCHEMA, "k", options=MANUAL)
        table.insert({"k": [1, 2, 3], "v": [1, 1, 1]})
        table.flush()
        table.update({"k": [1, 2, 3], "v": [9, 9, 9]})
        for first in range(100, 900, 20):
            table.insert({"k": list(range(first, first + 20)), "v": [0] * 20})
        engine = engine_of(table)
        assert engine.maintenance is not None
        engine.maintenance.flush(engine.tablets[0])  # the rows, and not the changes of those before
        segments = len(engine.log.segments)
        engine.maintenance.truncate_log()
        drop(table)
    assert segments > 3, "nothing that could go too early"
    with kc.open_table(path, "rw") as again:
        assert [again.get(k)["v"] for k in (1, 2, 3)] == [9, 9, 9]  # type: ignore[index]


def test_nothing_is_written_at_or_below_a_time_that_was_read(tmp_path: Path) -> None:
    """A read of a moment that is not over: what comes later in that microsecond is after it."""
    clock = ManualClock()
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=MANUAL, _clock=clock) as table:
        table.insert({"k": [1], "v": [1]})
        reads: list[Callable[[int], int]] = [
            lambda at: table.scan(at=at).to_table().num_rows,
            lambda at: table.count(at=at),
            lambda at: table.get_many([*range(1, 9)], at=at)["_found"].to_pylist().count(True),
            lambda at: sum(table.get(k, at=at) is not None for k in range(1, 9)),
            lambda at: table.snapshot(at).scan().count(),
        ]
        for rows, read in enumerate(reads, 1):
            clock.advance(us=1)
            moment = last_of_microsecond(clock.now_us())
            assert read(moment) == rows
            assert table.insert({"k": [rows + 1], "v": [1]}).timestamp > moment
            assert read(moment) == rows


@pytest.mark.parametrize("second", [MINOR, MAJOR, "merge"])
@pytest.mark.parametrize("first", [MINOR, MAJOR, "merge"])
def test_one_compaction_of_a_rowset_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """A second one finds the rowset taken and does nothing, whatever both are."""
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=MANUAL) as table:
        for part in range(2):  # two rowsets that overlap
            table.insert({"k": list(range(part, 200, 2)), "v": [0] * 100})
            table.flush()
        for value in (1, 2, 3):
            table.update({"k": list(range(200)), "v": [value] * 200})
            table.flush()
        engine = engine_of(table)
        [tablet] = engine.tablets
        compactions = engine.compactions
        assert compactions is not None
        ids = [rowset.id for rowset in tablet.view.rowsets]
        entered: list[str] = []
        outcomes: list[Any] = []

        def run(kind: str) -> Any:
            if kind == "merge":
                return compactions.merge(tablet, ids)
            return compactions.compact(tablet, ids[0], kind)

        def in_the_middle(*_: object) -> None:
            """The first one has its input and has written nothing: now the second begins."""
            if entered:
                return
            entered.append(first)
            thread = threading.Thread(target=lambda: outcomes.append(run(second)))
            thread.start()
            thread.join()

        real = tablet.sync_directory

        def sync_directory() -> None:
            in_the_middle()
            real()

        monkeypatch.setattr(tablet, "sync_directory", sync_directory)
        assert run(first)
        assert entered, "the first one was not met in the middle"
        assert not outcomes[0], f"{second} worked on a rowset that {first} had"
        assert not tablet.compacting
        monkeypatch.undo()
        table.verify()
        assert table.scan().to_table()["v"].to_pylist() == [3] * 200


def test_a_reader_that_was_refreshed_does_not_promise_history_that_has_gone(tmp_path: Path) -> None:
    """Its pins come from before the refresh, and with them the oldest state that it would hold."""
    clock = ManualClock()
    path = tmp_path / "t"
    options = {**MANUAL, "history_retention_s": 10}
    with kc.create_table(path, SCHEMA, "k", options=options, _clock=clock) as table:
        old = table.insert({"k": [1], "v": [1]}).timestamp
        table.flush()
        with kc.open_table(path, _clock=clock) as reader:
            assert reader.count(at=old) == 1
            clock.advance(1)
            table.update({"k": [1], "v": [2]})
            table.compact(full=True)
            clock.advance(60)
            table.insert({"k": [2], "v": [2]})
            table.flush()
            table.gc()
            table.compact(full=True)
            floor = max(t.state.horizon for t in tablets_of(table))
            assert floor > old, "no history went"
            reader.refresh()
            assert engine_of(reader).pins.floor == floor
            for read in (
                lambda: reader.snapshot(at=old),
                lambda: reader.count(at=old),
                lambda: reader.get(1, at=old),
                lambda: engine_of(reader).pins.pin(old),
            ):
                with pytest.raises(kc.SnapshotTooOld):
                    read()


def test_a_manifest_does_not_name_files_that_are_deleted(tmp_path: Path) -> None:
    """Else its list of retired files would grow with every compaction, for ever."""
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=MANUAL) as table:
        [tablet] = tablets_of(table)
        deleted: set[str] = set()
        for part in range(4):
            table.upsert({"k": list(range(50)), "v": [part] * 50})
            table.flush()
            before = {file.name for file in Path(tablet.directory).iterdir()}
            table.compact(full=True)
            table.gc()
            deleted |= before - {file.name for file in Path(tablet.directory).iterdir()}
        assert len(deleted) >= 2, "nothing was replaced"
        assert tablet.manifest is not None
        assert not tablet.manifest.state.retired & deleted


def test_a_file_that_is_refused_is_closed_though_the_error_is_kept(tmp_path: Path) -> None:
    """Whoever keeps the error keeps the frames that it came through."""
    path = tmp_path / "wrong.rows"
    path.write_bytes(bytes(4096))
    with pytest.raises(kc.Corruption) as met:
        FileReader(PosixFileSystem(), str(path), CONTAINER_ROWS)
    mine = path.stat()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor that listed the folder
            assert not os.path.samestat(os.fstat(int(name)), mine), met


@pytest.mark.parametrize("named", [False, True], ids=["nothing", "a named write"])
def test_a_bulk_write_that_changes_nothing_is_recorded_only_for_its_name(tmp_path: Path, named: bool) -> None:
    options = {**MANUAL, "ingest_threshold_rows": 1}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        table.insert({"k": [1, 2], "v": [1, 2]})
        lsn = log_of(table).last_lsn
        txn = ("job", 1) if named else None
        result = table.insert({"k": [1, 2], "v": [8, 9]}, on_conflict="ignore", txn=txn)
        assert (result.inserted, result.ignored) == (0, 2)
        assert (log_of(table).last_lsn > lsn) == named
