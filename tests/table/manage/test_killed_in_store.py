"""A process that drops a table in an object store, or clones one into it, killed at each of its requests."""

from __future__ import annotations

from contextlib import suppress

import pytest

import kudu_core as kc
from tests.support.fs.faulty import SimulatedCrash
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL, created, end_lease, opened, rows_of

FATES = ["crash before", "crash after"]
ROWS = {n: n for n in range(10)}


def dropped(fate: str, nth: int) -> bool | None:
    """Whether the table is gone; None where there was no ``nth`` request."""
    memory = MemoryObjectStore()
    with created(memory, tablets=2) as table:
        table.insert([{"k": n, "v": n} for n in ROWS])
        table.flush()
    faulty = FaultyStore(memory, [Rule(fate, nth=nth)])  # type: ignore[arg-type]
    with suppress(SimulatedCrash):
        kc.drop_table(URL, _requests=faulty)
    if not faulty.crashed:
        return None
    end_lease(memory)
    try:
        with opened(memory, "rw") as table:
            assert rows_of(table) == ROWS
            table.verify()
    except kc.TableNotFound:
        assert kc.drop_table(URL, _requests=memory) == ()
        assert {name for name in memory.objects if not name.startswith("log/")} == {"DROPPED", "LEASE"}
        with pytest.raises(kc.TableExists):
            created(memory)
        return True
    return False


@pytest.mark.parametrize("fate", FATES)
def test_a_drop(fate: str) -> None:
    outcomes = []
    while (outcome := dropped(fate, len(outcomes) + 1)) is not None:
        outcomes.append(outcome)
    assert outcomes == sorted(outcomes) and set(outcomes) == {False, True}, "from one request on it is gone"


def cloned(source: kc.Table, at: int, fate: str, nth: int) -> bool | None:
    """Whether the clone is there; None likewise."""
    memory = MemoryObjectStore()
    faulty = FaultyStore(memory, [Rule(fate, nth=nth)])  # type: ignore[arg-type]
    with suppress(SimulatedCrash):
        source.clone(URL, at, _requests=faulty)
    if not faulty.crashed:
        return None
    end_lease(memory)
    there = True
    try:
        opened(memory).close()
    except kc.TableNotFound:
        there = False
        source.clone(URL, at, _requests=memory)
    with opened(memory, "rw") as clone:
        assert rows_of(clone) == ROWS
        clone.verify()
    return there


@pytest.mark.parametrize("fate", FATES)
def test_a_clone(fate: str) -> None:
    with created(MemoryObjectStore(), tablets=2) as source:
        at = source.insert([{"k": n, "v": n} for n in ROWS]).timestamp
        source.delete([1])
        outcomes = []
        while (outcome := cloned(source, at, fate, len(outcomes) + 1)) is not None:
            outcomes.append(outcome)
    assert outcomes == sorted(outcomes) and set(outcomes) == {False, True}
