"""``_ext.keys.block_search``: what each probe finds is what looking at every cell finds."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.keys import block_search
from tests.support.oracles.keys.block_search import Numbers, find

TYPES = ("<u1", "<u2", "<u4", "<u8", "<i1", "<i2", "<i4", "<i8")


def numbers(rng: np.random.Generator, types: list[str], count: int) -> Numbers:
    columns = []
    for name in types:
        info = np.iinfo(name)
        pool = [info.min, info.max, 0, 1, *rng.integers(info.min, info.max, 3, name).tolist()]
        columns.append([pool[i] for i in rng.integers(0, len(pool), count)])
    return list(zip(*columns, strict=True))


def packed(tuples: Numbers, types: list[str]) -> list[np.ndarray]:
    return [np.array([t[i] for t in tuples], types[i]).view(np.uint8) for i in range(len(types))]


def test_it_finds_what_is_there(seed: int, long: bool) -> None:
    hits = 0
    for run in range(5000 if long else 300):
        rng = np.random.default_rng((seed, run))
        types = [str(t) for t in rng.choice(TYPES, rng.integers(1, 4))]
        block_rows = int(rng.choice((1, 3, 16)))

        cells = sorted(set(numbers(rng, types, int(rng.integers(1, 60)))))
        count = -(-len(cells) // block_rows)
        wanted = numbers(rng, types, int(rng.integers(0, 30))) + cells[:5]
        of = rng.integers(0, count, len(wanted)).astype(np.int64)
        have, want = packed(cells, types), packed(wanted, types)
        columns = [(h, w, int(t[2]), t[1] == "i") for h, w, t in zip(have, want, types, strict=True)]
        found = block_search.find(columns, of, block_rows).tolist()
        assert found == find(cells, wanted, of.tolist(), block_rows), run
        hits += sum(at >= 0 for at in found)
    assert hits > 100


def test_wrong_arguments_are_refused() -> None:
    cells, probe = np.arange(4, dtype="<u4").view(np.uint8), np.zeros(4, np.uint8)
    none = np.empty(0, np.uint8)
    zero = np.zeros(1, np.int64)
    assert block_search.find([(cells, probe, 4, False)], zero, 2).tolist() == [0]
    assert block_search.find([(none, none, 4, False)], zero[:0], 2).tolist() == []
    for block in (-1, 2, 2**62, -(2**63)):
        with pytest.raises(IndexError, match="block"):
            block_search.find([(cells, probe, 4, False)], np.array([block], np.int64), 2)
    with pytest.raises(IndexError):
        block_search.find([(none, probe, 4, False)], zero, 2)
    for columns, rows in (
        ([], 2),
        ([(cells, probe, 4, False)] * 65, 2),
        ([(cells, probe, 4, False)], 0),
        ([(cells, probe, 3, False)], 2),
        ([(cells[:5], probe, 4, False)], 2),
        ([(cells, none, 4, False)], 2),
        ([(cells, probe, 4, False), (cells[:8], probe, 4, False)], 2),
    ):
        with pytest.raises(ValueError, match=r"bytes|columns|cells"):
            block_search.find(columns, zero, rows)
