"""What it costs that a table counts, tells and looks at the clock: the same work with it and without.

``python -m bench.observed [rounds]``.  "Without" are the same functions, compiled anew without the lines that
measure, and loads that tell nobody; "with", loads have a listener and show their progress.  Rounds of both
take turns on one table; the ratio is of the sums of processor time of the fastest tenth of each's rounds,
so that what else the machine does counts little.  Nothing is asserted but the answers.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import kudu_core as kc
from kudu_core.table.read import scan
from kudu_core.table.table_reads import TableReads
from kudu_core.table.write import door

ROWS = 200_000
SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())])
WRITES = door.write_rows, door.write_mixed, door.write_where
GET = TableReads.get
MEASURES = re.compile(r"began_s|call_times|stands_for")


@cache
def without(function: Any) -> Any:
    """The function without its lines that measure; compiled once, so that it is as warm as the other."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    kept = [line for line in lines if not MEASURES.search(line)]
    assert len(kept) < len(lines), function
    made: dict[str, Any] = {}
    names = {**vars(inspect.getmodule(function))}
    exec("from __future__ import annotations\n" + "\n".join(kept), names, made)
    return made[function.__name__]


def unread(self: scan.Scan, *, whole: bool = False) -> Any:
    """``Scan._batches`` without a look at the clock."""
    read = self._read_batches(whole=whole)
    return read if self._plan.shown is None else self._shown(self._plan.shown, read)


def unmeasured() -> ExitStack:
    """``with`` it: nothing is."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(TableReads, "get", without(GET)))
    for function in WRITES:
        stack.enter_context(mock.patch.object(door, function.__name__, without(function)))
    stack.enter_context(mock.patch.object(scan.Scan, "_batches", unread))
    return stack


def rows(count: int, first: int = 0) -> pa.Table:
    keys = np.arange(first, first + count)
    words = pa.array([f"s{i}" for i in range(1000)])
    return pa.table([keys, keys * 3, keys * 0.5, words.take(pa.array(keys % 1000))], schema=SCHEMA)


def works(folder: Path) -> dict[str, tuple[int, Callable[[bool], object]]]:
    """By name: how many rounds for each that are asked for, and the work, of which ``measured`` says whether
    anybody is told of it."""
    options = {"maintenance": "manual", "memory_limit_bytes": 2 << 30}
    heard: list[object] = []

    def made(name: str, durability: str) -> kc.Table:
        settings = {**options, "durability": durability}
        return kc.create_table(folder / name, SCHEMA, "k", options=settings, listener=heard.append)

    fast, synced = made("fast", "none"), made("synced", "sync")
    for table in (fast, synced):
        table.insert(rows(ROWS))
        for first in range(0, 6000, 1000):  # then their rows are where they stay
            table.upsert(rows(1000, first))
    batches = rows(20_000).to_batches(max_chunksize=1000)
    given = rows(1_000_000)

    def load(measured: bool) -> None:
        tell = heard.append if measured else None
        settings = {**options, "durability": "none"}
        with kc.create_table(folder / "load", SCHEMA, "k", options=settings, listener=tell) as loaded:
            loaded.insert(given, progress=tell)
            assert loaded.count() == given.num_rows
        shutil.rmtree(folder / "load")

    return {
        "one-row get": (100, lambda _: [fast.get(key) for key in range(1000)]),
        "one-row upsert, not synced": (60, lambda _: [fast.upsert([{"k": k, "a": 1}]) for k in range(200)]),
        "one-row upsert, synced": (20, lambda _: [synced.upsert([{"k": k, "a": 1}]) for k in range(20)]),
        "calls of 1,000 rows, not synced": (20, lambda _: [fast.upsert(batch) for batch in batches[:5]]),
        "scans of 10 rows": (30, lambda _: [fast.scan(key_range=(k, k + 10)).to_table() for k in range(50)]),
        "load of 1,000,000 rows": (1, load),
    }


def timed(run: Callable[[bool], object], measured: bool) -> float:
    began = time.process_time()
    run(measured)
    return time.process_time() - began


def main(rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="kudu-core-observed-"))
    try:
        for name, (factor, run) in works(folder).items():
            took: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(rounds * factor + 1):
                for measured in (False, True) if turn % 2 else (True, False):
                    with nullcontext() if measured else unmeasured():
                        seconds = timed(run, measured)
                    if turn:
                        took[measured].append(seconds)
            sums = {measured: sum(sorted(times)[: 1 + len(times) // 10]) for measured, times in took.items()}
            print(f"{name:34} with / without: {sums[True] / sums[False]:.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
