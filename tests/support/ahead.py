"""The clocks of tables in the year 2100: hybrid times that no int64 holds, and twelve years to the last one.

``pytest --ahead`` runs every test so; programs that tests start follow (``processes.python``).
"""

from __future__ import annotations

import datetime as dt
import time

from kudu_core.common.run.clock import Clock, ManualClock
from kudu_core.fs.api import FileStat
from kudu_core.fs.posix import PosixFileSystem

SWITCH = "KUDU_CORE_TESTS_AHEAD"
"""Environment: set for the processes that tests start."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
START_US = int(dt.datetime(2100, 1, 1, tzinfo=dt.UTC).timestamp()) * 10**6


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


__all__ = ["START_US", "SWITCH", "now", "set_clocks"]
