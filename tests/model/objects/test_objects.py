"""The protocol for object stores: random runs show no violation, and each shortcut is caught by its run."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.model.find_seeds import first_words
from tests.model.objects.find_seeds import environment, load
from tests.model.objects.rules import AS_SPECIFIED, SAFE, SHORTCUTS, WORLDS, Rules, shortcut
from tests.model.objects.sim import run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocol-objects.md"
RECORDED = load()
COUNTS = {
    "mixed": (60, 20_000),
    "upkeep": (60, 25_000),
    "zombies": (60, 15_000),
    "readers": (40, 15_000),
    "long-grace": (40, 5_000),
    "jobs": (40, 10_000),
    "sweeps": (40, 5_000),
    "one-job": (40, 5_000),
}
HAPPENED = (
    "read", "followed", "reader again", "settled", "fenced", "killed", "poisoned", "proved", "closed",
    "flush", "merge", "ingest", "alter", "checkpoint", "deleted", "job committed", "job refused",
    "given up", "swept",
)  # fmt: skip


def explore(
    world: str, first: int, count: int, rules: Rules = AS_SPECIFIED
) -> tuple[list[str], Counter[str]]:
    """``count`` runs from seed ``first``: the violations, and how often each thing has happened."""
    violations, counts = [], Counter[str]()
    for seed in range(first, first + count):
        outcome = run(seed, rules, WORLDS[world])
        counts += outcome.counts
        if outcome.violation:
            violations.append(f"world {world}, seed {seed}: {outcome.violation}")
    return violations, counts


@pytest.mark.timeout(7200)
def test_protocol_as_specified_shows_no_violation(long: bool, seed: int) -> None:
    violations, counts = [], Counter[str]()
    pieces = []
    for world, (short_count, long_count) in COUNTS.items():
        count = long_count if long else short_count
        pieces += [(world, seed + n, min(500, count - n)) for n in range(0, count, 500)]
    if long:
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(explore, *zip(*pieces, strict=True)))
    else:
        found = [explore(*piece) for piece in pieces]
    for shown, happened in found:
        violations += shown
        counts += happened
    assert violations == []
    assert [what for what in HAPPENED if not counts[what]] == []


def test_equal_seeds_give_equal_runs() -> None:
    assert run(7).trace == run(7).trace


def test_each_rule_names_a_shortcut_and_each_shortcut_has_a_rule() -> None:
    _head, *rules = re.split(r"^\*\*(?=B\d+\*\* )", PAGE.read_text(), flags=re.M)
    assert len(rules) == 14
    named = set()
    for rule in rules:
        of_rule = set(re.findall(r"`([a-z-]+)`", rule)) & (SHORTCUTS.keys() | SAFE.keys())
        assert of_rule, rule[:4]
        named |= of_rule
    assert named == SHORTCUTS.keys() | SAFE.keys()


def test_every_shortcut_has_a_recorded_run() -> None:
    assert list(RECORDED) == list(SHORTCUTS)


@pytest.mark.parametrize("name", SHORTCUTS)
def test_shortcut_is_caught(name: str) -> None:
    recorded = RECORDED[name]
    outcome = run(recorded["seed"], shortcut(name), environment(name, recorded["world"]))
    assert first_words(outcome.violation) == recorded["violation"], SHORTCUTS[name][1]


@pytest.mark.parametrize("name", SHORTCUTS)
def test_the_same_run_without_the_shortcut_is_clean(name: str) -> None:
    recorded = RECORDED[name]
    assert run(recorded["seed"], environment=environment(name, recorded["world"])).violation == ""


@pytest.mark.parametrize("name", SAFE)
def test_safe_shortcut_shows_no_violation(name: str, long: bool, seed: int) -> None:
    for world in WORLDS:
        assert explore(world, seed, 3000 if long else 15, shortcut(name))[0] == [], SAFE[name][1]


def test_who_believes_exists_commits_less() -> None:
    """The price of the first of the two: healthy writers fence themselves."""
    told = [explore("mixed", 0, 40, rules)[1] for rules in (AS_SPECIFIED, shortcut("exists-believed"))]
    assert told[1]["acknowledged"] < 0.95 * told[0]["acknowledged"]
