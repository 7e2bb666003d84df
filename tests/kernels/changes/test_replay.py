"""Changes laid over any rows agree with a loop over dictionaries, however a store finds them."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.changes.positions import ChangePositions
from kudu_core._ext.changes.replay import Updates, replay, replay_at
from tests.support.oracles.changes import replay as oracle
from tests.support.rounds import FIRST_SEED, rounds

WIDTHS = (1, 2, 4, 8, 16)


def random_updates(
    rng: np.random.Generator, width: int, first: int, span: int, nullable: bool
) -> tuple[Updates, oracle.Log]:
    """Changes of rows around a range, in each of the three forms."""
    n = int(rng.choice([0, 1, 9, 300]))
    low, high = max(first - span // 2 - 20, 0), min(first + span + span // 2 + 20, 2**32)
    rowids = rng.integers(low, high, n, np.uint64).astype(np.uint32)
    form = rng.integers(0, 3)
    if form == 0:
        rowids.sort()
    values = rng.integers(0, 256, n * width, np.uint8)
    bits = rng.integers(0, 256, (n + 7) // 8, np.uint8) if nullable and rng.random() < 0.7 else None
    positions = ChangePositions(rowids) if form == 1 else None
    made = Updates(rowids, values, width, bits, positions=positions, ascending=form == 0)
    assert (made.count, made.width, made.nullable) == (n, width, bits is not None)
    assert len(made) == n * (4 + width) + (0 if bits is None else len(bits))
    flags = np.ones(n, bool) if bits is None else np.unpackbits(bits, count=n, bitorder="little") != 0
    cells = [values[k * width : (k + 1) * width].tobytes() for k in range(n)]
    return made, list(zip(rowids.tolist(), cells, flags.tolist(), strict=True))


def test_replays_agree_with_oracle(long: bool) -> None:
    for rng in rounds(long, 150):
        width = int(rng.choice(WIDTHS))
        span = int(rng.choice([1, 7, 60, 40_000]))
        first = int(rng.choice([0, 5, 16_380, 2**31 - 9, 2**32 - span]))
        nullable = bool(rng.random() < 0.5)
        made = [random_updates(rng, width, first, span, nullable) for _ in range(int(rng.integers(0, 4)))]
        updates, logs = [one for one, _ in made], [log for _, log in made]
        if rng.random() < 0.5:
            rows = np.arange(first, first + span)
        else:
            picked = np.sort(rng.choice(span, int(rng.integers(1, span + 1)), replace=False))
            rows = (first + picked).astype(np.int64)
        n = len(rows)
        out = rng.integers(0, 256, n * width, np.uint8)
        bits = rng.integers(0, 256, (n + 7) // 8, np.uint8) if nullable else None
        valid = np.ones(n) if bits is None else np.unpackbits(bits, count=n, bitorder="little")
        flags = (valid != 0).tolist()
        cells = [out[k * width : (k + 1) * width].tobytes() for k in range(n)]
        before = dict(zip(rows.tolist(), zip(cells, flags, strict=True), strict=True))
        expected = oracle.replay(before, logs)
        beside = None if bits is None else np.unpackbits(bits, bitorder="little")[n:].tolist()
        if n == span:
            again, bits_again = out.copy(), None if bits is None else bits.copy()
            replay(updates, again, width, first, n, bits_again)
        replay_at(updates, out, width, rows, bits)
        if n == span:
            assert np.array_equal(again, out) and (bits is None or np.array_equal(bits, bits_again))
        assert out.tobytes() == b"".join(cell for cell, _ in expected.values())
        if bits is not None:
            after = np.unpackbits(bits, bitorder="little")
            assert (after[:n] != 0).tolist() == [valid for _, valid in expected.values()]
            assert after[n:].tolist() == beside


def test_a_full_run_over_many_buckets() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    rowids = rng.integers(500_000, 1_500_000, 65_536).astype(np.uint32)
    values = rng.integers(0, 256, 8 * len(rowids), np.uint8)
    positions = ChangePositions(rowids)
    assert positions.count == 65_536 and positions.nbytes < 5 * len(rowids)
    parts = [Updates(rowids, values, 8, positions=positions), Updates(rowids, values, 8)]
    whole, pieces = np.zeros(8 * 1_600_000, np.uint8), np.zeros(8 * 1_600_000, np.uint8)
    replay(parts[1:], whole, 8, 0, 1_600_000)
    for first in range(0, 1_600_000, 70_000):
        rows = min(70_000, 1_600_000 - first)
        replay(parts[:1], pieces[8 * first : 8 * (first + rows)], 8, first, rows)
    assert np.array_equal(whole, pieces)
    assert whole.any()


def test_what_does_not_fit_is_refused_and_nothing_written() -> None:
    rowids, values = np.array([3, 1], np.uint32), np.zeros(16, np.uint8)
    plain, nullable = Updates(rowids, values, 8), Updates(rowids, values, 8, np.zeros(1, np.uint8))
    out, rows = np.ones(32, np.uint8), np.arange(4)
    for call in (
        lambda: Updates(rowids, values, 3),
        lambda: Updates(rowids, values, 4),
        lambda: Updates(rowids, values, 8, np.zeros(0, np.uint8)),
        lambda: Updates(rowids, values, 8, ascending=True),
        lambda: Updates(rowids, values, 8, positions=ChangePositions(rowids[:1])),
        lambda: Updates(rowids[1:], values[8:], 8, positions=ChangePositions(rowids[:1]), ascending=True),
        lambda: ChangePositions(np.zeros(65_537, np.uint32)),
        lambda: replay([plain], out, 4, 0, 4),
        lambda: replay([plain], out[:31], 8, 0, 4),
        lambda: replay([plain], out, 8, -1, 4),
        lambda: replay([plain], out, 8, 2**32 - 3, 4),
        lambda: replay([plain], out, 8, 0, -1),
        lambda: replay([nullable], out, 8, 0, 4),
        lambda: replay([nullable], out, 8, 0, 4, np.zeros(0, np.uint8)),
        lambda: replay_at([plain], out[:31], 8, rows),
        lambda: replay_at([plain], out, 4, rows),
        lambda: replay_at([plain], out, 8, rows[::-1].copy()),
        lambda: replay_at([plain], out, 8, np.array([0, 2, 1, 3])),
        lambda: replay_at([plain], out, 8, np.array([0, 5, 1, 3])),
        lambda: replay_at([plain], out, 8, np.array([0, 1, 1, 3])),
        lambda: replay_at([plain], out, 8, np.array([-1, 1, 2, 3])),
        lambda: replay_at([plain], out, 8, np.array([0, 1, 2, 2**30])),
        lambda: replay_at([nullable], out, 8, rows),
        lambda: replay_at([nullable], out, 8, rows, np.zeros(0, np.uint8)),
    ):
        with pytest.raises(ValueError):
            call()
    assert (out == 1).all()
    replay([], out, 8, 0, 4)
    replay([plain], out, 8, 7, 0)
    replay_at([plain], out, 8, rows[:0])
    assert (out == 1).all()
