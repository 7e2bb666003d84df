"""Many tablets at once: how many fsyncs flushes and compactions cost, how many waits, and what fails."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import kudu_core as kc
from kudu_core.events import DeltaCompactionEnd, DeltaFlushEnd, Event, FlushEnd, MaintenanceError, MergeEnd
from kudu_core.tablet.maintain import compaction_lane, together
from kudu_core.tablet.maintain.scoring import Operation
from kudu_core.tablet.maintain.together import TABLETS_AT_ONCE
from kudu_core.tablet.store.tablet import Tablet
from tests.support.fs.faulty import Call, Rule
from tests.support.fs.slow import PATH, SCHEMA, Disk, rows
from tests.support.inside import poison_of, tablets_of

MANY = 64
"""Tablets: a multiple of those at once."""
ROWS = 2_000
SYNCS = ("sync", "sync_dir")


def create(disk: Disk, tablets: int, listener: Callable[[Event], object] | None = None) -> kc.Table:
    table = kc.create_table(
        PATH,
        SCHEMA,
        "k",
        partition_by=kc.HashPartition(["k"], tablets) if tablets > 1 else (),
        options={"maintenance": "manual", "durability": "none"},
        _fs=disk,
    )
    if listener is None:
        return table
    table.close()
    return kc.open_table(PATH, "rw", listener=listener, _fs=disk)


def change(table: kc.Table, value: int) -> None:
    table.update({"k": np.arange(ROWS), "a": np.full(ROWS, value)})


@pytest.fixture
def eight_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the first tablet would have said of the disk."""
    monkeypatch.setattr(together, "first_alone", lambda work, tablets: (TABLETS_AT_ONCE, 0))


class Waits:
    """Fsyncs of tablets' files: counted by what is synced, and held back until as many as are expected at one
    time have come, so that each round of them is one wait."""

    def __init__(self, disk: Disk, at_once: int) -> None:
        self.kinds: Counter[str] = Counter()
        self.rounds = 0
        self._round = threading.Barrier(at_once, self._count_round)
        self._disk = disk

    def _count_round(self) -> None:
        self.rounds += 1

    def _see(self, call: Call) -> None:
        if call.op not in SYNCS or "/tablets/" not in call.path:
            return
        name = call.path.rsplit("/", 1)[1]
        kind = "folder" if call.op == "sync_dir" else name.rsplit(".", 1)[-1]
        self.kinds[kind] += 1
        self._round.wait(30)  # a round that never fills raises, in all of its threads

    @contextmanager
    def counted(self) -> Iterator[None]:
        self._disk.see = self._see
        try:
            yield
        finally:
            self._disk.see = lambda call: None


@pytest.mark.parametrize(("tablets", "at_once"), [(1, 1), (MANY, TABLETS_AT_ONCE)])
@pytest.mark.usefixtures("eight_at_once")
def test_fsyncs_of_a_flush_and_their_waits(disk: Disk, tablets: int, at_once: int) -> None:
    table = create(disk, tablets)
    table.insert(rows(0, ROWS))
    work: list[tuple[Callable[[], object], dict[str, int]]] = [
        (lambda: None, {"rows": 1, "folder": 1, "MANIFEST": 1}),
        (lambda: change(table, 1), {"delta": 1, "folder": 1, "MANIFEST": 1}),
        (
            lambda: (change(table, 2), table.insert(rows(ROWS, 2 * ROWS))),
            {"rows": 1, "delta": 1, "folder": 2, "MANIFEST": 1},
        ),
    ]
    for write, expected in work:
        write()
        waits = Waits(disk, at_once)
        with waits.counted():
            table.flush()
        assert waits.kinds == {kind: tablets * count for kind, count in expected.items()}
        assert waits.rounds == sum(expected.values()) * tablets // at_once
    assert not any(tablet.memory_bytes for tablet in tablets_of(table) if tablet.view.changed)
    table.close()
    with kc.open_table(PATH, _fs=disk) as reader:
        assert reader.count() == 2 * ROWS
        assert reader.scan(where=[("a", "=", 2), ("k", "<", ROWS)]).count() == ROWS


