"""What the zone maps of a column say of its pages, beside the cells that lie in them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kudu_core.cfile.columns.specs import ZONE_PRESENT, index_layout
from kudu_core.cfile.columns.zone_table import EVERY_ROW, NO_ROW, SOME_ROWS, ZoneTable
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.sets import places_of


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_states_of_pages_say_what_their_cells_say(seed: int, share: float, null: bool) -> None:
    """``share`` of the cells are NULL, or NaN."""
    rng, type_ = np.random.default_rng(seed), ColumnType.from_arrow(pa.float64())
    for _ in range(100):
        index = np.zeros(20, index_layout(8))
        cells = np.sort(rng.integers(0, 30, (20, 3)), axis=1).astype(np.float64)
        nulls, nans = rng.random((20, 3)) < share, rng.random((20, 3)) < share / 3
        for page in range(20):
            index["nulls"][page] = nulls[page].sum()
            index["nans"][page] = (nans & ~nulls)[page].sum()
            there = cells[page][~nulls[page] & ~nans[page]]
            if len(there):
                index["flags"][page] = ZONE_PRESENT
                index["low"][page] = np.frombuffer(there.min().tobytes(), np.uint8)
                index["high"][page] = np.frombuffer(there.max().tobytes(), np.uint8)
        ends = np.sort(rng.choice(30, 2 * int(rng.integers(0, 4)), replace=False)).reshape(-1, 2)
        spans = places_of(type_, ends.astype(np.float64).reshape(-1, 1).view(np.uint8)).reshape(-1, 2)
        open_ended = bool(len(ends)) and rng.random() < 0.5
        if open_ended:  # NaN, whose place is beyond the numbers, passes too
            spans[-1, 1], ends[-1, 1] = 2**64 - 1, 30
        states = ZoneTable(type_, None, index, np.full(20, 3)).states(spans, null)
        for page, state in enumerate(states.tolist()):
            among = [any(a <= cell <= b for a, b in ends.tolist()) for cell in cells[page].tolist()]
            passes = np.where(nulls[page], null, np.where(nans[page], open_ended, among)).tolist()
            assert state != NO_ROW or not any(passes)
            assert state != EVERY_ROW or all(passes)
            if not nulls[page].any() and not nans[page].any():
                low, high = cells[page].min(), cells[page].max()
                known = SOME_ROWS if any(a <= high and b >= low for a, b in ends.tolist()) else NO_ROW
                if any(a <= low and high <= b for a, b in ends.tolist()):
                    known = EVERY_ROW
                assert state == known
