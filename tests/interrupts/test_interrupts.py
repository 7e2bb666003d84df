"""Ctrl-C in every public call, at every place where it can come: nothing is left held, hanging or half done.

``test_places_of_a_call`` raises ``KeyboardInterrupt`` at places of a call one after the other (``--long``:
at all where a lock changes hands and 200 others; another share with each ``--seed``).  After each the table
is at rest, the call was applied wholly or not at all, and the table goes on, or, where the log holds what
memory does not, says that it is poisoned and opens anew.
"""

from __future__ import annotations

import gc
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core._ext.base.holding import HeldLocks
from tests.support import interrupts
from tests.support.cases.interrupted import CALLS, SCHEMA, World, go_on, prepare
from tests.support.inside import engine_of
from tests.support.interrupts import (
    Interruption,
    chosen,
    interrupted,
    is_held,
    locks_of,
    places_of,
)

DURABILITY = {
    "upsert": ("sync", "group", "none"),
    "row": ("group", "none"),
    "few rows": ("group",),
    "flush": ("group",),
    "close": ("none",),
}


@pytest.mark.usefixtures("watchdog")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("durability", ["sync", "group", "none"])
@pytest.mark.parametrize("name", CALLS)
def test_places_of_a_call(tmp_path: Path, name: str, durability: str, long: bool, seed: int) -> None:
    if not long and durability not in DURABILITY.get(name, ("sync",)):
        pytest.skip("--long")
    call = CALLS[name]
    options: dict[str, Any] = {"durability": durability}
    if name == "spilled":
        options["memory_limit_bytes"] = 32 << 20
    w = World(tmp_path, options)
    prepare(w, name)
    places, turns = places_of(lambda: call(w), locks_of(engine_of(w.table)))
    most = len(turns) if (name, durability) == ("upsert", "sync") else 2
    for at in chosen(places, turns, long, random.Random(seed), most):
        if name in ("close", "open"):
            w.table = w.made.pop() if w.made else w.opened("rw")
            w.made.clear()
        prepare(w, name)
        before = w.number
        done, interruption = interrupted(lambda: call(w), at)
        where = f"place {at} of {places}: {interruption.where}"
        print(where, "done" if done else "interrupted")
        go_on(w, before, name, where)
        if name in ("close", "open"):
            w.table.close()
        for folder in tmp_path.iterdir():
            if folder.name not in ("t", "kept"):
                shutil.rmtree(folder)
    if name not in ("close", "open"):
        w.table.close()
    with kc.open_table(tmp_path / "t") as table:
        table.verify()


# ---- the tool ----


def _by_stack(lock: Any) -> None:
    with ExitStack() as stack:
        stack.enter_context(lock)


def _by_condition(lock: Any) -> None:
    with threading.Condition(lock):  # noqa: PLW2101
        pass


def _plainly(lock: Any) -> None:
    with lock:
        pass


def _by_helper(lock: Any) -> None:
    with HeldLocks([lock]):
        pass


def _left_held(take: Callable[[Any], None]) -> list[str]:
    """Where an interrupt leaves the lock held."""
    found = []
    at = 0
    while True:
        at += 1
        lock = threading.Lock()
        with Interruption(at) as interruption:
            try:  # noqa: SIM105  contextlib would be interrupted too
                take(lock)
            except KeyboardInterrupt:
                pass
        if interruption.count < at:
            return found
        gc.collect(0)
        if is_held(lock):
            found.append(interruption.where)


def test_the_tool_finds_locks_that_are_left_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the ways of taking a lock that the package does without, and in no other."""
    monkeypatch.setattr(interrupts, "TRACED", (*interrupts.TRACED, "/tests/interrupts/"))
    monkeypatch.setattr(interrupts, "UNTRACED", "/tests/support/")
    for take in (_by_stack, _by_condition):
        assert _left_held(take), take
    for take in (_plainly, _by_helper):
        assert not _left_held(take), take


def test_places_after_a_lock_was_taken_are_found(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        engine = engine_of(table)
        locks = locks_of(engine)
        assert engine.altering in locks and engine.log.mutex in locks
        assert all(t.mutex in locks and t.flush_lane in locks for t in engine.tablets)
        places, turns = places_of(lambda: table.upsert({"k": [1], "v": [1], "s": ["a"]}), locks)
        assert 5 < len(turns) < places
