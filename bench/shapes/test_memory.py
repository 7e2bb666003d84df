"""Peak memory of every operation on cells of 1 MB, each in a process of its own, beside the limit.

    ci/bench.sh bench/shapes/test_memory.py

What counts is the peak of the resident memory above what the process had with the library loaded and the
table open.  It may be the limit and 64 MiB: a batch that a scan hands out is the caller's, and the operations
here take and give rows a few at a time.  As a test only some of them run, on fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from bench.shapes.apart import apart, forget_peak, peak_bytes
from bench.shapes.report import Line, Report

MIB = 1 << 20
CELL_BYTES = 1_000_000
LIMIT_BYTES = 128 * MIB
ALLOWED_BYTES = LIMIT_BYTES + 64 * MIB
BATCH = 4
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("n", pa.int64()), ("p0", pa.binary())])
OPTIONS = {
    "durability": "none",
    "maintenance": "manual",
    "memory_limit_bytes": LIMIT_BYTES,
    "scan_threads": 2,
}


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Some at a time, in no order, made as they are asked for."""
    rng = np.random.default_rng(5)
    keys = rng.permutation(rows)
    for first in range(0, rows, BATCH):
        chosen = keys[first : first + BATCH]
        cells = pa.array([rng.bytes(CELL_BYTES) for _ in chosen], pa.binary())
        yield pa.record_batch([pa.array(chosen), pa.array(chosen % 100), cells], schema=SCHEMA)


def _drained(answer: Any) -> int:
    return sum(batch.num_rows for batch in answer)


def _rewrite(table: kc.Table, rows: int) -> int:
    """One cell of 1 MB after the other."""
    rng = np.random.default_rng(7)
    given = ({"k": [k], "p0": pa.array([rng.bytes(CELL_BYTES)], pa.binary())} for k in range(0, rows, 2))
    return sum(table.update(row).updated for row in given)


def _flushed(table: kc.Table, rows: int) -> int:
    count = _rewrite(table, rows)
    table.flush()
    return count


def _compacted(table: kc.Table, rows: int) -> int:
    table.compact(full=True)
    return rows


def _few(table: kc.Table, rows: int) -> int:
    return table.get_many(list(range(0, rows, max(1, rows // 8)))).num_rows


def _since(table: kc.Table) -> int:
    """Before the changes: what ``_prepare`` has left beside the table."""
    return int(Path(f"{table.path}.since").read_text())


def _updates(rows: int) -> int:
    return rows // 2 + min(rows, 16) // 2


Work = Callable[[kc.Table, int], int]
WORKS: dict[str, tuple[Work, Callable[[int], int]]] = {
    "bulk load": (lambda t, rows: t.insert(batches(rows)).inserted, lambda rows: rows),
    "loads of four rows": (
        lambda t, rows: sum(t.insert(batch).inserted for batch in batches(rows)),
        lambda rows: rows,
    ),
    "get": (lambda t, rows: sum(t.get(k) is not None for k in range(rows)), lambda rows: rows),
    "get_many of 8": (_few, lambda rows: len(range(0, rows, max(1, rows // 8)))),
    "scan": (lambda t, rows: _drained(t.scan()), lambda rows: rows),
    "scan of numbers": (lambda t, rows: _drained(t.scan(["n"])), lambda rows: rows),
    "rows in key order": (lambda t, rows: _drained(t.scan(order="key")), lambda rows: rows),
    "8 rows in key order": (lambda t, rows: _drained(t.scan(order="key", limit=8)), lambda rows: 8),
    "value is 3": (lambda t, rows: _drained(t.scan(where=[("n", "=", 3)])), lambda rows: (rows + 96) // 100),
    "in a list": (lambda t, rows: _drained(t.scan(where=pc.field("k").isin([0, 5, 9]))), lambda rows: 3),
    "update where": (
        lambda t, rows: t.update(where=pc.field("k") < 5, set={"n": pc.field("n") + 1}).updated,
        lambda rows: 5,
    ),
    "cells updated one by one": (_rewrite, lambda rows: len(range(0, rows, 2))),
    "cells updated and flushed": (_flushed, lambda rows: len(range(0, rows, 2))),
    "delete where": (lambda t, rows: t.delete(where=pc.field("k") < 5).deleted, lambda rows: 5),
    "compact": (_compacted, lambda rows: rows),
    "changes": (lambda t, rows: _drained(t.changes(_since(t))), lambda rows: _updates(rows)),
    "changes, net": (lambda t, rows: _drained(t.changes(_since(t), net=True)), lambda rows: rows // 2),
    "verify": (lambda t, rows: t.verify() and rows, lambda rows: rows),
}
CHANGED = ("compact", "changes", "changes, net", "verify")
"""What is done with a table of which half of the cells are changed, in memory and in files."""
TESTED = ("bulk load", "compact", "changes, net")


def _prepare(name: str, path: str, rows: int, answer: Any) -> None:
    """In a process of its own, so that the measured one holds nothing of it."""
    with kc.create_table(path, SCHEMA, "k", options=OPTIONS) as table:
        if "load" not in name:
            table.insert(batches(rows))
            table.flush()
            Path(f"{path}.since").write_text(str(table.timestamp))
        if name in CHANGED:
            _flushed(table, rows)
            _rewrite(table, min(rows, 16))
    answer.put(None)


def _work(name: str, path: str, rows: int, answer: Any) -> None:
    with kc.open_table(path, "rw", options=OPTIONS) as table:
        table.count()
        pa.array([0])  # pyarrow imports pandas at the first one: no memory of the operation
        before = forget_peak()
        found = WORKS[name][0](table, rows)
        answer.put((found, before, peak_bytes()))


@pytest.mark.parametrize("name", WORKS)
def test_peak(benchmark: Any, report: Report, timed: bool, tmp_path: Path, name: str) -> None:
    if not timed and name not in TESTED:
        pytest.skip("takes processes of its own: measured by ci/bench.sh")
    given = (name, str(tmp_path / "t"), 400 if timed else 20)
    apart(_prepare, *given)
    found, before, peak = benchmark.pedantic(apart, (_work, *given), rounds=1)
    over = max(0, peak - before) / MIB
    line = "peak memory, cells of 1 MB"
    made = Line(line, name, "cells of 1 MB", over, ALLOWED_BYTES / MIB, unit="MiB")
    benchmark.extra_info |= made.to_json()
    report.add(made)
    assert found == WORKS[name][1](given[2])
    if not timed:
        assert over <= ALLOWED_BYTES / MIB, f"{over:.0f} MiB over {before >> 20}"
