"""Encoded keys order as their columns do and come back as they went; sort, search and group agree."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core._ext.keys import keys
from tests.support.oracles.keys import keys as oracle
from tests.support.oracles.keys.keys import BINARY, DECIMAL, SIGNED, UNSIGNED, Cell, Type

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
SIZES = [0, 1, 2, 3, 31, 32, 33, 40, 100, 300]

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Column = tuple[int, int, U8, I32 | None]
Hasher = Callable[[list[bytes]], npt.NDArray[np.uint64]]


def pack(made: list[bytes], start: int = 0) -> tuple[U8, I64]:
    """Keys whose offsets begin at ``start``, with a byte behind the last."""
    offsets = np.zeros(len(made) + 1, np.int64)
    np.cumsum([len(key) for key in made], out=offsets[1:])
    return np.frombuffer(b"\xaa" * start + b"".join(made) + b"\xbb" * (start & 1), np.uint8), offsets + start


def unpack(data: U8, offsets: I64) -> list[bytes]:
    return [data[lower:upper].tobytes() for lower, upper in pairwise(offsets)]


def column(type_: Type, cells: list[Cell], start: int = 0) -> Column:
    kind, width = type_
    if kind == BINARY:
        strings = [cell for cell in cells if isinstance(cell, bytes)]
        data, offsets = pack(strings, start)
        return kind, width, data, offsets.astype(np.int32)
    signed = kind != UNSIGNED
    numbers = [cell for cell in cells if isinstance(cell, int)]
    packed = b"".join(number.to_bytes(width, "little", signed=signed) for number in numbers)
    return kind, width, np.frombuffer(packed, np.uint8), None


def random_type(rng: np.random.Generator) -> Type:
    kind = int(rng.choice([UNSIGNED, SIGNED, BINARY, BINARY, DECIMAL]))
    return kind, 0 if kind == BINARY else 16 if kind == DECIMAL else int(rng.choice([1, 2, 4, 8]))


def random_cell(rng: np.random.Generator, type_: Type) -> Cell:
    kind, width = type_
    if kind == BINARY:
        size = int(rng.choice([0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 40]))
        return bytes(rng.choice(np.array([0, 0, 1, 2, 97, 255], np.uint8), size))
    low = 0 if kind == UNSIGNED else -(1 << 8 * width - 1)
    high = low + (1 << 8 * width) - 1
    if rng.integers(3) == 0:
        return int(rng.choice([0, 1, 2]) if kind == UNSIGNED else rng.choice([-1, 0, 1]))
    if rng.integers(4) == 0:
        return low if rng.integers(2) else high
    return low + int.from_bytes(rng.bytes(width), "big")


def random_keys(rng: np.random.Generator, count: int) -> list[bytes]:
    """Keys of one of the shapes that a sort meets."""
    shape = int(rng.integers(8))
    if shape == 0:
        made = [bytes(rng.integers(0, 2, int(rng.integers(0, 14)), np.uint8)) for _ in range(count)]
    elif shape == 1:
        times = rng.integers(0, 2 ** int(rng.integers(1, 50)), count)
        made = [b"host-%05d\0\0" % rng.integers(1000) + int(time).to_bytes(8, "big") for time in times]
    elif shape == 2:
        made = [int(v).to_bytes(8, "big") for v in rng.integers(0, 2**64, count, np.uint64)]
    elif shape == 3:  # long common beginnings, differences far behind, one the beginning of the other
        begin = bytes(rng.integers(0, 256, int(rng.integers(0, 200)), np.uint8))
        ends = rng.integers(0, (90, 2), (count, 2)).tolist()
        made = [begin + b"\0" * zeros + b"x" * tail for zeros, tail in ends]
    elif shape == 4:  # bits that differ everywhere: more than 64
        made = [rng.bytes(40) for _ in range(count)]
        made = [made[int(i)] + b"!" * int(i % 2) for i in rng.integers(0, max(count // 2, 1), count)]
    elif shape == 5:  # every second bit
        made = [bytes(b & 0x55 for b in rng.bytes(20)) for _ in range(count)]
    elif shape == 6:
        made = [b"a" * int(size) for size in rng.integers(0, 700, count)]
    else:
        made = [b"same"] * count
    order = int(rng.integers(4))
    if order == 0:
        made.sort()
    elif order == 1:
        made.sort(reverse=True)
    return made


# ------------------------------------------------------------------------------ encode and decode


@pytest.mark.parametrize(
    "types, row, encoded",
    [
        ([(SIGNED, 1)], (-128,), "00"),
        ([(SIGNED, 1)], (-1,), "7f"),
        ([(SIGNED, 1)], (127,), "ff"),
        ([(SIGNED, 4)], (1,), "80000001"),
        ([(UNSIGNED, 4)], (1,), "00000001"),
        ([(BINARY, 0), (SIGNED, 4)], (b"a\0b", 5), "61000162000080000005"),
        ([(BINARY, 0), (SIGNED, 1)], (b"", 0), "000080"),
        ([(SIGNED, 1), (BINARY, 0)], (0, b"\0\0"), "800000"),
        ([(DECIMAL, 16)], (-1,), "7f" + "ff" * 15),
    ],
)
def test_known_encodings(types: list[Type], row: tuple[Cell, ...], encoded: str) -> None:
    data, offsets = keys.encode([column(t, [cell]) for t, cell in zip(types, row, strict=True)], 1)
    assert data.tobytes().hex() == encoded
    assert offsets.tolist() == [0, len(encoded) // 2]
    assert oracle.encode(types, row).hex() == encoded


def test_encode_and_decode_agree_with_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (20_000 if long else 400)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        types = [random_type(rng) for _ in range(int(rng.integers(1, 5)))]
        rows = [[random_cell(rng, t) for t in types] for _ in range(int(rng.choice(SIZES[:8])))]
        parts = [column(t, [row[i] for row in rows], int(rng.integers(0, 3))) for i, t in enumerate(types)]
        data, offsets = keys.encode(parts, len(rows))
        assert data.dtype == np.uint8
        assert offsets.dtype == np.int64
        encoded = unpack(data, offsets)
        assert offsets[0] == 0
        assert offsets[-1] == len(data)
        assert encoded == [oracle.encode(types, row) for row in rows]

        shifted, places = pack(encoded, int(rng.integers(0, 5)))
        decoded = keys.decode(shifted, places, types)
        for i, ((kind, width), (values, ends)) in enumerate(zip(types, decoded, strict=True)):
            assert values.dtype == np.uint8
            cells = [row[i] for row in rows]
            if kind == BINARY:
                assert ends is not None
                assert ends.dtype == np.int32
                assert unpack(values, ends.astype(np.int64)) == cells
            else:
                assert ends is None
                assert values.tobytes() == column((kind, width), cells)[2].tobytes()


def test_order_of_bytes_is_order_of_columns(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (5_000 if long else 100)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        types = [random_type(rng) for _ in range(int(rng.integers(1, 4)))]
        rows = [tuple(random_cell(rng, t) for t in types) for _ in range(40)]
        data, offsets = keys.encode([column(t, [r[i] for r in rows]) for i, t in enumerate(types)], len(rows))
        by_key = [rows[i] for i in keys.sort(data, offsets)]
        assert by_key == sorted(rows)


def test_bytes_that_are_no_keys_are_refused_where_they_are(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (50_000 if long else 1_500)):
        rng = np.random.default_rng(seed)
        types = [random_type(rng) for _ in range(int(rng.integers(1, 4)))]
        keep = [oracle.encode(types, [random_cell(rng, t) for t in types]) for _ in range(2)]
        bad = bytearray(oracle.encode(types, [random_cell(rng, t) for t in types]))
        for _ in range(int(rng.integers(1, 3))):
            change = int(rng.integers(3))
            if change == 0:
                del bad[int(rng.integers(0, len(bad) + 1)) :]
            elif change == 1:
                bad += rng.bytes(int(rng.integers(1, 4)))
            elif len(bad):
                bad[int(rng.integers(len(bad)))] = int(rng.choice([0, 1, 2, 255]))
        start = int(rng.integers(0, 3))
        data, offsets = pack([*keep, bytes(bad)], start)
        try:
            row, _ = oracle.decode(types, bytes(bad))
        except ValueError:
            with pytest.raises(PageError) as caught:
                keys.decode(data, offsets, types)
            assert offsets[2] <= caught.value.offset <= offsets[3], f"seed {seed}"
        else:
            decoded = keys.decode(data, offsets, types)
            again = keys.encode([(*t, *cells) for t, cells in zip(types, decoded, strict=True)], 3)
            assert unpack(*again) == [*keep, bytes(bad)], f"seed {seed}"
            assert oracle.encode(types, row) == bytes(bad)


def test_encode_refuses_buffers_of_other_lengths() -> None:
    data = np.zeros(16, np.uint8)

    def ends(*values: int) -> I32:
        return np.array(values, np.int32)

    refused: list[tuple[list[Any], int]] = [
        ([], 0),
        ([(SIGNED, 8, data, None)], 1),
        ([(SIGNED, 8, data, None)], 3),
        ([(SIGNED, 8, data, None)], -1),
        ([(SIGNED, 3, data[:3], None)], 1),
        ([(SIGNED, 0, data[:0], None)], 0),
        ([(BINARY, 0, data, None)], 1),
        ([(BINARY, 0, data, ends(0, 1))], 2),
        ([(BINARY, 0, data, ends(0, 1, 2))], 1),
        ([(BINARY, 0, data, ends(0, 17))], 1),
        ([(BINARY, 0, data, ends(-1, 1))], 1),
        ([(BINARY, 0, data, ends(0, 9, 8))], 2),
        ([(BINARY, 0, data, ends(0, 99, 8))], 2),
        ([(BINARY, 0, data, ends(0, 17)), (SIGNED, 8, data[:8], None)], 1),
    ]
    for columns, n in refused:
        with pytest.raises(ValueError):
            keys.encode(columns, n)
    with pytest.raises(ValueError):
        keys.decode(data, np.array([0, 16], np.int64), [(SIGNED, 7)])


# ---------------------------------------------------------------------- order, sort, search, group


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


# ------------------------------------------------------------------------------- moving keys about


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


# --------------------------------------------------------------------------------- hostile offsets


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
