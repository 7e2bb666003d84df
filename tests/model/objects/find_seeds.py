"""Search for runs that catch each shortcut and record them in ``shortcuts.json``.

    python -m tests.model.objects.find_seeds [--runs N] [name ...]

Without names every shortcut whose recorded run no longer catches it is searched anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from tests.model.find_seeds import first_words
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
    if not RECORDED.exists():
        return {}
    table: dict[str, Recorded] = json.loads(RECORDED.read_text())
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000, help="seeds per shortcut and world")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    known = {name: recorded for name, recorded in load().items() if name in SHORTCUTS}
    names = arguments.names or [n for n in SHORTCUTS if n not in known or not still_caught(n, known[n])]
    missing = 0
    with ProcessPoolExecutor(2) as pool:
        for name, found in zip(names, pool.map(find, names, [arguments.runs] * len(names)), strict=True):
            sys.stdout.write(f"{name}: {found}\n")
            sys.stdout.flush()
            if found is None:
                missing += 1
            else:
                known[name] = found
                rows = {n: known[n] for n in SHORTCUTS if n in known}
                lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(row)}" for n, row in rows.items())
                RECORDED.write_text("{\n" + lines + "\n}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
