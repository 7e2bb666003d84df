"""Search for runs that catch each shortcut and record them in ``shortcuts.json``.

    python -m tests.model.objects.find_seeds [--runs N] [name ...]

Without names every shortcut whose recorded run no longer catches it is searched anew.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from tests.model.find_seeds import first_words, recorded_in, search
from tests.model.objects.rules import SHORTCUTS, WORLDS, Environment, shortcut
from tests.model.objects.sim import run

RECORDED = Path(__file__).with_name("shortcuts.json")
BROKEN = 0.05  #: of conditional puts, where a store that breaks its own conditions is wanted
WITH_BROKEN_STORE = {"unchained"}


class Recorded(TypedDict):
    seed: int
    world: str
    violation: str


def environment(name: str, world: str) -> Environment:
    """The world in which a shortcut is looked for."""
    return replace(WORLDS[world], broken=BROKEN) if name in WITH_BROKEN_STORE else WORLDS[world]


def find(name: str, runs: int) -> Recorded | None:
    """The first run that catches a shortcut by a violation, and is clean without it."""
    for seed in range(runs):
        for world in WORLDS:
            violation = run(seed, shortcut(name), environment(name, world)).violation
            if not violation or "Error" in violation.split(":")[0]:
                continue
            if not run(seed, environment=environment(name, world)).violation:
                return {"seed": seed, "world": world, "violation": first_words(violation)}
    return None


def still_caught(name: str, recorded: Recorded) -> bool:
    violation = run(recorded["seed"], shortcut(name), environment(name, recorded["world"])).violation
    return bool(violation) and first_words(violation) == recorded["violation"]


def load() -> dict[str, Recorded]:
    return recorded_in(RECORDED)


if __name__ == "__main__":
    sys.exit(search(__doc__ or "", RECORDED, SHORTCUTS, find, still_caught, 10_000))
