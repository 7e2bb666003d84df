"""What history costs: scans over changes that are not compacted, after that, and of the past; changes; disk.

As ``test_speed_table.py``: ``ci/bench.sh bench/compare`` with ``KUDU_CORE_BENCH_ROWS=5000000`` measures.
The states of a table follow each other, so each engine goes through them once, in the order of ``STATES``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.compare import data
from bench.compare.engines import DuckDB, Ours
from bench.compare.test_speed_table import ROUNDS, measure

CHANGED = data.ROWS // 10
STATES = ("clean", "10% of one column updated", "10% updated, flushed", "10% updated, compacted")
BATCH = 10_000

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class Kudu(Ours):
    """Compacts when it is told to, so that a state lasts."""

    def __init__(self, path: Path, retention_s: int = 86_400) -> None:
        super().__init__(path)
        self.table.close()
        import kudu_core as kc

        self.table = kc.open_table(
            path,
            "rw",
            options={"maintenance": "manual", "history_retention_s": retention_s, "file_grace_s": 0},
        )

    def now(self) -> int:
        with self.table.snapshot() as snapshot:
            return snapshot.timestamp

    def past(self, columns: list[str] | None, at: int) -> pa.Table:
        return self.table.scan(columns, at=at).to_table()

    def changes(self, since: int) -> int:
        return sum(batch.num_rows for batch in self.table.changes(since))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("history")


def new_values() -> pa.Table:
    rng = np.random.default_rng(data.SEED + 77)
    rows = data.readings().take(pa.array(rng.choice(data.ROWS, CHANGED, replace=False)))
    return rows.set_column(2, "load", pa.array(np.round(rng.normal(70, 5, CHANGED), 2)))


class States:
    """One engine, brought from state to state."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.state = -1
        self.before: Any = None

    def at(self, state: str) -> Any:
        while self.state < STATES.index(state):
            self.state += 1
            self._enter(STATES[self.state])
        assert STATES[self.state] == state, "states are measured in their order"
        return self.engine

    def _enter(self, state: str) -> None:
        ours = isinstance(self.engine, Kudu)
        if state == STATES[0]:
            self.engine.load(data.readings())
            if hasattr(self.engine, "settle"):
                self.engine.settle()
            self.before = self.engine.now() if hasattr(self.engine, "now") else None
        elif state == STATES[1]:
            rows = new_values()
            step = BATCH if ours else CHANGED  # peers in one statement: in batches they take minutes
            for first in range(0, CHANGED, step):
                self.engine.update(rows.slice(first, step))
        elif state == STATES[2] and ours:
            self.engine.table.flush()
        elif state == STATES[3] and ours:
            self.engine.table.compact(full=True)


@pytest.fixture(scope="module")
def states(folder: Path) -> Iterator[dict[str, States]]:
    made: dict[str, States] = {}

    class Lazy(dict[str, States]):
        def __missing__(self, name: str) -> States:
            engine: Any
            if name == "kudu_core":
                engine = Kudu(folder / "ours")
            elif name == "DuckDB":
                engine = DuckDB(folder / "duck.db")
            else:
                lake = pytest.importorskip("bench.compare.delta_lake")
                engine = lake.DeltaLake(folder / "lake")
            made[name] = self[name] = States(engine)
            return self[name]

    yield Lazy()
    for state in made.values():
        state.engine.close()


COLUMNS = {"all columns": None, "the updated column": ["load"]}
ENGINES = ("kudu_core", "DuckDB", "Delta Lake")


@pytest.mark.parametrize("what", COLUMNS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("engine", ENGINES)
def test_scan(benchmark: Any, states: dict[str, States], engine: str, state: str, what: str) -> None:
    if engine != "kudu_core" and state in STATES[2:]:
        pytest.skip("nothing to flush or compact by hand")
    target = states[engine].at(state)
    columns = COLUMNS[what]
    got = measure(
        benchmark,
        f"scan of {what}, {state}",
        engine,
        data.ROWS,
        lambda: target.scan(columns),
        rounds=3 * ROUNDS,
        warm=2,
    )
    assert got.num_rows == data.ROWS
    total = pc.sum(data.readings()["load"]).as_py()
    assert (abs(pc.sum(got["load"]).as_py() - total) < 1) == (state == "clean")


@pytest.mark.parametrize("what", COLUMNS)
@pytest.mark.parametrize("engine", ["kudu_core", "Delta Lake"])
def test_scan_of_the_past(benchmark: Any, states: dict[str, States], engine: str, what: str) -> None:
    columns = COLUMNS[what]
    held = states[engine]
    target = held.at(STATES[3] if engine == "kudu_core" else STATES[1])
    read: Callable[[], pa.Table] = (
        (lambda: target.past(columns, held.before))
        if engine == "kudu_core"
        else (lambda: target.scan(columns, held.before))
    )
    got = measure(
        benchmark,
        f"scan of {what} as before the updates",
        engine,
        data.ROWS,
        read,
        rounds=3 * ROUNDS,
        warm=2,
    )
    assert pc.sum(got["load"]).as_py() == pytest.approx(pc.sum(data.readings()["load"]).as_py())


@pytest.mark.parametrize("engine", ["kudu_core", "Delta Lake"])
def test_changes(benchmark: Any, states: dict[str, States], engine: str) -> None:
    held = states[engine]
    target = held.at(STATES[3] if engine == "kudu_core" else STATES[1])
    found = measure(
        benchmark,
        "changes over the updates",
        engine,
        CHANGED,
        lambda: target.changes(held.before),
        rounds=ROUNDS,
        warm=1,
    )
    assert found == CHANGED


@pytest.mark.parametrize("engine", ENGINES)
def test_growth_by_rounds_of_upserts(benchmark: Any, folder: Path, engine: str) -> None:
    """5% of 2,000,000 of the 5,000,000 rows, 20 times: the speed, and what it leaves on disk."""
    base = data.readings().slice(0, data.ROWS * 2 // 5)
    target: Any
    if engine == "kudu_core":
        target = Kudu(folder / "growth", retention_s=0)
    elif engine == "DuckDB":
        target = DuckDB(folder / "growth.db")
    else:
        target = pytest.importorskip("bench.compare.delta_lake").DeltaLake(folder / "growing")
    target.load(base)
    if hasattr(target, "settle"):
        target.settle()
    pin = target.table.snapshot() if engine == "kudu_core" else None  # nothing is forgotten while it lives
    sizes = {"loaded": target.size()}
    rng = np.random.default_rng(7)
    share = max(1, base.num_rows // 20)
    picks = [base.take(pa.array(rng.choice(base.num_rows, share, replace=False))) for _ in range(20)]
    measure(
        benchmark,
        "upserts of 5% of the rows, 20 rounds, history kept",
        engine,
        20 * share,
        lambda: [target.upsert(p) for p in picks],
    )
    if hasattr(target, "settle"):
        target.settle()
    sizes["20 rounds"] = target.size()
    if pin is not None:
        target.table.compact(full=True)
        sizes["20 rounds, compacted"] = target.size()
        pin.close()
        time.sleep(0.01)
        target.table.compact(full=True)
        target.table.gc()
        sizes["history forgotten"] = target.size()
    elif hasattr(target, "forget"):
        target.forget()
        sizes["history forgotten"] = target.size()
    benchmark.extra_info["growth"] = sizes
    assert target.count() == base.num_rows
    target.close()
