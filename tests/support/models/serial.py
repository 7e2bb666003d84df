"""Whether a history of transactions is as if each had run alone, at the time of its record.

Each transaction says what it makes of a state, and refuses one in which it would have seen or told something
else.  They are replayed in the order of their timestamps.  Nothing may go back either: who began after
another one was answered comes after it.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

State = dict[Any, Any]
Effect = Callable[[State], Mapping[Any, Any]]
"""What a transaction writes in a state, None for rows that are gone; ``NotSerial`` where it does not fit."""


class NotSerial(AssertionError):
    """No order of the transactions explains what they saw."""


@dataclass(frozen=True, slots=True)
class Transaction:
    timestamp: int
    effect: Effect
    name: str
    began: int
    ended: int
    writes: bool
    """It has a record; else it saw the state of its timestamp."""


@dataclass
class Recorded:
    """The transactions of one table, of any number of threads."""

    transactions: list[Transaction] = field(default_factory=list)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _ticks: int = 0

    def _tick(self) -> int:
        with self._mutex:
            self._ticks += 1
            return self._ticks

    @contextmanager
    def one(self, name: str) -> Iterator[Callable[[int, Effect, bool], None]]:
        """A transaction: the block calls what it gets with timestamp, effect and whether there is a record,
        if it was applied."""
        began, told = self._tick(), []

        def done(timestamp: int, effect: Effect, writes: bool) -> None:
            told.append((timestamp, effect, writes))

        yield done
        ended = self._tick()
        for timestamp, effect, writes in told:
            self.transactions.append(Transaction(timestamp, effect, name, began, ended, writes))

    def replayed(self, first: State) -> Replayed:
        """``first``: the state before all of them.  ``NotSerial`` says which transaction does not fit."""
        order = sorted(self.transactions, key=lambda one: (one.timestamp, not one.writes))
        earliest_end = self._ticks + 1
        for one in reversed(order):
            if earliest_end < one.began:
                raise NotSerial(f"{one.name} at {one.timestamp} began after a later one had ended")
            earliest_end = min(earliest_end, one.ended)
        made = Replayed([0], [dict(first)])
        for one in order:
            state = dict(made.states[-1])
            try:
                written = one.effect(state)
            except NotSerial as error:
                raise NotSerial(f"{one.name} at {one.timestamp}: {error}") from None
            if not one.writes:
                continue
            if one.timestamp == made.times[-1]:
                raise NotSerial(f"two records at {one.timestamp}")
            for key, row in written.items():
                if row is None:
                    state.pop(key, None)
                else:
                    state[key] = row
            made.times.append(one.timestamp)
            made.states.append(state)
        return made


@dataclass(frozen=True, slots=True)
class Replayed:
    """States by the time from which on they were."""

    times: list[int]
    states: list[State]

    def at(self, timestamp: int) -> State:
        return self.states[bisect.bisect_right(self.times, timestamp) - 1]


def saw(state: State, key: Any, found: Any, what: str = "read") -> None:
    """A transaction has found a row, or None, which a state has too."""
    if state.get(key) != found:
        raise NotSerial(f"{what} {found!r} of {key!r}, where {state.get(key)!r} was")


__all__ = ["Effect", "NotSerial", "Recorded", "Replayed", "State", "Transaction", "saw"]
