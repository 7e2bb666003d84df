"""Taking locks: one alone, several by ``HeldLocks``, and a mutex that changes hands seldom."""

from __future__ import annotations

import threading
import time

import pytest

from kudu_core._ext.base.holding import Claim, HeldLocks, Turns


@pytest.mark.benchmark(group="kernel: holding, locks")
@pytest.mark.parametrize("count", [1, 16])
def test_held(benchmark, count):
    locks = [threading.RLock() for _ in range(count)]
    benchmark.extra_info |= {"locks": count}

    def hold():
        with HeldLocks(locks):
            pass

    benchmark(hold)
    assert all(lock.acquire(False) for lock in locks)


@pytest.mark.benchmark(group="kernel: holding, one mutex")
@pytest.mark.parametrize("kind", ["lock", "turns"])
def test_one(benchmark, kind):
    mutex = threading.Lock() if kind == "lock" else Turns(0.002, time.monotonic)

    def hold():
        with mutex:
            pass

    benchmark(hold)
    assert not mutex.locked()


@pytest.mark.benchmark(group="kernel: holding, claim")
def test_claim(benchmark):
    claimed = set()

    def claim():
        with Claim(claimed, 1):
            pass

    benchmark(claim)
    assert not claimed
