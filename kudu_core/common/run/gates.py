"""Where threads wait for each other.

A gate is a bare lock, taken by whoever waits and released by whoever opens it.  A signal handler cannot cut
its methods in two as it can those of ``threading.Condition`` and ``Event``, which leave their own lock held
then.  Nobody relies on a gate being opened: who waits looks again soon, so an interrupt of the one who was to
open it costs a moment.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from kudu_core.common.run.locks import Claim, mutex

LOOK_S = 0.25
"""Who waits looks again after so long."""


class Gates:
    """Threads that wait for something to change.

    ``wait`` returns after the next ``open``, or soon without one: the caller looks and comes again.
    """

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed: deque[LockType] = deque()
        """Empty: nobody waits.  Compiled code looks here before it opens them."""

    def wait(self, still_needed: Callable[[], bool], timeout_s: float = LOOK_S) -> None:
        gate = allocate_lock()
        gate.acquire()
        self.closed.append(gate)
        # Whoever opens after this line sees the gate.
        if still_needed() and gate.acquire(timeout=timeout_s):
            return
        with suppress(ValueError, IndexError):  # opened at this moment, by another thread
            self.closed.remove(gate)

    def wait_while(self, behind: Callable[[], bool]) -> None:
        """Return when it no longer is."""
        while behind():
            self.wait(behind)

    def open(self) -> None:
        # A gate that comes after this look belongs to one who looks again before waiting.
        if self.closed:
            with suppress(IndexError):
                while True:
                    self.closed.popleft().release()


class Flag:
    """Set or not; threads may wait until it is set."""

    __slots__ = ("_gates", "_set")

    def __init__(self) -> None:
        self._set = False
        self._gates = Gates()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._gates.open()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it is set, or so long; whether it is."""
        if timeout_s is None:
            self._gates.wait_while(lambda: not self._set)
        elif not self._set:
            self._gates.wait(lambda: not self._set, timeout_s)
        return self._set


class Slots:
    """So many at a time: ``with slots.take():``."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._mutex = mutex()
        self._taken: set[object] = set()
        self._gates = Gates()

    def take(self) -> Claim:
        """Wait for a place; it is given back when what is returned is released, or goes."""
        while True:
            with self._mutex:
                if len(self._taken) < self._count:
                    return Claim(self._taken, object(), emptied=self._gates.open)
            self._gates.wait(lambda: len(self._taken) >= self._count)


__all__ = ["LOOK_S", "Flag", "Gates", "Slots"]
