"""Flags that grow, against a numpy array."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kudu_core._ext.columns.flags import AppendFlags


def test_as_an_array(seed: int) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} flags")
    flags, expected = AppendFlags(), np.empty(0, np.uint8)
    for _ in range(200):
        count, flag = r.choice([0, 1, 1, 7, 1000, 1025]), r.random() < 0.5
        if r.random() < 0.5:
            flags.reserve(count)
            room = flags.nbytes
            flags.append(count, flag)
            assert flags.nbytes == room >= len(flags)
        else:
            flags.append(count, flag)
        expected = np.append(expected, np.full(count, flag, np.uint8))
        if len(expected) and r.random() < 0.5:
            rows = [r.randrange(len(expected)) for _ in range(3)]
            flags.clear(rows)
            expected[rows] = 0
        if len(expected):
            row = r.randrange(len(expected))
            assert flags.is_set(row) is bool(expected[row])
            flags.flags[row] = expected[row] = 1
        assert len(flags) == len(expected) and np.array_equal(flags.flags, expected)


def test_room_is_made_twice_as_large() -> None:
    flags = AppendFlags()
    first = flags.nbytes
    flags.append(first, True)
    assert flags.nbytes == first
    flags.append(1, True)
    assert flags.nbytes == 2 * first
    flags.reserve(10 * first)
    assert flags.nbytes == 11 * first + 1


@pytest.mark.parametrize("row", [-1, 2, 1 << 40])
def test_rows_that_are_not_there(row: int) -> None:
    flags = AppendFlags()
    flags.append(2, True)
    with pytest.raises(IndexError, match="no flag"):
        flags.is_set(row)
    with pytest.raises(IndexError, match="no flag"):
        flags.clear([row])


def test_wrong_arguments() -> None:
    flags = AppendFlags()
    for act in (flags.reserve, lambda count: flags.append(count, True)):
        with pytest.raises(ValueError, match="room for -1"):
            act(-1)
    with pytest.raises(TypeError):
        flags.clear(None)  # type: ignore[arg-type]
