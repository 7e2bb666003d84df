"""A patch says of each row what was changed last, whatever it is made of, and survives what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.changes.patch import Patch
from kudu_core._ext.changes.replay import Updates
from tests.kernels.changes.test_replay import WIDTHS, random_updates
from tests.support.oracles.changes import patch as oracle
from tests.support.oracles.changes.replay import replay
from tests.support.rounds import rounds


def test_patches_agree_with_oracle(long: bool) -> None:
    for rng in rounds(long, 150):
        width, rows = int(rng.choice(WIDTHS)), int(rng.choice([0, 1, 63, 64, 65, 1024, 5000]))
        nullable = bool(rng.random() < 0.5)
        made = [random_updates(rng, width, 0, max(rows, 1), nullable) for _ in range(int(rng.integers(0, 5)))]
        updates, logs = [one for one, _ in made], [log for _, log in made]
        expected = oracle.net(logs, rows)
        cut = int(rng.integers(0, len(made) + 1))
        # At once, or on top of an older patch, which may lie between others.
        older = Patch(list(updates[:cut]), width, rows)
        forms = [
            Patch(list(updates), width, rows, "all"),
            Patch([older, *updates[cut:]], width, rows, "all"),
            Patch(
                [Patch([], width, rows), older, Patch(list(updates[cut:]), width, rows)], width, rows, "all"
            ),
        ]
        for patch in forms:
            assert (patch.width, patch.rows, patch.count) == (width, rows, len(expected))
            assert patch.source == "all" and patch.nullable == any(one.nullable for one in updates)
            assert len(patch) >= width * patch.count
            check_lay(rng, patch, expected)


def check_lay(rng: np.random.Generator, patch: Patch, expected: dict[int, tuple[bytes, bool]]) -> None:
    width = patch.width
    first = int(rng.integers(0, patch.rows + 1))
    n = int(rng.integers(0, patch.rows - first + 1))
    cells = rng.integers(0, 256, n * width + 3, np.uint8)
    bits = rng.integers(0, 256, (n + 7) // 8 + 1, np.uint8)
    flags = np.unpackbits(bits, bitorder="little") != 0
    before = {first + k: (cells[k * width : (k + 1) * width].tobytes(), bool(flags[k])) for k in range(n)}
    wanted = replay(before, [[(row, *change) for row, change in expected.items()]])
    with_bits = patch.nullable or rng.random() < 0.5
    rest, rest_flags = cells[n * width :].tobytes(), flags[n:].copy()
    patch.lay(cells, first, n, bits if with_bits else None)
    found_flags = np.unpackbits(bits, bitorder="little") != 0
    for k in range(n):
        cell, valid = wanted[first + k]
        assert cells[k * width : (k + 1) * width].tobytes() == cell
        assert not with_bits or found_flags[k] == valid
    assert cells[n * width :].tobytes() == rest and (found_flags[n:] == rest_flags).all()


def updates_of(rowids: list[int], width: int, null: bool = False) -> Updates:
    bits = np.zeros((len(rowids) + 7) // 8, np.uint8) if null else None
    return Updates(np.array(rowids, np.uint32), np.zeros(len(rowids) * width, np.uint8), width, bits)


def test_what_does_not_fit_is_refused() -> None:
    good = Patch([updates_of([1, 5], 8)], 8, 10)
    with pytest.raises(ValueError, match="width"):
        Patch([updates_of([1], 4)], 8, 10)
    with pytest.raises(ValueError, match="3 bytes"):
        Patch([], 3, 10)
    with pytest.raises(ValueError, match="cells"):
        Patch([], 8, -1)
    with pytest.raises(ValueError, match="10 cells of 8"):
        Patch([good], 8, 11)
    with pytest.raises(TypeError):
        Patch(["x"], 8, 10)  # type: ignore[list-item]
    for first, n in ((-1, 2), (0, -1), (9, 2), (0, 11)):
        with pytest.raises(ValueError, match="rows from"):
            good.lay(np.zeros(200, np.uint8), first, n)
    with pytest.raises(ValueError, match="do not fit"):
        good.lay(np.zeros(7, np.uint8), 0, 1)
    with pytest.raises(ValueError, match="bitmap of 1"):
        good.lay(np.zeros(80, np.uint8), 0, 9, np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="no bitmap"):
        Patch([updates_of([1], 8, null=True)], 8, 10).lay(np.zeros(80, np.uint8), 0, 10)
