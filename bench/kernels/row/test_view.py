"""One row of 1,000,000 in memory by its key, without changes and with some; one row of a delta file."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.columns.flags import AppendFlags
from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.index.rowid_map import RowidMap
from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core._ext.keys import hashing
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.change_log import ChangePoints
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.delta_file import ChangeFile, DecodedColumn, DeltaPoints
from kudu_core._ext.row.shape import MISSING, TAGS, RowShape
from kudu_core._ext.row.view import MemoryPoints, PointView

ROWS = 1_000_000
SHAPE = RowShape(["a", "b"], [0, 1], [TAGS["signed"], TAGS["float"]], [bytes, bytes], [None, None])


@pytest.mark.benchmark(group="kernel: one row of a view")
@pytest.mark.parametrize("changed", [False, True], ids=["untouched", "changed"])
def test_get_from_memory(benchmark, changed):
    raw = np.arange(ROWS, dtype=">u8").view(np.uint8)
    offsets = np.arange(0, 8 * ROWS + 1, 8)
    keys, inserted, columns = KeyTable(1), AppendColumn(8), {0: AppendColumn(8), 1: AppendColumn(8)}
    keys.append(raw, offsets, hashing.murmur3(raw, offsets))
    inserted.append(np.ones(ROWS, np.uint64).view(np.uint8))
    columns[0].append(np.arange(ROWS).view(np.uint8))
    columns[1].append(np.arange(ROWS, dtype=np.float64).view(np.uint8))
    changes = ChangePoints(AppendColumn(8), AppendColumn(4), AppendColumn(1), AppendColumn(4), RowidMap())
    probes = np.random.default_rng(0).choice(ROWS, 1000, replace=False)
    if changed:
        changes.add(1, AppendColumn(4), AppendColumn(4), AppendColumn(8), {}, None)
        for ts, row in enumerate(probes.tolist(), 2):
            changes.append_one(ts, 1, row, (0, 1), [MISSING, bytes(8)])
    nothing = (np.empty(0, np.uint8), np.zeros(1, np.int64))
    memory = MemoryPoints(keys, inserted, columns, changes, AppendFlags(), 1)
    view = PointView([memory], [], BoundsTree(nothing, nothing))
    wanted = [int(row).to_bytes(8, "big") for row in probes]

    found = benchmark(lambda: [view.get(key, 1 << 40, SHAPE) for key in wanted])

    assert [row["a"] for row in found] == probes.tolist()
    assert all(row["b"] == 0.0 for row in found) == changed


@pytest.mark.benchmark(group="kernel: one row of a delta file")
@pytest.mark.parametrize("touched", [False, True], ids=["untouched", "touched"])
def test_row_of_a_delta_file(benchmark, touched):
    entries = 16_384

    def numbers(values, dtype, place):
        raw = values.astype(dtype).view(np.uint8)
        return DecodedColumn(lambda: (raw, place), np.dtype(dtype).itemsize, entries)

    order = np.arange(entries)
    page = blocks.encode_fixed(order.astype(np.float64).view(np.uint8), 8, 2)
    points = DeltaPoints(
        numbers(2 * order, "<u4", 1),
        numbers(order * 0 + 1, "u1", 2),
        numbers(order * 0 + 5, "<u8", 3),
        [(1, numbers(order, "<u4", 4), PointColumn(lambda _: (page, 5), 1, 8))],
    )
    file = ChangeFile(lambda: points, False, 5, 5)
    rows = (2 * np.random.default_rng(0).integers(0, entries, 1000) + (not touched)).tolist()

    found = benchmark(lambda: [file.row(row, 9, SHAPE) for row in rows])

    assert all(bool(values) == touched for _, values in found)
