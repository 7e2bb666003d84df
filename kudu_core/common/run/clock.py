"""The only module that asks the time.

Hybrid time, the unit of every timestamp in a table, is microseconds of UTC since 1970 shifted left
by 12 bits; the low bits count events within a microsecond (Kudu, common/hybrid clock).  It is unsigned,
64 bits wide, and ends in September 2112 (``stored.LIMIT``).
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

COUNTER_BITS = 12
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Only Linux has the first; the second of macOS goes on while the machine sleeps."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def hybrid(micros: int, counter: int = 0) -> int:
    """The hybrid time of a microsecond of UTC."""
    return micros << COUNTER_BITS | counter


def micros_of(timestamp: int) -> int:
    """The microsecond of UTC in which a hybrid time lies."""
    return timestamp >> COUNTER_BITS


def last_of_microsecond(micros: int) -> int:
    """The largest hybrid time of that microsecond: what ``at=datetime`` means."""
    return micros << COUNTER_BITS | ((1 << COUNTER_BITS) - 1)


def time_of(timestamp: int) -> str:
    """The microsecond of a hybrid time as ISO text, for people; the number where no calendar reaches."""
    try:
        return (_EPOCH + timedelta(microseconds=micros_of(timestamp))).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return str(timestamp)


def timestamp_of(value: Any) -> int | None:
    """A hybrid time as it is given back: a whole number of Python, numpy or Arrow, or Spark's decimal; None
    for anything else."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


class Clock:
    """The machine's clocks."""

    def now_us(self) -> int:
        """Microseconds of UTC since 1970.  May jump, also backwards."""
        return time.time_ns() // 1000

    monotonic_s = staticmethod(time.monotonic)
    """Seconds since some fixed moment; never goes back.  For durations and deadlines."""

    def boottime_s(self) -> float:
        """As ``monotonic_s``, but it goes on while the machine sleeps."""
        return time.clock_gettime(_BOOTTIME)

    def now_hybrid(self) -> int:
        """``now_us`` as a hybrid time with counter 0.  Not monotonic: the log makes it so."""
        return self.now_us() << COUNTER_BITS

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Make a call: (seconds that passed, seconds in which this thread computed)."""
    began_s, computed_s = time.perf_counter(), time.thread_time()
    call()
    return time.perf_counter() - began_s, time.thread_time() - computed_s
