"""The protocol as specified: random runs in several worlds show no violation."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.model.rules import AS_SPECIFIED, Environment
from tests.model.sim import run

WORLDS = {
    "five-keys": (Environment(), 200, 15_000),
    "two-keys": (Environment(keys=2, steps=250), 40, 2_500),
    "delete-insert": (Environment(keys=4, steps=200, delete_insert=True), 40, 1_500),
    "one-tablet": (Environment(keys=2, partitions=1, steps=250), 15, 1_500),
    "short-segments": (Environment(keys=2, steps=250, segment_records=3), 15, 1_500),
    "contested": (Environment(contested=True), 20, 1_500),
    "no-flush-in-replay": (Environment(flush_in_replay=False), 20, 1_500),
}
HAPPENED = {
    "five-keys": [
        "reader accepted",
        "reader again",
        "reader alone accepted",
        "died in replay",
        "kill",
        "power",
        "close",
        "takeover",
        "refused without record",
        "refused without manifest",
        "refused without end",
    ]
}


def explore(world: str, first: int, count: int) -> tuple[list[str], Counter[str]]:
    """``count`` runs from seed ``first``: the violations, and how often each thing has happened."""
    violations, counts = [], Counter[str]()
    for seed in range(first, first + count):
        outcome = run(seed, AS_SPECIFIED, WORLDS[world][0])
        counts += outcome.counts
        if outcome.violation:
            violations.append(f"world {world}, seed {seed}: {outcome.violation}")
    return violations, counts


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.timeout(7200)
def test_protocol_as_specified_shows_no_violation(world: str, long: bool, seed: int) -> None:
    _, short_count, long_count = WORLDS[world]
    if not long:
        violations, counts = explore(world, seed, short_count)
    else:
        half = long_count // 2
        violations, counts = [], Counter[str]()
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            starts = (seed, seed + half)
            for found, happened in pool.map(explore, [world] * 2, starts, (half, long_count - half)):
                violations += found
                counts += happened
    assert violations == []
    for what in HAPPENED.get(world, []):
        assert counts[what], f"no run had: {what}"


def test_equal_seeds_give_equal_runs() -> None:
    assert run(7).trace == run(7).trace
