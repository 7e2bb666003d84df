"""Laying 10% of changes over a column of doubles, unit by unit, against copying the column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.changes.positions import ChangePositions
from kudu_core._ext.changes.replay import Updates, replay, replay_at

ROWS, UNIT = 1_048_576, 65_536
RNG = np.random.default_rng(4)
ROWIDS = RNG.permutation(ROWS)[: ROWS // 10].astype(np.uint32)
NEW = RNG.integers(0, 256, 8 * len(ROWIDS), np.uint8)
CHUNK = 65_536


def in_memory() -> list[Updates]:
    """A log in time order: full pieces, and a rest."""
    return [
        Updates(own, NEW[8 * at : 8 * (at + CHUNK)], 8, positions=ChangePositions(own))
        for at in range(0, len(ROWIDS), CHUNK)
        for own in [ROWIDS[at : at + CHUNK]]
    ]


def in_files(files: int) -> list[Updates]:
    found = []
    for k in range(files):
        order = np.argsort(ROWIDS[k::files], kind="stable")
        values = NEW.reshape(-1, 8)[k::files][order].reshape(-1)
        found.append(Updates(ROWIDS[k::files][order], values, 8, ascending=True))
    return found


FORMS = {"memory": in_memory(), "one file": in_files(1), "ten files": in_files(10)}
GROUP = "kernel: replay of 10% changes over 1,048,576 doubles"


@pytest.mark.benchmark(group=GROUP)
def test_copy(benchmark: Any) -> None:
    base, out = np.zeros(8 * ROWS, np.uint8), np.zeros(8 * ROWS, np.uint8)
    benchmark.extra_info |= {"changes": len(ROWIDS)}
    benchmark(np.copyto, out, base)


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ["all", "one in eight"])
def test_replay(benchmark: Any, form: str, rows: str) -> None:
    updates = FORMS[form]
    out = np.zeros(8 * ROWS, np.uint8)
    benchmark.extra_info |= {"changes": len(ROWIDS)}

    def all_rows() -> None:
        for first in range(0, ROWS, UNIT):
            replay(updates, out[8 * first : 8 * (first + UNIT)], 8, first, UNIT)

    def some_rows() -> None:
        for first in range(0, ROWS, UNIT):
            replay_at(updates, out[first : first + UNIT], 8, np.arange(first, first + UNIT, 8))

    benchmark(all_rows if rows == "all" else some_rows)
    assert out.any()


@pytest.mark.benchmark(group="kernel: positions of 65,536 changes")
def test_run(benchmark: Any) -> None:
    assert benchmark(ChangePositions, ROWIDS[:CHUNK]).count == CHUNK
