"""Clocks for tests: one that moves only when told, and those of tables in the year 2100.

``pytest --ahead`` runs every test in 2100, with hybrid times that no int64 holds and twelve years to the last
one; programs that tests start follow (``processes.python``).
"""

from __future__ import annotations

import datetime as dt
import time

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import mutex
from kudu_core.fs.api import FileStat
from kudu_core.fs.posix import PosixFileSystem

SWITCH = "KUDU_CORE_TESTS_AHEAD"
"""Environment: set for the processes that tests start."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
START_US = int(dt.datetime(2100, 1, 1, tzinfo=dt.UTC).timestamp()) * 10**6


class ManualClock(Clock):
    """A clock that moves only when told.  ``sleep`` moves it and returns at once."""

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self._lock = mutex()
        self._us = start_us
        self._monotonic_us = 0

    def now_us(self) -> int:
        return self._us

    def monotonic_s(self) -> float:
        return self._monotonic_us / 1e6

    def boottime_s(self) -> float:
        return self._monotonic_us / 1e6

    def advance(self, seconds: float = 0.0, *, us: int = 0) -> None:
        """Let time pass on both clocks."""
        step = us + round(seconds * 1_000_000)
        assert step >= 0, "time passes forward; set_us turns the wall clock back"
        with self._lock:
            self._us += step
            self._monotonic_us += step

    def set_us(self, micros: int) -> None:
        """Set the wall clock alone, also backwards, as an operator or NTP may."""
        with self._lock:
            self._us = micros

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)


def set_clocks() -> None:
    """For the rest of the process; clocks go on as fast as the machine's, and files are of their time."""
    ahead_us = START_US - time.time_ns() // 1000
    usual = PosixFileSystem.stat

    def stat(fs: PosixFileSystem, path: str) -> FileStat:
        found = usual(fs, path)
        return found._replace(mtime_s=found.mtime_s + ahead_us / 1e6)

    PosixFileSystem.stat = stat  # type: ignore[method-assign]
    Clock.now_us = lambda self: time.time_ns() // 1000 + ahead_us  # type: ignore[method-assign]
    ManualClock.__init__.__defaults__ = (START_US,)  # type: ignore[misc]


def now() -> dt.datetime:
    """The time by the clock that tables have."""
    return EPOCH + dt.timedelta(microseconds=Clock().now_us())


__all__ = ["START_US", "SWITCH", "Clock", "ManualClock", "now", "set_clocks"]
