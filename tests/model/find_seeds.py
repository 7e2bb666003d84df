"""Search for runs that catch each shortcut and record them in ``shortcuts.json``.

    python -m tests.model.find_seeds [--runs N] [name ...]

Without names every shortcut whose recorded run no longer catches it is searched anew.  Harm that a user
sees is wanted first; a shortcut that shows none in N seeds is looked for with the invariants on.
``search`` serves the model in ``objects/`` too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from tests.model.rules import SHORTCUTS, Environment, shortcut
from tests.model.sim import run

RECORDED = Path(__file__).with_name("shortcuts.json")
WORLDS: tuple[dict[str, Any], ...] = (
    {},
    {"contested": True},
    {"keys": 2},
    {"segment_records": 3},
    {"keys": 2, "steps": 250, "segment_records": 3},
    {"keys": 4, "steps": 200, "delete_insert": True},
    {"keys": 2, "partitions": 1, "steps": 250},
)
WORDS = 6  # of a violation are recorded: what follows are times of that very run


def first_words(violation: str) -> str:
    """The beginning of a violation, without its numbers but for the invariant's."""
    words = violation.split()[: WORDS + 1]
    return " ".join([words[0], *(word for word in words[1:] if word.isalpha())]) if words else ""


class Recorded(TypedDict):
    seed: int
    environment: dict[str, int | bool]
    violation: str


def find(name: str, runs: int) -> Recorded | None:
    """The first run that catches a shortcut by a violation, not by stumbling over it."""
    for invariants in (False, True):
        for seed in range(runs):
            for world in WORLDS:
                environment = Environment(invariants=invariants, **world)
                violation = run(seed, shortcut(name), environment).violation
                if violation and "Error" not in violation.split(":")[0]:
                    known = asdict(environment)
                    changed = {k: v for k, v in known.items() if v != asdict(Environment())[k]}
                    return {"seed": seed, "environment": changed, "violation": first_words(violation)}
    return None


def still_caught(name: str, recorded: Recorded) -> bool:
    environment = Environment(**recorded["environment"])  # type: ignore[arg-type]
    violation = run(recorded["seed"], shortcut(name), environment).violation
    return bool(violation) and first_words(violation) == recorded["violation"]


def recorded_in(path: Path) -> dict[str, Any]:
    """By the name of the shortcut."""
    if not path.exists():
        return {}
    table: dict[str, Any] = json.loads(path.read_text())
    return table


def search(
    about: str,
    path: Path,
    shortcuts: Iterable[str],
    find: Callable[[str, int], Any],
    still_caught: Callable[[str, Any], bool],
    runs: int,
) -> int:
    """The command: find runs for the shortcuts that are named, or whose recorded run no longer catches them.

    ``find(name, runs)``: what is to be recorded, None where so many seeds catch nothing; a function of a
    module, as other processes call it.
    """
    parser = argparse.ArgumentParser(description=about.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=runs, help="seeds per shortcut and world")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    every = list(shortcuts)
    known = {name: recorded for name, recorded in recorded_in(path).items() if name in every}
    names = arguments.names or [n for n in every if n not in known or not still_caught(n, known[n])]
    missing = 0
    with ProcessPoolExecutor(2) as pool:
        for name, found in zip(names, pool.map(find, names, [arguments.runs] * len(names)), strict=True):
            sys.stdout.write(f"{name}: {found}\n")
            sys.stdout.flush()
            if found is None:
                missing += 1
            else:
                known[name] = found
                rows = {n: known[n] for n in every if n in known}
                lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(row)}" for n, row in rows.items())
                path.write_text("{\n" + lines + "\n}\n")
    return 1 if missing else 0


def load() -> dict[str, Recorded]:
    return recorded_in(RECORDED)


if __name__ == "__main__":
    sys.exit(search(__doc__ or "", RECORDED, SHORTCUTS, find, still_caught, 3000))
