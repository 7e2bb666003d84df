"""Ctrl-C in every public call, at every place where it can come: nothing is left held, hanging or half done.

``test_places_of_a_call`` raises ``KeyboardInterrupt`` at places of a call one after the other (``--long``:
at all where a lock changes hands and 200 others; another share with each ``--seed``).  After each the table
is at rest, the call was applied wholly or not at all, and the table goes on, or, where the log holds what
memory does not, says that it is poisoned and opens anew.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core._ext.base.holding import HeldLocks
from tests.support import interrupts
from tests.support.inside import engine_of
from tests.support.interrupts import (
    Interruption,
    assert_at_rest,
    chosen,
    interrupted,
    is_held,
    locks_of,
    places_of,
    poisoned,
    settle,
    staging_left,
)

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
ROWS = 40
INGEST_ROWS = 200
MOST_LAYERS = 10
HANG_S = 120.0


@dataclass
class World:
    """A table whose rows 0..ROWS-1 all hold one number, and calls that give them the next one."""

    path: Path
    options: dict[str, Any]
    table: kc.Table = field(init=False)
    number: int = 0
    reader: kc.Table | None = None
    other: int = 0
    """How many other folders were made."""
    made: list[Any] = field(default_factory=list)
    layered: int = 0
    """How often there were rows and changes added in layers."""

    def __post_init__(self) -> None:
        self.table = kc.create_table(
            self.path / "t",
            SCHEMA,
            "k",
            partition_by=kc.HashPartition("k", 3),
            options={"maintenance": "manual", "ingest_threshold_rows": INGEST_ROWS, **self.options},
        )
        self.table.insert(self.rows(0))
        self.table.flush()

    def rows(self, number: int, count: int = ROWS) -> pa.Table:
        keys = pa.array(range(count), pa.int64())
        values = pa.array([number] * count, pa.int64())
        return pa.table({"k": keys, "v": values, "s": values.cast(pa.string())}, schema=SCHEMA)

    def next(self) -> int:
        self.number += 1
        return self.number

    def folder(self, name: str) -> Path:
        self.other += 1
        return self.path / f"{name}{self.other}"

    def reopen(self) -> None:
        self.table.close()
        self.table = kc.open_table(self.path / "t", "rw")

    def seen(self) -> set[int]:
        """The numbers that rows hold."""
        found = self.table.scan(["k", "v"], [("k", "<", ROWS)], order="key").to_table()
        # Look-ups of rows go other ways through memory than scans; both must have survived the interrupt.
        assert self.table.get_many(found["k"], ["v"])["v"] == found["v"]
        assert self.table.get(0, ["v"]) == {"v": found["v"][0].as_py()}
        return set(found["v"].to_pylist())

    def layers(self) -> None:
        """Rows and changes in several files and in memory; in the long run not in ever more of them."""
        self.layered += 1
        if self.layered % MOST_LAYERS == 0:
            self.table.compact(full=True)
        for _ in range(2):
            number = self.next()
            self.table.upsert(self.rows(number, ROWS // 2))
            self.table.flush()
        self.table.upsert(self.rows(self.next()))


Call = Callable[[World], object]


def _insert(w: World) -> object:
    return w.table.upsert(w.rows(w.next()))


def _batch(w: World) -> object:
    with w.table.batch() as batch:
        batch.delete({"k": [0, 1]})
        batch.upsert(w.rows(w.next()))
    return batch.result


def _where(w: World) -> object:
    return w.table.update(where=pc.field("k") < ROWS, set={"v": w.next()})


def _apply(w: World) -> object:
    number = w.next()
    rows = w.rows(number).append_column("_op", pa.array(["upsert"] * ROWS))
    return w.table.apply(rows)


def _bulk(w: World) -> object:
    return w.table.upsert(w.rows(w.next(), 2 * INGEST_ROWS))


def _spilled(w: World) -> object:
    number = w.next()
    wide = "x" * 40_000
    batches = (
        pa.record_batch([pa.array([k]), pa.array([number]), pa.array([wide])], schema=SCHEMA)
        for k in range(INGEST_ROWS + 20)
    )
    return w.table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, batches))


def _txn(w: World) -> object:
    number = w.next()
    return w.table.upsert(w.rows(number), txn=("app", number))


def _row(w: World) -> object:
    return w.table.upsert([{"k": 9 * ROWS, "v": 1, "s": "row"}])


def _few_rows(w: World) -> object:
    """All rows, as dicts, and some that are new."""
    number = w.next()
    return w.table.upsert([{"k": k, "v": number, "s": "row"} for k in range(ROWS + 8)])


def _alter(w: World) -> object:
    names = w.table.schema.names
    if "more" in names:
        return w.table.alter(drop=["more"])
    return w.table.alter(add=[kc.Column("more", "int32", default=7)])


def _create(w: World) -> object:
    with kc.create_table(w.folder("made"), SCHEMA, "k") as made:
        return made.path


def _backup(w: World) -> object:
    return w.table.backup(w.folder("backup"))


def _restore(w: World) -> object:
    with kc.restore(w.path / "kept", w.folder("restored")) as restored:
        return restored.count()


def _iterate(w: World) -> object:
    return [batch.num_rows for batch in w.table.scan(batch_rows=7)]


def _snapshot(w: World) -> object:
    with w.table.snapshot() as snapshot:
        return snapshot.get(1), snapshot.scan().to_table()


def _tokens(w: World) -> object:
    return [w.table.scan_token(t).to_table() for t in w.table.scan_tokens(target_rows=10)]


def _read(w: World) -> object:
    with kc.open_table(w.path / "t") as table:
        return table.count()


def _refresh(w: World) -> object:
    assert w.reader is not None
    w.reader.refresh()
    return w.reader.count()


CALLS: dict[str, Call] = {
    "upsert": _insert,
    "row": _row,
    "ticket": lambda w: w.table.upsert(w.rows(w.next()), wait=False).result(HANG_S),
    "few rows": _few_rows,
    "batch": _batch,
    "apply": _apply,
    "where": _where,
    "delete where": lambda w: w.table.delete(where=pc.field("k") > ROWS),
    "bulk": _bulk,
    "spilled": _spilled,
    "txn": _txn,
    "alter": _alter,
    "scan": lambda w: w.table.scan(order="key").to_table(),
    "first rows": lambda w: w.table.scan(order="key", limit=30).to_table(),
    "iterate": _iterate,
    "count": lambda w: w.table.count(pc.field("v") > 0),
    "get": lambda w: w.table.get(3),
    "get_many": lambda w: w.table.get_many([1, 2, 999]),
    "changes": lambda w: [b.num_rows for b in w.table.changes()],
    "net changes": lambda w: [b.num_rows for b in w.table.changes(net=True)],
    "snapshot": _snapshot,
    "tokens": _tokens,
    "dataset": lambda w: w.table.to_dataset().to_table(),
    "stats": lambda w: w.table.stats("column"),
    "flush": lambda w: w.table.flush(),
    "compact": lambda w: w.table.compact(),
    "full compact": lambda w: w.table.compact(full=True),
    "maintain": lambda w: w.table.maintain(),
    "gc": lambda w: w.table.gc(),
    "backup": _backup,
    "restore": _restore,
    "verify": lambda w: w.table.verify(),
    "create": _create,
    "read": _read,
    "refresh": _refresh,
    "close": lambda w: w.table.close(),
    "open": lambda w: w.made.append(kc.open_table(w.path / "t", "rw")),
}
DURABILITY = {
    "upsert": ("sync", "group", "none"),
    "row": ("group", "none"),
    "few rows": ("group",),
    "flush": ("group",),
    "close": ("none",),
}


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(1200, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def _prepare(w: World, name: str) -> None:
    layered = ("flush", "compact", "full compact", "maintain", "changes", "net changes", "open")
    if name in (*layered, "scan", "first rows"):
        w.layers()
    if name == "gc":
        w.layers()
        w.table.compact(full=True)
    if name == "refresh":
        if w.reader is None:
            w.reader = kc.open_table(w.path / "t")
        _insert(w)
    if name == "restore" and not (w.path / "kept").exists():
        w.table.backup(w.path / "kept")
    if name == "delete where":
        w.table.upsert(w.rows(w.number, 2 * ROWS))
    if name == "open":
        w.table.close()


def _go_on(w: World, before: int, name: str, where: str) -> None:
    """After an interrupt: the call was applied wholly or not at all, and everything works."""
    if name == "open":
        w.table = w.made.pop() if w.made else kc.open_table(w.path / "t", "rw")
        w.made.clear()
    if name == "close":
        w.table.close()
        w.table = kc.open_table(w.path / "t", "rw")
    assert_at_rest(w.table)
    if name not in ("close", "open"):
        assert not staging_left(w.table), where
    if poisoned(w.table):
        w.reopen()
    settle(w.table)
    seen = w.seen()
    assert seen <= {before, w.number} and len(seen) == 1, f"{seen} after {where}; {before} before it"
    w.number = max(seen)
    w.table.upsert(w.rows(w.next()))
    assert w.seen() == {w.number}, where


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("durability", ["sync", "group", "none"])
@pytest.mark.parametrize("name", CALLS)
def test_places_of_a_call(tmp_path: Path, name: str, durability: str, long: bool, seed: int) -> None:
    if not long and durability not in DURABILITY.get(name, ("sync",)):
        pytest.skip("--long")
    call = CALLS[name]
    options: dict[str, Any] = {"durability": durability}
    if name == "spilled":
        options["memory_limit_bytes"] = 32 << 20
    w = World(tmp_path, options)
    _prepare(w, name)
    places, turns = places_of(lambda: call(w), locks_of(engine_of(w.table)))
    most = len(turns) if (name, durability) == ("upsert", "sync") else 2
    for at in chosen(places, turns, long, random.Random(seed), most):
        if name in ("close", "open"):
            w.table = w.made.pop() if w.made else kc.open_table(w.path / "t", "rw")
            w.made.clear()
        _prepare(w, name)
        before = w.number
        done, interruption = interrupted(lambda: call(w), at)
        where = f"place {at} of {places}: {interruption.where}"
        print(where, "done" if done else "interrupted")
        _go_on(w, before, name, where)
        if name in ("close", "open"):
            w.table.close()
        for folder in tmp_path.iterdir():
            if folder.name not in ("t", "kept"):
                shutil.rmtree(folder)
    if name not in ("close", "open"):
        w.table.close()
    with kc.open_table(tmp_path / "t") as table:
        table.verify()


# ---- the tool ----


def _by_stack(lock: Any) -> None:
    with ExitStack() as stack:
        stack.enter_context(lock)


def _by_condition(lock: Any) -> None:
    with threading.Condition(lock):  # noqa: PLW2101
        pass


def _plainly(lock: Any) -> None:
    with lock:
        pass


def _by_helper(lock: Any) -> None:
    with HeldLocks([lock]):
        pass


def _left_held(take: Callable[[Any], None]) -> list[str]:
    """Where an interrupt leaves the lock held."""
    found = []
    at = 0
    while True:
        at += 1
        lock = threading.Lock()
        with Interruption(at) as interruption:
            try:  # noqa: SIM105  contextlib would be interrupted too
                take(lock)
            except KeyboardInterrupt:
                pass
        if interruption.count < at:
            return found
        gc.collect(0)
        if is_held(lock):
            found.append(interruption.where)


def test_the_tool_finds_locks_that_are_left_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the ways of taking a lock that the package does without, and in no other."""
    monkeypatch.setattr(interrupts, "TRACED", (*interrupts.TRACED, "/tests/interrupts/"))
    monkeypatch.setattr(interrupts, "UNTRACED", "/tests/support/")
    for take in (_by_stack, _by_condition):
        assert _left_held(take), take
    for take in (_plainly, _by_helper):
        assert not _left_held(take), take


def test_places_after_a_lock_was_taken_are_found(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        engine = engine_of(table)
        locks = locks_of(engine)
        assert engine.altering in locks and engine.log.mutex in locks
        assert all(t.mutex in locks and t.flush_lane in locks for t in engine.tablets)
        places, turns = places_of(lambda: table.upsert({"k": [1], "v": [1], "s": ["a"]}), locks)
        assert 5 < len(turns) < places
