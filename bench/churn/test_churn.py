"""Churn: 20 rounds of upserts of 5% of the rows, and what reads cost after each.

    ci/bench.sh bench/churn

Processor time of all threads, in turns beside a clean copy and DuckDB.  "after upserts" is the first scan
after a round, "after upkeep" the first one after what maintenance did then, "warm" the one after that.
``KUDU_CORE_BENCH_SCALE``: of the 2,000,000 rows, 1 is all.  As a test it runs small, for the answers.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.churn.rounds import (
    Size,
    Times,
    churned,
    clean_copy,
    duck,
    in_turns,
    rows_of,
    some_of,
    spent,
    state_after,
)
from bench.shapes.report import OURS, Line, Report

GOAL_BESIDE_DUCKDB, GOAL_BESIDE_CLEAN = 0.5, 1.25
GOAL_OF_ALL_COLUMNS, GOAL_OF_Q1, GOAL_OF_THE_PAST, GOAL_OF_BYTES = 1.05, 1.15, 1.5, 1.5
WARM = 3
SOME_ROUNDS_AGO = 5

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def size(timed: bool) -> Size:
    return Size.of(timed, float(os.environ.get("KUDU_CORE_BENCH_SCALE", "1")))


def by_key(rows: pa.Table) -> pa.Table:
    return rows.sort_by("k")


def test_rounds(benchmark: Any, report: Report, size: Size, tmp_path: Path) -> None:
    """One column after each round; then the past, what was written, and what is on the disk."""
    times = Times()
    ours, rows = churned(tmp_path / "ours", size, maintenance="manual")
    clean, peer = clean_copy(tmp_path / "clean", rows), duck(tmp_path / "duck.db", rows)
    scans = {OURS: ours.scan, "clean": clean.scan, "DuckDB": peer.scan}
    rounds = [rows_of(some_of(size, number), number + 1) for number in range(size.rounds)]
    before, moments = ours.written_bytes(), []

    def first(name: str, what: str) -> None:
        for engine, scan in scans.items():
            seconds, found = spent(lambda scan=scan: scan(["a"]))
            times.add(f"{name}, {engine}", seconds)
            assert found.num_rows == size.rows, (engine, what)

    def run() -> None:
        for scan in scans.values():
            scan(["a"])
        for changed in rounds:
            times.add("upserts", spent(lambda changed=changed: ours.upsert(changed))[0])
            peer.upsert(changed)
            moments.append(ours.now())
            first("after upserts", "first")
            for name, seconds in in_turns({n: lambda s=s: s(["a"]) for n, s in scans.items()}, WARM).items():
                times.add(f"warm, {name}", median(seconds))
            times.add("upkeep", spent(ours.table.maintain)[0])
            first("after upkeep", "upkeep")

    benchmark.pedantic(run, rounds=1)
    state = state_after(rows, rounds)
    assert by_key(ours.scan(None)).equals(state)
    after = ours.written_bytes()
    benchmark.extra_info |= {name: times.median(name) for name in times.of}
    for name in ("after upserts", "after upkeep", "warm"):
        own = times.median(f"{name}, {OURS}")
        for other, goal in (("DuckDB", GOAL_BESIDE_DUCKDB), ("clean", GOAL_BESIDE_CLEAN)):
            line = Line(
                "churn", f"one column, {name}", other, own, goal, times.median(f"{name}, {other}"), other
            )
            report.add(line)
    written = {name: count - before.get(name, 0) for name, count in after.items()}
    changes = written.pop("ingest", 0) + written.pop("delta flush", 0) + written.pop("flush", 0)
    report.add(
        Line("churn", "bytes of upkeep", "", sum(written.values()), GOAL_OF_BYTES, changes, "changes", "B")
    )
    benchmark.extra_info |= {f"{name} bytes": count for name, count in written.items()}
    benchmark.extra_info |= {
        "bytes of changes": changes,
        "bytes on disk": ours.size(),
        "bytes on disk, clean": clean.size(),
    }
    check_past(benchmark, report, size, (ours, clean), rows, rounds, moments)
    for engine in (ours, clean, peer):
        engine.close()


def check_past(
    benchmark: Any,
    report: Report,
    size: Size,
    engines: Any,
    rows: pa.Table,
    rounds: list[pa.Table],
    moments: list[int],
) -> None:
    """One column as of some rounds ago, beside the clean copy."""
    ours, clean = engines
    number = len(rounds) - SOME_ROUNDS_AGO
    at = moments[number - 1]
    found = ours.past(None, at)
    assert by_key(found).equals(state_after(rows, rounds[:number]))
    acts = {OURS: lambda: ours.past(["a"], at), "clean": lambda: clean.scan(["a"])}
    spent_s = {name: min(taken) for name, taken in in_turns(acts, WARM * 3).items()}
    benchmark.extra_info |= {"past": spent_s[OURS], "past, clean": spent_s["clean"]}
    report.add(
        Line("churn", "as of 5 rounds ago", "", spent_s[OURS], GOAL_OF_THE_PAST, spent_s["clean"], "clean")
    )


COLUMNS: dict[str, list[str] | None] = {"all columns": None, "the changed column": ["a"]}


@pytest.mark.parametrize("compacted", [False, True], ids=["as it is", "compacted"])
def test_one_column_changed(
    benchmark: Any, report: Report, size: Size, tmp_path: Path, compacted: bool
) -> None:
    """10% of the rows changed in one column; all columns beside a clean copy."""
    ours, rows = churned(tmp_path / "ours", size, maintenance="manual")
    clean = clean_copy(tmp_path / "clean", rows)
    keys = np.sort(np.random.default_rng(5).choice(size.rows, size.rows // 10, replace=False))
    changed = rows_of(keys, 77).select(["k", "a"])
    for at in range(0, len(keys), max(1, len(keys) // 4)):
        ours.table.update(changed.slice(at, len(keys) // 4))
        ours.table.flush()
    if compacted:
        ours.table.maintain()
    for what, columns in COLUMNS.items():
        acts = {OURS: lambda c=columns: ours.scan(c), "clean": lambda c=columns: clean.scan(c)}
        in_turns(acts, 2)
        taken = benchmark.pedantic(in_turns, (acts, 9), rounds=1) if columns is None else in_turns(acts, 9)
        spent_s = {name: min(seconds) for name, seconds in taken.items()}
        operation = f"{what}, 10% of one changed{', compacted' if compacted else ''}"
        report.add(
            Line("churn", operation, "", spent_s[OURS], GOAL_OF_ALL_COLUMNS, spent_s["clean"], "clean")
        )
        benchmark.extra_info |= {f"{what}, {name}": seconds for name, seconds in spent_s.items()}
    wanted = rows["a"].to_numpy().copy()
    wanted[keys] = changed["a"].to_numpy()
    assert (by_key(ours.scan(["k", "a"]))["a"].to_numpy() == wanted).all()
    ours.close()
    clean.close()


def test_condition_and_sums(benchmark: Any, report: Report, size: Size, tmp_path: Path) -> None:
    """As TPC-H's Q1: four columns of nearly all rows, by a condition; 10% of the rows changed, in 7 files."""
    ours, rows = churned(tmp_path / "ours", size, maintenance="manual")
    clean = clean_copy(tmp_path / "clean", rows)
    keys = np.random.default_rng(6).choice(size.rows, size.rows // 10, replace=False)
    changed = rows_of(np.sort(keys), 78).select(["k", "a", "b"])
    for part in np.array_split(np.arange(len(keys)), 7):
        ours.table.update(changed.take(part))
        ours.table.flush()
    columns, where = ["a", "b", "n", "s"], pc.field("n") < int(0.98 * (1 << 30))
    acts = {OURS: lambda: ours.scan(columns, where), "clean": lambda: clean.scan(columns, where)}
    in_turns(acts, 2)
    taken = benchmark.pedantic(in_turns, (acts, 9), rounds=1)
    spent_s = {name: min(seconds) for name, seconds in taken.items()}
    benchmark.extra_info |= spent_s
    report.add(
        Line("churn", "Q1's columns, 10% changed", "", spent_s[OURS], GOAL_OF_Q1, spent_s["clean"], "clean")
    )
    state = state_after(rows.drop_columns(["n", "s"]), [changed])
    for name in ("n", "s"):
        state = state.append_column(name, rows[name])
    found = by_key(ours.scan(["k", *columns], where))
    assert found.equals(state.filter(where).select(found.column_names).cast(found.schema))
    ours.close()
    clean.close()
