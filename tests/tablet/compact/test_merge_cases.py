"""The corner cases of a merge, each by name; most are Kudu's (docs of tablet/compaction-test.cc).

Kudu's DuplicatingRowSet makes races of its own; here they are those between the rounds that carry changes
over and the install (protocol C3, C4).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.files.delta_codes import UNDO_ALIVE, UNDO_DEAD, UNDO_UPDATE
from tests.support.inside import engine_of, rowsets_of
from tests.support.models.merging import Merging, undo_of

Row = dict[str, Any]
STEPS = ("begun", "written", "round", "ready")


def finish(m: Merging) -> None:
    """All of it is right, also after a crash and after everything was flushed."""
    m.check()
    m.crash()
    m.check()
    m.flush_all()
    m.check()
    m.reopen()
    m.check()


# ---- histories ----


def test_ghosts_of_three_rowsets_become_one_row(m: Merging) -> None:
    """4.8 k, 14.3.1: inserted, deleted, inserted in the next rowset, deleted, inserted in the third."""
    times = [m.put(1, 2, a=1)]
    m.flush()
    times.append(m.delete(1))
    times.append(m.put(1, a=3))
    m.flush()
    times.append(m.delete(1))
    times.append(m.put(1, a=5))
    m.flush()
    assert len(m.rowsets) == 3
    done = m.merge()
    assert (done.rows, done.rows_dropped, done.rowsets_added) == (4, 2, 1)
    [rowset] = m.rowsets
    assert undo_of(rowset, 0) == [
        (times[4], UNDO_DEAD),
        (times[3], UNDO_ALIVE),
        (times[2], UNDO_DEAD),
        (times[1], UNDO_ALIVE),
    ]
    assert rowset.meta.redo == () and rowset.base.open().insert_times(0, 2) is None
    finish(m)


def test_lifetimes_interleave_between_rowsets(m: Merging) -> None:
    """14.3.2, 6: the older copy lives again within its own rowset after the other one died.

    By way of a MemRowSet whose ghost is revived after another rowset has held the key.
    """
    m.put(1, a=1)
    m.delete(1)
    m.put(2, a=2)
    # The ghost of 1 stays in this MemRowSet; an ingest brings 1 into a rowset, and it dies there.
    m.put(*range(1, 2), *range(100, 170), a=3)
    assert len(m.rowsets) == 1
    m.set(1, a=4)
    m.delete(1)
    m.put(1, a=5)  # REINSERT into the MemRowSet
    m.set(1, b="later")
    m.flush()
    assert len(m.rowsets) == 2
    m.delete(1)
    m.put(1, a=6)
    m.flush_all()
    m.check()
    m.merge()
    assert len(m.rowsets) == 1
    finish(m)


@pytest.mark.parametrize("ids", [(0, 1), (0, 2), (1, 2)])
def test_a_part_of_the_copies_is_merged(m: Merging, ids: tuple[int, int]) -> None:
    """The copies that are left out lie between, before or after those that are joined."""
    for a in range(3):
        m.put(1, 2 + a, a=a)
        m.set(1, c=a + 0.5)
        m.flush()
        if a < 2:
            m.set(1, b=f"old{a}")
            m.delete(1)
    rowsets = sorted(m.ids)
    m.merge([rowsets[i] for i in ids])
    m.check()
    m.merge()
    assert len(m.rowsets) == 1
    finish(m)


def test_delete_and_insert_in_one_batch(m: Merging) -> None:
    """4.8 l, 14.3.3: one net change; of a row that lives it is an update, of one that does not, nothing."""
    m.put(1, 2, a=1)
    m.flush()
    m.write(("delete", [{"k": 1}]), ("insert", [{"k": 1, "a": 2, "b": "x", "c": None}]))
    new = {"k": 7, "a": 2, "b": None, "c": None}
    m.write(("insert", [new]), ("delete", [{"k": 7}]), ("delete", [{"k": 2}]))
    m.put(2, 3, a=3)
    m.flush()
    m.merge()
    finish(m)


def test_update_and_delete_in_one_batch(m: Merging) -> None:
    """14.3.4: the delete is the net change, and the update shows nowhere."""
    m.put(1, 2, a=1)
    m.flush()
    m.write(("update", [{"k": 1, "a": 9}]), ("delete", [{"k": 1}]))
    m.put(1, a=3)
    m.flush()
    m.merge()
    finish(m)


def test_a_life_within_the_window_of_changes(m: Merging) -> None:
    """14.3.7: inserted and deleted within it."""
    m.put(5, a=1)
    m.flush()
    before = m.history.writes[-1]
    m.put(1, a=2)
    m.flush()
    m.delete(1)
    m.put(1, a=3)
    m.flush()
    after = m.delete(1)
    m.merge()
    assert m.table.changes(before, after, net=True).to_pylist() == []
    finish(m)


def test_many_updates_of_one_row(m: Merging) -> None:
    """14.3.9: in memory, in files, folded by other compactions, of several columns at other times."""
    m.put(1, 2, a=0)
    m.flush()
    for step in range(30):
        m.set(1, **{"abc"[step % 3]: None if step % 7 == 0 else (step, f"s{step}", step / 4)[step % 3]})
        if step % 6 == 2:
            m.flush_all()
        if step == 14:
            m.table.compact(full=True)
    m.merge()
    [rowset] = m.rowsets
    assert len(undo_of(rowset, 0)) == 30, "each of the updates has one record, of whichever columns"
    finish(m)


def test_one_change_that_two_files_tell(m: Merging) -> None:
    """A major compaction took one of two columns: the change stands in UNDO and in REDO."""
    m.put(1, 2, a=0)
    m.flush()
    time = m.set(1, a=5, b="five")
    m.flush_all()
    engine = engine_of(m.table)
    assert engine.compactions is not None
    engine.compactions.compact(m.tablet, m.ids[0], "major", [engine.schema.by_name["a"].id])
    [rowset] = m.rowsets
    assert [len(rowset.meta.redo), len(rowset.meta.undo)] == [1, 1]
    m.merge()
    [rowset] = m.rowsets
    assert undo_of(rowset, 0) == [(time, UNDO_UPDATE)]
    assert {len(undo.ref.updates) for undo in rowset.undo} == {2}
    finish(m)


def test_rows_with_no_columns_but_the_key(tmp_path: Path) -> None:
    """14.3.15"""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    table = kc.create_table(tmp_path / "t", schema, "k", options={"maintenance": "manual"})
    with table:
        for keys in ([1, 2, 3], [4, 5], [0, 9]):
            table.insert({"k": keys})
            table.flush()
        table.delete([2, 5])
        table.insert({"k": [2]})
        table.flush()
        table.compact(full=True)
        assert len(rowsets_of(table)) == 1
        assert table.scan(order="key").to_table()["k"].to_pylist() == [0, 1, 2, 3, 4, 9]


def test_rowsets_of_one_row(m: Merging) -> None:
    """14.3.18"""
    for key in (3, 1, 2, 0):
        m.put(key, a=key)
        m.flush()
    m.merge()
    assert [r.meta.rows for r in m.rowsets] == [4]
    finish(m)
