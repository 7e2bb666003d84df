"""Bounds on what a piece of a test may use: processor time and address space."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Hang(BaseException):
    """The guarded code used more processor time than it may."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise ``Hang`` after that much processor time; for the main thread.

    Not of the wall clock, whose timer is pytest-timeout's, which in turn sees to deadlocks.
    """

    def stop(_signal: int, _frame: object) -> None:
        raise Hang(f"still running after {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def address_space() -> int:
    """Bytes that this process has mapped."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


@contextmanager
def at_most(more_bytes: int) -> Iterator[None]:
    """``MemoryError`` for what would map so many bytes more, also where they are never touched."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + more_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
