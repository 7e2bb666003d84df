"""What a read gave out stays what it was: after flushes, compactions, close() and the end of the folder."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import kudu_core as kc
from tests.support.tables import Make

ROWS = 3_000
WANTED = {k: (k * 3, None if k % 7 == 0 else f"s{k % 50}") for k in range(ROWS)}


@pytest.fixture(params=["memory", "disk", "deltas"])
def filled(make: Make, request: pytest.FixtureRequest) -> kc.Table:
    """Rows in memory, in files, or in files with changes in files and in memory."""
    table = make(file_grace_s=0, scan_threads=2, page_cache_bytes=1 << 20)
    rows = [{"k": k, "a": a, "s": s} for k, (a, s) in WANTED.items()]
    if request.param == "deltas":
        table.insert([{**row, "a": -1, "s": "old"} for row in rows])
        table.flush()
        table.update(pa.Table.from_pylist([{"k": r["k"], "a": r["a"], "s": r["s"]} for r in rows[::2]]))
        table.flush()
        table.update(pa.Table.from_pylist([{"k": r["k"], "a": r["a"], "s": r["s"]} for r in rows[1::2]]))
    else:
        table.insert(rows)
        if request.param == "disk":
            table.flush()
    return table


def destroy(table: kc.Table) -> None:
    """Everything that may pull the ground away from under a result."""
    table.update({"k": list(WANTED), "a": [0] * ROWS, "s": ["gone"] * ROWS})
    table.flush()
    table.delete(list(range(0, ROWS, 2)))
    table.flush()
    table.compact(full=True)
    table.gc()
    path = table.path
    table.close()
    shutil.rmtree(path)
    gc.collect()
    # Memory that was freed is given out again, and written to.
    assert sum(len(bytes([0xAA]) * (1 << 16)) for _ in range(200)) > 0


def same(rows: list[dict[str, Any]]) -> bool:
    return {row["k"]: (row["a"], row["s"]) for row in rows} == WANTED and len(rows) == ROWS


Rows = list[dict[str, Any]]
NAMES = ["k", "a", "s"]


def _rows_of(columns: Sequence[Any]) -> Rows:
    return [dict(zip(NAMES, row, strict=True)) for row in zip(*columns, strict=True)]


def hold_batches(table: kc.Table) -> Callable[[], Rows]:
    held = list(table.scan(NAMES, batch_rows=100))
    return lambda: [row for batch in held for row in batch.to_pylist()]


def hold_columns(table: kc.Table) -> Callable[[], Rows]:
    held = table.scan(NAMES).to_table().columns
    return lambda: _rows_of([column.to_pylist() for column in held])


def hold_numpy(table: kc.Table) -> Callable[[], Rows]:
    found = table.scan(NAMES).to_table().combine_chunks()
    k, a, s = found["k"].chunk(0).to_numpy(), found["a"].chunk(0).to_numpy(), found["s"].chunk(0)
    return lambda: _rows_of([k.tolist(), a.tolist(), s.to_pylist()])


def hold_points(table: kc.Table) -> Callable[[], Rows]:
    held = table.get_many(list(WANTED), NAMES).select(NAMES)
    return lambda: held.to_pylist()


HOLDS: dict[str, Callable[[kc.Table], Callable[[], Rows]]] = {
    "table": lambda t: t.scan(NAMES).to_table().to_pylist,
    "ordered": lambda t: t.scan(NAMES, order="key").to_table().to_pylist,
    "dataset": lambda t: ds.dataset(t.scan(NAMES).to_table()).to_table().to_pylist,
    "batches": hold_batches,
    "columns": hold_columns,
    "numpy": hold_numpy,
    "get_many": hold_points,
}


@pytest.mark.parametrize("how", HOLDS)
def test_what_was_read_stays(filled: kc.Table, how: str) -> None:
    held = HOLDS[how](filled)
    assert same(held())
    destroy(filled)
    assert same(held()), f"{how} changed under its holder"


@pytest.mark.parametrize("made", ["iterator", "reader", "C stream"])
@pytest.mark.parametrize("order", ["any", "key"])
def test_half_a_scan(filled: kc.Table, made: str, order: str) -> None:
    """What has begun ends well, although flushes and compactions replace the files, the table is closed and
    its folder removed."""
    scan = filled.scan(["k", "a", "s"], order=order, batch_rows=100)
    if made == "iterator":
        source: Iterator[pa.RecordBatch] = iter(scan)
    elif made == "reader":
        source = iter(scan.to_reader())
    else:
        source = iter(pa.RecordBatchReader.from_stream(scan))
    got = [next(source) for _ in range(3)]
    filled.update({"k": list(WANTED), "a": [0] * ROWS, "s": ["gone"] * ROWS})
    filled.flush()
    got += [next(source) for _ in range(3)]
    filled.compact(full=True)
    filled.gc()
    got += [next(source) for _ in range(3)]
    before = [batch.to_pylist() for batch in got]
    destroy(filled)
    got += source
    assert [batch.to_pylist() for batch in got[: len(before)]] == before
    assert same([row for batch in got for row in batch.to_pylist()])
    del source, scan
    gc.collect()
    assert not open_below(filled.path), "the last reader has left files open"


def test_half_a_scan_with_a_predicate(filled: kc.Table) -> None:
    """Late columns are read long after the close."""
    source = iter(filled.scan(["k", "s"], where=[("a", ">=", 600)], batch_rows=100))
    rows = next(source).to_pylist()
    destroy(filled)
    rows += [row for batch in source for row in batch.to_pylist()]
    assert {row["k"]: row["s"] for row in rows} == {k: s for k, (a, s) in WANTED.items() if a >= 600}


@pytest.mark.parametrize("images", ["after", "both"])
def test_half_the_changes(make: Make, images: str) -> None:
    table = make(file_grace_s=0, durability="sync")
    for step in range(6):
        table.upsert({"k": list(range(500)), "a": [step] * 500})
        table.flush()
    whole = table.changes(images=images).to_table().to_pylist()
    source = iter(table.changes(images=images))
    rows = next(source).to_pylist()
    table.upsert({"k": list(range(500)), "a": [99] * 500})
    table.flush()
    table.compact(full=True)
    path = table.path
    table.close()
    shutil.rmtree(path)
    rows += [row for batch in source for row in batch.to_pylist()]
    assert rows == whole and len(rows) == 3_000


def open_below(path: str) -> list[str]:
    """Links of this process's descriptors; a removed file's says so at its end."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [link for link in links if link.startswith(path)]


