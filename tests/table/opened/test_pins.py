"""Pins of snapshots, beside the collector."""

from __future__ import annotations

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
