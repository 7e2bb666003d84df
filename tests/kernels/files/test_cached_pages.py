"""Pages of a cache: sizes, places and holders that are not as they should be, and who asks meanwhile."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kudu_core._ext.files.cached_pages import CachedPages, Reader


class Sized:
    """A page that says how large it is."""

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size()


class Asked:
    """A holder that does something whenever it is asked."""

    closed = False

    def __init__(self, act: Callable[[int], Any]) -> None:
        self._act = act

    def forget(self, place: int) -> bool:
        return self._act(place) is not False


def filled(limit_bytes: int, pages: int = 0) -> tuple[CachedPages, Reader]:
    cache = CachedPages(limit_bytes)
    reader = cache.attach(b"file")
    for place in range(pages):
        assert cache.put(reader.token, place, bytes(744))
    return cache, reader


def assert_sums(cache: CachedPages) -> None:
    """What is counted is what is there."""
    there = [entry for entry in cache.contents() if entry[3] != "gone"]
    assert cache.counts()[3] == len(there)
    assert cache.counts()[4] == sum(len(entry[2]) + 256 for entry in there) <= cache.limit_bytes
    kept = [entry for entry in there if entry[3] == "kept"]
    assert cache.counts()[5] == sum(len(entry[2]) + 256 for entry in kept)
    tokens = {reader.token for readers in cache.readers().values() for reader in readers}
    assert {token for token, *_ in cache.contents()} <= tokens


@pytest.mark.parametrize("limit", [-1, (1 << 60) + 1, 1 << 63, 1 << 200])
def test_limits_are_checked(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        CachedPages(limit)
    cache, _ = filled(100_000, 10)
    with pytest.raises(ValueError, match="limit"):
        cache.set_limit(limit)
    assert cache.limit_bytes == 100_000 and cache.counts()[3] == 10


@pytest.mark.parametrize("limit", [0, 255, 1 << 60])
def test_pages_of_hostile_sizes(limit: int) -> None:
    cache, reader = filled(limit)
    assert not cache.put(reader.token, 0, Sized(lambda: sys.maxsize))
    assert not cache.put(reader.token, 0, Sized(lambda: max(0, (limit >> 2) - 255)))
    for wrong in (-1, sys.maxsize + 1):
        with pytest.raises((ValueError, OverflowError)):
            cache.put(reader.token, 0, Sized(lambda size=wrong: size))  # type: ignore[misc]
    with pytest.raises(TypeError):
        cache.put(reader.token, 0, None)
    assert cache.counts()[3:6] == (0, 0, 0) and not cache.contents()
    assert cache.put(reader.token, 0, Sized(lambda: max(0, (limit >> 2) - 256))) == (limit > 1024)


def test_the_size_of_a_page_is_asked_once() -> None:
    sizes = iter([100, 1 << 40, 7])
    cache, reader = filled(10_000)
    assert cache.put(reader.token, 0, Sized(lambda: next(sizes)))
    assert cache.counts()[4] == 356
    cache.set_limit(0)
    assert cache.counts()[3:6] == (0, 0, 0)


class Number(int):
    pass


@pytest.mark.parametrize("wrong", [1.0, "1", None, (1,), Number(1), True, [1]])
def test_places_and_tokens_are_integers(wrong: Any) -> None:
    cache, reader = filled(10_000)
    for call in (
        lambda: cache.put(reader.token, wrong, b""),
        lambda: cache.put(wrong, 1, b""),
        lambda: cache.get(reader.token, wrong),
        lambda: cache.get(wrong, 1),
        lambda: cache.get_many(reader.token, [wrong]),
    ):
        with pytest.raises(TypeError):
            call()
    for place in (-1, 0, 1 << 200, -(1 << 63)):
        assert cache.put(reader.token, place, b"abc") and cache.get(reader.token, place) == b"abc"
    assert cache.get(1 << 70, 0) is None and cache.get(-1, 0) is None and not cache.put(99, 0, b"")


def test_readers_of_other_caches_are_refused() -> None:
    cache, _ = filled(10_000)
    another, other = filled(10_000)
    for call in (lambda: cache.detach(other), lambda: cache.watch(other, Asked(print))):
        with pytest.raises(ValueError, match="another cache"):
            call()
    with pytest.raises(TypeError):
        cache.attach(None)  # type: ignore[arg-type]
    assert another.readers() == {b"file": [other]}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RuntimeError()])
@pytest.mark.parametrize("how", ["put", "limit"])
def test_a_holder_that_raises_ends_the_step_and_breaks_nothing(error: BaseException, how: str) -> None:
    cache, reader = filled(10_000, 10)
    failing = [True]

    def act(place: int) -> None:
        if failing[0] and place >= 2:
            raise error

    assert cache.watch(reader, Asked(act))
    with pytest.raises(type(error)):
        if how == "put":
            for place in range(10, 20):
                cache.put(reader.token, place, bytes(744))
        else:
            cache.set_limit(0)
    assert cache.counts()[2] == 2, "those before it went"
    failing[0] = False
    cache.set_limit(5000)
    assert_sums(cache)
    assert cache.counts()[3] == 5


def test_a_holder_may_ask_the_cache_itself() -> None:
    """Whatever it does to the cache while that evicts: sums stay right, and the step ends."""
    rng = random.Random(3)
    for _ in range(300):
        cache, reader = filled(6000, 5)
        others = [cache.attach(b"file"), cache.attach(b"other"), reader]
        left = [rng.randrange(1, 6)]

        def act(
            place: int, cache: CachedPages = cache, others: list[Reader] = others, left: list[int] = left
        ) -> Any:
            if not left[0]:
                return True
            left[0] -= 1
            chosen = rng.choice(others)
            kind = rng.randrange(7)
            if kind == 0:
                cache.detach(chosen)
            elif kind == 1:
                cache.put(chosen.token, rng.randrange(30), bytes(rng.randrange(1200)))
            elif kind == 2:
                cache.get(chosen.token, place)
            elif kind == 3:
                cache.set_limit(rng.choice((0, 1500, 6000)))
            elif kind == 4:
                others.append(cache.attach(rng.choice((b"file", b"other", b"third"))))
            elif kind == 5:
                cache.watch(chosen, Asked(act))
            return rng.random() < 0.7

        cache.watch(reader, Asked(act))
        for place in range(5, 30):
            cache.put(rng.choice(others).token, place, bytes(rng.randrange(1200)))
            assert_sums(cache)
        for other in others:
            cache.detach(other)
        assert not cache.contents() and not cache.readers()


def test_pages_that_act_when_they_go() -> None:
    """The end of a page may run anything, which meets a cache whose step is whole."""
    cache, reader = filled(10_000)
    ended = []

    class Page(Sized):
        def __del__(self) -> None:
            assert_sums(cache)
            ended.append(cache.put(reader.token, 1000 + len(ended), b""))

    for place in range(40):
        cache.put(reader.token, place, Page(lambda: 744))
    cache.detach(reader)
    assert len(ended) == 40 and True in ended
    assert cache.counts()[3:6] == (0, 0, 0)


def test_threads_and_the_collector(seed: int) -> None:
    """Readers come and go, also as garbage, while others put, look and change the limit."""
    cache = CachedPages(40_000)
    ids = [bytes([n]) for n in range(4)]
    failed: list[BaseException] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        readers: list[Reader] = []
        try:
            for _ in range(1500):
                if len(readers) < 3:
                    reader = cache.attach(rng.choice(ids))
                    holder = Asked(lambda _: rng.random() < 0.9)
                    holder.reader = reader  # type: ignore[attr-defined]  # a cycle
                    cache.watch(reader, holder)
                    readers.append(reader)
                reader = rng.choice(readers)
                place = rng.randrange(60)
                if cache.get(reader.token, place) is None:
                    cache.put(reader.token, place, bytes(rng.randrange(3000)))
                if rng.random() < 0.05:
                    gone = readers.pop()
                    if rng.random() < 0.5:
                        cache.detach(gone)
                    del gone
                if rng.random() < 0.02:
                    cache.set_limit(rng.choice((5000, 40_000)))
        except BaseException as error:  # noqa: BLE001  told below
            failed.append(error)

    kept = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50)
    try:
        threads = [threading.Thread(target=work, args=(seed + n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(kept[0])
        gc.set_threshold(*kept[1])
    assert not failed
    gc.collect()
    assert not cache.readers() and not cache.contents() and cache.counts()[3:6] == (0, 0, 0)


def test_a_child_of_a_fork_goes_on() -> None:
    """Also one that is made in the middle of a step, by another thread's holder."""
    cache, reader = filled(5000, 5)
    answers: list[int] = []
    forked: list[bool] = []

    def act(_: int) -> None:
        if not forked:
            forked.append(True)
            child = os.fork()
            if child == 0:  # it has this thread alone
                try:
                    cache.set_limit(2000)
                    assert_sums(cache)
                    os._exit(0 if cache.put(reader.token, 99, b"") else 1)
                finally:
                    os._exit(2)
            answers.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    cache.watch(reader, Asked(act))
    thread = threading.Thread(target=lambda: cache.put(reader.token, 5, bytes(744)))
    thread.start()
    thread.join()
    assert answers == [0]
    assert_sums(cache)
