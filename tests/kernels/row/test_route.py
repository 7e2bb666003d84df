"""One key goes to the partition that its columns say, and bytes that are no key are refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kudu_core._ext.row.route import KeyRouter
from kudu_core.common.rows.keys import EncodedKeys
from tests.support.oracles.keys import hashing
from tests.support.oracles.row import route as oracle

U, S, B, D = hashing.UNSIGNED, hashing.SIGNED, hashing.BINARY, hashing.DECIMAL
KINDS = [(U, 1), (U, 2), (U, 4), (U, 8), (S, 1), (S, 2), (S, 4), (S, 8), (B, 0), (D, 16)]
WORDS = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b\0\1c", b"host-1", b"\xff" * 40, b"x" * 33]


def cell_of(r: random.Random, kind: int, width: int, long_decimal: bool) -> int | bytes:
    if kind == B:
        return r.choice(WORDS)
    bits = 8 * width
    if kind == D and not long_decimal:
        bits = 60
    low, high = (0, (1 << bits) - 1) if kind == U else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return r.choice([low, high, low + 1, high // 2, r.randint(low, high), min(max(0, low), high)])


def made(r: random.Random) -> tuple[list[Any], list[Any], list[int], list[bytes], list[int]]:
    columns = [(*r.choice(KINDS), r.random() < 0.5) for _ in range(r.randint(1, 5))]
    columns = [(k, w, long and k == D) for k, w, long in columns]
    places = list(range(len(columns)))
    hashes = [
        (r.sample(places, r.randint(1, len(places))), r.randint(2, 9), r.choice([42, 0, 2**63]))
        for _ in range(r.randint(0, 3))
    ]
    ranged = r.sample(places, r.randint(1, len(places))) if r.random() < 0.7 else []
    cuts: set[bytes] = set()
    if ranged:
        chosen = [columns[i] for i in ranged]
        for _ in range(r.randint(0, 6)):
            cuts.add(oracle.encode(chosen, [cell_of(r, *c) for c in chosen]))
    owners = [r.choice([-1, 0, 1, 2]) for _ in range(len(cuts) + 1)]
    return columns, hashes, ranged, sorted(cuts), owners


def test_agrees_with_oracle(seed: int, long: bool) -> None:
    print(f"seed {seed}")
    for round_ in range(2000 if long else 150):
        r = random.Random(f"{seed} {round_}")
        columns, hashes, ranged, cuts, owners = made(r)
        router = KeyRouter(columns, hashes, ranged, cuts, owners)
        keys, routes = [], []
        for _ in range(30):
            cells = [cell_of(r, *c) for c in columns]
            expected = oracle.route(columns, hashes, ranged, cuts, owners, cells)
            assert router.route(oracle.encode(columns, cells)) == expected, (columns, cells)
            keys.append(oracle.encode(columns, cells))
            routes.append(expected)
        encoded = EncodedKeys.from_list(keys)
        assert router.route_keys(encoded.data, encoded.offsets).tolist() == routes == router.route_many(keys)


def test_any_bytes_are_routed_or_refused(seed: int) -> None:
    r = random.Random(seed)
    refused = 0
    for round_ in range(200):
        columns, hashes, ranged, cuts, owners = made(random.Random(f"{seed} {round_}"))
        router = KeyRouter(columns, hashes, ranged, cuts, owners)
        for _ in range(20):
            try:
                found = router.route(bytes(r.choice([0, 0, 1, 2, 97, 255]) for _ in range(r.randint(0, 60))))
            except ValueError:
                refused += 1
            else:
                assert -1 <= found < 3 * 9**3
    assert refused > 1000
    with pytest.raises(ValueError, match="no key"):
        KeyRouter([(B, 0, False)], [([0], 2, 42)], [], [], [-1]).route(b"x" * (16 * 1024 + 1))
    assert KeyRouter([(B, 0, False)], [([0], 2, 42)], [], [], [-1]).route(b"x" * (16 * 1024)) in (0, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ([], [], [], [], [-1]),
        ([(S, 3, False)], [], [], [], [-1]),
        ([(B, 8, False)], [], [], [], [-1]),
        ([(S, 16, False)], [], [], [], [-1]),
        ([(S, 8, False)] * 33, [], [], [], [-1]),
        ([(S, 8, False)], [([1], 2, 42)], [], [], [-1]),
        ([(S, 8, False)], [([], 2, 42)], [], [], [-1]),
        ([(S, 8, False)], [([0], 0, 42)], [], [], [-1]),
        ([(S, 8, False)], [], [0, 0], [], [-1]),
        ([(S, 8, False)], [], [-1], [], [-1]),
        ([(S, 8, False)], [], [0], [b"b", b"a"], [-1, 0, -1]),
        ([(S, 8, False)], [], [0], [b"a"], [-1]),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any) -> None:
    with pytest.raises(ValueError):
        KeyRouter(*arguments)
