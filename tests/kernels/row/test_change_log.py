"""Changes of rows in memory: the last word on each column wins, at every snapshot, however long the chain."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kudu_core._ext.row.shape import MISSING
from tests.kernels.row.changing import (
    IDS,
    SHAPE,
    append,
    by_position,
    change_points,
    newest_values,
    random_changes,
)
from tests.support.oracles.row import view as oracle


def test_changes_in_memory(seed: int, long: bool) -> None:
    for round_ in range(200 if long else 20):
        r = random.Random(f"{seed} {round_}")
        changes = random_changes(r, r.choice([1, 5, 40]), r.choice([1, 30, 300]))
        log = change_points()
        looked = r.randrange(len(changes))  # here the index of a hot row may be made; it grows later
        for number, (ts, row, op, values) in enumerate(changes):
            append(log, ts, op, row, values)
            if number >= looked:
                log.row(row, ts, SHAPE)
        assert log.liveness == sum(c[2] >= 2 for c in changes)
        for row in range(41):
            assert log.touched(row) == any(c[1] == row for c in changes)
            for at in (0, changes[0][0], r.choice(changes)[0], changes[-1][0], 2**64 - 1):
                lives, values = log.row(row, at, SHAPE)
                expected = by_position(oracle.row_after(changes, row, at))
                assert (lives, {} if lives is False else values) == expected, (round_, row, at)


def test_the_newest_change_of_many_rows_in_memory(seed: int, long: bool) -> None:
    for round_ in range(200 if long else 20):
        r = random.Random(f"{seed} {round_}")
        changes = random_changes(r, r.choice([1, 5, 40]), r.choice([1, 30, 300]))
        log = change_points()
        seen: set[int] = set()  # a column that nothing has set has no log yet
        for ts, row, op, values in changes:
            append(log, ts, op, row, values)
            seen.update(values)
            if r.random() < 0.05 and IDS[0] in seen:
                log.newest(IDS[0], np.array([row]), len(changes))
        limit = r.randrange(len(changes) + 1)
        for column in IDS:
            sets = [n for n, c in enumerate(changes) if column in c[3]]
            if not sets:
                continue
            expected = {changes[n][1]: place for place, n in enumerate(sets) if n < limit}
            assert newest_values(log, column, 41, limit) == expected, (round_, column)
        deaths = {c[1]: n for n, c in enumerate(changes[:limit]) if c[2] >= 2}
        assert newest_values(log, None, 41, limit) == deaths


def test_a_hot_row_costs_no_walk() -> None:
    """10,000 changes of a row are indexed once: afterwards a read looks at what came since."""
    log = change_points()
    for ts in range(1, 10_001):
        append(log, ts, 1, 7, {IDS[0]: ts})
    assert log.nbytes == 0
    assert log.row(7, 2**63, SHAPE) == (None, {0: 10_000})
    size = log.nbytes
    assert 40_000 <= size <= 41_500
    for at in (1, 4_999, 10_000):
        assert log.row(7, at, SHAPE) == (None, {0: at})
    assert log.nbytes == size
    append(log, 10_001, 2, 7, {})
    assert log.row(7, 10_000, SHAPE) == (None, {0: 10_000})
    assert log.row(7, 10_001, SHAPE)[0] is False
    assert log.nbytes == size + 4


def test_a_change_without_its_column_does_nothing() -> None:
    log = change_points()
    assert log.reserve_one(IDS, [MISSING, b"x", MISSING]) == 1
    assert not log.touched(7)
    assert log.reserve_one(IDS, [MISSING] * 3) == -1
    log.append_one(1, 2, 7, IDS, [MISSING] * 3)
    assert log.row(7, 1, SHAPE) == (False, {})
    with pytest.raises(ValueError):
        log.append_one(2, 1, 7, IDS, [MISSING])
