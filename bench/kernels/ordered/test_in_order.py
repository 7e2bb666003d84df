"""The first rows of 200 files of 5,000 rows each, whose keys take turns: found, and their cells gathered."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core._ext.ordered.few_in_order import RowsOfViews
from kudu_core._ext.ordered.in_order import RowsInOrder
from kudu_core._ext.ordered.looked_up import LookedUp
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.scattered import gather
from kudu_core._ext.row.shape import TAGS, RowShape
from kudu_core._ext.row.view import PointView, RowsetPoints
from kudu_core.common.rows.keys import EncodedKeys

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


def views_of(files: list[File]) -> list[PointView]:
    views = []
    for file in files:
        ends = np.array([0, 8], np.int64)
        bounds = [(np.frombuffer(key, np.uint8), ends) for key in (file.first_key, b"\xff" * 8)]
        rowset = RowsetPoints(lambda file=file: file.points, [], None, 0, -1)
        views.append(PointView([], [rowset], BoundsTree(*bounds)))
    return views


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


@pytest.mark.benchmark(group="kernel: first rows of 200 files")
@pytest.mark.parametrize("count", [1, 10, 100])
def test_found_and_gathered_of_views(benchmark, files, count):
    lower = (500_000 + 2**63).to_bytes(8, "big")
    views = views_of(files)
    raw = TAGS["raw"]
    shape = RowShape(["k", "v"], [0, 1], [raw, raw], [None, None], [None, None])

    def found():
        rows = RowsOfViews(
            RowsInOrder.of_views(views, 2**64 - 1, None, lower, None, True), shape, (8, 8), (False, False)
        )
        rows.take(count, count)
        return rows.batch(1 << 20)

    assert benchmark(found).address


@pytest.mark.benchmark(group="kernel: rows of 200 files by their keys")
def test_looked_up(benchmark, files):
    raw = TAGS["raw"]
    shape = RowShape(["k", "v"], [0, 1], [raw, raw], [None, None], [None, None])
    numbers = range(500_000, 500_000 + FILES)
    keys = EncodedKeys.from_list([(number + 2**63).to_bytes(8, "big") for number in numbers])
    hashes, views = keys.hashes(), views_of(files)

    def looked_up():
        rows = LookedUp(2**64 - 1, shape, (8, 8), (False, False), FILES)
        rows.look_up(views, keys.data, keys.offsets, hashes, np.arange(FILES), np.arange(1, FILES + 1))
        return rows.batch(1 << 20, (0, 1), []), rows.count

    made, count = benchmark(looked_up)
    assert made.address and count == FILES
