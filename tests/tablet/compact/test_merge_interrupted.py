"""Whatever ends a merge before its edit leaves the tablet as it was: no file, no claim, no change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.events import Event, MergeEnd
from kudu_core.rowset.history import merging
from kudu_core.tablet.compact import merge as merge_compaction
from tests.support.fs.faulty import FaultyFileSystem, Rule
from tests.support.inside import closing_of, compaction_lane_of, engine_of, poison_of, tablets_of
from tests.support.models.merging import Merging


@pytest.fixture
def m(tmp_path: Path) -> Merging:
    m = Merging(tmp_path / "t")
    for part in range(3):
        m.put(*range(part, 30, 3), a=part)
        m.flush()
    m.delete(3)
    m.put(3, a=33)
    m.flush()
    m.set(1, 2, a=7)
    return m


class Stop(BaseException):
    """As an interrupt from the keyboard: no Exception."""


def unchanged(m: Merging, act: Callable[[], object], error: type[BaseException]) -> None:
    before, state = m.ids, m.tablet.state
    with pytest.raises(error):
        act()
    assert m.ids == before and m.tablet.state == state
    assert m.files() == set() and m.tablet.compacting == set()
    m.check()
    m.merge()
    m.check()
    m.crash()
    m.check()


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, MemoryError, OSError])
@pytest.mark.parametrize("step", ["begun", "written", "round", "ready"])
def test_an_exception(m: Merging, step: str, error: type[BaseException]) -> None:
    def fail() -> None:
        m.set(1, 3, c=0.5)
        raise error

    unchanged(m, lambda: m.merge(at_step=m.once(step, fail)), error)


def test_a_cancellation_at_every_look(m: Merging) -> None:
    """``check`` is asked for each input, each output and each column."""
    looks = [0]

    def count() -> None:
        looks[0] += 1

    m.merge(check=count)
    assert looks[0] >= 8
    for number in range(looks[0]):
        m.put(200 + number, a=1)
        m.flush()
        left = [number]

        def check(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Stop

        ids, files = m.ids, m.files()
        with pytest.raises(Stop):
            m.merge(check=check)
        assert m.ids == ids and m.files() == files and m.tablet.compacting == set()
    m.check()


def test_the_table_is_closed(m: Merging) -> None:
    """On another thread: the merge gives up, the close waits for that, and nothing is left."""
    compactions = compaction_lane_of(m.table)
    assert compactions is not None
    reached, closing = threading.Event(), threading.Event()
    real = compactions._check_going_on
    failed: list[BaseException] = []

    def wait(_: object) -> None:
        reached.set()
        assert closing.wait(60)
        real()

    compactions._check_going_on = wait  # type: ignore[method-assign]

    def merge() -> None:
        try:
            assert compactions is not None
            compactions.merge(m.tablet, m.ids)
        except kc.Closed as exc:
            failed.append(exc)

    merger = threading.Thread(target=merge)
    merger.start()
    assert reached.wait(60)
    files = {p.name for p in (m.path / "tablets/00000001").iterdir()}
    closer = threading.Thread(target=m.table.close)
    closer.start()
    closing_of(compactions).wait(60)
    assert closer.is_alive()
    closing.set()
    closer.join()
    assert len(failed) == 1, "before the close was over"
    merger.join()
    assert {p.name for p in (m.path / "tablets/00000001").iterdir()} == files
    m.table = kc.open_table(m.path, "rw")
    m.check()


def test_a_closed_table_takes_no_install(m: Merging) -> None:
    """Closed between the writing and the install, by somebody who does not ask the compactions."""

    def close() -> None:
        m.tablet.is_closed = True

    unchanged_ids = m.ids
    with pytest.raises(kc.Closed):
        m.merge(at_step=m.once("written", close))
    m.tablet.is_closed = False
    assert m.ids == unchanged_ids and m.files() == set()
    m.check()


def test_a_full_disk_at_every_write(tmp_path: Path) -> None:
    """ENOSPC: an ``OSError``, and nothing has happened."""
    import errno

    from tests.support.fs.memory import MemoryFileSystem
    from tests.support.models.history import SCHEMA

    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    options = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0}
    table = kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs)
    for part in range(3):
        table.insert([{"k": k, "a": part} for k in range(part, 30, 3)])
        table.flush()
    table.delete([4])
    table.insert([{"k": 4, "a": 44}])
    table.flush()
    [tablet] = tablets_of(table)
    rows = table.scan(order="key").to_pylist()
    full = 0
    for number in range(1, 100):
        ids = [r.id for r in tablet.view.rowsets]
        files = set(disk.listdir(tablet.directory))
        fs.rules = [Rule(ops={"append", "create"}, path_glob="*-0*", nth=number, error=errno.ENOSPC)]
        try:
            table.compact(full=True)
        except OSError:
            full += 1
            assert [r.id for r in tablet.view.rowsets] == ids and tablet.compacting == set()
            assert set(disk.listdir(tablet.directory)) == files
            assert poison_of(table) is None
            assert table.scan(order="key").to_pylist() == rows
        else:
            break
    assert full >= 4 and len(tablet.view.rowsets) == 1, "a file of rows and one of UNDO"
    assert table.scan(order="key").to_pylist() == rows
    table.close()


def test_rows_too_large_for_one_file_make_two(m: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan goes by samples; where it is wrong, the range is cut while it is written."""
    m.write(("insert", [{"k": 100 + k, "a": k, "b": "x" * 400, "c": None} for k in range(20)]))
    m.flush()
    monkeypatch.setattr(merging, "MAX_COLUMN_BYTES", 1000)
    m.set(1, 105, 119, b="y" * 300)
    done = m.merge()
    assert done.rowsets_added >= 8
    bounds = sorted((r.meta.min_key, r.meta.max_key) for r in m.rowsets)
    assert all(a[1] < b[0] for a, b in pairwise(bounds))
    m.check()
    m.crash()
    m.check()


def test_what_a_merge_tells(tmp_path: Path) -> None:
    told: list[Event] = []
    m = Merging(tmp_path / "t")
    engine_of(m.table).listener = told.append
    for part in range(2):
        m.put(*range(part, 20, 2), a=part)
        m.flush()
    inputs = sum(meta.size_bytes for meta in m.tablet.rowset_metas)
    m.table.compact(full=True)
    [event] = [event for event in told if isinstance(event, MergeEnd)]
    assert (event.tablet_id, event.rowsets, event.rowsets_added, event.rows, event.rows_dropped) == (
        "1", 2, 1, 20, 0,
    )  # fmt: skip
    assert event.input_bytes == inputs and event.horizon == 0 and event.elapsed_s > 0
    assert event.output_bytes == sum(meta.size_bytes for meta in m.tablet.rowset_metas)
    told.clear()
    m.table.compact(full=True)
    assert not [event for event in told if isinstance(event, MergeEnd)], "nothing is left to do"
    assert merge_compaction.merge_rowsets(m.tablet, [12345], horizon=lambda drop: 0) is None
