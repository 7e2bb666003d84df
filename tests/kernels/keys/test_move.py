"""Encoded keys that are taken, joined and interleaved agree with lists; what lies elsewhere is refused."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from kudu_core._ext.keys import keys
from tests.support.oracles.keys import keys as oracle
from tests.support.oracles.keys.keys import BINARY, SIGNED
from tests.support.oracles.keys.packed import SIZES, pack, random_keys, unpack

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


def test_take_and_concat_agree_with_lists(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (5_000 if long else 200)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        parts = [random_keys(rng, int(rng.choice(SIZES[:8]))) for _ in range(int(rng.integers(0, 4)))]
        data, offsets = keys.concat([pack(part, int(rng.integers(0, 5))) for part in parts])
        made = [key for part in parts for key in part]
        assert offsets[0] == 0
        assert data.dtype == np.uint8
        assert unpack(data, offsets) == made
        rows = rng.integers(0, len(made), int(rng.integers(0, 40))) if made else np.empty(0, np.int64)
        shifted, places = pack(made, int(rng.integers(0, 5)))
        taken = keys.take(shifted, places, rows)
        assert taken[1].dtype == np.int64
        assert unpack(*taken) == [made[i] for i in rows]


def test_rows_that_do_not_exist_are_refused() -> None:
    data, offsets = pack([b"a", b"b"])
    for row in (-1, 2, 2**40, -(2**63)):
        with pytest.raises(IndexError):
            keys.take(data, offsets, np.array([0, row], np.int64))


def test_interleave_agrees_with_lists(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (3_000 if long else 200)):
        rng = np.random.default_rng(seed)
        parts = [random_keys(rng, int(rng.choice(SIZES))) for _ in range(int(rng.integers(1, 6)))]
        full = [number for number, part in enumerate(parts) if part]
        count = int(rng.integers(0, 100)) if full else 0
        source = rng.choice(np.array(full or [0], np.int32), count).astype(np.int32)
        position = np.array([rng.integers(0, len(parts[part])) for part in source], np.int64)
        packed = [pack(part, int(rng.integers(0, 5))) for part in parts]
        data, offsets = keys.interleave(packed, source, position)
        assert offsets.dtype == np.int64 and offsets[0] == 0
        assert unpack(data, offsets) == oracle.interleave(parts, source.tolist(), position.tolist()), seed


@pytest.mark.parametrize(
    ("source", "position"),
    [(0, 2), (0, -1), (1, 0), (2, 0), (-1, 0), (2**31 - 1, 0), (0, 2**62), (-(2**31), 1)],
)
def test_keys_that_do_not_exist_are_refused(source: int, position: int) -> None:
    parts = [pack([b"a", b"b"]), pack([])]
    with pytest.raises(IndexError, match=f"no key {position} in part {source}"):
        keys.interleave(parts, np.array([0, source], np.int32), np.array([1, position], np.int64))
    with pytest.raises(ValueError, match="1 sources, 0 positions"):
        keys.interleave(parts, np.zeros(1, np.int32), np.zeros(0, np.int64))


@pytest.mark.parametrize(
    "offsets",
    [
        [],
        [-1, 4],
        [0, 9],
        [0, 5, 4],
        [0, 2**62, 4],
        [5, 0],
        [0, -(2**63)],
        [0, 2**63 - 1],
        [2**63 - 1, -(2**63)],
        [-(2**63), 2**63 - 1],
        [9, 9],
        [-1, -1],
    ],
    ids=str,
)
def test_offsets_outside_the_data_are_refused(offsets: list[int]) -> None:
    data, bad = np.zeros(8, np.uint8), np.array(offsets, np.int64)
    good = pack([b"a", b"b"])
    n = max(len(offsets) - 1, 0)
    calls: list[Callable[[], object]] = [
        lambda: keys.interleave([good, (data, bad)], np.ones(n, np.int32), np.arange(n)),
        lambda: keys.order(data, bad),
        lambda: keys.same(data, bad),
        lambda: keys.sort(data, bad),
        lambda: keys.group(data, bad, np.zeros(n, np.uint64)),
        lambda: keys.lower_bound(data, bad, *good),
        lambda: keys.lower_bound(*good, data, bad),
        lambda: keys.take(data, bad, np.arange(n)),
        lambda: keys.concat([good, (data, bad)]),
        lambda: keys.decode(data, bad, [(BINARY, 0)]),
        lambda: keys.decode(data, bad, [(SIGNED, 4)]),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):
        keys.group(*good, np.zeros(3, np.uint64))
