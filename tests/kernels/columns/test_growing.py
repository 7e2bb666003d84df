"""A growing column gives back what was appended, and its snapshots never change."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from kudu_core._ext.columns import bitmaps
from kudu_core._ext.columns.growing import AppendColumn
from tests.support.oracles.columns.growing import ListColumn, random_part, snapshot_cells

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


@pytest.mark.parametrize("width", [0, 1, 2, 4, 8, 16])
@pytest.mark.parametrize("null_rate", [0.0, 0.001, 0.3])
def test_snapshots_agree_with_a_list_and_outlive_growth(width: int, null_rate: float, long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (40 if long else 3)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        column, model = AppendColumn(width), ListColumn()
        kept = []
        for _ in range(60):
            if rng.random() < 0.3:
                cell = None if rng.random() < null_rate else rng.bytes(width or int(rng.integers(0, 20)))
                column.append_cell(cell)
                model.append([cell])
            else:
                part, cells = random_part(rng, width, int(rng.integers(0, 200)), null_rate)
                rows = None
                if rng.random() < 0.5 and cells:
                    low = -1 if null_rate else 0
                    rows = rng.integers(low, len(cells), int(rng.integers(0, 150)))
                    cells = [None if row == -1 else cells[row] for row in rows]
                if rng.random() < 0.3:
                    column.reserve(len(cells), sum(len(cell or b"") for cell in cells))
                column.append(*part, rows)
                model.append(cells)
            assert len(column) == len(model.cells)
            lower = int(rng.integers(0, len(column) + 1))
            upper = int(rng.integers(lower, len(column) + 1))
            kept.append((lower, upper, column.snapshot(lower, upper)))
        for lower, upper, snapshot in kept:
            assert snapshot_cells(snapshot, width, upper - lower) == model.cells[lower:upper]
        assert [column.cell(i) for i in range(len(column))] == model.cells
        assert column.null_count == sum(cell is None for cell in model.cells)
        assert 0 < column.nbytes <= column.allocated


@pytest.mark.parametrize("width", [0, 8])
def test_a_snapshot_copies_no_cells(width: int) -> None:
    column = AppendColumn(width)
    for _ in range(100):
        column.append_cell(b"abcdefgh")
    column.append_cell(None)
    first, again = column.snapshot(3, 101), column.snapshot(0, 101)
    assert np.shares_memory(first[0], again[0])
    assert again[2] is not None and np.shares_memory(again[2], column.snapshot(8, 101)[2])
    for view in (*first[:2], again[2]):
        assert view is None or not view.flags.writeable


def test_no_bitmap_before_the_first_null() -> None:
    column = AppendColumn(4)
    column.append(np.zeros(400, np.uint8))
    column.append(np.zeros(40, np.uint8), None, np.array([0xFF, 0x03], np.uint8))
    before = column.snapshot(0, 110)
    column.append_cell(None)
    assert before[2] is None and column.snapshot(0, 110)[2] is None
    bits = column.snapshot(0, 111)[2]
    assert bits is not None and bitmaps.bits_count(bits, 111) == 110


def test_what_is_refused_changes_nothing() -> None:
    for width in (0, 8):
        column = AppendColumn(width)
        column.append_cell(b"12345678")
        state = column.nbytes, len(column), column.cell(0)
        values = np.zeros(24, np.uint8)
        offsets = None if width else np.array([0, 8, 16, 24], np.int32)
        bits = np.array([0], np.uint8)
        for rows in ([0, 3], [-2], [2**40]):
            with pytest.raises(IndexError):
                column.append(values, offsets, bits, np.array(rows, np.int64))
        with pytest.raises(ValueError):
            column.append(values, None if offsets is not None else np.zeros(4, np.int32))
        with pytest.raises(ValueError):
            column.append(values, offsets, np.zeros(0, np.uint8))
        with pytest.raises(ValueError):
            column.append(values[:23], np.array([0, 24], np.int32) if offsets is not None else None)
        with pytest.raises(ValueError):
            column.reserve(-1)
        with pytest.raises(OverflowError):
            column.reserve(2**32)
        with pytest.raises(IndexError):
            column.cell(1)
        for lower, upper in ((0, 2), (-1, 1), (1, 0)):
            with pytest.raises(ValueError):
                column.snapshot(lower, upper)
        assert (column.nbytes, len(column), column.cell(0)) == state
        column.append_cell(b"abcdefgh")
        assert column.cell(1) == b"abcdefgh" and column.snapshot(0, 2)[2] is None
    with pytest.raises(ValueError):
        AppendColumn(8).append_cell(b"short")
    with pytest.raises(ValueError):
        AppendColumn(3)


def test_more_than_2_gib_of_data_is_refused_before_it_is_allocated() -> None:
    column = AppendColumn(0)
    column.append_cell(b"x")
    with pytest.raises(OverflowError):
        column.reserve(1, 2**31 - 1)
    cell = np.zeros(1 << 20, np.uint8)
    with pytest.raises(OverflowError):
        column.append(cell, np.array([0, 1 << 20], np.int32), None, np.zeros(2048, np.int64))
    assert column.nbytes == 9 and len(column) == 1


def test_large_data_has_room_for_far_more() -> None:
    """While it is copied, it is there twice."""
    column, cell = AppendColumn(0), bytes(1 << 20)
    for _ in range(10):
        column.append_cell(cell)
    room = column.allocated
    for _ in range(90):
        column.append_cell(cell)
    assert column.allocated == room
    assert column.cell(99) == cell and 100 << 20 < column.nbytes < 101 << 20


def test_reserved_room_is_not_replaced_by_append() -> None:
    for width in (0, 8):
        column = AppendColumn(width)
        column.append_cell(b"12345678")
        column.reserve(5000, 40000)
        before = column.snapshot(0, 1)
        allocated = column.allocated
        values = np.zeros(40000, np.uint8)
        offsets = None if width else np.arange(0, 40001, 8, dtype=np.int32)
        column.append(values, offsets, np.zeros(625, np.uint8))
        assert column.allocated == allocated
        assert np.shares_memory(before[0], column.snapshot(0, 1)[0])


@pytest.mark.parametrize("width", [0, 8])
def test_a_reader_beside_the_writer_sees_whole_rows(width: int) -> None:
    """Row i is 8 bytes of i, null when i % 5 == 0."""
    column, stop, faults = AppendColumn(width), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            upper = len(column)
            lower = max(0, upper - 1000)
            values, offsets, bits = column.snapshot(lower, upper)
            at = slice(None) if offsets is None else slice(int(offsets[0]), int(offsets[-1]))
            rows = np.arange(lower, upper)
            flags = bitmaps.bits_to_bytes(bits, upper - lower) if bits is not None else np.ones(len(rows))
            if not np.array_equal(values[at].view(np.int64) if upper else rows, rows):
                faults.append("values")
            if not np.array_equal(flags, rows % 5 != 0) and upper:
                faults.append("bits")

    reader = threading.Thread(target=read)
    reader.start()
    for start in range(0, 200_000, 500):
        rows = np.arange(start, start + 500, dtype=np.int64)
        offsets = None if width else np.arange(0, 4001, 8, dtype=np.int32)
        column.append(rows.view(np.uint8), offsets, bitmaps.bytes_to_bits((rows % 5 != 0).view(np.uint8)))
    stop.set()
    reader.join()
    assert not faults and len(column) == 200_000


@pytest.mark.parametrize("width", [0, 8])
def test_buffers_come_with_the_first_room(width: int) -> None:
    column = AppendColumn(width)
    empty = column.allocated
    assert empty == (4 if width == 0 else 0)  # the one offset, which all such columns share
    values, offsets, validity = column.snapshot(0, 0)
    assert len(values) == 0 and validity is None
    assert (None if offsets is None else offsets.tolist()) == ([0] if width == 0 else None)
    column.append(np.empty(0, np.uint8), np.zeros(1, np.int32) if width == 0 else None)
    assert column.allocated == empty and len(column) == 0
    column.reserve(1)
    room = column.allocated
    assert room > 256 * max(width, 4)
    column.append_cell(None)
    column.append_cell(b"12345678")
    assert column.allocated == room and column.cell(0) is None and column.cell(1) == b"12345678"
