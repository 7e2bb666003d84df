"""``_ext.search.share``: a rowset's bytes lie evenly between its bounds, wherever the others' bounds are."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.search import share
from kudu_core.common.rows.keys import EncodedKeys
from tests.support.oracles.search import share as oracle


def keys_of(rng: np.random.Generator, count: int) -> list[bytes]:
    """Keys with long common beginnings, of few values, of zeros, empty."""
    pool = [
        lambda: rng.bytes(int(rng.integers(0, 12))),
        lambda: b"user" + b"%019d" % rng.integers(0, 10**12),
        lambda: b"a" * int(rng.integers(0, 4)) + bytes(int(rng.integers(0, 4))),
        lambda: b"host-7\0\0" + int(rng.integers(0, 50)).to_bytes(8, "big"),
        lambda: b"x" * 9 + rng.bytes(3),
    ]
    return sorted({pool[int(rng.integers(0, len(pool)))]() for _ in range(count)})


def test_what_lies_below(seed: int, long: bool) -> None:
    for run in range(2000 if long else 200):
        rng = np.random.default_rng((seed, run))
        keys = keys_of(rng, int(rng.integers(1, 40)))
        bounds = np.sort(rng.integers(0, len(keys), (int(rng.integers(0, 20)), 2)), axis=1)
        sizes = rng.integers(0, 1 << 30, len(bounds))
        packed = EncodedKeys.from_list(keys)
        found = share.below(
            packed.data,
            packed.offsets,
            np.ascontiguousarray(bounds[:, 0]),
            np.ascontiguousarray(bounds[:, 1]),
            sizes,
        )
        rowsets = [(int(a), int(b), int(s)) for (a, b), s in zip(bounds, sizes, strict=True)]
        wanted = oracle.below(keys, rowsets)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-3, err_msg=str(run))
        assert (np.diff(found) >= -1e-3).all()


def test_wrong_arguments_are_refused() -> None:
    packed = EncodedKeys.from_list([b"a", b"b"])
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    assert share.below(packed.data, packed.offsets, zero, one, one).tolist() == [0, 1]
    assert share.below(packed.data[:0], zero, zero[:0], zero[:0], zero[:0]).tolist() == []
    for first, last in ((one, zero), (-one, one), (zero, 2 * one), (zero, np.array([2**62]))):
        with pytest.raises(IndexError):
            share.below(packed.data, packed.offsets, first, last, one)
    with pytest.raises(ValueError, match="-1 bytes"):
        share.below(packed.data, packed.offsets, zero, one, -one)
    with pytest.raises(ValueError, match="weights"):
        share.below(packed.data, packed.offsets, zero, one, one[:0])
    with pytest.raises(ValueError, match="descend"):
        share.below(packed.data, np.array([0, 2, 1]), zero, one, one)
    for offsets in ([0, 1, 3], [-1, 1, 2]):
        with pytest.raises(ValueError, match="outside"):
            share.below(packed.data, np.array(offsets), zero, one, one)
    with pytest.raises(ValueError):
        share.below(packed.data, packed.offsets[:0], zero[:0], zero[:0], zero[:0])
