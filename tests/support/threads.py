"""Threads of one test: they work until the time is up or one of them fails."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Run:
    """Threads that work until the time is up or one of them fails."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.errors: list[BaseException] = []
        self.counts: dict[str, int] = {}

    def goes_on(self) -> bool:
        return not self.errors and time.monotonic() < self.until

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


@contextmanager
def quick_switches() -> Iterator[None]:
    """Threads take turns often, so that races show."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
