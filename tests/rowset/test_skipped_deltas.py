"""Delta files that cannot matter to a read are not opened: their time range and statistics say so
(protocol N15).

Counted at the file system, over handles that have read nothing before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.rows.meta import DeltaRef
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.clock import ManualClock
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, metas_of
from tests.support.models.history import SCHEMA

ROWS = 40
OPTIONS: dict[str, Any] = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0}


class Disk:
    """A table of one tablet, and which of its delta files a read opens."""

    def __init__(self) -> None:
        self.fs = FaultyFileSystem(MemoryFileSystem(), keep_log=True)
        self.clock = ManualClock()
        self.times: list[int] = []
        self.table = kc.create_table("/t", SCHEMA, "k", options=OPTIONS, _fs=self.fs, _clock=self.clock)

    def did(self, result: kc.WriteResult) -> None:
        """A write, and its flush to a file of its own."""
        self.clock.advance(us=5)
        self.times.append(result.timestamp)
        self.table.flush()

    @contextmanager
    def reader(self) -> Iterator[kc.Table]:
        with kc.open_table("/t", _fs=self.fs, _clock=self.clock) as table:
            yield table

    def opened(self, read: Callable[[kc.Table], Any]) -> set[str]:
        """The delta files that one read of a fresh handle opens, or reads a byte of."""
        with self.reader() as table:
            self.fs.log.clear()
            read(table)
            touched = {call.path for call in self.fs.log if call.op in ("open_read", "pread", "preadv")}
        names = {path.rsplit("/", 1)[1] for path in touched}
        assert any(name.endswith(".rows") for name in names), "the base is read in any case"
        return {name for name in names if name.endswith(".delta")}

    @property
    def redo(self) -> tuple[DeltaRef, ...]:
        [meta] = metas_of(self.table)
        return meta.redo

    @property
    def undo(self) -> tuple[DeltaRef, ...]:
        [meta] = metas_of(self.table)
        return meta.undo


def names(*files: DeltaRef) -> set[str]:
    return {ref.file.name for ref in files}


@pytest.fixture
def disk() -> Disk:
    """Rows; then REDO files: a is changed, b is changed, a row is deleted, a and c are changed."""
    disk = Disk()
    table = disk.table
    disk.did(table.insert([{"k": i, "a": i, "b": "x", "c": 0.5} for i in range(ROWS)]))
    disk.did(table.update([{"k": i, "a": -i} for i in range(10)]))
    disk.did(table.update([{"k": i, "b": "y"} for i in range(5, 15)]))
    disk.did(table.delete([39]))
    disk.did(table.update([{"k": i, "a": 7, "c": 7.5} for i in range(3)]))
    assert len(disk.redo) == 4 and not disk.undo
    return disk


def test_a_scan_opens_the_files_of_its_columns(disk: Disk) -> None:
    a, b, deletion, a_and_c = disk.redo
    wanted: list[tuple[Any, set[str]]] = [
        (["k"], names(deletion)),
        (["k", "a"], names(deletion, a, a_and_c)),
        (["b"], names(deletion, b)),
        (["c"], names(deletion, a_and_c)),
        (None, names(*disk.redo)),
        ([], names(deletion)),
    ]
    for columns, files in wanted:
        for order in ("any", "key"):

            def scan(table: kc.Table, columns: Any = columns, order: str = order) -> pa.Table:
                return table.scan(columns, order=order).to_table()

            assert disk.opened(scan) == files, (columns, order)
    assert disk.opened(lambda t: t.count()) == names(deletion)


def test_a_predicate_opens_the_files_of_its_columns_too(disk: Disk) -> None:
    a, b, deletion, a_and_c = disk.redo
    assert disk.opened(lambda t: t.scan(["c"], [("b", "=", "y")]).to_table()) == names(deletion, b, a_and_c)
    assert disk.opened(lambda t: t.scan(["k"], [("a", "<", 0)]).count()) == names(deletion, a, a_and_c)
    assert disk.opened(lambda t: t.scan(["b"], [("k", "=", 7)]).to_table()) == names(deletion, b)


def test_points_open_the_files_of_their_columns(disk: Disk) -> None:
    _, b, deletion, a_and_c = disk.redo
    assert disk.opened(lambda t: t.get(7, ["b"])) == names(deletion, b)
    assert disk.opened(lambda t: t.get(7, ["k", "c"])) == names(deletion, a_and_c)
    assert disk.opened(lambda t: t.get_many([7, 8], ["b"])) == names(deletion, b)
    assert disk.opened(lambda t: t.get_many([7, 39], ["k"])) == names(deletion)


def test_the_past_opens_no_later_file(disk: Disk) -> None:
    inserted, a_changed, b_changed, deleted, _ = disk.times
    a, b, deletion, _ = disk.redo
    for at, files in (
        (inserted, set()),
        (a_changed - 1, set()),
        (a_changed, names(a)),
        (b_changed, names(a, b)),
        (deleted, names(a, b, deletion)),
    ):
        assert disk.opened(lambda t, at=at: t.scan(at=at).to_table()) == files  # type: ignore[misc]
        assert disk.opened(lambda t, at=at: t.get(3, at=at)) == files  # type: ignore[misc]
    assert disk.opened(lambda t: t.scan(["c"], at=b_changed).to_table()) == set()


def test_the_present_opens_no_undo(disk: Disk) -> None:
    """History in the past of the snapshot costs one comparison a file."""
    disk.table.compact(full=True)
    [deletion] = disk.redo
    [undo] = disk.undo
    assert disk.opened(lambda t: t.scan().to_table()) == names(deletion)
    assert disk.opened(lambda t: t.scan(order="key").to_table()) == names(deletion)
    assert disk.opened(lambda t: t.get(3)) == names(deletion)
    assert disk.opened(lambda t: t.get_many([3, 4])) == names(deletion)
    assert disk.opened(lambda t: t.scan(["a"], [("a", "=", 7)]).to_table()) == names(deletion)
    # At the last change that it undoes it is not needed either, just before it it is.
    last = undo.max_ts
    assert disk.opened(lambda t: t.scan(["a"], at=last).to_table()) == names(deletion)
    assert disk.opened(lambda t: t.scan(["a"], at=last - 1).to_table()) == names(deletion, undo)
    # A column that it does not change can be read at any time without it.
    first = disk.times[0]
    assert disk.opened(lambda t: t.scan(["k"], at=first).to_table()) == set()


def files_of(disk: Disk, wanted: set[str]) -> list[DeltaRef]:
    """UNDO files, newest first."""
    return [ref for ref in disk.undo if ref.file.name in wanted]


def test_undo_of_a_flush_and_of_each_compaction_are_skipped_one_by_one() -> None:
    disk = Disk()
    table = disk.table
    disk.times.append(table.insert([{"k": i, "a": 0, "b": "x"} for i in range(ROWS)]).timestamp)
    disk.did(table.update([{"k": 1, "a": 1}]))
    for value in (2, 3):
        disk.did(table.update([{"k": i, "a": value} for i in range(ROWS)]))
        table.compact(full=True)
    newest, middle, oldest = disk.undo
    inserted, first, second, third = disk.times
    for at, files in (
        (None, set()),
        (third, set()),
        (third - 1, names(newest)),
        (second, names(newest)),
        (second - 1, names(newest, middle)),
        (first, names(newest, middle)),
        (first - 1, names(newest, middle, oldest)),
        (inserted, names(newest, middle, oldest)),
    ):
        assert disk.opened(lambda t, at=at: t.scan(["a"], at=at).to_table()) == files  # type: ignore[misc]
        assert disk.opened(lambda t, at=at: t.scan(["b"], at=at).to_table()) == set()  # type: ignore[misc]
        # A point ends its search at the file that knows, the oldest of these.
        opened = disk.opened(lambda t, at=at: t.get(1, ["a"], at))  # type: ignore[misc]
        assert opened == names(*files_of(disk, files)[-1:])


def test_changes_open_the_files_of_their_window_and_columns(disk: Disk) -> None:
    _, a_changed, b_changed, deleted, last = disk.times
    a, b, deletion, a_and_c = disk.redo
    # Which rows changed is told by every file of the window.
    assert disk.opened(lambda t: t.changes(deleted, last, columns=["k", "c"]).to_table()) <= names(
        deletion, a_and_c
    )
    assert disk.opened(lambda t: t.changes(b_changed, deleted, columns=["k"]).to_table()) == names(deletion)
    two = disk.opened(lambda t: t.changes(a_changed - 1, b_changed, columns=["k", "b"]).to_table())
    assert two == names(a, b)


def test_a_merged_file_is_skipped_as_its_parts_were(disk: Disk) -> None:
    engine = engine_of(disk.table)
    assert engine.compactions is not None
    tablet = engine.tablets[0]
    engine.compactions.compact(tablet, tablet.view.rowsets[0].id, MINOR)
    [merged] = disk.redo
    assert disk.opened(lambda t: t.scan(at=disk.times[0]).to_table()) == set()
    assert disk.opened(lambda t: t.scan(["b"]).to_table()) == names(merged)
    b = engine.schema.by_name["b"].id
    engine.compactions.compact(tablet, tablet.view.rowsets[0].id, MAJOR, [b])
    [rest], [undo] = disk.redo, disk.undo
    assert b not in rest.updates and undo.updates == {b: 10}
    assert disk.opened(lambda t: t.scan(["b"]).to_table()) == names(rest), "it holds a deletion"


def test_a_file_that_begins_after_the_snapshot_in_part(disk: Disk) -> None:
    """A REDO file of two times shows a snapshot between them the first alone: never nothing of it."""
    table = disk.table
    first = table.update([{"k": 20, "a": 100}]).timestamp
    second = table.update([{"k": 21, "a": 101}]).timestamp
    table.flush()
    newest = disk.redo[-1]
    assert (newest.min_ts, newest.max_ts) == (first, second)
    with disk.reader() as reader:
        for at, wanted in ((first - 1, [20, 21]), (first, [100, 21]), (second, [100, 101])):
            rows = reader.scan(["a"], [("k", ">=", 20), ("k", "<=", 21)], at=at).to_table()
            assert rows["a"].to_pylist() == wanted
            assert [reader.get(k, ["a"], at) for k in (20, 21)] == [{"a": a} for a in wanted]
            assert reader.get_many([20, 21], ["a"], at)["a"].to_pylist() == wanted


def test_writers_open_the_files_of_deletions_only(disk: Disk) -> None:
    """Whether a row is there is no reason to open files of updates."""
    deletion = disk.redo[2]
    disk.table.close()
    for write in (
        lambda t: t.update([{"k": 3, "a": 5}]),
        lambda t: t.update({"k": [3, 4], "a": [5, 6]}),
        lambda t: t.insert([{"k": 39}]),
        lambda t: t.upsert({"k": [5, 39, 100], "b": ["p", "q", "r"]}),
        lambda t: t.delete([6]),
    ):
        with kc.open_table("/t", "rw", _fs=disk.fs, _clock=disk.clock) as table:
            disk.fs.log.clear()
            write(table)
            touched = {c.path.rsplit("/", 1)[1] for c in disk.fs.log if c.op in ("open_read", "pread")}
            assert {name for name in touched if name.endswith(".delta")} <= names(deletion)
