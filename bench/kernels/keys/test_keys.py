"""Encoded keys: 1,000,000 rows.  ``rows`` in extra_info divides a round into ns a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.keys import hashing, keys

ROWS = 1_000_000
BATCH = 1_000
SIGNED, BINARY = 1, 3

Columns = list[tuple[int, int, Any, Any]]
Keys = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def integers(values: npt.NDArray[np.int64]) -> tuple[int, int, Any, Any]:
    return SIGNED, 8, np.ascontiguousarray(values, np.int64).view(np.uint8), None


def hosts(numbers: npt.NDArray[np.int64]) -> tuple[int, int, Any, Any]:
    """``host-00017`` and the like, 10 bytes each."""
    digits = np.full((len(numbers), 10), ord("0"), np.uint8)
    digits[:, :5] = np.frombuffer(b"host-", np.uint8)
    for place in range(5):
        digits[:, 9 - place] += (numbers // 10**place % 10).astype(np.uint8)
    return BINARY, 0, digits.reshape(-1), np.arange(0, 10 * len(numbers) + 1, 10, dtype=np.int32)


def int64_random() -> Columns:
    return [integers(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, ROWS))]


def int64_ascending() -> Columns:
    return [integers(np.arange(ROWS, dtype=np.int64))]


def host_ts_random() -> Columns:
    """20 bytes: 1,000 hosts, a tick every 10 s, in random order."""
    rng = np.random.default_rng(1)
    times = 1_700_000_000_000_000 + np.arange(ROWS) // 1_000 * 10_000_000 + rng.integers(0, 1_000, ROWS)
    order = rng.permutation(ROWS)
    return [hosts((np.arange(ROWS) % 1_000)[order]), integers(times[order])]


def host_ts_ticks() -> Columns:
    """The same rows as they would arrive: tick by tick, in each all hosts."""
    times = 1_700_000_000_000_000 + np.arange(ROWS) // 1_000 * 10_000_000
    return [hosts(np.arange(ROWS) % 1_000), integers(times)]


SHAPES = {shape.__name__: shape for shape in (int64_random, int64_ascending, host_ts_random, host_ts_ticks)}


@pytest.fixture(scope="module", params=list(SHAPES))
def columns(request: pytest.FixtureRequest) -> Columns:
    return SHAPES[request.param]()


@pytest.fixture(scope="module")
def encoded(columns: Columns) -> Keys:
    return keys.encode(columns, ROWS)


def run(benchmark: BenchmarkFixture, group: str, rows: int, call: Callable[[], Any], rounds: int = 5) -> Any:
    benchmark.group = group
    benchmark.extra_info["rows"] = rows
    return benchmark.pedantic(call, rounds=rounds, warmup_rounds=1)  # type: ignore[no-untyped-call]


def expected_order(columns: Columns) -> npt.NDArray[np.int64]:
    words = [c[2].view(np.int64) if c[0] == SIGNED else c[2].reshape(-1, 10)[:, 5:] for c in columns]
    if len(words) == 1:
        return np.argsort(words[0], kind="stable")
    host = words[0].astype(np.int64) @ 10 ** np.arange(4, -1, -1)
    return np.lexsort((words[1], host))


def test_encode(benchmark: BenchmarkFixture, columns: Columns) -> None:
    data, offsets = run(benchmark, "keys.encode", ROWS, lambda: keys.encode(columns, ROWS))
    assert len(offsets) == ROWS + 1
    back = keys.decode(data, offsets, [(kind, width) for kind, width, _, _ in columns])
    for (_, _, values, _), (decoded, _) in zip(columns, back, strict=True):
        np.testing.assert_array_equal(decoded, values)


def test_decode(benchmark: BenchmarkFixture, columns: Columns, encoded: Keys) -> None:
    types = [(kind, width) for kind, width, _, _ in columns]
    back = run(benchmark, "keys.decode", ROWS, lambda: keys.decode(*encoded, types))
    np.testing.assert_array_equal(back[-1][0], columns[-1][2])


def test_sort(benchmark: BenchmarkFixture, columns: Columns, encoded: Keys) -> None:
    order = run(benchmark, "keys.sort, 1M", ROWS, lambda: keys.sort(*encoded))
    np.testing.assert_array_equal(order, expected_order(columns))


def test_sort_batches(benchmark: BenchmarkFixture, encoded: Keys) -> None:
    """100 batches of 1,000."""
    data, offsets = encoded
    parts = [offsets[at : at + BATCH + 1] for at in range(0, 100 * BATCH, BATCH)]

    def sort_all() -> list[npt.NDArray[np.int64]]:
        return [keys.sort(data, part) for part in parts]

    orders = run(benchmark, "keys.sort, 1,000", 100 * BATCH, sort_all)
    for part, order in zip(parts, orders, strict=True):
        assert keys.order(*keys.take(data, part, order)) == 2


def test_take(benchmark: BenchmarkFixture, encoded: Keys) -> None:
    rows = keys.sort(*encoded)
    taken = run(benchmark, "keys.take", ROWS, lambda: keys.take(*encoded, rows))
    assert keys.order(*taken) == 2


def test_interleave(benchmark: BenchmarkFixture, encoded: Keys) -> None:
    """Four runs in turn: what a merge asks for."""
    data, offsets = keys.take(*encoded, keys.sort(*encoded))
    parts = [keys.take(data, offsets, np.arange(run, ROWS, 4)) for run in range(4)]
    source, position = (np.arange(ROWS) % 4).astype(np.int32), np.arange(ROWS) // 4
    found = run(benchmark, "keys.interleave", ROWS, lambda: keys.interleave(parts, source, position))
    np.testing.assert_array_equal(found[0], data)


def test_same(benchmark: BenchmarkFixture, encoded: Keys) -> None:
    """Every key twice."""
    data, offsets = keys.take(*encoded, np.arange(ROWS) // 2)
    found = run(benchmark, "keys.same", ROWS, lambda: keys.same(data, offsets))
    np.testing.assert_array_equal(found, np.arange(ROWS) % 2)


def test_order(benchmark: BenchmarkFixture, encoded: Keys) -> None:
    ordered = keys.take(*encoded, keys.sort(*encoded))
    assert run(benchmark, "keys.order", ROWS, lambda: keys.order(*ordered)) == 2


@pytest.mark.parametrize("probes", [BATCH, 100_000])
def test_lower_bound(benchmark: BenchmarkFixture, encoded: Keys, probes: int) -> None:
    """Probes in random order."""
    order = keys.sort(*encoded)
    ordered = keys.take(*encoded, order)
    wanted = np.random.default_rng(2).permutation(ROWS)[:probes]
    asked = keys.take(*ordered, wanted)
    group = f"keys.lower_bound, {probes:,}"
    found = run(benchmark, group, probes, lambda: keys.lower_bound(*ordered, *asked))
    np.testing.assert_array_equal(found, wanted)


def test_group(benchmark: BenchmarkFixture, encoded: Keys) -> None:
    """Every key twice."""
    data, offsets = keys.take(*encoded, np.arange(ROWS) // 2)
    hashes = hashing.murmur3(data, offsets)
    groups, first = run(benchmark, "keys.group", ROWS, lambda: keys.group(data, offsets, hashes))
    np.testing.assert_array_equal(groups, np.arange(ROWS) // 2)
    np.testing.assert_array_equal(first, np.arange(0, ROWS, 2))