def test_a_scan_object_after_close_says_so(filled: kc.Table) -> None:
    scan, snapshot, token = filled.scan(["k"]), filled.snapshot(), filled.scan_tokens()[0]
    schema, timestamp = scan.schema, scan.timestamp
    destroy(filled)
    assert (scan.schema, scan.timestamp) == (schema, timestamp)
    for use in (scan.to_table, scan.count, lambda: list(scan), lambda: snapshot.get(1)):
        with pytest.raises(kc.Closed, match="was closed"):
            use()
    with pytest.raises(kc.Closed):
        filled.scan_token(token)


def test_a_reader_whose_folder_goes(filled: kc.Table, path: Path) -> None:
    """What it has open it reads on; what it has not is a clear error, and the lost table is not found."""
    filled.flush()
    filled.close()
    reader = kc.open_table(path)
    source = iter(reader.scan(["k", "a", "s"], batch_rows=100))
    rows = next(source).to_pylist()
    shutil.rmtree(path)
    rows += [row for batch in source for row in batch.to_pylist()]
    assert same(rows)
    assert reader.get(1, ["a"]) == {"a": 3}
    with pytest.raises(kc.TableNotFound):
        reader.refresh()
    with pytest.raises(kc.TableNotFound):
        kc.open_table(path)
    reader.close()


def test_input_may_change_after_the_call(make: Make, path: Path) -> None:
    """Nothing of a caller's buffers is kept: not for the log, not for rows in memory."""
    import numpy as np

    table = make(durability="sync", ingest_threshold_rows=1_000)
    for count, base in ((10, 0), (2_000, 100)):
        keys = np.arange(base, base + count, dtype=np.int64)
        values = keys * 3
        table.insert(pa.table({"k": pa.array(keys), "a": pa.array(values)}))
        keys[:], values[:] = -1, -1
    rows = {row["k"]: row["a"] for row in table.scan(["k", "a"]).to_pylist()}
    assert rows == {k: k * 3 for k in (*range(10), *range(100, 2_100))}
    table.close()
    with kc.open_table(path) as reader:
        assert {row["k"]: row["a"] for row in reader.scan(["k", "a"]).to_pylist()} == rows


def test_nothing_is_open_after_close_while_results_live(filled: kc.Table, path: Path) -> None:
    held = filled.scan().to_table()
    half = iter(filled.scan(batch_rows=100))
    next(half)
    filled.close()
    del half
    gc.collect()
    assert not open_below(str(path.resolve()))
    assert held.num_rows == ROWS


def test_files_that_compactions_replace_are_closed(make: Make) -> None:
    """Also where point reads hold their pages and a scan is under way at each replacement: the page cache
    once kept the readers of every earlier version."""
    table = make(file_grace_s=0, history_retention_s=0)
    table.insert({"k": list(range(ROWS)), "a": [0] * ROWS})
    table.flush()
    counts = []
    for step in range(15):
        table.update({"k": list(range(1_000)), "a": [step] * 1_000})
        table.flush()
        under_way = iter(table.scan(["a"], batch_rows=500))
        next(under_way)
        table.get(5)
        table.compact(full=True)
        table.get(5)
        assert sum(batch.num_rows for batch in under_way) == ROWS - 500
        del under_way
        table.gc()
        gc.collect()
        counts.append(len(open_below(table.path)))
    assert max(counts[5:]) <= max(counts[:5]), counts