def test_changes_of_many_rowsets_share_a_folder_and_a_manifest(disk: Disk) -> None:
    table, rowsets = create(disk, 1), 5
    for lower in range(0, ROWS, ROWS // rowsets):
        table.insert(rows(lower, lower + ROWS // rowsets))
        table.flush()
    change(table, 1)
    waits = Waits(disk, 1)
    with waits.counted():
        table.flush()
    assert waits.kinds == {"delta": rowsets, "folder": 1, "MANIFEST": 1}
    table.close()
    with kc.open_table(PATH, _fs=disk) as reader:
        assert set(reader.scan(["a"]).to_table()["a"].to_pylist()) == {1}


def test_a_tablet_without_anything_to_flush_costs_nothing(disk: Disk) -> None:
    table = create(disk, MANY)
    table.insert(rows(0, 1))
    waits = Waits(disk, 1)
    with waits.counted():
        table.flush()
    assert waits.kinds == {"rows": 1, "folder": 1, "MANIFEST": 1}


@pytest.mark.usefixtures("eight_at_once")
def test_large_tablets_are_flushed_alone(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(disk, 8)
    table.insert(rows(0, ROWS))
    sizes = sorted(tablet.memory_bytes for tablet in tablets_of(table))
    monkeypatch.setattr(together, "SMALL_BYTES", sizes[5])
    threads: dict[str, set[str]] = {}

    def see(call: Call) -> None:
        if call.op == "sync_dir":
            threads.setdefault(threading.current_thread().name, set()).add(call.path)

    disk.see = see
    me = threading.current_thread().name
    table.flush()
    alone = [t.directory for t in tablets_of(table) if t.directory in threads[me]]
    assert len(alone) == sum(size > sizes[5] for size in sizes) > 0
    assert all(name == me or name.startswith("kudu-core-together") for name in threads)


def test_tablets_that_fail_hold_up_no_other_and_are_all_told(disk: Disk) -> None:
    told: list[Event] = []
    table = create(disk, 8, told.append)
    table.insert(rows(0, ROWS))
    broken = tablets_of(table)[2:4]
    disk.rules = [
        Rule({"create"}, f"{tablet.directory}/*", error=errno.ENOSPC, sticky=True) for tablet in broken
    ]
    with pytest.raises(OSError) as caught:
        table.flush()
    assert caught.value.errno == errno.ENOSPC
    assert len(caught.value.__notes__) == 1 and "of another tablet" in caught.value.__notes__[0]
    failed = {int(event.tablet_id) for event in told if isinstance(event, MaintenanceError)}
    flushed = {int(event.tablet_id) for event in told if isinstance(event, FlushEnd)}
    assert failed == {tablet.id for tablet in broken}
    assert flushed == {tablet.id for tablet in tablets_of(table)} - failed
    disk.rules = []
    told.clear()
    table.flush()
    assert {int(event.tablet_id) for event in told if isinstance(event, FlushEnd)} == failed
    table.close()
    with kc.open_table(PATH, _fs=disk) as reader:
        assert reader.count() == ROWS


@pytest.mark.parametrize("what", ["sync_dir", "MANIFEST"])
def test_w8_a_failed_fsync_ends_the_flush_of_all_and_is_what_is_raised(disk: Disk, what: str) -> None:
    table = create(disk, 16)
    table.insert(rows(0, ROWS))
    table.flush()
    change(table, 1)
    place = tablets_of(table)[9].directory
    rule = Rule({"sync_dir"}, place) if what == "sync_dir" else Rule({"sync"}, f"{place}/MANIFEST")
    disk.rules = [rule]
    with pytest.raises(OSError, match="Input/output"):
        table.flush()
    assert rule.fired == 1 and poison_of(table) is not None
    with pytest.raises(kc.Poisoned):
        table.flush()
    assert rule.matches == 1, "a failed fsync is not tried again"
    assert table.scan(where=[("a", "=", 1)]).count() == ROWS
    table.close()
    with kc.open_table(PATH, "rw", _fs=disk) as again:
        assert again.count() == ROWS


def test_a_listener_that_closes_the_table_during_a_flush(disk: Disk) -> None:
    closed: list[kc.Table] = []

    def listener(event: Event) -> None:
        if isinstance(event, FlushEnd | DeltaFlushEnd) and not closed:
            closed.append(table)
            table.close()

    table = create(disk, MANY, listener)
    table.insert(rows(0, ROWS))
    with pytest.raises(kc.Closed):
        table.flush()
    with kc.open_table(PATH, "rw", _fs=disk) as again:
        assert again.count() == ROWS


@pytest.mark.parametrize(
    ("waited_s", "computed_s", "threads"), [(0, 0.02, 2), (0.02, 0.02, 3), (0.08, 0.02, 6), (0.4, 0.004, 8)]
)
def test_threads_are_as_many_as_the_first_tablet_waits_longer_than_it_computes(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, waited_s: float, computed_s: float, threads: int
) -> None:
    begun: list[Tablet] = []

    def timed(call: Callable[[], object]) -> tuple[float, float]:
        call()
        return waited_s + computed_s, computed_s

    tablets = tablets_of(create(disk, 4))
    monkeypatch.setattr(together, "timed", timed)
    assert together.first_alone(begun.append, tablets) == (threads, 1)
    assert begun == [tablets[0]], "the others are worked on by the threads"


# ---- compactions


def overlapping(table: kc.Table) -> None:
    """Two rowsets of the same range of keys in each tablet."""
    for first in (0, 1):
        keys = np.arange(first, 2 * ROWS, 2)
        table.insert({"k": keys, "a": keys, "s": keys.astype(str)})
        table.flush()


@pytest.mark.parametrize(("tablets", "at_once"), [(1, 1), (MANY, TABLETS_AT_ONCE)])
@pytest.mark.usefixtures("eight_at_once")
def test_fsyncs_of_a_full_compaction_and_their_waits(disk: Disk, tablets: int, at_once: int) -> None:
    table = create(disk, tablets)
    overlapping(table)
    waits = Waits(disk, at_once)
    with waits.counted():
        table.compact(full=True)
    assert waits.kinds == {"rows": tablets, "folder": tablets, "MANIFEST": tablets}
    assert waits.rounds == 3 * tablets // at_once
    assert all(len(tablet.view.rowsets) == 1 for tablet in tablets_of(table))
    assert table.count() == 2 * ROWS


def test_a_compaction_looks_at_a_tablet_once_for_each_of_its_operations(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not at all tablets: that would be quadratic in them."""
    told: list[Event] = []
    table = create(disk, MANY, told.append)
    overlapping(table)
    change(table, 1)
    table.flush()
    looks: list[int] = []
    real = compaction_lane.compaction_operations

    def look(tablet: Tablet, *args: Any) -> Iterator[Operation]:
        looks.append(tablet.id)
        return real(tablet, *args)

    monkeypatch.setattr(compaction_lane, "compaction_operations", look)
    table.compact()
    done = [event for event in told if isinstance(event, DeltaCompactionEnd | MergeEnd)]
    worked_on = {event.tablet_id for event in done}
    assert len(worked_on) == MANY
    # No rowset was written twice: what a delta compaction would write, a merge wrote at once.
    assert len(done) == MANY and all(isinstance(event, MergeEnd) for event in done)
    assert len(looks) == MANY + len(done) + len(worked_on)
    assert table.scan(where=[("a", "=", 1)]).count() == ROWS


@pytest.mark.parametrize("full", [False, True])
def test_a_compaction_that_fails_holds_up_no_other_tablet(disk: Disk, full: bool) -> None:
    table = create(disk, 8)
    overlapping(table)
    change(table, 1)
    table.flush()
    broken = tablets_of(table)[2]
    before = {tablet.id: tablet.rowset_metas for tablet in tablets_of(table)}
    disk.rules = [Rule({"create"}, f"{broken.directory}/*", error=errno.ENOSPC, sticky=True)]
    with pytest.raises(OSError, match="No space"):
        table.compact(full=full)
    same = {tablet.id for tablet in tablets_of(table) if tablet.rowset_metas == before[tablet.id]}
    assert same == {broken.id}
    assert table.count() == 2 * ROWS


def test_after_each_follows_each_small_tablet_on_the_calling_thread() -> None:
    told: list[str] = []
    threads: set[int] = set()

    def after_each() -> None:
        told.append("after")
        threads.add(threading.get_ident())

    def work(tablet: Any) -> None:
        told.append(tablet)

    small: Any = ["a", "b", "c"]
    together.for_each_tablet(small, work, size_bytes=lambda tablet: 0, after_each=after_each)
    assert told[:2] == ["a", "after"]
    assert sorted(told) == ["a", "after", "after", "after", "b", "c"]
    assert threads == {threading.get_ident()}
