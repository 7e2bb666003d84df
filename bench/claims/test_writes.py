"""Claims of the design about writes, beside what they are compared with; ``docs/claims.md`` has the figures.

An update writes only what changed: one cell of rows of 100 columns; the model is the same row read, deleted
and inserted anew, as C-Store and PostgreSQL have it, and a block that is copied before it changes.  Random
inserts stay cheap: batches of new keys into a growing number of row sets; the model searches each run.

KUDU_CORE_BENCH_ROWS=2000000 ci/bench.sh bench/claims
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from bench.claims.conftest import ROWS, pages_looked_at
from bench.claims.models import copied_pages, positions_by_search, undo_visits

WIDTH = 100
WIDE_ROWS, CHANGED = max(1000, ROWS // 20), max(100, ROWS // 200)
"""Rows of 100 columns, and how many of them change."""
COLUMNS = [f"c{number:02}" for number in range(WIDTH)]
BATCH = max(200, ROWS // 200)


def wide(rows: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    return {"k": rows, **{name: rng.integers(0, 1 << 40, len(rows)) for name in COLUMNS}}


def picked() -> np.ndarray:
    return np.random.default_rng(5).choice(WIDE_ROWS, CHANGED, replace=False)


def written(table: kc.Table) -> int:
    """Bytes of the log, and of files that flushes have made."""
    metrics = table.metrics()
    files = sum(metrics[f"{work}_output_bytes"] for work in ("flush", "delta_flush", "ingest"))
    return int(metrics["log_bytes"] + files)


def cells(table: kc.Table, rows: np.ndarray) -> None:
    table.update({"k": rows, "c07": rows})


def whole_rows(table: kc.Table, rows: np.ndarray) -> None:
    """Read, delete, insert: the row of before and that of now are two rows."""
    found = table.get_many({"k": rows}).drop_columns(["_found"])
    at = found.column_names.index("c07")
    new = found.set_column(at, "c07", pa.array(rows))
    with table.batch() as batch:
        batch.delete({"k": rows})
        batch.insert(new)


@pytest.mark.parametrize("way", [cells, whole_rows], ids=lambda way: way.__name__)
@pytest.mark.benchmark(group="one cell of rows of 100 columns changed")
def test_an_update_writes_what_changed(make: Any, measure: Any, way: Any) -> None:
    table = make("t", {"k": "int64", **dict.fromkeys(COLUMNS, "int64")}, "k")
    table.insert(wide(np.arange(WIDE_ROWS)))
    table.flush()
    rows = picked()
    before = written(table)
    way(table, rows)
    table.flush()
    each = (written(table) - before) / CHANGED
    measure(lambda: way(table, rows), changed=CHANGED, bytes_a_row=round(each, 1))
    assert table.count() == WIDE_ROWS
    assert table.scan(["k"], where="c07 = k").count() == CHANGED


@pytest.mark.benchmark(group="undo of changed cells")
def test_undo_is_of_cells_and_in_order(make: Any, measure: Any) -> None:
    """Beside a block of 8 KiB that is copied before a row of it changes, and undo in the order of changes."""
    table = make("t", {"k": "int64", **dict.fromkeys(COLUMNS, "int64")}, "k")
    first = table.insert(wide(np.arange(WIDE_ROWS))).timestamp
    table.flush()
    before = table.scan(["c07"], at=first, order="key").to_table()
    rows = picked()
    cells(table, rows)
    table.flush()
    table.compact(full=True)
    undo = int(table.metrics()["history_bytes"])
    row_bytes, record_bytes = 8 * (WIDTH + 1), 24  # a key, a time, a value
    counts = {
        "undo_bytes": undo,
        "copied_bytes": copied_pages(rows, row_bytes),
        "undo_visits": undo_visits(rows, row_bytes, record_bytes),
    }
    found = measure(lambda: table.scan(["c07"], at=first, order="key").to_table(), **counts)
    assert found.equals(before)
    assert 0 < undo < counts["copied_bytes"] / 10


# ---- inserts in no order ----


def insert(table: kc.Table, keys: np.ndarray) -> None:
    table.insert({"k": keys, "v": keys})


@pytest.mark.parametrize("sets", [1, 4, 16])
@pytest.mark.parametrize("way", ["blooms", "search"])
@pytest.mark.benchmark(group="a batch of new keys, in no order, beside row sets that overlap")
def test_random_inserts_stay_cheap(make: Any, benchmark: Any, sets: int, way: str) -> None:
    """``search``: the model alone, which only decides whether the keys are new."""
    keys = np.random.default_rng(6).permutation(2 * ROWS)
    runs = np.array_split(keys[:ROWS], sets)
    batches = iter(np.array_split(keys[ROWS:], max(1, ROWS // BATCH)))
    table = make("t", {"k": "int64", "v": "int64"}, "k")
    work: Callable[[np.ndarray], Any]
    if way == "search":
        ordered = [np.sort(run) for run in runs]
        work = partial(positions_by_search, ordered)
    else:
        for run in runs:
            table.insert({"k": run, "v": run})
            table.flush()
        work = partial(insert, table)
    before, rounds = pages_looked_at(table), 10
    benchmark.pedantic(work, setup=lambda: ((next(batches),), {}), rounds=rounds)
    benchmark.extra_info |= {"rows": BATCH, "row_sets": sets}
    if way == "search":
        there, searches = positions_by_search(ordered, next(batches))
        assert not there.any() and positions_by_search(ordered, keys[:BATCH])[0].all()
        benchmark.extra_info |= {"searches_a_row": searches / BATCH}
        return
    added = table.count() - ROWS
    assert added in (BATCH, rounds * BATCH)  # once, where no times are taken
    pages = (pages_looked_at(table) - before) / added
    benchmark.extra_info |= {"blooms_a_row": sets, "pages_a_row": round(pages, 4)}
    with pytest.raises(kc.RowErrors):
        insert(table, keys[:1])
