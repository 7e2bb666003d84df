"""Cells that are taken and interleaved agree with lists of cells, and what does not exist is refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.columns import columns
from tests.support.cases.cfile import u8
from tests.support.oracles.columns import columns as oracle
from tests.support.rounds import rounds

WIDTHS = (1, 2, 4, 8, 16)


def random_fixed(rng: np.random.Generator, rows: int, width: int) -> npt.NDArray[np.uint8]:
    return rng.integers(0, 256, rows * width, np.uint8)


def random_var(
    rng: np.random.Generator, rows: int, longest: int = 40
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    start = int(rng.integers(0, 5))
    ends = start + np.concatenate([[0], np.cumsum(rng.integers(0, longest + 1, rows))])
    return ends.astype(np.int32), rng.integers(0, 256, int(ends[-1]) + int(rng.integers(0, 3)), np.uint8)


def random_rows(rng: np.random.Generator, rows: int) -> npt.NDArray[np.int64]:
    count = int(rng.integers(0, 90))
    if rows == 0:
        return np.full(count, -1, np.int64)
    return rng.integers(-1, rows, count)


def test_take_agrees_with_oracle(long: bool) -> None:
    for rng in rounds(long, 60):
        rows = int(rng.integers(0, 70))
        chosen = random_rows(rng, rows)
        for width in WIDTHS:
            values = random_fixed(rng, rows, width)
            cells = oracle.cells_of_fixed(values, width)
            got = columns.take_fixed(values, width, chosen)
            assert got.tobytes() == b"".join(oracle.take(cells, chosen.tolist(), bytes(width)))
            room = np.full(len(got), 7, np.uint8)
            assert columns.take_fixed(values, width, chosen, room) is room
            assert room.tobytes() == got.tobytes()
        for longest in (0, 3, 17, 60):
            offsets, data = random_var(rng, rows, longest)
            cells = oracle.cells_of_var(offsets, data)
            got_offsets, got_data = columns.take_var(data, offsets, chosen)
            expected = oracle.take(cells, chosen.tolist(), b"")
            assert got_offsets[0] == 0 and got_data.tobytes() == b"".join(expected)
            assert oracle.cells_of_var(got_offsets, got_data) == expected


def test_interleave_agrees_with_oracle(long: bool) -> None:
    for rng in rounds(long, 60):
        counts = rng.integers(0, 30, int(rng.integers(1, 6)))
        n = int(rng.integers(0, 100)) if counts.any() else 0
        choices = np.flatnonzero(counts) if counts.any() else np.zeros(1, np.int64)
        source = rng.choice(choices, n).astype(np.int32)
        position = (rng.random(n) * counts[source]).astype(np.int64) if n else np.zeros(0, np.int64)
        position[rng.random(n) < 0.1] = -1
        source[(position == -1) & (rng.random(n) < 0.5)] = -2  # then it is not looked at
        where = source.tolist(), position.tolist()
        for width in WIDTHS:
            parts = [random_fixed(rng, int(count), width) for count in counts]
            expected = oracle.interleave(
                [oracle.cells_of_fixed(p, width) for p in parts], *where, bytes(width)
            )
            assert columns.interleave_fixed(parts, width, source, position).tobytes() == b"".join(expected)
            target = rng.permutation(n)
            placed = columns.interleave_fixed(parts, width, source, position, None, target)
            wanted = [expected[i] for i in np.argsort(target)]
            assert placed.tobytes() == b"".join(wanted)
        var = [random_var(rng, int(count)) for count in counts]
        expected = oracle.interleave([oracle.cells_of_var(*p) for p in var], *where, b"")
        offsets, data = columns.interleave_var(var, source, position)
        assert oracle.cells_of_var(offsets, data) == expected and data.tobytes() == b"".join(expected)


@pytest.mark.parametrize("row", [-2, 3, 2**62, -(2**62)])
def test_a_row_that_does_not_exist_is_an_index_error(row: int) -> None:
    rows = np.array([0, -1, row], np.int64)
    offsets = np.array([0, 1, 2, 3], np.int32)
    source = np.zeros(3, np.int32)
    for width in WIDTHS:
        values = np.zeros(3 * width, np.uint8)
        with pytest.raises(IndexError, match=f"{row}.*position 2"):
            columns.take_fixed(values, width, rows)
        with pytest.raises(IndexError, match=f"{row}.*position 2"):
            columns.interleave_fixed([values], width, source, rows)
    with pytest.raises(IndexError):
        columns.take_var(u8(b"abc"), offsets, rows)
    with pytest.raises(IndexError):
        columns.interleave_var([(offsets, u8(b"abc"))], source, rows)


@pytest.mark.parametrize("part", [-1, 1, 2**31 - 1])
def test_a_source_that_does_not_exist_is_an_index_error(part: int) -> None:
    source, position = np.array([part], np.int32), np.zeros(1, np.int64)
    with pytest.raises(IndexError):
        columns.interleave_fixed([np.zeros(8, np.uint8)], 8, source, position)
    with pytest.raises(IndexError):
        columns.interleave_var([(np.array([0, 1], np.int32), u8(b"a"))], source, position)
    with pytest.raises(IndexError):
        columns.interleave_fixed([], 8, source, position)
    for target in (-1, 1):
        with pytest.raises(IndexError, match=rf"no row {target} of 1 to be written \(position 0\)"):
            columns.interleave_fixed(
                [np.zeros(8, np.uint8)], 8, np.zeros(1, np.int32), position, None, np.array([target])
            )
    with pytest.raises(IndexError, match=f"source {part}"):
        columns.interleave_fixed([np.zeros(8, np.uint8)], 8, source, position, None, np.zeros(1, np.int64))


@pytest.mark.parametrize("ends", [[0, 4], [-1, 2], [2, 1], [5, 9]])
def test_offsets_that_lie_are_refused(ends: list[int]) -> None:
    offsets, data = np.array(ends, np.int32), u8(b"abc")
    with pytest.raises(ValueError, match="offsets"):
        columns.take_var(data, offsets, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="offsets"):
        columns.interleave_var([(offsets, data)], np.zeros(1, np.int32), np.zeros(1, np.int64))


def test_a_column_past_2_gib_is_refused_before_it_is_allocated() -> None:
    data = np.zeros(1 << 20, np.uint8)
    offsets = np.array([0, 1 << 20], np.int32)
    rows = np.zeros(2048, np.int64)
    with pytest.raises(OverflowError):
        columns.take_var(data, offsets, rows)
    with pytest.raises(OverflowError):
        columns.interleave_var([(offsets, data)], np.zeros(2048, np.int32), rows)
    assert len(columns.take_var(data[:1024], np.array([0, 1024], np.int32), rows)[1]) == 2 << 20


def test_shapes_that_do_not_fit_are_refused() -> None:
    nothing = np.zeros(0, np.int64)
    for width in (0, 3, 5, 32, -1):
        with pytest.raises(ValueError, match="width"):
            columns.take_fixed(np.zeros(0, np.uint8), width, nothing)
        with pytest.raises(ValueError, match="width"):
            columns.interleave_fixed([], width, np.zeros(0, np.int32), nothing)
    with pytest.raises(ValueError, match="whole number"):
        columns.take_fixed(np.zeros(9, np.uint8), 8, nothing)
    for room in (0, 15, 17):
        with pytest.raises(ValueError, match=f"room of {room} bytes for 2 cells of 8"):
            columns.take_fixed(np.zeros(8, np.uint8), 8, np.zeros(2, np.int64), np.zeros(room, np.uint8))
        with pytest.raises(ValueError, match=f"room of {room} bytes for 2 cells of 8"):
            columns.interleave_fixed(
                [np.zeros(8, np.uint8)], 8, np.zeros(2, np.int32), np.zeros(2, np.int64),
                np.zeros(room, np.uint8),
            )  # fmt: skip
    with pytest.raises(ValueError, match="1 sources, 2 targets"):
        columns.interleave_fixed(
            [np.zeros(8, np.uint8)], 8, np.zeros(1, np.int32), np.zeros(1, np.int64), None,
            np.zeros(2, np.int64),
        )  # fmt: skip
    with pytest.raises(ValueError, match="positions"):
        columns.interleave_fixed([], 8, np.zeros(1, np.int32), nothing)
    with pytest.raises(ValueError, match="at least one entry"):
        columns.take_var(nothing.view(np.uint8), np.zeros(0, np.int32), nothing)


def test_short_cells_at_the_end_of_both_buffers() -> None:
    """The gather of short cells copies 16 bytes at once: never past either end."""
    for sizes in ([1], [16], [15, 1], [17, 2, 16], [3] * 9):
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        data = np.arange(int(offsets[-1]), dtype=np.uint8)
        for rows in (range(len(sizes)), range(len(sizes) - 1, -1, -1)):
            _, got = columns.take_var(data, offsets, np.array(rows, np.int64))
            assert got.tobytes() == b"".join(data[offsets[r] : offsets[r + 1]].tobytes() for r in rows)
