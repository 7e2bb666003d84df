"""How often lanes look at tablets: as often as there are tablets and operations, not their product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.tablet.maintain import compaction_lane, flush_lane, operations
from kudu_core.tablet.maintain.looks import Looks
from kudu_core.tablet.maintain.memory_use import MemoryUse
from kudu_core.tablet.maintain.scoring import LOG_GC, MAJOR, MERGE, Operation
from tests.support.clock import ManualClock
from tests.support.inside import tablet_of
from tests.support.tables import Make

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


class Work:
    """Operations to be done, by tablet: the last of each list is the next one."""

    def __init__(self, todo: dict[int, list[Operation]]) -> None:
        self.todo = todo
        self.seen: Counter[int] = Counter()

    def tablets(self) -> list[Any]:
        return [SimpleNamespace(id=tablet_id) for tablet_id in self.todo]

    def look(self, tablets: Sequence[Any]) -> list[Operation]:
        self.seen.update(tablet.id for tablet in tablets)
        return [self.todo[tablet.id][-1] for tablet in tablets if self.todo[tablet.id]]

    def looks(self) -> Looks:
        return Looks(self.tablets, self.look)


def some_of(tablet_id: int, count: int) -> list[Operation]:
    return [Operation(MERGE, tablet_id, (number,), gain=number) for number in range(count)]


def largest(found: list[Operation]) -> Operation | None:
    return max(found, key=lambda op: op.gain, default=None)


def test_each_operation_and_the_end() -> None:
    work = Work({tablet_id: some_of(tablet_id, 3) for tablet_id in range(10)})
    looks, done = work.looks(), []
    while (op := looks.best(largest)) is not None:
        done.append(work.todo[op.tablet_id].pop())
        assert done[-1] == op
        assert [tablet.id for tablet in looks.changed] == [op.tablet_id]
    assert len(done) == 30 and [op.gain for op in done] == sorted([0, 1, 2] * 10, reverse=True)
    # At first and at last all; before each operation but the first, and after each, its tablet.
    assert set(work.seen.values()) == {2 + 3 + 3, 2 + 3 + 2}


def test_what_others_have_done_is_not_done() -> None:
    work = Work({1: some_of(1, 1), 2: some_of(2, 2), 3: some_of(3, 3)})
    looks = work.looks()
    first = looks.best(largest)
    assert first is not None and first.tablet_id == 3
    work.todo[3].pop()
    work.todo[3].pop()
    work.todo[2].pop()  # by others; and now another operation of that tablet is possible
    second = looks.best(largest)
    assert second == Operation(MERGE, 1, (0,), gain=0)


def test_work_that_others_make_is_found_at_the_end() -> None:
    work = Work({1: some_of(1, 1), 2: []})
    looks = work.looks()
    assert looks.best(largest) is not None
    work.todo = {1: [], 2: some_of(2, 1)}
    found = looks.best(largest)
    assert found is not None and found.tablet_id == 2
    work.todo = {1: []}  # the other one was purged
    assert looks.best(largest) is None
    assert looks.changed == []


def test_what_is_of_no_tablet() -> None:
    work = Work({1: [], 2: []})
    looks, log = work.looks(), Operation(LOG_GC, -1, log_bytes=1)
    assert looks.best(lambda _: log) is log
    assert looks.best(lambda _: log) is log
    assert looks.best(largest) is None


def test_an_operation_is_given_as_it_is_now() -> None:
    work = Work({1: [Operation(MAJOR, 1, (1,), gain=1)], 2: [Operation(MAJOR, 2, (1,), gain=9)]})
    looks = work.looks()
    assert looks.best(largest) == Operation(MAJOR, 2, (1,), gain=9)
    work.todo = {1: [Operation(MAJOR, 1, (1,), gain=5)], 2: []}
    given = looks.best(largest)
    assert given is not None and given.gain == 5


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Looks of the lanes at single tablets, and measurements of all memory."""
    out: Counter[str] = Counter()

    def counted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def look(*arguments: Any, **more: Any) -> Iterator[Operation]:
            out[name] += 1
            return real(*arguments, **more)  # type: ignore[no-any-return]

        monkeypatch.setattr(module, name, look)

    counted(compaction_lane, "compaction_operations")
    counted(flush_lane, "flush_operations")
    counted(MemoryUse, "measure")
    return out


def maintained(path: Path, tablets: int, seen: Counter[str]) -> Counter[str]:
    """The looks that ``maintain`` takes at a table with work in every tablet."""
    options = {
        "maintenance": "manual",
        "durability": "none",
        "flush_age_s": 1.0,
        "ingest_threshold_rows": 10**6,
    }
    clock = ManualClock()
    parts = kc.HashPartition("k", tablets)
    with kc.create_table(path, SCHEMA, "k", partition_by=parts, options=options, _clock=clock) as table:
        rows = 100 * tablets
        for number in range(2):
            keys = range(number, 2 * rows, 2)
            table.insert(pa.table({"k": keys, "v": [number] * rows}, schema=SCHEMA))
            table.flush()
        table.upsert(pa.table({"k": range(rows), "v": [7] * rows}, schema=SCHEMA))
        clock.advance(100)
        seen.clear()
        done = table.maintain()
        assert done >= 2 * tablets, "a flush and a merge of each"
        assert table.maintain() == 0
        assert table.count() == 2 * rows
    return +seen


def test_looks_grow_with_the_tablets(tmp_path: Path, seen: Counter[str]) -> None:
    few, many = maintained(tmp_path / "few", 8, seen), maintained(tmp_path / "many", 16, seen)
    assert few.keys() == {"compaction_operations", "flush_operations", "measure"}
    assert many["measure"] == few["measure"]
    for name in ("compaction_operations", "flush_operations"):
        assert many[name] < 2.5 * few[name], name  # and not four times as many


def test_a_choice_that_the_end_of_a_merge_overtook_is_not_kept(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another thread merges once more what the merge has made no larger."""
    table = make(SCHEMA, ingest_threshold_rows=10)
    for part in range(6):
        table.insert({"k": np.arange(part * 100, part * 100 + 100)})
    tablet, merges, usual = tablet_of(table), operations.Merges(), operations.choose_merge

    def choice() -> Any:
        return merges.choice(tablet, tablet.context.options, 0, 0.0, ())

    def overtaken(*given: Any, **more: Any) -> Any:
        merges.settle(tablet, tablet.view.tree.ids)
        return usual(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(operations, "choose_merge", overtaken)
        assert choice() is not None
    assert choice() is None
