"""The first rows of 200 files of 5,000 rows each, whose keys take turns: found, and their cells gathered."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.pages import blocks
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.in_order import RowsInOrder
from kudu_core._ext.row.scattered import gather

FILES, ROWS = 200, 5000


class File:
    def __init__(self, number: int) -> None:
        values = np.arange(number, FILES * ROWS, FILES)
        page = blocks.encode_fixed(values.view(np.uint8), 8, 1)
        columns = [PointColumn(lambda page_number, i=i: (page, (i, page_number)), 1, 8) for i in range(2)]
        keys = (values.astype(np.uint64) + np.uint64(1 << 63)).astype(">u8").tobytes()
        firsts = b"".join(keys[8 * i : 8 * i + 8] for i in range(0, ROWS, 1024))
        index = np.frombuffer(firsts, np.uint8), np.arange(0, len(firsts) + 1, 8, dtype=np.int64)
        order = [(columns[0], 0, 8, 1 << 63)]
        self.first_key = keys[:8]
        self.points = PointFile(ROWS, {0: columns[0], 1: columns[1]}, order, None, index, None)


@pytest.fixture(scope="module")
def files() -> list[File]:
    return [File(number) for number in range(FILES)]


@pytest.mark.benchmark(group="kernel: first rows of 200 files")
@pytest.mark.parametrize("count", [1, 10, 100])
def test_found_in_order(benchmark, files, count):
    first = 500_000
    lower = (first + 2**63).to_bytes(8, "big")

    def found():
        return RowsInOrder([f.first_key for f in files], list(files), None, lower, None).take(count)

    sources, rows = benchmark(found)
    assert (rows * FILES + sources).tolist() == list(range(first, first + count))


@pytest.mark.benchmark(group="kernel: first rows of 200 files")
@pytest.mark.parametrize("count", [10, 100])
def test_gathered(benchmark, files, count):
    sources = np.arange(count, dtype=np.int32) % FILES
    rows = np.full(count, 2500)
    points = [f.points for f in files]
    values, _, _ = benchmark(lambda: gather(points, sources, rows, 1, 8))
    assert values.view(np.int64).tolist() == list(range(500_000, 500_000 + count))
