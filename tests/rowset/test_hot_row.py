"""A row that was updated 10,000 times costs no more reading of files than one that never was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import metas_of, rowsets_of
from tests.support.models.history import SCHEMA

ROWS, UPDATES = 40_000, 10_000
HOT, COLD = 5, 20_005


@pytest.fixture(scope="module")
def fs() -> FaultyFileSystem:
    return FaultyFileSystem(MemoryFileSystem(), keep_log=True)


@pytest.fixture(scope="module")
def table(fs: FaultyFileSystem) -> kc.Table:
    options = {"maintenance": "manual", "durability": "none", "scan_threads": 1}
    made = kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs, _clock=ManualClock())
    made.insert({"k": list(range(ROWS)), "a": list(range(ROWS)), "b": ["x"] * ROWS})
    made.flush()
    for i in range(UPDATES):
        made.update([{"k": HOT, "a": -i}])
    return made


READS: dict[str, Callable[[kc.Table, int], Any]] = {
    "get": lambda t, k: t.get(k)["a"],  # type: ignore[index]
    "get_many": lambda t, k: t.get_many([k])["a"][0].as_py(),
    "scan": lambda t, k: t.scan(["a"], [("k", "=", k)]).to_table()["a"][0].as_py(),
}


def test_in_memory_its_changes_are_indexed_once(table: kc.Table) -> None:
    [rowset] = rowsets_of(table)
    [log] = rowset.memory_stores
    for _ in range(3):
        for read in READS.values():
            assert read(table, HOT) == 1 - UPDATES and read(table, COLD) == COLD
    indexed = log.points.nbytes
    assert UPDATES * 4 <= indexed <= UPDATES * 5, "of the hot row, and of no other"


@pytest.mark.parametrize("compacted", [False, True], ids=["delta file", "compacted"])
def test_in_files_it_costs_the_pages_of_any_row(
    table: kc.Table, fs: FaultyFileSystem, compacted: bool
) -> None:
    table.flush()
    if compacted:
        table.compact(full=True)
    [meta] = metas_of(table)
    assert [f.entries for f in (meta.undo if compacted else meta.redo)] == [UPDATES]
    middle = table.get(HOT)  # of the newest state, by the writer's own handle
    assert middle is not None and middle["a"] == 1 - UPDATES

    def pages(read: Callable[[kc.Table, int], Any], key: int, wanted: int) -> int:
        with kc.open_table("/t", _fs=fs, _clock=ManualClock()) as reader:
            fs.log.clear()
            assert read(reader, key) == wanted
            return sum(call.op in ("pread", "preadv") for call in fs.log)

    for name, read in READS.items():
        cold, hot = pages(read, COLD, COLD), pages(read, HOT, 1 - UPDATES)
        # What is read beside: where the column has entries and what they are, an index and a page each.
        assert hot <= cold + (0 if compacted else 4) <= 2 * cold, (name, hot, cold)
