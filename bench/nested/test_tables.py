"""Tables with nested columns: loaded, scanned and read row by row, beside Parquet and, where it is installed,
Lance.

pytest bench/nested                                         20,000 rows: checks the answers
KUDU_CORE_BENCH_ROWS=300000 ci/bench.sh bench/nested        times (vectors: a tenth of the rows)
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kudu_core as kc

ROWS = int(os.environ.get("KUDU_CORE_BENCH_ROWS", "20000"))
GETS = 200
PEERS = ("kudu_core", "parquet", *(("lance",) if importlib.util.find_spec("lance") else ()))


def lists_of_ten() -> pa.Array:
    numbers = pa.array(np.random.default_rng(1).random(10 * ROWS))
    return pa.ListArray.from_arrays(np.arange(0, 10 * ROWS + 1, 10, dtype=np.int32), numbers)


def vectors() -> pa.Array:
    numbers = np.random.default_rng(1).random(768 * (ROWS // 10), dtype=np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers), 768)


def structs() -> pa.Array:
    rng = np.random.default_rng(1)
    fields = [rng.integers(0, 1000, ROWS), rng.random(ROWS), [f"s{row % 100}" for row in range(ROWS)]]
    return pa.StructArray.from_arrays([pa.array(field) for field in fields], ["x", "y", "s"])


SHAPES: dict[str, Callable[[], pa.Array]] = {
    "list<double>[10]": lists_of_ten, "vectors of 768": vectors, "struct of 3": structs
}  # fmt: skip


def table_of(shape: str) -> pa.Table:
    column = SHAPES[shape]()
    return pa.table({"k": np.arange(len(column)), "v": column})


def load(peer: str, rows: pa.Table, path: Path) -> None:
    if peer == "kudu_core":
        with kc.create_table(path, rows.schema, "k") as table:
            table.insert(rows)
            table.flush()
    elif peer == "parquet":
        pq.write_table(rows, path, compression="zstd")
    else:
        importlib.import_module("lance").write_dataset(rows, path)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_load(benchmark: Any, tmp_path: Path, shape: str, peer: str) -> None:
    rows, numbers = table_of(shape), itertools.count()
    benchmark.pedantic(
        load, setup=lambda: ((peer, rows, tmp_path / f"t{next(numbers)}"), {}), rounds=3, warmup_rounds=1
    )


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_scan(benchmark: Any, tmp_path: Path, shape: str, peer: str) -> None:
    rows, path = table_of(shape), tmp_path / "t"
    load(peer, rows, path)
    if peer == "kudu_core":
        with kc.open_table(path) as table:
            found = benchmark(lambda: table.scan(["v"]).to_table())
    elif peer == "parquet":
        found = benchmark(lambda: pq.read_table(path, columns=["v"]))
    else:
        dataset = importlib.import_module("lance").dataset(path)
        found = benchmark(lambda: dataset.to_table(columns=["v"]))
    assert found["v"].combine_chunks().equals(rows["v"].combine_chunks())


@pytest.mark.parametrize("column", ["v.x", "flat"])
def test_a_field_beside_a_flat_column(benchmark: Any, tmp_path: Path, column: str) -> None:
    rows = table_of("struct of 3")
    rows = rows.append_column("flat", rows["v"].combine_chunks().field("x"))
    load("kudu_core", rows, tmp_path / "t")
    with kc.open_table(tmp_path / "t") as table:
        found = benchmark(lambda: table.scan([column]).to_table())
    assert found[column].combine_chunks().equals(rows["flat"].combine_chunks())


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != "parquet"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_one_by_one(benchmark: Any, tmp_path: Path, shape: str, peer: str) -> None:
    rows, path = table_of(shape), tmp_path / "t"
    load(peer, rows, path)
    keys = np.random.default_rng(2).integers(0, rows.num_rows, GETS).tolist()
    if peer == "kudu_core":
        with kc.open_table(path) as table:
            found = benchmark(lambda: [table.get_many([key], ["v"]) for key in keys])
    else:
        dataset = importlib.import_module("lance").dataset(path)
        found = benchmark(lambda: [dataset.take([key], columns=["v"]) for key in keys])
    assert [one["v"][0].as_py() for one in found] == rows["v"].take(keys).to_pylist()
