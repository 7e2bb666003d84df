"""Sorts, searches and groups of encoded keys agree with those of a list."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import mmh3
import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.keys import keys
from tests.support.oracles.keys import keys as oracle
from tests.support.oracles.keys.keys import SIGNED, UNSIGNED
from tests.support.oracles.keys.packed import I64, SIZES, pack, random_keys

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))

Hasher = Callable[[list[bytes]], npt.NDArray[np.uint64]]


def test_sort_and_order_agree_with_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (20_000 if long else 600)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        made = random_keys(rng, int(rng.choice(SIZES)))
        data, offsets = pack(made, int(rng.integers(0, 5)))
        order = keys.sort(data, offsets)
        assert order.dtype == np.int64
        assert order.tolist() == oracle.sort(made)
        assert keys.order(data, offsets) == oracle.order(made)


def test_repeats_are_seen_in_order(long: bool) -> None:
    seen = set()
    for seed in range(FIRST_SEED, FIRST_SEED + (5_000 if long else 300)):
        made = random_keys(np.random.default_rng(seed), int(np.random.default_rng(seed).choice(SIZES)))
        data, offsets = pack(made)
        found = keys.repeats(data, offsets, keys.sort(data, offsets))
        assert found == (len(set(made)) < len(made)), seed
        seen.add(found)
    assert seen == {True, False}
    with pytest.raises(IndexError, match="2 keys"):
        keys.repeats(*pack([b"a", b"b"]), np.array([0, 2]))
    with pytest.raises(IndexError):
        keys.repeats(*pack([]), np.array([-1]))


def test_keys_that_equal_the_one_before(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (5_000 if long else 300)):
        rng = np.random.default_rng(seed)
        made = random_keys(rng, int(rng.choice(SIZES)))
        if rng.integers(2):
            made.sort()
        found = keys.same(*pack(made, int(rng.integers(0, 5))))
        assert found.dtype == np.uint8 and found.tolist() == oracle.same(made), seed


@pytest.mark.parametrize("bits", [1, 8, 12, 20, 33, 64])
def test_sort_is_stable_and_right_in_large_batches(bits: int) -> None:
    """Batches that take wide digits, and leave ties beyond the digits."""
    rng = np.random.default_rng(FIRST_SEED)
    numbers = rng.integers(0, 2**bits, 20_000, np.uint64) << np.uint64(64 - bits if bits < 64 else 0)
    data, offsets = keys.encode([(UNSIGNED, 8, numbers.view(np.uint8), None)], len(numbers))
    np.testing.assert_array_equal(keys.sort(data, offsets), np.argsort(numbers, kind="stable"))
    # The same, each behind 70 bytes that all share and before a byte that tells ties apart.
    tail = rng.integers(0, 3, len(numbers), np.uint8)
    made = [b"p" * 70 + bytes(data[o : o + 8]) + bytes(t) for o, t in zip(offsets, tail, strict=False)]
    assert keys.sort(*pack(made)).tolist() == oracle.sort(made)


def test_sort_of_ties_that_end_far_behind() -> None:
    """Each round of the sort tells few keys apart: rounds, recursion and compares must all end."""
    rng = np.random.default_rng(FIRST_SEED)
    made = [b"ab" * size + b"c" * end for size, end in rng.integers(0, 400, (500, 2)).tolist()]
    assert keys.sort(*pack(made)).tolist() == oracle.sort(made)
    deep = [b"\0" * int(size) for size in rng.integers(0, 3_000, 300)]
    assert keys.sort(*pack(deep)).tolist() == oracle.sort(deep)


def test_lower_bound_agrees_with_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (20_000 if long else 500)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        made = sorted(random_keys(rng, int(rng.choice(SIZES))))
        probes = random_keys(rng, int(rng.choice(SIZES[:8])))
        probes += [made[int(i)] + b"\0" * int(i & 1) for i in rng.integers(0, len(made), 5)] if made else []
        if rng.integers(2):
            probes.sort()
        data, offsets = pack(made, int(rng.integers(0, 5)))
        for upper in (False, True):
            found = keys.lower_bound(data, offsets, *pack(probes, int(rng.integers(0, 5))), upper=upper)
            assert found.dtype == np.int64
            assert found.tolist() == oracle.lower_bound(made, probes, upper)


@pytest.mark.parametrize("probe_count", [1, 40, 3_000])
@pytest.mark.parametrize("probes_ascend", [True, False])
def test_lower_bound_in_many_keys(probe_count: int, probes_ascend: bool) -> None:
    rng = np.random.default_rng(FIRST_SEED)
    numbers = np.sort(rng.integers(0, 2**20, 30_000)).astype(">i8")
    wanted = rng.integers(-5, 2**20 + 5, probe_count)
    if probes_ascend:
        wanted.sort()
    data, offsets = keys.encode([(SIGNED, 8, numbers.astype("<i8").view(np.uint8), None)], len(numbers))
    probes = keys.encode([(SIGNED, 8, wanted.view(np.uint8), None)], probe_count)
    np.testing.assert_array_equal(
        keys.lower_bound(data, offsets, *probes), np.searchsorted(numbers.astype(np.int64), wanted)
    )
    np.testing.assert_array_equal(
        keys.lower_bound(data, offsets, *probes, True),
        np.searchsorted(numbers.astype(np.int64), wanted, side="right"),
    )


def murmur(made: list[bytes]) -> npt.NDArray[np.uint64]:
    return np.array([mmh3.hash64(key, 0, signed=False)[0] for key in made], np.uint64)


@pytest.mark.parametrize(
    "hashes", [murmur, lambda made: np.zeros(len(made), np.uint64)], ids=["murmur3", "all collide"]
)
def test_group_agrees_with_oracle(hashes: Hasher, long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (2_000 if long else 100)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        made = random_keys(rng, int(rng.choice(SIZES)))
        groups, first = keys.group(*pack(made, int(rng.integers(0, 5))), hashes(made))
        assert groups.dtype == np.int32
        assert first.dtype == np.int64
        assert (groups.tolist(), first.tolist()) == oracle.group(made)


def test_kernels_run_beside_each_other() -> None:
    """The GIL is released; nothing is shared."""
    rng = np.random.default_rng(FIRST_SEED)
    numbers = rng.integers(0, 2**40, 50_000)
    data, offsets = keys.encode([(SIGNED, 8, numbers.view(np.uint8), None)], len(numbers))
    results: list[I64] = []
    threads = [threading.Thread(target=lambda: results.append(keys.sort(data, offsets))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_array_equal(result, np.argsort(numbers, kind="stable"))
