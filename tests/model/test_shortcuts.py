"""Each shortcut of the protocol is caught, by the run recorded for it in ``shortcuts.json``."""

from __future__ import annotations

import pytest

from tests.model.find_seeds import first_words, load
from tests.model.rules import SHORTCUTS, Environment, shortcut
from tests.model.sim import run

RECORDED = load()


def test_every_shortcut_has_a_recorded_run() -> None:
    assert list(RECORDED) == list(SHORTCUTS)


@pytest.mark.parametrize("name", SHORTCUTS)
def test_shortcut_is_caught(name: str) -> None:
    recorded = RECORDED[name]
    environment = Environment(**recorded["environment"])  # type: ignore[arg-type]
    outcome = run(recorded["seed"], shortcut(name), environment)
    assert first_words(outcome.violation) == recorded["violation"], SHORTCUTS[name][1]


@pytest.mark.parametrize("name", SHORTCUTS)
def test_the_same_run_without_the_shortcut_is_clean(name: str) -> None:
    recorded = RECORDED[name]
    environment = Environment(**{**recorded["environment"], "invariants": True})  # type: ignore[arg-type]
    assert run(recorded["seed"], environment=environment).violation == ""
