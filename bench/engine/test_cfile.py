"""Reading and writing `.rows` and `.delta` files: 500,000 rows, all in the page cache.

pytest bench/engine/test_cfile.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kudu_core._ext.keys import hashing
from kudu_core._ext.keys import keys as key_kernel
from kudu_core.cfile import (
    ColumnSpec,
    DeltaFile,
    PageCache,
    RowsFile,
    RowsFileSpec,
    write_delta_file,
    write_rows_file,
)
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.fs.posix import PosixFileSystem
from tests.support.cases.cfile import read_codes

ROWS = 500_000
HOSTS = 1_000
BATCH = 65_536
FS = PosixFileSystem()


class Keys:
    def __init__(self, data: Any, offsets: Any) -> None:
        self.data = np.frombuffer(data, np.uint8)
        self.offsets = np.asarray(offsets, np.int64)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Rows in key order (host, ts) with the columns of the speed list."""
    rng = np.random.default_rng(0)
    each = ROWS // HOSTS
    status = np.array(["ok", "warn", "error", "idle", "busy", "down", "new", "lost"], object)
    notes = np.array([f"note number {i}" for i in range(50)], object)
    note = notes[rng.integers(0, 50, ROWS)]
    note[rng.random(ROWS) >= 0.1] = None
    return pa.table(
        {
            "host": np.repeat([f"host-{i:05d}" for i in range(HOSTS)], each),
            "ts": pa.array(np.tile(np.arange(each) * 1_000_000, HOSTS), pa.int64()),
            "cpu": np.round(np.cumsum(rng.normal(size=ROWS)), 2),
            "mem": np.round(rng.random(ROWS) * 100, 2),
            "bytes": rng.integers(0, 1 << 36, ROWS),
            "status": pa.array(status[rng.integers(0, 8, ROWS)], pa.string()),
            "note": pa.array(note, pa.string()),
        }
    )


@pytest.fixture(scope="module")
def columns(table: pa.Table) -> list[tuple[ColumnSpec, ColumnBuffers]]:
    result = []
    for id_, name in enumerate(table.column_names):
        array = table[name].combine_chunks()
        type_ = ColumnType.from_arrow(array.type)
        spec = ColumnSpec(id_, type_, name == "note", "key" if id_ < 2 else "value")
        result.append((spec, ColumnBuffers.from_arrow(array, type_)))
    return result


@pytest.fixture(scope="module")
def keys(columns: list[tuple[ColumnSpec, ColumnBuffers]]) -> Keys:
    parts = [(spec.type.kind, spec.type.width, c.values, c.offsets) for spec, c in columns[:2]]
    return Keys(*key_kernel.encode(parts, ROWS))


@pytest.fixture(scope="module")
def path(
    columns: list[tuple[ColumnSpec, ColumnBuffers]], keys: Keys, tmp_path_factory: pytest.TempPathFactory
) -> str:
    path = str(tmp_path_factory.mktemp("cfile") / "a.rows")
    write(path, columns, keys)
    return path


@pytest.fixture(scope="module")
def file(path: str) -> RowsFile:
    file = RowsFile(FS, path, PageCache(1 << 28))
    for id_ in file.columns:
        file.read(id_, 0, ROWS)
    return file


def write(path: str, columns: list[tuple[ColumnSpec, ColumnBuffers]], keys: Keys) -> Any:
    hashes = hashing.murmur3(keys.data, keys.offsets)
    return write_rows_file(FS, path, RowsFileSpec(columns, key_ids=[0, 1], keys=keys, hashes=hashes))


def scan(file: RowsFile, ids: list[int]) -> None:
    for lower in range(0, ROWS, BATCH):
        upper = min(lower + BATCH, ROWS)
        for id_ in ids:
            file.read(id_, lower, upper)


@pytest.mark.parametrize("name", ["host", "ts", "cpu", "bytes", "status", "note"])
def test_scan_one_column(benchmark: Any, file: RowsFile, table: pa.Table, name: str) -> None:
    benchmark(scan, file, [table.column_names.index(name)])


def test_scan_all_columns(benchmark: Any, file: RowsFile) -> None:
    benchmark(scan, file, list(file.column_ids))


def test_scan_all_columns_parquet(benchmark: Any, table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    benchmark(pq.read_table, tmp_path / "a.parquet")


def test_scan_status_codes(benchmark: Any, file: RowsFile) -> None:
    benchmark(lambda: [read_codes(file, 5, at, min(at + BATCH, ROWS)) for at in range(0, ROWS, BATCH)])


def test_read_a_page_of_a_column(benchmark: Any, file: RowsFile) -> None:
    """Python's share: one page of one byte a cell."""
    benchmark(read_codes, file, 5, 0, 1024)


def test_scan_all_columns_without_cache(benchmark: Any, path: str) -> None:
    with RowsFile(FS, path) as file:
        benchmark(scan, file, list(file.column_ids))


def test_find_1000_random_keys(benchmark: Any, file: RowsFile, keys: Keys) -> None:
    picked = np.random.default_rng(1).integers(0, ROWS, 1000)
    data, offsets = key_kernel.take(keys.data, keys.offsets, picked)
    probes = Keys(data, offsets)
    assert (benchmark(file.find, probes.data, probes.offsets) == picked).all()


def test_find_one_key(benchmark: Any, file: RowsFile, keys: Keys) -> None:
    data, offsets = key_kernel.take(keys.data, keys.offsets, np.array([123_456]))
    probes = Keys(data, offsets)
    benchmark(file.find, probes.data, probes.offsets)


@pytest.mark.parametrize("name", ["cpu", "status"])
def test_1000_random_cells(benchmark: Any, file: RowsFile, table: pa.Table, name: str) -> None:
    picked = np.random.default_rng(1).integers(0, ROWS, 1000)
    benchmark(file.cells, [table.column_names.index(name)], picked)


def test_write(
    benchmark: Any, columns: list[tuple[ColumnSpec, ColumnBuffers]], keys: Keys, tmp_path: Path
) -> None:
    path = str(tmp_path / "w.rows")

    def run() -> None:
        Path(path).unlink(missing_ok=True)
        write(path, columns, keys)

    benchmark(run)
    benchmark.extra_info["bytes"] = Path(path).stat().st_size


def test_open(benchmark: Any, path: str) -> None:
    benchmark(lambda: RowsFile(FS, path).close())


def test_delta_updates_of_a_batch(benchmark: Any, tmp_path: Path) -> None:
    """One of ten rows updated; the changes of 65,536 rows."""
    rowids = np.arange(0, ROWS, 10, dtype=np.uint32)
    count = len(rowids)
    type_ = ColumnType.parse("float64")
    values = np.random.default_rng(2).normal(size=count).round(2).view(np.uint8)
    entries = np.arange(count, dtype=np.uint32)
    column = ColumnBuffers(8, count, values, None, None)
    path = str(tmp_path / "a.delta")
    ts = np.full(count, 7 << 12, np.uint64)
    ops = np.ones(count, np.uint8)
    write_delta_file(FS, path, "redo", rowids, ts, ops, {2: (ColumnSpec(2, type_, False), entries, column)})
    with DeltaFile(FS, path, PageCache(1 << 26)) as file:
        benchmark(file.updates, 2, BATCH, 2 * BATCH)
