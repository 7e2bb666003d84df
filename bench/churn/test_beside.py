"""The same work alone, beside eight busy processes, and with half a core: what each engine loses.

    ci/bench.sh bench/churn/test_beside.py

Wall time of each work, its median, in a process of its own for each state; ours and DuckDB in turns.  A line
of the report: our loss (the time in this state by the time alone) by DuckDB's.  As a test it runs small and
without the control group, for the answers.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from bench.churn.rounds import SCHEMA, rows_of
from bench.compare.engines import DuckDB, Ours
from bench.shapes.apart import NoGroup, apart, enter, group_of_cores
from bench.shapes.report import OURS, Line, Report

BUSY, CORES = 8, 0.5
GOAL = 1.5
STATES = ("alone", "eight busy processes", "half a core")


def _spin() -> None:
    while True:
        sum(range(10_000))


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that do nothing but compute."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_spin, daemon=True) for _ in range(count)]
    try:
        for process in processes:
            process.start()
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _works(rows: int, calls: int) -> dict[str, tuple[int, Callable[[Any, int], int]]]:
    """How often, and what; each says how many rows it had."""
    rng = np.random.default_rng(5)
    few = [rng.choice(rows, min(1000, rows), replace=False) for _ in range(calls + 1)]
    batches = [rows_of(keys, number) for number, keys in enumerate(few)]
    wanted = [(int(key),) for key in few[0][:100]]

    def upsert(engine: Any, call: int) -> int:
        engine.upsert(batches[call])
        return len(batches[call])

    return {
        "scan of one column": (calls, lambda engine, _: len(engine.scan(["a"]))),
        "scan of all columns": (calls, lambda engine, _: len(engine.scan(None))),
        "get": (calls, lambda engine, call: int(engine.get(wanted[call % len(wanted)]) is not None)),
        "get_many of 100": (calls, lambda engine, _: engine.get_many(wanted)),
        "upserts of 1,000": (calls, upsert),
    }


def _measured(folder: str, group: str | None, rows: int, calls: int, answer: Any) -> None:
    """In a process of its own: seconds by work and engine."""
    if group is not None:
        enter(group)
    data = rows_of(np.arange(rows), 0)
    engines: dict[str, Any] = {
        OURS: Ours(Path(folder) / "ours", durability="none", schema=SCHEMA),
        "DuckDB": DuckDB(Path(folder) / "duck.db", durability="none", schema=SCHEMA),
    }
    said: dict[str, dict[str, float]] = {"load": {}}
    answers: dict[str, dict[str, list[int]]] = {}
    for name, engine in engines.items():
        began = time.perf_counter()
        engine.load(data)
        said["load"][name] = time.perf_counter() - began
        engine.settle()
    for work, (times, act) in _works(rows, calls).items():
        took: dict[str, list[float]] = {name: [] for name in engines}
        answers[work] = {name: [] for name in engines}
        for call in range(times + 1):
            for name, engine in engines.items():
                began = time.perf_counter()
                answers[work][name].append(act(engine, call))
                took[name].append(time.perf_counter() - began)
        said[work] = {name: median(seconds[1:]) for name, seconds in took.items()}
    for engine in engines.values():
        engine.close()
    assert all(of[OURS] == of["DuckDB"] for of in answers.values()), answers
    answer.put(said)


def test_what_others_cost(benchmark: Any, report: Report, timed: bool, tmp_path: Path) -> None:
    rows, calls = (1_000_000, 40) if timed else (3000, 2)
    found: dict[str, dict[str, dict[str, float]]] = {}

    def measure() -> None:
        for state in STATES if timed else STATES[:2]:
            (tmp_path / state).mkdir()
            with ExitStack() as stack:
                group = None
                if state == "half a core":
                    try:
                        group = str(stack.enter_context(group_of_cores(CORES)))
                    except NoGroup as error:
                        pytest.skip(str(error))
                elif state != "alone":
                    stack.enter_context(busy(BUSY if timed else 1))
                found[state] = apart(_measured, str(tmp_path / state), group, rows, calls)

    benchmark.pedantic(measure, rounds=1)
    alone = found.pop("alone")
    for state, works in found.items():
        for work, seconds in works.items():
            ours, duck = (seconds[name] / alone[work][name] for name in (OURS, "DuckDB"))
            benchmark.extra_info[f"{work}, {state}"] = f"{ours:.2f}, DuckDB {duck:.2f}"
            report.add(Line("what others cost", f"{work}, {state}", "", ours, GOAL, duck, "DuckDB", "times"))
