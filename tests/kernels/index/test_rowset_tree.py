"""``_ext.index.rowset_tree``: who may hold a key is whoever has it within the bounds."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core.common.rows.keys import EncodedKeys
from tests.support.oracles.index import rowset_tree as oracle


def tree_of(bounds: oracle.Bounds) -> BoundsTree:
    first, last = (EncodedKeys.from_list([b[n] for b in bounds]) for n in (0, 1))
    return BoundsTree((first.data, first.offsets), (last.data, last.offsets))


def some_key(rng: np.random.Generator) -> bytes:
    kind = rng.integers(0, 4)
    if kind == 0:
        return rng.bytes(int(rng.integers(0, 4)))
    if kind == 1:
        return b"user%06d" % rng.integers(0, 10**6)
    if kind == 2:
        return b"prefix-longer-than-eight-" + bytes([int(rng.integers(0, 256))])
    return bytes(int(rng.integers(0, 12)))


def layouts(rng: np.random.Generator) -> list[tuple[bytes, bytes]]:
    count = int(rng.choice((0, 1, 2, 3, 7, 40, 300)))
    if rng.random() < 0.3:  # each ends before the next begins
        keys = sorted({some_key(rng) for _ in range(2 * count)})
        return list(zip(keys[::2], keys[1::2], strict=False))
    found = []
    for _ in range(count):
        first, last = sorted((some_key(rng), some_key(rng)))
        found.append((first, first if rng.random() < 0.1 else last))
    return sorted(found)


def test_points_ranges_and_batches(seed: int, long: bool) -> None:
    one_by_one = 0
    for run in range(2000 if long else 150):
        rng = np.random.default_rng((seed, run))
        bounds = layouts(rng)
        tree = tree_of(bounds)
        assert tree.count == len(bounds)
        probes = [some_key(rng) for _ in range(20)] + [k for b in bounds[:3] for k in (*b, b[1] + b"\0")]
        for key in probes:
            assert tree.point(key).tolist() == oracle.point(bounds, key)
        for _ in range(20):
            lower, upper = (None if rng.random() < 0.2 else probes[rng.integers(len(probes))] for _ in "ab")
            assert tree.range(lower, upper).tolist() == oracle.within(bounds, lower, upper)
        for count in (0, 1, 2, len(probes), 200):
            keys = sorted(probes[n] if n < len(probes) else some_key(rng) for n in range(count))
            packed = EncodedKeys.from_list(keys)
            found = tree.batch(packed.data, packed.offsets)
            assert list(zip(*(part.tolist() for part in found), strict=True)) == oracle.batch(bounds, keys)
            one_by_one += 0 < count * 64 < len(bounds)
    assert one_by_one > 10


@pytest.mark.parametrize("laid", ["evenly", "in clusters", "rising", "doubled", "two"])
def test_many_bounds_are_found_wherever_they_lie(seed: int, laid: str) -> None:
    """They are looked for near where they would lie if all were as far apart, and else by halves."""
    rng = np.random.default_rng(seed)
    for count in (63, 64, 65, 66, 80, 300, 2000):
        numbers = {
            "evenly": np.arange(count) * 7,
            "in clusters": np.sort(rng.integers(0, 5, count) << 40) + np.arange(count),
            "rising": np.unique(2.0 ** np.linspace(0, 62, count)).astype(np.int64),
            "doubled": np.sort(rng.integers(0, count // 3, count)),
            "two": np.repeat([5, 2**62], [count // 2, count - count // 2]),
        }[laid]
        keys = [int(n).to_bytes(8, "big") for n in numbers]
        bounds = [(key, key) for key in keys]
        tree = tree_of(bounds)
        near = {n + d for n in rng.choice(numbers, 40).tolist() for d in (-1, 0, 1)} | {0, 2**63, 2**64 - 1}
        for number in near | set(numbers[[0, 1, -2, -1]].tolist()):
            key = max(0, number).to_bytes(8, "big")
            for probe in (key, key + b"\0", key[:5]):
                assert tree.point(probe).tolist() == oracle.point(bounds, probe), (count, probe)


def test_wrong_arguments_are_refused() -> None:
    none = EncodedKeys.from_list([])
    with pytest.raises(ValueError, match="order"):
        tree_of([(b"b", b"c"), (b"a", b"c")])
    with pytest.raises(ValueError, match="before it begins"):
        tree_of([(b"b", b"a")])
    one = EncodedKeys.from_list([b"a"])
    for first, last in ((one, none), (none, one)):
        with pytest.raises(ValueError):
            BoundsTree((first.data, first.offsets), (last.data, last.offsets))
    for offsets in ([0, 2], [-1, 1], [1, 0]):
        with pytest.raises(ValueError):
            BoundsTree((one.data, np.array(offsets)), (one.data, one.offsets))
        with pytest.raises(ValueError):
            BoundsTree((one.data, one.offsets), (one.data, np.array(offsets)))
        with pytest.raises(ValueError):
            tree_of([(b"a", b"b")]).batch(one.data, np.array(offsets))
    with pytest.raises(ValueError):
        tree_of([]).batch(one.data, one.offsets[:0])
    with pytest.raises(TypeError):
        tree_of([]).point(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tree_of([]).range("a", None)  # type: ignore[arg-type]
