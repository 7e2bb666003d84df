"""The readers that the page cache counts: who has gone is counted no longer, wherever an interrupt came."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from kudu_core.cfile import RowsFile
from kudu_core.cfile.pages.page_cache import PageCache, Reader
from tests.cfile.test_page_cache import PAGE, Holder, pages_of, read
from tests.support.cases.cfile import BytesFileSystem, make_case
from tests.support.interrupts import Interruption


def attached(cache: PageCache) -> dict[bytes, int]:
    """How many readers of each file are counted."""
    return {file_id: len(readers) for file_id, readers in cache.readers().items()}


def assert_consistent(cache: PageCache) -> None:
    """What the cache counts is what it has, and every file that it knows has a reader."""
    found, pages = cache.statistics(), pages_of(cache, "new", "kept")
    assert found.pages == len(pages)
    assert found.bytes == sum(len(page) + 256 for page in pages.values())
    assert found.kept_bytes == sum(len(page) + 256 for page in pages_of(cache, "kept").values())
    tokens = {readers[0].token for readers in cache.readers().values()}
    assert {token for token, _ in pages} <= tokens, "every file has a reader"


class Interrupted(Holder):
    """Of the questions that the cache asks its holders, one is interrupted: the steps of the cache are
    compiled, and whole between two of them."""

    left = 0
    """Questions until then."""

    def _asked(self) -> None:
        Interrupted.left -= 1
        if Interrupted.left == 0:
            raise KeyboardInterrupt

    @property
    def closed(self) -> bool:  # type: ignore[override]
        self._asked()
        return False

    def forget(self, place: int) -> bool:
        self._asked()
        return super().forget(place)


STEPS: dict[str, Callable[[PageCache, list[Reader]], object]] = {
    "attach": lambda cache, readers: readers.append(cache.attach(b"a third")),
    "attach again": lambda cache, readers: readers.append(cache.attach(b"file")),
    "detach one of two": lambda cache, readers: cache.detach(readers[0]),
    "detach the last": lambda cache, readers: cache.detach(readers[2]),
    "detach all": lambda cache, readers: [cache.detach(reader) for reader in readers],
    "watch": lambda cache, readers: cache.watch(readers[1], Holder()),
    "put": lambda cache, readers: [cache.put(readers[1].token, o, PAGE) for o in range(100, 103)],
    "shrink": lambda cache, readers: cache.set_limit(7000),
}


ASKING = ("watch", "put", "shrink")


@pytest.mark.parametrize("queued", [False, True], ids=["alone", "after one that left"])
@pytest.mark.parametrize("name", STEPS)
def test_an_interrupt_leaves_no_reader_counted(name: str, queued: bool) -> None:
    """At every question of a step: who has left is counted no longer, who has not still is, and the sums are
    right; so when all have left nothing stays."""
    at = 0
    while True:
        at += 1
        cache = PageCache(9000)
        readers = [cache.attach(b"file"), cache.attach(b"file"), cache.attach(b"another")]
        Interrupted.left = 0
        holders = [Interrupted() for _ in readers]
        for reader, holder in zip(readers, holders, strict=True):
            assert cache.watch(reader, holder)
            for offset in range(5):
                read(cache, reader, offset)
        if queued:
            ended = cache.attach(b"ended")
            assert cache.watch(ended, Interrupted())
            cache.put(ended.token, 0, PAGE)
            del ended
        before = len(readers)
        Interrupted.left = at
        with suppress(KeyboardInterrupt):
            STEPS[name](cache, readers)
        over, Interrupted.left = Interrupted.left > 0, 0
        where = f"{name}, question {at}"
        assert_consistent(cache)
        counted = [reader for of_file in cache.readers().values() for reader in of_file]
        assert set(counted) <= set(readers) and len(counted) == len(set(counted)), where
        leaving = {"detach one of two": {readers[0]}, "detach the last": {readers[2]}, "detach all": readers}
        assert set(counted) == set(readers) - set(leaving.get(name, ())), where
        assert len(readers) - before in (0, 1), where
        for reader in readers:
            if reader not in counted:
                assert not reader.holders, where
        readers.append(cache.attach(b"file"))  # it goes on
        for offset in range(30):
            read(cache, readers[-1], offset)
        for reader in readers:
            cache.detach(reader)
        assert_consistent(cache)
        found = cache.statistics()
        assert (found.pages, found.bytes, found.kept_bytes) == (0, 0, 0), where
        assert not cache.contents() and not cache.readers(), where
        if over:
            break
    assert at > 1 or name not in ASKING, "it was cut short"


def test_a_reader_that_goes_is_counted_no_longer() -> None:
    cache = PageCache(10_000)
    kept, lost = cache.attach(b"file"), cache.attach(b"file")
    cache.put(lost.token, 0, PAGE)
    del lost
    assert attached(cache) == {b"file": 1} and cache.statistics().pages == 1
    cache.detach(kept)
    cache.detach(kept)
    assert attached(cache) == {} and cache.statistics().pages == 0
    assert not cache.watch(kept, Holder())


ENDS: dict[str, Callable[[RowsFile], object]] = {
    "let go": lambda file: file.let_go(),
    "close": lambda file: file.close(),
    "forget": lambda file: None,
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ENDS)
def test_an_interrupt_leaves_nothing_of_a_file_that_nobody_knows(how: str, long: bool) -> None:
    """Wherever it comes while the file is opened, read and ended; its point reads and it hold each other."""
    fs = BytesFileSystem()
    make_case(np.random.default_rng(5), 3000).write(fs, "a")

    def use(cache: PageCache) -> None:
        file = RowsFile(fs, "a", cache)
        assert file.points.can_find
        file.read(1, 0, 3000)
        ENDS[how](file)

    with Interruption(None) as interruption:
        use(PageCache(1 << 20))
    places = range(1, interruption.count + 1)
    gc.collect()
    gc.freeze()  # what tests before have left is not looked through each time
    for at in places if long else (*places[: -20 : len(places) // 8], *places[-20:]):
        cache = PageCache(1 << 20)
        with Interruption(at) as interruption:
            try:  # noqa: SIM105
                use(cache)
            except KeyboardInterrupt:
                pass
        gc.collect()
        assert_consistent(cache)
        assert attached(cache) == {} and cache.statistics().pages == 0, interruption.where
    gc.unfreeze()


@pytest.mark.parametrize("at_once", [False, True])
def test_an_end_that_was_interrupted_can_be_repeated(at_once: bool) -> None:
    fs = BytesFileSystem()
    make_case(np.random.default_rng(5), 3000).write(fs, "a")
    at = 0
    while True:
        at += 1
        cache = PageCache(1 << 20)
        file = RowsFile(fs, "a", cache)
        assert file.points.can_find
        file.read(1, 0, 3000)
        end = file.close if at_once else file.let_go
        with Interruption(at) as interruption:
            try:  # noqa: SIM105
                end()
            except KeyboardInterrupt:
                pass
        end()
        assert_consistent(cache)
        assert attached(cache) == {} and cache.statistics().pages == 0, interruption.where
        assert file.file.closed == at_once
        if interruption.count < at:
            break
    assert at > 5, "places were tried"
