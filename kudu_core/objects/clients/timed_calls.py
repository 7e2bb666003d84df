"""Calls that may wait for ever, for a host that has vanished: each is made on a thread of its own, and who
asks for it waits for so long and no longer.

A thread whose call is given up stays with it, and is used again when that comes to an end after all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.gates import LOOK_S, Gates
from kudu_core.common.run.workers import Worker

_T = TypeVar("_T")
_R = TypeVar("_R")


class TimedCall(Generic[_T]):
    """One that is under way."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self._calls = [call]
        """The call until it begins."""
        self._gates = Gates()
        self._finished = False
        self._result: _T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._calls.pop()()
        except BaseException as error:  # noqa: BLE001  handed to whoever waits, whatever it is
            self._error = error
        finally:
            self._finished = True
            self._gates.open()

    def result(self, limit_s: float) -> _T:
        """What it gives or raises; ``TimeoutError`` where that takes longer.

        Whoever is interrupted waits for its end first: what was asked for is not under way any more then.
        """
        until_s = _CLOCK.monotonic_s() + limit_s
        try:
            self._wait(until_s)
        except BaseException:
            self._wait(until_s)
            raise
        if not self._finished:
            raise TimeoutError(f"no answer in {limit_s:g} s")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _wait(self, until_s: float) -> None:
        while not self._finished and (left_s := until_s - _CLOCK.monotonic_s()) > 0:
            self._gates.wait(lambda: not self._finished, min(left_s, LOOK_S))


_CLOCK: Final = Clock()


class _Thread:
    """One that makes a call, and then waits for the next one."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[TimedCall[Any]] = SimpleQueue()
        Worker(self._work, "kudu-hdfs").start()

    def _work(self) -> None:
        while True:
            call = self.calls.get()
            call.run()
            del call  # its result is the caller's to keep
            idle.append(self)


idle: deque[_Thread] = deque()
"""Those without a call; of this process: the child of a fork never comes here (``after_fork``)."""


def begin(call: Callable[[], _T]) -> TimedCall[_T]:
    """Have a thread make the call at once."""
    made = TimedCall(call)
    try:
        thread = idle.pop()
    except IndexError:
        thread = _Thread()
    thread.calls.put(made)
    return made


def side_by_side(call: Callable[[_T], _R], items: Sequence[_T], at_once: int) -> list[_R]:
    """What the call gives of each item; so many are under way at once, one of them on this thread.

    After an error of one no other begins, and that error is raised when all have ended.
    """
    found: dict[int, _R] = {}
    left = deque(enumerate(items))

    def work() -> None:
        while left:
            try:
                n, item = left.popleft()
            except IndexError:
                return  # another thread was faster
            try:
                found[n] = call(item)
            except BaseException:
                left.clear()
                raise

    helpers: list[TimedCall[None]] = []
    try:
        helpers.extend(begin(work) for _ in range(min(at_once, len(items)) - 1))
        work()
    finally:
        for helper in helpers:
            helper.result(math.inf)
    return [found[n] for n in range(len(items))]


__all__ = ["TimedCall", "begin", "side_by_side"]
