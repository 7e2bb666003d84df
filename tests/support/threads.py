"""Threads of one test: they work until the time is up or one of them fails.  And those of the dead."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

# On a busy machine some thread may hardly get a turn: so long what is wanted may take.
LONGEST_S = 120.0


class Run:
    """Threads that work until the time is up and ``wanted`` has happened, or one of them fails."""

    def __init__(self, seconds: float, wanted: Mapping[str, int] | None = None) -> None:
        now = time.monotonic()
        self.until = now + seconds
        self.latest = now + max(seconds, LONGEST_S)
        self.wanted = dict(wanted or {})
        self.errors: list[BaseException] = []
        self.counts: dict[str, int] = {}

    def goes_on(self) -> bool:
        if self.errors:
            return False
        now = time.monotonic()
        return now < self.until or (now < self.latest and bool(self.missing()))

    def missing(self) -> dict[str, int]:
        """What has not happened as often as it is wanted, and how often it has."""
        done = self.counts
        return {what: done.get(what, 0) for what, n in self.wanted.items() if done.get(what, 0) < n}

    def did(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def all(self, *work: Callable[[], None]) -> None:
        def guarded(one: Callable[[], None]) -> None:
            try:
                one()
            except BaseException as error:  # noqa: BLE001  raised below, in the test's own thread
                self.errors.append(error)

        threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        assert not self.missing(), f"hardly happened: {self.missing()} of {self.wanted}, done: {self.counts}"


def dead_are_quiet(*deaths: type[BaseException]) -> None:
    """From now on, a thread that one of ``deaths`` ends says nothing of it: it is the thread of a process
    whose death is played, and the one that plays it goes on."""
    usual = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, deaths):
            usual(args)

    threading.excepthook = hook


def together(count: int, call: Callable[[int], None]) -> None:
    """``call`` of each number below ``count``, in threads that begin at one moment."""
    gate = threading.Barrier(count)

    def one(number: int) -> None:
        gate.wait()
        call(number)

    Run(0).all(*(partial(one, number) for number in range(count)))


@contextmanager
def quick_switches() -> Iterator[None]:
    """Threads take turns often, so that races show."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
