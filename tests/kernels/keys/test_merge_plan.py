"""A merge gives every key once, in order, equal keys by run, whatever the runs look like."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.keys.merge_plan import merge
from tests.support.oracles.keys import merge_plan as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))

Run = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def pack(keys: list[bytes], start: int = 0) -> Run:
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    return np.frombuffer(b"\xff" * start + b"".join(keys), np.uint8), offsets + start


def random_runs(rng: np.random.Generator) -> list[list[bytes]]:
    """Runs that interleave, follow each other, or hold the same keys."""
    count = int(rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, 30, 300]))
    begin = b"host-000" * int(rng.integers(0, 3))
    spread = int(rng.choice([3, 50, 2**16]))
    far_apart = bool(rng.integers(2))
    runs = []
    for run in range(count):
        numbers = rng.integers(0, spread, int(rng.integers(0, 60)))
        base = (run // 2) << 16 if far_apart else 0
        keys = [begin + (base + int(n)).to_bytes(4, "big") + b"\0" * int(n % 3) for n in numbers]
        runs.append(sorted([*keys, b""] if rng.integers(20) == 0 else keys))
    return runs


def test_agrees_with_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (10_000 if long else 300)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        runs = random_runs(rng)
        source, position = merge([pack(run, int(rng.integers(0, 3))) for run in runs])
        assert source.dtype == np.int32
        assert position.dtype == np.int64
        assert list(zip(source.tolist(), position.tolist(), strict=True)) == oracle.merge(runs)


def test_equal_keys_come_in_the_order_of_their_runs() -> None:
    runs = [pack([b"k"] * 20), pack([]), pack([b"k"] * 30), pack([b"j", *[b"k"] * 9])]
    source, position = merge(runs)
    assert source.tolist() == [3] + [0] * 20 + [2] * 30 + [3] * 9
    assert position.tolist() == [0, *range(20), *range(30), *range(1, 10)]


def test_runs_that_are_not_in_order_still_give_each_key_once() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    runs = [[rng.bytes(int(rng.integers(0, 9))) for _ in range(50)] for _ in range(7)]
    source, position = merge([pack(run) for run in runs])
    assert sorted(zip(source.tolist(), position.tolist(), strict=True)) == [
        (run, key) for run in range(7) for key in range(50)
    ]


def test_many_keys() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    parts = [np.sort(rng.integers(0, 2**40, size)).astype(">u8") for size in (70_000, 3, 20_000, 0, 50_000)]
    runs = [(part.view(np.uint8), np.arange(len(part) + 1) * 8) for part in parts]
    source, position = merge(runs)
    merged = np.concatenate([part.astype(np.uint64) for part in parts])
    starts = np.cumsum([0, *(len(part) for part in parts)])
    np.testing.assert_array_equal(starts[source] + position, np.argsort(merged, kind="stable"))


@pytest.mark.parametrize("offsets", [[], [-1, 2], [0, 9], [0, 3, 2], [0, 2**62, 1], [5, 0], [9]], ids=str)
def test_offsets_outside_the_data_are_refused(offsets: list[int]) -> None:
    good = pack([b"a", b"b"])
    with pytest.raises(ValueError):
        merge([good, (np.zeros(8, np.uint8), np.array(offsets, np.int64)), good])
