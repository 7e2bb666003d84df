"""A writer of a table in an object store killed at each request of what it does: what was acknowledged is
there, nothing is there in part or twice, and nothing that is named is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.lifecycle.in_store import store_home
from kudu_core.wal.objects import object_log
from tests.support.cases.wal import eventually
from tests.support.fs.faulty import SimulatedCrash
from tests.support.inside import forget
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, guard_deletes, opened, rows_of, taken_over

BULK = pa.table({"k": list(range(100, 12_100)), "v": list(range(100, 12_100))})


class Story:
    """What one process does to a table with rows 0 to 9: of each step the rows after it, and the call."""

    def __init__(self, table: kc.Table) -> None:
        self.table = table
        self.rows = rows_of(table)

    def steps(self) -> Iterator[tuple[dict[int, int], Callable[[], object]]]:
        raise NotImplementedError

    def after(self, changes: dict[int, int | None]) -> dict[int, int]:
        merged = {**self.rows, **changes}
        self.rows = {k: v for k, v in merged.items() if v is not None}
        return self.rows


class Writes(Story):
    def steps(self) -> Iterator[tuple[dict[int, int], Callable[[], object]]]:
        table = self.table
        yield self.after({1: 11}), lambda: table.upsert([{"k": 1, "v": 11}])
        yield self.after({2: None}), lambda: table.delete([{"k": 2}])
        yield self.rows, table.flush
        yield self.after({3: 33, 4: 44}), lambda: table.upsert([{"k": 3, "v": 33}, {"k": 4, "v": 44}])
        yield self.rows, table.flush
        yield self.after({5: 55}), lambda: table.update([{"k": 5, "v": 55}])


class Compactions(Story):
    def steps(self) -> Iterator[tuple[dict[int, int], Callable[[], object]]]:
        table = self.table
        for n in range(3):
            yield self.after({n: 100 + n}), lambda n=n: table.upsert([{"k": n, "v": 100 + n}])
            yield self.rows, table.flush
        yield self.rows, lambda: table.compact(full=True)
        yield self.rows, table.gc
        yield self.after({9: None}), lambda: table.delete([{"k": 9}])
        yield self.rows, table.gc


class Ingest(Story):
    def steps(self) -> Iterator[tuple[dict[int, int], Callable[[], object]]]:
        table = self.table
        bulk = dict(zip(BULK["k"].to_pylist(), BULK["v"].to_pylist(), strict=True))
        yield self.after({1: -1}), lambda: table.upsert([{"k": 1, "v": -1}])
        yield self.after(bulk), lambda: table.insert(BULK)
        yield self.after({n: -n for n in range(100, 6_100)}), lambda: table.upsert(
            pa.table({"k": list(range(100, 6_100)), "v": [-n for n in range(100, 6_100)]})
        )


class Alter(Story):
    def steps(self) -> Iterator[tuple[dict[int, int], Callable[[], object]]]:
        table = self.table
        yield self.rows, lambda: table.alter(add=[kc.Column("n", "int64", nullable=True)])
        yield self.after({1: 5}), lambda: table.upsert([{"k": 1, "v": 5, "n": 1}])
        yield self.rows, lambda: table.alter(drop=["n"])
        yield self.rows, table.flush


class Ends(Story):
    def steps(self) -> Iterator[tuple[dict[int, int], Callable[[], object]]]:
        table = self.table
        for n in range(6):
            yield self.after({n: n * 7}), lambda n=n: table.upsert([{"k": n, "v": n * 7}])
        yield self.rows, table.close


class Administration(Story):
    def steps(self) -> Iterator[tuple[dict[int, int], Callable[[], object]]]:
        table, then, rows = self.table, self.table.timestamp, dict(self.rows)
        yield self.rows, lambda: table.tag("then")
        yield self.after({1: 11, 2: None}), lambda: table.apply(
            [{"k": 1, "v": 11, "_op": "upsert"}, {"k": 2, "v": None, "_op": "delete"}], "_op"
        )
        yield self.after(dict.fromkeys(self.rows, None)), table.truncate
        yield self.after(rows), lambda: table.restore_to(then)
        yield self.rows, lambda: table.untag("then")


STORIES: dict[str, type[Story]] = {
    "writes": Writes,
    "compactions": Compactions,
    "ingest": Ingest,
    "alter": Alter,
    "ends": Ends,
    "administration": Administration,
}


def killed(story: str, fate: str, nth: int) -> bool:
    """Whether there was an ``nth`` request of the story at all."""
    memory = MemoryObjectStore()
    with created(memory, tablets=2, file_grace_s=0.0) as table:
        table.upsert([{"k": n, "v": n} for n in range(10)])
        table.flush()
    guard_deletes(memory)
    faulty = FaultyStore(memory)
    table = opened(faulty, "rw")
    tale = STORIES[story](table)
    before = after = dict(tale.rows)
    faulty.fates.rules = [Rule(fate, nth=nth)]  # type: ignore[arg-type]
    try:
        for wanted, act in tale.steps():
            before, after = after, dict(wanted)
            act()
            before = after
    except SimulatedCrash:
        pass
    except (kc.KuduError, OSError) as error:
        if not faulty.crashed:
            raise
        assert error is not None
    forget(table)
    with opened(memory) as reader:
        seen = rows_of(reader)
        assert seen in (before, after), (story, fate, nth)
    with taken_over(memory) as successor:
        assert rows_of(successor) == seen
        assert not successor.verify().foreign
        successor.upsert([{"k": 77, "v": 77}])
        successor.compact(full=True)
        successor.gc()
        successor.gc()
        assert rows_of(successor) == {**seen, 77: 77}
        assert successor.verify().unnamed == ()
    return faulty.crashed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fate", ["crash before", "crash after"])
@pytest.mark.parametrize("story", STORIES)
def test_killed_at_each_request(
    story: str, fate: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(object_log, "CHECKPOINT_OBJECTS", 3)
    monkeypatch.setattr(store_home, "CLOSE_OBJECTS", 3)
    every = request.config.getoption("--long")
    nth = 1
    while killed(story, fate, nth):
        nth += 1 if every or nth < 25 else 3
        assert nth < 1000
    assert nth > 3


def test_the_threads_of_the_dead_are_quiet() -> None:
    """The log's thread may come to a request of its own after the one that kills."""
    store = FaultyStore(MemoryObjectStore())
    table = created(store, durability="group")
    store.fates.rules = [Rule("crash before", ops=frozenset({"put"}))]
    table.upsert([{"k": 1, "v": 1}])
    eventually(lambda: store.crashed and not any(one.name == "kudu-log" for one in threading.enumerate()))
    forget(table)


def test_the_guard_of_deletes_finds_what_it_is_for() -> None:
    memory = MemoryObjectStore()
    with created(memory) as table:
        table.upsert([{"k": 1, "v": 1}])
        table.flush()
    guard_deletes(memory)
    for name in ("TABLE", "log/00000000000000000001", "tablets/00000001/000002-00000001.rows"):
        with pytest.raises(AssertionError, match="the table needs"):
            memory.delete([name])
    memory.delete(["tablets/00000001/000001-00000001.rows", "LEASE"])
