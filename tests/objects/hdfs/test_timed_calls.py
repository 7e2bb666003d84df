"""Threads for calls that may wait for ever."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from kudu_core.objects.clients import timed_calls
from kudu_core.objects.clients.timed_calls import begin, side_by_side


def until_idle() -> None:
    """A thread is free a moment after its call has its result."""
    until_s = time.monotonic() + 10
    while not timed_calls.idle and time.monotonic() < until_s:
        time.sleep(0.001)


def test_results_and_errors() -> None:
    assert begin(lambda: 7).result(10) == 7
    with pytest.raises(ZeroDivisionError):
        begin(lambda: 1 / 0).result(10)


def test_a_thread_that_is_given_up_comes_back() -> None:
    back, names = threading.Event(), set()
    call = begin(back.wait)
    with pytest.raises(TimeoutError, match=r"no answer in 0\.05 s"):
        call.result(0.05)
    back.set()
    assert call.result(10) is True
    until_idle()
    before = threading.active_count()
    for _ in range(20):
        names.add(begin(threading.get_ident).result(10))
        until_idle()
    assert threading.active_count() == before, "it is used again"


def test_side_by_side() -> None:
    at_once, most, mutex = 0, 0, threading.Lock()

    def call(n: int) -> int:
        nonlocal at_once, most
        with mutex:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.005)
        with mutex:
            at_once -= 1
        return n * n

    assert side_by_side(call, range(20), 4) == [n * n for n in range(20)] and most == 4
    assert side_by_side(call, [], 4) == [] and side_by_side(call, [3], 4) == [9]


def test_an_error_ends_what_is_side_by_side() -> None:
    """No other call begins, and none is under way when it is raised."""
    begun, ended = [], []

    def call(n: int) -> None:
        begun.append(n)
        time.sleep(0.02 if n else 0.001)
        if not n:
            raise ZeroDivisionError
        ended.append(n)

    with pytest.raises(ZeroDivisionError):
        side_by_side(call, range(50), 4)
    assert sorted(ended) == sorted(set(begun) - {0}) and len(begun) < 10


def test_who_is_interrupted_waits_for_the_end() -> None:
    ended = threading.Event()

    def call() -> None:
        time.sleep(0.3)
        ended.set()

    made = begin(call)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            made.result(10)
        assert ended.is_set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
