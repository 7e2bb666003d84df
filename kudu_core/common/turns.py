"""A mutex that changes hands seldom.

Handing a mutex over takes two switches of threads, and two more for the GIL: about 0.3 ms, as much as a write
of a thousand rows.  So a thread that comes back at once goes before those who wait, until its turn is over.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque

from kudu_core.common.clock import Clock


class Turns:
    """A mutex, for ``with``; not reentrant.

    While others wait, one thread may take it again and again for ``turn_s``; then it is given to the one that
    has waited longest.  Whoever waits looks again after ``turn_s``: the holder may not have come back.
    """

    __slots__ = ("_clock", "_mutex", "_since", "_turn_s", "_waiting")

    def __init__(self, turn_s: float, clock: Clock) -> None:
        self._turn_s = turn_s
        self._clock = clock
        self._mutex = allocate_lock()
        self._waiting: deque[LockType] = deque()
        """A locked gate for each thread that waits: opened, it has been given the mutex."""
        self._since = 0.0
        """When the turn began during which they wait."""

    def __enter__(self) -> None:
        if not self._mutex.acquire(False):
            self._wait()

    def __exit__(self, *_: object) -> None:
        if self._waiting and self._clock.monotonic_s() - self._since >= self._turn_s:
            # The mutex stays locked, so that nobody is faster than the one it is given to.
            self._since = self._clock.monotonic_s()
            self._waiting.popleft().release()
        else:
            self._mutex.release()

    def _wait(self) -> None:
        gate = allocate_lock()
        gate.acquire()
        if not self._waiting:
            self._since = self._clock.monotonic_s()
        self._waiting.append(gate)
        try:
            while not gate.acquire(timeout=self._turn_s):
                if self._mutex.acquire(False):
                    self._waiting.remove(gate)
                    self._since = self._clock.monotonic_s()
                    return
        except BaseException:  # an interrupt
            if gate in self._waiting:
                self._waiting.remove(gate)
            else:
                self.__exit__()
            raise
