"""Point reads of 1,000,000 rows of (host, ts): one key, 1,000 keys, a row of five columns, cells."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.index import bloom
from kudu_core._ext.keys import hashing, keys
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.shape import TAGS, RowShape

HOSTS, ROWS, PAGE = 1000, 1_000_000, 16_384


def column(values: np.ndarray, kind: int, place: int, words=None) -> PointColumn:
    width = values.dtype.itemsize
    pages = [
        blocks.encode_fixed(values[i : i + PAGE].view(np.uint8), width, kind) for i in range(0, ROWS, PAGE)
    ]
    return PointColumn(lambda number: (pages[number], (place, number)), len(pages), width, words)


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    names = [f"host-{i:05d}".encode() for i in range(HOSTS)]
    words = np.arange(0, 10 * HOSTS + 1, 10, dtype=np.int32), np.frombuffer(b"".join(names), np.uint8)
    host = np.repeat(np.arange(HOSTS, dtype=np.uint16), ROWS // HOSTS)
    ts = np.tile(np.arange(ROWS // HOSTS, dtype=np.int64) * 1000, HOSTS)
    ends = np.arange(0, 10 * ROWS + 1, 10, dtype=np.int32)
    data = np.frombuffer(np.array(names)[host].tobytes(), np.uint8)
    encoded, offsets = keys.encode([(3, 0, data, ends), (1, 8, ts.view(np.uint8), None)], ROWS)
    hashes = hashing.murmur3(encoded, offsets)
    columns = {
        0: column(host, 0, 0, words),
        1: column(ts, 1, 1),
        2: column(np.round(rng.normal(50, 10, ROWS), 2), 2, 2),
        3: column(rng.integers(0, 2**36, ROWS), 1, 3),
        4: column(rng.integers(0, 8, ROWS).astype(np.uint8), 0, 4),
    }
    index = keys.take(encoded, offsets, np.arange(0, ROWS, 1024))
    order = [(columns[0], 1, 0, 0), (columns[1], 0, 8, 1 << 63)]
    file = PointFile(ROWS, columns, order, None, index, bloom.build(hashes, 12))
    rows = rng.integers(0, ROWS, 1000)
    probes, ends64 = keys.take(encoded, offsets, rows)
    return file, rows, probes, ends64, hashes[rows]


@pytest.mark.benchmark(group="kernel: point reads")
def test_find_1000_one_by_one(benchmark, made):
    file, rows, probes, ends, hashes = made
    raw = bytes(probes)
    pairs = [
        (raw[a:b], h) for a, b, h in zip(ends[:-1].tolist(), ends[1:].tolist(), hashes.tolist(), strict=True)
    ]
    assert benchmark(lambda: [file.find(key, h) for key, h in pairs]) == rows.tolist()


@pytest.mark.benchmark(group="kernel: point reads")
def test_find_1000_at_once(benchmark, made):
    file, rows, probes, ends, hashes = made
    np.testing.assert_array_equal(benchmark(file.find_many, probes, ends, hashes), rows)


@pytest.mark.benchmark(group="kernel: point reads")
def test_1000_rows_as_dicts(benchmark, made):
    file, rows, *_ = made
    tags = [TAGS[t] for t in ("text", "signed", "float", "signed", "unsigned")]
    shape = RowShape(["host", "ts", "v", "n", "s"], range(5), tags, [bytes] * 5, [None] * 5)
    numbers = rows.tolist()
    found = benchmark(lambda: [file.row(row, shape) for row in numbers])
    assert found[0]["host"] == f"host-{numbers[0] // 1000:05d}"


@pytest.mark.benchmark(group="kernel: point reads")
@pytest.mark.parametrize("column_id", [1, 2, 3], ids=["delta", "decimal", "frame"])
def test_1000_cells(benchmark, made, column_id):
    file, rows, *_ = made
    [(values, _, _)] = benchmark(file.cells, [column_id], rows)
    assert len(values) == 8000
