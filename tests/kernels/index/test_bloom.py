"""A bloom filter forgets no key, lets few others through, and has the bits its format says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import exp

import numpy as np
import pytest

from kudu_core._ext.index import bloom
from tests.support.oracles.index import bloom as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


@pytest.fixture(params=[True, False], ids=["avx2", "portable"])
def body(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both bodies of the kernel, where the machine can run both."""
    if bloom._choose(request.param) != request.param:
        pytest.skip("this machine has no AVX2")
    yield
    bloom._choose(True)


@pytest.mark.usefixtures("body")
def test_agrees_with_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (2000 if long else 60)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        hashes = rng.integers(0, 2**64, int(rng.choice([0, 1, 2, 31, 32, 33, 500])), np.uint64)
        bits = int(rng.integers(1, 33))
        built = bloom.build(hashes, bits)
        assert built.dtype == np.uint8
        assert built.tobytes() == oracle.build(hashes.tolist(), bits)
        probes = np.concatenate([hashes, rng.integers(0, 2**64, 100, np.uint64)])
        expected = oracle.probe(built.tobytes(), probes.tolist())
        assert bloom.probe(built, probes).tolist() == expected
        assert all(expected[: len(hashes)])
        rows = rng.integers(0, len(probes), int(rng.integers(0, 100)))
        assert bloom.probe(built.tobytes(), probes, rows).tolist() == [expected[i] for i in rows]


@pytest.mark.usefixtures("body")
def test_any_stored_bytes_are_a_filter_at_any_address() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    stored = rng.integers(0, 256, 32 * 9 + 1, np.uint8)
    hashes = rng.integers(0, 2**64, 300, np.uint64)
    assert bloom.probe(stored[1:], hashes).tolist() == oracle.probe(stored[1:].tobytes(), hashes.tolist())
    edges = np.array([0, 2**32 - 1, 2**32, 2**63, 2**64 - 1], np.uint64)
    assert bloom.probe(bloom.build(edges, 12), edges).all()


@pytest.mark.parametrize("bits, rate", [(10, 0.0126), (12, 0.0054), (16, 0.0012), (20, 0.0004)])
def test_false_positives_are_as_rare_as_promised(bits: int, rate: float) -> None:
    rng = np.random.default_rng(FIRST_SEED)
    hashes = rng.integers(0, 2**64, 200_000, np.uint64)
    strangers = rng.integers(0, 2**64, 1_000_000, np.uint64)
    built = bloom.build(hashes, bits)
    assert len(built) == -(-200_000 * bits // 256) * 32
    assert bloom.probe(built, hashes).all()
    assert 0.7 * rate < bloom.probe(built, strangers).mean() < 1.3 * rate


def test_bits_per_key_follow_from_the_wanted_rate() -> None:
    assert [bloom.bits_per_key(rate) for rate in (0.0126, 0.0054, 0.0012, 0.0004)] == [10, 12, 16, 20]
    assert bloom.bits_per_key(0.5) == 8
    assert bloom.bits_per_key(0.01) == 11
    assert bloom.bits_per_key(1e-9) == bloom.MAX_BITS_PER_KEY
    for percent in range(1, 100):
        # Keys of a block are Poisson; each sets one bit of 32 in every word.
        bits = bloom.bits_per_key(percent / 1000)
        chance, rate = exp(-256 / bits), 0.0
        for keys in range(1, 300):
            chance *= 256 / bits / keys
            rate += chance * (1 - (31 / 32) ** keys) ** 8
        assert rate <= 1.05 * percent / 1000


def test_no_keys_match_nothing() -> None:
    built = bloom.build(np.empty(0, np.uint64), 12)
    assert built.tobytes() == bytes(32)
    assert not bloom.probe(built, np.arange(100, dtype=np.uint64)).any()
    assert bloom.probe(built, np.empty(0, np.uint64)).tolist() == []
    assert bloom.probe(built, np.arange(3, dtype=np.uint64), np.empty(0, np.int64)).tolist() == []


@pytest.mark.parametrize("size", [0, 1, 31, 33, 63])
def test_filters_of_a_wrong_length_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        bloom.probe(bytes(size), np.zeros(1, np.uint64))


def test_arguments_out_of_range_are_refused() -> None:
    for bits in (-1, 0, 33):
        with pytest.raises(ValueError):
            bloom.build(np.zeros(1, np.uint64), bits)
    for rate in (0.0, 1.0, -0.5, float("nan")):
        with pytest.raises(ValueError):
            bloom.bits_per_key(rate)
    for row in (-1, 2):
        with pytest.raises(ValueError, match=f"row {row} "):
            bloom.probe(bytes(32), np.zeros(2, np.uint64), np.array([0, row]))
