"""Time of the same work by several engines, in turns: the machine is shared, and a ratio is what counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Act = Callable[[int], Any]
"""Does its work once; is told the number of the call, the same for every engine."""


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds until ``budget_s`` is used up, of calls that come to ``least_s`` at least.

    A round has one call only where what is measured changes what it works on (``single``).
    """

    least_rounds: int = 3
    most_rounds: int = 9
    budget_s: float = 0.6
    least_s: float = 0.004
    single: bool = False


QUICK = Effort(1, 1, 0.0, 0.0, single=True)
"""For the answers."""


@dataclass
class Timed:
    """Seconds of one call, the least of the rounds; and the last answer with the number of its call."""

    best_s: float
    answer: Any
    call: int


def in_turns(
    acts: Mapping[str, Act],
    effort: Effort = Effort(),
    *,
    clock: Callable[[], float] = time.process_time,
    before: Callable[[str], Any] | None = None,
) -> dict[str, Timed]:
    """Call the acts one after the other, round by round.

    ``clock`` is processor time of all threads, or wall time for what waits for the disk.  ``before`` is
    called with the name of the engine before each of its rounds, and is not timed.
    """
    gc.collect()
    gc.disable()
    try:
        return _in_turns(acts, effort, clock, before)
    finally:
        gc.enable()


def _in_turns(
    acts: Mapping[str, Act],
    effort: Effort,
    clock: Callable[[], float],
    before: Callable[[str], Any] | None,
) -> dict[str, Timed]:
    calls = dict.fromkeys(acts, 0)
    first = {name: _spent(act, 0, 1, clock, before, name) for name, act in acts.items()}
    repeats = {
        name: 1 if effort.single else max(1, min(2000, int(effort.least_s / max(spent, 1e-7))))
        for name, (spent, _) in first.items()
    }
    repeat = max(repeats.values())  # of a fast engine and a slow one the same calls
    if not effort.single:
        slowest = max(spent for spent, _ in first.values())
        repeat = max(1, min(repeat, int(0.25 / max(slowest, 1e-7))))
    found = {name: Timed(spent, answer, 0) for name, (spent, answer) in first.items()}
    began = time.perf_counter()
    for number in range(effort.most_rounds):
        if number >= effort.least_rounds and time.perf_counter() - began > effort.budget_s:
            break
        for name, act in acts.items():
            begin = calls[name] + 1
            spent, answer = _spent(act, begin, repeat, clock, before, name)
            calls[name] += repeat
            found[name] = Timed(min(found[name].best_s, spent / repeat), answer, calls[name])
    return found


def _spent(
    act: Act,
    begin: int,
    repeat: int,
    clock: Callable[[], float],
    before: Callable[[str], Any] | None,
    name: str,
) -> tuple[float, Any]:
    if before is not None:
        before(name)
    answer = None
    started = clock()
    for call in range(begin, begin + repeat):
        answer = act(call)
    return clock() - started, answer
