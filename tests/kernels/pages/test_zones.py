"""Zone maps agree with their oracle for every width and kind."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.pages import zones
from tests.kernels.pages.test_dictionary import packed
from tests.support.oracles.pages import zones as oracle

UNSIGNED, SIGNED, FLOAT, DECIMAL = 0, 1, 2, 4


def bits(valid: np.ndarray) -> np.ndarray | None:
    return None if valid.all() else np.packbits(valid, bitorder="little")


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("nulls", [0.0, 0.4, 1.0])
def test_fixed_zone_agrees_with_oracle(dtype: str, nulls: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = {"u": UNSIGNED, "i": SIGNED, "f": FLOAT}[dtype[0]]
    for rows in (1, 7, 1000):
        raw = rng.bytes(rows * int(dtype[1]))
        values = np.frombuffer(raw, dtype).copy()
        if kind == FLOAT:
            values[rng.random(rows) < 0.2] = np.nan
            values[rng.random(rows) < 0.1] = np.inf
            values = np.where(np.isnan(values), np.array(np.nan, dtype), values)
        valid = rng.random(rows) >= nulls
        low, high, null_count, nan_count = zones.zone_fixed(
            values.view(np.uint8), int(dtype[1]), kind, bits(valid)
        )
        cells = [v if ok else None for v, ok in zip(values.tolist(), valid.tolist(), strict=True)]
        expected = oracle.fixed(cells)
        got = [None if b is None else np.frombuffer(b, dtype)[0].item() for b in (low, high)]
        assert (*got, null_count, nan_count) == expected


def test_decimal_zone_compares_all_sixteen_bytes() -> None:
    numbers = [-(2**120), 5, 2**100, -1, 0]
    raw = np.frombuffer(b"".join(n.to_bytes(16, "little", signed=True) for n in numbers), np.uint8)
    low, high, nulls, _ = zones.zone_fixed(raw, 16, DECIMAL)
    assert low is not None and high is not None and nulls == 0
    assert int.from_bytes(low, "little", signed=True) == -(2**120)
    assert int.from_bytes(high, "little", signed=True) == 2**100


def test_binary_zone_agrees_with_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rows in (1, 5, 500):
        cells = [
            None if rng.random() < 0.3 else rng.bytes(int(rng.integers(0, 6))).replace(b"b", b"\0")
            for _ in range(rows)
        ]
        low, high, nulls = oracle.binary(cells)
        assert zones.zone_binary(*packed(cells)) == (low, high, nulls)
        for most in (0, 1, 3, 100):
            cut = [None if bound is None else bound[:most] for bound in (low, high)]
            assert zones.zone_binary(*packed(cells), most_bytes=most) == (*cut, nulls)


def test_bounds_of_strings_meet_intervals_as_the_oracle_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    letters = (b"\0", b"a", b"b", b"\xff")

    def some() -> bytes:
        return b"".join(letters[i] for i in rng.integers(0, 4, int(rng.integers(0, 5))))

    bounds = [sorted((some(), some())) for _ in range(200)]
    open_ended = (rng.random(200) < 0.1).astype(np.uint8)
    raw = [
        np.array([list(bytes((len(one),)) + one.ljust(8, b"\0")) for one in ends], np.uint8)
        for ends in zip(*bounds, strict=True)
    ]
    for _ in range(50):
        first, beyond = some(), None if rng.random() < 0.2 else some()
        found = zones.strings_meet(*raw, open_ended, first, beyond)
        for (low, high), is_open, met in zip(bounds, open_ended.tolist(), found.tolist(), strict=True):
            assert met == oracle.strings_meet(low, None if is_open else high, first, beyond)
    for damaged in (np.full_like(raw[0], 255), raw[0][:10]):  # lengths beyond the row; fewer rows
        if len(damaged) < 200:
            with pytest.raises(ValueError):
                zones.strings_meet(damaged, raw[1], open_ended, b"", None)
        else:
            assert len(zones.strings_meet(damaged, damaged, open_ended, b"a", b"b")) == 200
