"""Nested arrays to leaves and back, beside a copy of the same bytes and Parquet in memory.

pytest bench/nested                                         20,000 rows: checks the answers
KUDU_CORE_BENCH_ROWS=1000000 ci/bench.sh bench/nested       times (vectors: a fiftieth of the rows)
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kudu_core.common.types.nested.nested_layout import layout_of

ROWS = int(os.environ.get("KUDU_CORE_BENCH_ROWS", "20000"))
F = pa.field


def numbers(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(1).random(count))


def texts(count: int) -> pa.Array:
    """Words of 4 to 16 letters."""
    rng = np.random.default_rng(2)
    ends = np.concatenate([[0], np.cumsum(rng.integers(4, 17, count))]).astype(np.int32)
    letters = rng.integers(97, 123, int(ends[-1]), np.uint8)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(letters))


def some_null(array: pa.Array, share: float) -> pa.Array:
    present = np.random.default_rng(3).random(len(array)) >= share
    bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bits, *array.buffers()[1:]])


def ends(rows: int, each: int) -> pa.Array:
    """Of lists of so many elements on average."""
    sizes = np.random.default_rng(4).integers(each // 2, each + each // 2 + 1, rows)
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))


def listed(rows: int, each: int, make: Any) -> pa.Array:
    at = ends(rows, each)
    return pa.ListArray.from_arrays(at, make(at[-1].as_py()))


def struct_of_two(count: int) -> pa.Array:
    return pa.StructArray.from_arrays([numbers(count), texts(count)], ["x", "y"])


def struct_of_five(rows: int) -> pa.Array:
    ids = pa.array(np.arange(rows))
    fields = [numbers(rows), ids, texts(rows), some_null(numbers(rows), 0.1), ids.cast(pa.int32())]
    return pa.StructArray.from_arrays(fields, list("abcde"))


def map_of_five(rows: int) -> pa.Array:
    at = ends(rows, 5)
    return pa.MapArray.from_arrays(at, texts(at[-1].as_py()), numbers(at[-1].as_py()))


def vectors(rows: int) -> pa.Array:
    values = np.random.default_rng(5).random(max(rows // 50, 20) * 768, np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), 768)


def some_vectors_null(rows: int) -> pa.Array:
    array = vectors(rows)
    present = np.random.default_rng(6).random(len(array)) >= 0.1
    bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bits], children=[array.values])


SHAPES = {
    "list<double>[10]": lambda: pa.FixedSizeListArray.from_arrays(numbers(10 * ROWS), 10),
    "list<double>, about 10": lambda: listed(ROWS, 10, numbers),
    "the same, some NULL": lambda: listed(ROWS, 10, lambda count: some_null(numbers(count), 0.01)),
    "vectors of 768": lambda: vectors(ROWS),
    "the same, some NULL (10%)": lambda: some_vectors_null(ROWS),
    "struct of 5": lambda: struct_of_five(ROWS),
    "list<struct<double, string>>, about 5": lambda: listed(ROWS, 5, struct_of_two),
    "list<string>, about 5": lambda: listed(ROWS, 5, texts),
    "map<string, double>, about 5": lambda: map_of_five(ROWS),
}
WORK = ("copy", "flatten", "assemble", "parquet write", "parquet read")


@lru_cache(maxsize=1)
def array_of(shape: str) -> pa.Array:
    return SHAPES[shape]()


def copied(array: pa.Array) -> int:
    """A copy of the bytes, into memory that Arrow's pool has."""
    size = 0
    for buffer in array.buffers():
        if buffer is not None:
            room = np.frombuffer(pa.allocate_buffer(buffer.size), np.uint8)
            np.copyto(room, np.frombuffer(buffer, np.uint8))
            size += buffer.size
    return size


def written(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
    return sink.getvalue()


@pytest.mark.benchmark(group="nested")
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("shape", SHAPES)
def test_leaves(benchmark: Any, shape: str, work: str) -> None:
    array = array_of(shape)
    size = sum(buffer.size for buffer in array.buffers() if buffer is not None)
    benchmark.extra_info |= {"rows": len(array), "bytes": size, "shape": shape, "work": work}
    layout = layout_of("a", array.type, True)
    if work == "copy":
        assert benchmark(copied, array) == size
    elif work == "flatten":
        leaves = benchmark(layout.flatten, array)
        assert layout.assemble(leaves).equals(array)
    elif work == "assemble":
        leaves = layout.flatten(array)
        assert benchmark(layout.assemble, leaves).equals(array)
    else:
        table = pa.table([array], pa.schema([F("a", array.type)]))
        file = written(table)
        if work == "parquet write":
            assert benchmark(written, table).size == file.size
        else:
            assert benchmark(lambda: pq.read_table(file)).num_rows == len(array)
