"""Everything at once, against a model: ``tests/support/models/mixed.py``.  ``--long`` goes on for an hour."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.support.models.mixed import Mixed

STEPS = 60
HISTORIES = 2
LONG_S = 3600


def play(seed: int) -> None:
    history = Mixed(seed)
    try:
        history.run(STEPS)
    except BaseException as error:
        error.add_note(f"Mixed({seed}), after {len(history.done)} steps: {', '.join(history.done[-12:])}")
        raise


@pytest.mark.timeout(2 * LONG_S)
def test_mixed_histories(seed: int, long: bool) -> None:
    until = time.monotonic() + LONG_S
    for number in itertools.count(seed * 1000):
        if time.monotonic() >= until if long else number >= seed * 1000 + HISTORIES:
            break
        play(number)
