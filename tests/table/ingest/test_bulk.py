"""Calls that are written by runs and ranges, spilled or not, come to what the path of small calls says."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.calls.conform import OPERATIONS
from kudu_core.table.runs import sorted as sorted_runs
from kudu_core.table.runs import spilled as spilled_runs
from kudu_core.table.write import door
from kudu_core.tablet.ingest.part import IngestPart
from tests.support.bulk import MEMORY_LIMIT_BYTES, small_runs
from tests.support.inside import rowsets_of

SCHEMA = [
    kc.Column("k", pa.string(), nullable=False),
    kc.Column("n", pa.int32(), nullable=False),
    kc.Column("a", pa.int64()),
    kc.Column("d", pa.float64(), nullable=False, default=2.5),
    kc.Column("s", pa.string()),
    kc.Column("f", pa.bool_()),
]
TYPES = {c.name: c.type for c in SCHEMA}
VALUES = ("a", "d", "s", "f")
LAYOUTS: dict[str, Any] = {
    "one": [],
    "hashed": [kc.HashPartition(["k", "n"], 3)],
    "ranges": [kc.RangePartition(["n"], [(-30, -10), (0, 35)])],
}
WAYS = ("log", "runs", "spilled")


def rows_of(rng: random.Random, operation: str, count: int) -> dict[str, list[Any]]:
    names = ["k", "n"]
    if not operation.startswith("delete"):
        names += sorted(rng.sample(VALUES, rng.choice((1, 2, 4))))
    broken = rng.random() < 0.3
    width = rng.choice((2, 8))
    cells: dict[str, Callable[[], Any]] = {
        "k": lambda: None if broken and rng.random() < 0.02 else rng.choice("abcdef") * rng.randrange(width),
        "n": lambda: rng.randrange(-40, 40),
        "a": lambda: rng.choice((None, rng.randrange(100))),
        "d": lambda: None if broken and rng.random() < 0.05 else rng.random(),
        "s": lambda: rng.choice((None, "", "x", "long" * 9)),
        "f": lambda: rng.choice((None, True, False)),
    }
    rows = {name: [cells[name]() for _ in range(count)] for name in names}
    if rng.random() < 0.3:  # in order, as a load of sorted data
        order = sorted(range(count), key=lambda i: (rows["k"][i] or "", rows["n"][i]))
        rows = {name: [cells[i] for i in order] for name, cells in rows.items()}
    return rows


def batches_of(rng: random.Random, rows: dict[str, list[Any]]) -> list[pa.RecordBatch]:
    """The rows in a few batches, of which some may be empty or views of larger ones."""
    schema = pa.schema([(name, TYPES.get(name, pa.string())) for name in rows])
    whole = pa.RecordBatch.from_pydict(rows, schema=schema)
    cuts = sorted(rng.randrange(whole.num_rows + 1) for _ in range(rng.choice((0, 1, 3, 9))))
    edges = [0, *cuts, whole.num_rows]
    return [whole.slice(a, b - a) for a, b in pairwise(edges)]


def state_of(table: kc.Table) -> list[dict[str, Any]]:
    return table.scan(order="key").to_pylist()


def make_tables(path: Path, layout: str, **options: Any) -> dict[str, kc.Table]:
    tables = {}
    for way in WAYS:
        settings = {
            "maintenance": "manual",
            "durability": "none",
            "memory_limit_bytes": MEMORY_LIMIT_BYTES,
            "ingest_threshold_rows": 1 << 31 if way == "log" else 1,
            "ingest_threshold_bytes": 1 << 30,
            **options,
        }
        tables[way] = kc.create_table(
            path / way, SCHEMA, ["k", "n"], partition_by=LAYOUTS[layout], options=settings
        )
    return tables


def told(result: kc.WriteResult) -> Any:
    return result.counts, None if result.errors is None else result.errors.to_pylist()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_way_gives_the_same(tmp_path: Path, layout: str, threads: int, seed: int, long: bool) -> None:
    tables = make_tables(tmp_path, layout, scan_threads=threads)
    rng = random.Random(f"{layout}-{threads}-{seed}")
    refused = 0
    with ExitStack() as stack:
        for table in tables.values():
            stack.enter_context(table)
        for _ in range(150 if long else 8):
            operation = rng.choice((*OPERATIONS, "upsert", "insert_ignore", "apply", "batch"))
            on_error = rng.choice(("return", "return", "raise"))
            send = _send(rng, operation, on_error)
            seen = {}
            sizes = {"run_rows": rng.choice((3, 8, 40)), "range_bytes": rng.choice((100, 400, 4000))}
            for way, table in tables.items():
                with small_runs(spill=way == "spilled", sample_rows=rng.choice((1, 4)), **sizes):
                    try:
                        seen[way] = told(send(table))
                    except kc.RowErrors as exc:
                        seen[way] = str(exc), exc.errors.to_pylist()
            refused += bool(seen["log"][1])
            assert seen["runs"] == seen["log"], operation
            assert seen["spilled"] == seen["log"], operation
            states = {way: state_of(table) for way, table in tables.items()}
            assert states["runs"] == states["log"], operation
            assert states["spilled"] == states["log"], operation
            if rng.random() < 0.3:
                for table in tables.values():
                    table.flush()
        for way in WAYS:
            assert not list((tmp_path / way / "staging").iterdir())
    assert refused > 0


def _send(rng: random.Random, operation: str, on_error: str) -> Callable[[kc.Table], kc.WriteResult]:
    count = rng.choice((1, 20, 60, 150))
    if operation == "batch":
        some = rng.sample(OPERATIONS, 2)
        calls = [(rng.choice(some), rng.choice((1, 20, 60))) for _ in range(3)]
        data = [(op, batches_of(rng, rows_of(rng, op, count))) for op, count in calls]

        def batch(table: kc.Table) -> kc.WriteResult:
            with table.batch(on_error=on_error) as b:
                for op, batches in data:
                    _verb(b, op)(batches)
            assert b.result is not None
            return b.result

        return batch
    rows = rows_of(rng, operation, count)
    if operation == "apply":
        rows["_op"] = [rng.choice(OPERATIONS) for _ in range(count)]
        batches = batches_of(rng, rows)
        return lambda table: table.apply(iter(batches), on_error=on_error)
    batches = batches_of(rng, rows)
    return lambda table: _verb(table, operation)(iter(batches), on_error=on_error)


def _verb(table: Any, operation: str) -> Callable[..., Any]:
    verb, _, ignore = operation.partition("_")
    if not ignore:
        return getattr(table, verb)  # type: ignore[no-any-return]
    if verb == "upsert":  # has no such word: by way of apply
        return lambda data, **more: table.apply([_named(b, "upsert_ignore") for b in data], **more)
    name = "on_conflict" if verb == "insert" else "on_missing"
    return lambda data, **more: getattr(table, verb)(data, **{name: "ignore"}, **more)


def _named(batch: pa.RecordBatch, operation: str) -> pa.RecordBatch:
    return batch.append_column("_op", pa.array([operation] * batch.num_rows, pa.string()))


# ---- what is written


def numbers(first: int, count: int, step: int = 7) -> Iterator[pa.RecordBatch]:
    """Rows with the keys first, first + 1, ... in an order that is not theirs, in small batches."""
    keys = first + np.arange(count) * step % count
    for lower in range(0, count, 10):
        part = keys[lower : lower + 10]
        yield pa.record_batch({"k": part, "a": part * 2})


def options(**more: Any) -> dict[str, Any]:
    return {
        "maintenance": "manual",
        "durability": "none",
        "memory_limit_bytes": MEMORY_LIMIT_BYTES,
        "ingest_threshold_rows": 1,
        **more,
    }


SIMPLE = pa.schema([("k", pa.int64()), ("a", pa.int64())])


@pytest.mark.parametrize("spill", [False, True])
def test_rowsets_of_a_load_are_disjoint(tmp_path: Path, spill: bool) -> None:
    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table:
        with small_runs(spill=spill):
            table.insert(numbers(0, 200))
        rowsets = sorted((r.meta.min_key, r.meta.max_key) for r in rowsets_of(table))
        assert len(rowsets) > 5
        assert all(a[1] < b[0] for a, b in pairwise(rowsets))
        assert [row["k"] for row in table.scan(order="key").to_pylist()] == list(range(200))


def test_calls_of_one_batch_with_other_columns(tmp_path: Path) -> None:
    """Distinct keys and one operation, and yet not one call."""
    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table, small_runs(spill=False):
        with table.batch() as b:
            b.insert({"k": range(0, 100, 2)})
            b.insert({"k": range(1, 100, 2), "a": range(1, 100, 2)})
        rows = table.scan(order="key").to_pylist()
        assert [row["a"] for row in rows] == [k if k % 2 else None for k in range(100)]


def test_stretches_of_a_batch_that_are_not_in_order(tmp_path: Path) -> None:
    keys = [*range(1000, 1008), *range(1, 16, 2), *range(0, 16, 2), *range(1008, 1016)]
    rows = pa.record_batch({"k": keys, "a": [-k for k in keys]})
    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options(scan_threads=1)) as table:
        with small_runs(spill=False, run_rows=8, range_bytes=16 * 24):
            table.insert(rows)
        assert table.stats("rowset").num_rows == 2
        wanted = [{"k": k, "a": -k} for k in sorted(keys)]
        assert table.scan(order="key").to_pylist() == wanted


@pytest.mark.parametrize("spill", [False, True])
def test_changes_are_put_into_files_as_rowsets_are_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spill: bool
) -> None:
    """One delta file for each rowset, and not all of the changes wait for the end in memory."""
    early: list[int] = []
    real = IngestPart.write_deltas

    def write_deltas(part: IngestPart, rowset_ids: Any, pool: Any = None) -> None:
        rowset_ids = list(rowset_ids)
        if pool is None:
            early.extend(rowset_ids)
        real(part, rowset_ids, pool)

    monkeypatch.setattr(IngestPart, "write_deltas", write_deltas)
    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table:
        with small_runs(spill=spill, range_bytes=2000):
            table.insert(numbers(0, 300))
        with small_runs(spill=spill, range_bytes=200):
            assert table.upsert(numbers(0, 300, step=11)).updated == 300
            assert table.delete(b.select(["k"]) for b in numbers(50, 100)).deleted == 100
        rowsets = rowsets_of(table)
        assert 2 < len(rowsets) < 10 and set(early) < {r.id for r in rowsets} and early
        assert all(1 <= len(r.meta.redo) <= 2 for r in rowsets)
        found = table.scan(order="key").to_pylist()
        assert found == [{"k": k, "a": 2 * k} for k in (*range(50), *range(150, 300))]


def test_a_call_is_spilled_once_it_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before, and not when its rows lie in memory in any case."""
    spilled: list[int] = []
    real = spilled_runs.spill_run

    def spill_run(fs: Any, schema: Any, run: Any, path: str, files: Any) -> Any:
        spilled.append(run.nbytes)
        return real(fs, schema, run, path, files)

    monkeypatch.setattr("kudu_core.table.ingest.spill.spill_run", spill_run)
    monkeypatch.setattr(door, "KEPT_DIVISOR", MEMORY_LIMIT_BYTES // 1000)
    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table:
        table.insert(numbers(0, 50))
        assert not spilled
        monkeypatch.setattr(sorted_runs, "RUN_ROWS", 10 * sorted_runs.WHOLE_DIVISOR)
        table.insert(pa.Table.from_batches(numbers(1000, 500)))
        assert not spilled
        table.insert(pa.Table.from_batches(numbers(4000, 500)).slice(5))  # ten rows a batch, but for one
        assert spilled  # to be sorted they would have to be copied
        spilled.clear()
        table.insert(numbers(2000, 500))
        assert spilled
        spilled.clear()
        held = pa.Table.from_batches(numbers(3000, 500))
        table.insert(held.cast(pa.schema([("k", pa.int32()), ("a", pa.int64())])))  # a copy is made
        assert spilled
        assert table.count() == 2045


def test_runs_are_read_through_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    now: set[int] = set()
    lock = threading.Lock()

    class Counted(spilled_runs.RowsFile):
        def __init__(self, *args: Any, **more: Any) -> None:
            nonlocal most
            super().__init__(*args, **more)
            with lock:
                now.add(id(self))
                most = max(most, len(now))

        def close(self) -> None:
            with lock:
                now.discard(id(self))
            super().close()

    monkeypatch.setattr(spilled_runs, "RowsFile", Counted)
    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options(scan_threads=2)) as table:
        with small_runs(spill=True, run_rows=10):
            table.insert(numbers(0, 400))
        assert 0 < most <= spilled_runs.OPEN_FILES + 2  # what lies idle, and one for each thread
        assert most <= 4 and not now
        assert table.count() == 400
