"""A page that comes into a full cache, with the one that goes; and pages that are there."""

from __future__ import annotations

from itertools import count
from typing import Any

from kudu_core._ext.files.cached_pages import CachedPages


def test_put_and_evict(benchmark: Any) -> None:
    cache = CachedPages(1 << 20)
    reader = cache.attach(b"file")
    places, page = count(), bytes(8000)
    put = cache.put
    for _ in range(200):
        put(reader.token, next(places), page)
    benchmark(lambda: put(reader.token, next(places), page))
    assert cache.counts()[2] > 0


def test_get_many(benchmark: Any) -> None:
    cache = CachedPages(1 << 20)
    reader = cache.attach(b"file")
    for place in range(100):
        cache.put(reader.token, place, bytes(8000))
    assert None not in benchmark(cache.get_many, reader.token, range(100))
