"""Replayed logs agree with a loop over lists, wherever the block lies and however often a row changes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.changes import delta, positions
from tests.support.oracles.changes import delta as oracle
from tests.support.oracles.columns import columns as cells_of
from tests.support.rounds import FIRST_SEED, rounds

WIDTHS = (1, 2, 4, 8, 16)


def random_log(
    rng: np.random.Generator,
) -> tuple[int, int, npt.NDArray[np.uint32], npt.NDArray[np.int64] | None, list[int]]:
    """(first_row, rows, rowids, order or None, the order as a list)."""
    rows = int(rng.integers(1, 60))
    first_row = int(rng.choice([0, 7, 2**31 - 20, 2**32 - rows]))
    rowids = (first_row + rng.integers(0, rows, int(rng.integers(0, 120)))).astype(np.uint32)
    if rng.random() < 0.5:
        return first_row, rows, rowids, None, list(range(len(rowids)))
    order = rng.permutation(len(rowids))[: int(rng.integers(0, len(rowids) + 1))].astype(np.int64)
    return first_row, rows, rowids, order, order.tolist()


def random_var(rng: np.random.Generator, n: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    ends = int(rng.integers(0, 4)) + np.concatenate([[0], np.cumsum(rng.integers(0, 12, n))])
    return ends.astype(np.int32), rng.integers(0, 256, int(ends[-1]), np.uint8)


def test_replay_agrees_with_oracle(long: bool) -> None:
    for rng in rounds(long, 150):
        first_row, rows, rowids, order, positions = random_log(rng)
        log = first_row, rowids.tolist()
        for width in WIDTHS:
            values = rng.integers(0, 256, rows * width, np.uint8)
            new = rng.integers(0, 256, len(rowids) * width, np.uint8)
            expected = oracle.replay(
                cells_of.cells_of_fixed(values, width), *log, cells_of.cells_of_fixed(new, width), positions
            )
            delta.apply_fixed(values, width, first_row, rowids, new, order)
            assert values.tobytes() == b"".join(expected)
        offsets, data = random_var(rng, rows)
        new_offsets, new_data = random_var(rng, len(rowids))
        expected = oracle.replay(
            cells_of.cells_of_var(offsets, data),
            *log,
            cells_of.cells_of_var(new_offsets, new_data),
            positions,
        )
        got = delta.overlay_var(offsets, data, first_row, rowids, new_offsets, new_data, order)
        assert cells_of.cells_of_var(*got) == expected and got[1].tobytes() == b"".join(expected)
        bits = rng.integers(0, 256, (rows + 7) // 8, np.uint8)
        new_bits = None if rng.random() < 0.3 else rng.integers(0, 256, (len(rowids) + 7) // 8, np.uint8)
        flags = oracle.replay(
            cells_of.flags_of_bits(bits, rows), *log, cells_of.flags_of_bits(new_bits, len(rowids)), positions
        )
        beside = cells_of.flags_of_bits(bits, 8 * len(bits))[rows:]
        delta.apply_bits(bits, rows, first_row, rowids, new_bits, order)
        assert cells_of.flags_of_bits(bits, 8 * len(bits)) == flags + beside
        live = rng.integers(0, 2, rows, np.uint8)
        new_live = rng.integers(0, 2, len(rowids), np.uint8)
        expected_live = oracle.replay(live.tolist(), *log, new_live.tolist(), positions)
        delta.set_live(live, first_row, rowids, new_live, order)
        assert live.tolist() == expected_live
        last = delta.last_per_row(rowids, first_row, rows, order)
        assert last.tolist() == oracle.last_per_row(first_row, rows, rowids.tolist(), positions)


def test_a_replay_in_buckets_is_the_replay() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    rowids = rng.integers(0, 1000, 5000).astype(np.uint32)
    new = rng.integers(0, 256, 8 * 5000, np.uint8)
    whole, parts = np.zeros(8192, np.uint8), np.zeros(8192, np.uint8)
    delta.apply_fixed(whole, 8, 0, rowids, new)
    starts, perm = positions.bucket_sort(rowids, 7)
    for bucket in range(8):
        rows = parts[8 * 128 * bucket : 8 * 128 * (bucket + 1)]
        order = perm[starts[bucket] : starts[bucket + 1]]
        delta.apply_fixed(rows, 8, 128 * bucket, rowids, new, order)
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize(("first_row", "rowid"), [(10, 9), (10, 14), (0, 2**32 - 1), (2**32 - 4, 0), (10, 0)])
def test_a_rowid_outside_the_block_is_refused_and_nothing_beyond_it_written(
    first_row: int, rowid: int
) -> None:
    rowids = np.array([first_row + 1, rowid, first_row + 2], np.uint32)
    offsets, data = np.arange(5, dtype=np.int32), np.zeros(4, np.uint8)
    for width in WIDTHS:
        page, new = np.zeros(20 * width, np.uint8), np.ones(3 * width, np.uint8)
        with pytest.raises(ValueError, match=str(rowid)):
            delta.apply_fixed(page[8 * width : 12 * width], width, first_row, rowids, new)
        assert np.flatnonzero(page).tolist() == list(range(9 * width, 10 * width))
    with pytest.raises(ValueError, match=str(rowid)):
        delta.overlay_var(offsets, data, first_row, rowids, np.zeros(4, np.int32), data)
    with pytest.raises(ValueError, match=str(rowid)):
        delta.apply_bits(np.zeros(4, np.uint8), 4, first_row, rowids, None)
    with pytest.raises(ValueError, match=str(rowid)):
        delta.set_live(np.zeros(4, np.uint8), first_row, rowids, np.ones(3, np.uint8))
    with pytest.raises(ValueError, match=str(rowid)):
        delta.last_per_row(rowids, first_row, 4)


@pytest.mark.parametrize("position", [-1, 2, 2**40])
def test_an_order_outside_the_log_is_refused(position: int) -> None:
    rowids, order = np.array([0, 1], np.uint32), np.array([0, position], np.int64)
    for call in (
        lambda: delta.apply_fixed(np.zeros(16, np.uint8), 8, 0, rowids, np.zeros(16, np.uint8), order),
        lambda: delta.apply_bits(np.zeros(1, np.uint8), 2, 0, rowids, None, order),
        lambda: delta.last_per_row(rowids, 0, 2, order),
    ):
        with pytest.raises(ValueError, match="order"):
            call()


def test_shapes_that_do_not_fit_are_refused() -> None:
    rowids, none, two = np.zeros(2, np.uint32), np.zeros(0, np.uint8), np.zeros(2, np.uint8)
    ends = np.array([0, 1, 2], np.int32)
    for call in (
        lambda: delta.apply_fixed(two, 3, 0, rowids, two),
        lambda: delta.apply_fixed(two[:1], 2, 0, rowids, two),
        lambda: delta.apply_fixed(two, 1, 0, rowids, two[:1]),
        lambda: delta.apply_fixed(two, 1, -1, rowids, two),
        lambda: delta.apply_fixed(two, 1, 2**32 - 1, rowids, two),
        lambda: delta.apply_fixed(none, 1, 0, rowids, two),
        lambda: delta.apply_bits(none, 1, 0, rowids, None),
        lambda: delta.apply_bits(two, 1, 0, rowids, none),
        lambda: delta.last_per_row(rowids, 0, -1),
        lambda: delta.overlay_var(ends[:0], two, 0, rowids, ends, two),
        lambda: delta.overlay_var(ends, two, 0, rowids, ends[:2], two),
        lambda: delta.overlay_var(ends, two, 0, rowids, ends, two[:1]),
        lambda: delta.overlay_var(ends, two, 0, rowids, ends[::-1].copy(), two),
        lambda: delta.overlay_var(ends - 2, two, 0, rowids[:1], ends[:2], two),
    ):
        with pytest.raises(ValueError):
            call()


def test_an_overlay_past_2_gib_is_refused_before_it_is_allocated() -> None:
    data = np.zeros(2**31 - 1, np.uint8)  # never touched, so never in memory
    offsets = np.array([0, 2**31 - 1, 2**31 - 1], np.int32)
    one = np.array([0, 1], np.int32)
    with pytest.raises(OverflowError):
        delta.overlay_var(offsets, data, 0, np.array([1], np.uint32), one, data)
    got = delta.overlay_var(offsets, data, 0, np.array([0], np.uint32), one, data)
    assert got[0].tolist() == [0, 1, 1]
