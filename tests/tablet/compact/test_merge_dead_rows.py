"""Merges of rows that are dead: when they are dropped, and for whom they are kept."""

from __future__ import annotations

from pathlib import Path

from tests.support.inside import log_of, wait_durable
from tests.support.models.merging import Merging


def ancient(tmp_path: Path) -> Merging:
    """Nothing but pinned snapshots holds history."""
    return Merging(tmp_path / "t", history_retention_s=0)


def test_every_row_is_gone(tmp_path: Path) -> None:
    """4.8 g"""
    m = ancient(tmp_path)
    for base in (0, 1):
        m.put(*range(base, 20, 2), a=base)
        m.flush()
    m.delete(*range(20))
    m.flush_all()
    done = m.merge()
    assert (done.rows_dropped, done.rowsets_added, m.rowsets) == (20, 0, ())
    m.check(changes=False)
    m.put(3, a=7)
    m.flush()
    m.check(changes=False)
    m.crash()
    m.check(changes=False)


def test_a_rowset_is_merged_alone(tmp_path: Path) -> None:
    """Every other row is dead and nobody can see it: 14.3.13, and 4.8 h with changes that come meanwhile."""
    m = ancient(tmp_path)
    m.put(*range(40), a=1)
    m.flush()
    m.delete(*range(1, 40, 2))
    log_of(m.table).wait_durable(m.history.writes[-1])  # the horizon is not above what is durable
    rowset = m.rowsets[0]

    def meanwhile() -> None:
        for key in (0, 2, 20, 38):
            m.set(key, a=100 + key)
        m.delete(4)
        m.put(5, a=55)

    done = m.merge(at_step=m.once("written", meanwhile))
    assert (done.rows_dropped, done.changes) == (20, 5)
    [after] = m.rowsets
    assert after.meta.rows == 20 and after.id != rowset.id
    assert m.table.get(38)["a"] == 138  # type: ignore[index]
    m.check(changes=False)
    m.crash()
    m.check(changes=False)


def test_a_pinned_snapshot_keeps_what_it_sees(tmp_path: Path) -> None:
    """14.3.12: history GC and merge meet a chain of lives; no ghost is revived."""
    m = ancient(tmp_path)
    m.put(1, 2, a=1)
    m.flush()
    m.delete(1)
    m.put(1, a=2)
    m.flush()
    wait_durable(m.table)
    pinned = m.table.snapshot()
    m.delete(1)
    m.put(1, a=3)
    m.flush()
    m.delete(1)
    m.flush_all()
    m.merge()
    assert [r.meta.rows for r in m.rowsets] == [2], "the snapshot sees row 1"
    assert pinned.get(1)["a"] == 2  # type: ignore[index]
    m.check()
    pinned.close()
    m.table.gc()
    m.merge()
    assert [r.meta.rows for r in m.rowsets] == [1], "now nobody can"
    m.check(changes=False)
    assert m.table.insert([{"k": 1, "a": 9}]).inserted == 1


def test_dead_at_every_horizon(tmp_path: Path) -> None:
    """One key, copies in four rowsets: a merge at each horizon that a pin can set."""

    def story(path: Path) -> Merging:
        m = Merging(path, history_retention_s=0)
        for a in range(4):
            m.put(1, 10 + a, a=a)
            m.set(1, b=f"u{a}")
            m.flush()
            m.set(1, c=None)
            m.delete(1)
        m.flush_all()
        wait_durable(m.table)
        return m

    count = len(story(tmp_path / "first").history.writes)
    for at in range(count):
        m = story(tmp_path / f"at{at}")
        pin = m.table.snapshot(m.history.writes[at])
        m.merge()
        m.check()
        pin.close()
