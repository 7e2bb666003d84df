"""Pages of a column for those who hold them: from the cache, from the file, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from kudu_core._ext.files.cached_pages import CachedPages
from kudu_core._ext.files.page_loader import PageLoader


class Column:
    """Where pages lie, and what they are; ``asked``: which the general path gave."""

    def __init__(self, fetcher: Any = None) -> None:
        self.fetcher = fetcher
        self.asked: list[int] = []

    def places(self) -> list[int]:
        return [100, 200, 300]

    def fetched(self, number: int) -> bytes:
        self.asked.append(number)
        return b"general %d" % number


class Fetcher:
    def __init__(self, knows: tuple[int, ...]) -> None:
        self.knows = knows

    def fetch(self, number: int) -> bytes | None:
        return b"fetched %d" % number if number in self.knows else None


class Holds:
    watched = True


def test_the_cache_is_asked_first_then_the_fetcher_then_the_general_path() -> None:
    cache = CachedPages(10_000)
    reader = cache.attach(b"file")
    column = Column(Fetcher((0, 1)))
    loader = PageLoader(column, Holds(), reader)
    cache.put(reader.token, 100, b"cached")
    assert [loader.load(n) for n in range(3)] == [(b"cached", 100), (b"fetched 1", 200), (b"general 2", 300)]
    assert column.asked == [2]
    assert cache.counts()[:2] == (1, 2)
    column.fetcher = None
    assert loader.load(1) == (b"general 1", 200)
    assert cache.counts()[3] == 1, "who holds it puts it"
    cache.detach(reader)
    assert loader.load(0) == (b"general 0", 100), "the file is the cache's no longer"


def test_no_page_is_loaded_that_may_not_be_held() -> None:
    holds, column = Holds(), Column()
    holds.watched = False
    reader = CachedPages(1000).attach(b"file")
    assert PageLoader(column, Holds(), None).load(0) == (None, None)
    loader = PageLoader(column, holds, reader)
    assert loader.load(0) == (None, None)
    holds.watched = True
    assert loader.load(0) == (b"general 0", 100)


@pytest.mark.parametrize("number", [-1, 3, 1 << 40])
def test_pages_that_are_not_there(number: int) -> None:
    with pytest.raises(IndexError):
        PageLoader(Column(), Holds(), CachedPages(1000).attach(b"file")).load(number)
