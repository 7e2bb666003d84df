"""The checks of the debug switch find what they are for: each is shown a tablet that breaks its invariant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import kudu_core as kc
from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_REINSERT
from kudu_core.rowset.memory.changelog import Change
from kudu_core.tablet.replay import invariants
from kudu_core.tablet.replay.invariants import BrokenInvariant, check_install
from kudu_core.tablet.store.tablet import Tablet, freeze_memrowset
from tests.support.clock import ManualClock
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, forget, tablet_of
from tests.support.models.history import SCHEMA


@pytest.fixture
def table() -> Iterator[kc.Table]:
    """One tablet: two rowsets, one with REDO files and UNDO, changes in memory, rows in memory."""
    fs = MemoryFileSystem()
    options = {"maintenance": "manual", "scan_threads": 1, "ingest_threshold_rows": 50}
    table = kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs, _clock=ManualClock())
    table.insert({"k": list(range(10)), "a": list(range(10))})
    table.update({"k": [3, 4], "a": [30, 40]})
    table.flush()
    table.delete([5])
    table.flush()
    table.upsert({"k": list(range(100, 160)), "a": list(range(60))})
    table.update({"k": [3, 101], "a": [31, 41]})
    table.insert({"k": [20, 21], "a": [1, 2]})
    yield table
    forget(table)


def test_a_sound_tablet_passes(table: kc.Table) -> None:
    check_install(tablet_of(table))
    engine = engine_of(table)
    invariants.check_open(engine.tablets, engine.log, floor=0, through=0)
    invariants.check_pins(0, engine.log.committed_ts, None)


def twice(tablet: Tablet) -> None:
    """A key live in two rowsets: the first one once more under another id."""
    first = tablet.view.rowsets[0]
    meta = dataclasses.replace(first.meta, id=999, base=dataclasses.replace(first.meta.base))
    tablet.state = dataclasses.replace(tablet.state, rowsets={**tablet.state.rowsets, 999: meta})
    tablet.view = tablet.view.with_rowsets((*tablet.view.rowsets, dataclasses.replace(first, meta=meta)))


def with_first(tablet: Tablet, **changes: object) -> None:
    first = tablet.view.rowsets[0]
    meta = dataclasses.replace(first.meta, **changes)  # type: ignore[arg-type]
    tablet.state = dataclasses.replace(tablet.state, rowsets={**tablet.state.rowsets, meta.id: meta})
    tablet.view = tablet.view.with_rowset(dataclasses.replace(first, meta=meta))


def low_d(tablet: Tablet) -> None:
    with_first(tablet, durable=tablet.view.rowsets[0].meta.durable - 1)


def high_d(tablet: Tablet) -> None:
    with_first(tablet, durable=tablet.newest_applied)


def ahead_of_the_log(tablet: Tablet) -> None:
    assert tablet.context.log is not None
    tablet.state = dataclasses.replace(tablet.state, mark=tablet.context.log.durable_ts + 1)


def watermark_back(tablet: Tablet) -> None:
    check_install(tablet)
    tablet.state = dataclasses.replace(tablet.state, inserts_durable=tablet.state.inserts_durable - 1)


def stores_swapped(tablet: Tablet) -> None:
    first = tablet.view.rowsets[0]
    tablet.view = tablet.view.with_rowset(dataclasses.replace(first, redo=first.redo[::-1]))


def view_without_edit(tablet: Tablet) -> None:
    tablet.view = dataclasses.replace(tablet.view, rowsets=tablet.view.rowsets[1:])


def file_gone(tablet: Tablet) -> None:
    tablet.context.fs.unlink(f"{tablet.directory}/{tablet.view.rowsets[0].meta.redo[0].file.name}")


def file_of_other_size(tablet: Tablet) -> None:
    base = tablet.view.rowsets[0].meta.base
    with_first(tablet, base=dataclasses.replace(base, size=base.size - 8))


def reinsert_on_disk(tablet: Tablet) -> None:
    rowset = next(r for r in tablet.view.rowsets if r.active is not None)
    assert rowset.active is not None
    stamp = tablet.newest_applied + 1
    rowset.active.append(stamp, Change(REDO_REINSERT, np.array([6], np.uint32), {}))


def one_row_twice_at_one_time(tablet: Tablet) -> None:
    rowset = next(r for r in tablet.view.rowsets if r.active is not None)
    assert rowset.active is not None
    for _ in range(2):
        rowset.active.append(tablet.newest_applied + 1, Change(REDO_DELETE, np.array([6], np.uint32), {}))


def insert_after_the_freeze(tablet: Tablet) -> None:
    freeze_memrowset(tablet)
    frozen = tablet.view.frozen[0]
    assert frozen.frozen_at is not None
    frozen.frozen_at = int(frozen.inserted(0, 1)[0]) - 1


@pytest.mark.parametrize(
    ("break_it", "name"),
    [
        (twice, "N11|N3"),
        (low_d, "N2"),
        (high_d, "N2"),
        (ahead_of_the_log, "N5"),
        (watermark_back, "N6"),
        (stores_swapped, "N7|N2"),
        (view_without_edit, "E2"),
        (file_of_other_size, "size|footer|bytes"),
        (reinsert_on_disk, "N7"),
        (one_row_twice_at_one_time, "N7"),
        (insert_after_the_freeze, "N8|N2"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_broken(table: kc.Table, break_it: Callable[[Tablet], None], name: str) -> None:
    tablet = tablet_of(table)
    break_it(tablet)
    with pytest.raises((BrokenInvariant, kc.Corruption), match=name):
        check_install(tablet)


def test_a_file_that_is_gone(table: kc.Table) -> None:
    tablet = tablet_of(table)
    file_gone(tablet)
    with pytest.raises(kc.Corruption, match="missing"):
        check_install(tablet)


def test_memory_below_the_checkpoint(table: kc.Table) -> None:
    engine = engine_of(table)
    with pytest.raises(BrokenInvariant, match="N4"):
        invariants.check_open(engine.tablets, engine.log, floor=0, through=engine.log.committed_ts)


def test_pins_below_the_floor() -> None:
    with pytest.raises(BrokenInvariant, match="N10"):
        invariants.check_pins(5, 10, 4)
    with pytest.raises(BrokenInvariant, match="N10"):
        invariants.check_pins(5, 4, None)
