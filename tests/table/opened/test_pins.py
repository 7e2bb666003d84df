"""Pins of snapshots, beside the collector."""

from __future__ import annotations

import pytest

from kudu_core.errors import SnapshotTooOld
from kudu_core.table.opened.pins import Pins
from tests.support.fs.slow import LATE_S, Thread


def test_h1_the_collector_may_unpin_in_the_middle_of_a_pin() -> None:
    pins = Pins(0)
    entered: list[int] = []
    held = [pins.pin(1)]

    class Snapshot(int):
        def __hash__(self) -> int:
            if not entered:
                entered.append(1)
                held.pop().release()
            return super().__hash__()

    pin = Thread(lambda: held.append(pins.pin(Snapshot(5))))
    pin.join(LATE_S)
    assert not pin.is_alive() and len(pins) == 1
    held.clear()
    assert not len(pins)


def test_h2_the_floor_stays_below_tags() -> None:
    pins = Pins(3, [7, 5])
    assert pins.horizon(9, drop=False) == 5 == pins.oldest and pins.floor == 3
    held = pins.pin(4)
    assert pins.horizon(9, drop=True) == 4 == pins.floor
    held.release()
    pins.keep([7])
    assert pins.horizon(9, drop=True) == 7
    pins.keep([])
    assert pins.horizon(9, drop=True) == 9 and pins.oldest is None and not len(pins)
    with pytest.raises(SnapshotTooOld):
        pins.pin(8)
