"""The partition of one encoded key (host, ts): by hash, by hash and range."""

from __future__ import annotations

import pytest

from kudu_core._ext.row.route import KeyRouter

COLUMNS = [(3, 0, False), (1, 8, False)]


@pytest.mark.benchmark(group="kernel: route of one key")
@pytest.mark.parametrize("ranges", [0, 100])
def test_route(benchmark, ranges):
    cuts = [((1 << 63) + i * 1000).to_bytes(8, "big") for i in range(ranges)]
    router = KeyRouter(COLUMNS, [([0], 8, 42)], [1] if ranges else [], cuts, list(range(len(cuts) + 1)))
    keys = [b"host-%05d\0\0" % (i % 1000) + ((1 << 63) + i).to_bytes(8, "big") for i in range(1000)]
    benchmark.extra_info |= {"keys": len(keys), "ranges": ranges}

    found = benchmark(lambda: [router.route(key) for key in keys])

    assert len(set(found)) == 8
