"""A key table finds what was appended and nothing else, also while it grows under its readers."""

from __future__ import annotations

import os
import threading
from itertools import pairwise

import mmh3
import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.index.hash_index import KeyTable
from tests.support.oracles.index import hash_index as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


def pack(keys: list[bytes], start: int = 0) -> tuple[U8, I64]:
    """Encode keys as a batch whose offsets begin at ``start``."""
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    return np.frombuffer(b"\xaa" * start + b"".join(keys) + b"\xbb", np.uint8), offsets + start


def murmur(keys: list[bytes]) -> U64:
    return np.array([mmh3.hash64(key, 0, signed=False)[0] for key in keys], np.uint64)


def constant(keys: list[bytes]) -> U64:
    return np.full(len(keys), 0xDEADBEEF, np.uint64)


def few(keys: list[bytes]) -> U64:
    return murmur(keys) % np.uint64(7) << np.uint64(32)


def distinct_keys(rng: np.random.Generator, count: int) -> list[bytes]:
    shape = rng.integers(4)
    if shape == 0:
        made = [bytes(rng.integers(0, 2, int(rng.integers(0, 14)), np.uint8)) for _ in range(count)]
    elif shape == 1:
        made = [
            b"host-%05d\0\0" % rng.integers(1000) + int(rng.integers(2**40)).to_bytes(8, "big")
            for _ in range(count)
        ]
    elif shape == 2:
        made = [bytes(rng.integers(0, 256, 8, np.uint8)) for _ in range(count)]
    else:
        made = [bytes(int(rng.integers(0, 300))) for _ in range(count)]
    return list(dict.fromkeys(made))


def lookup(table: KeyTable, keys: list[bytes], hashes: U64, limit: int) -> list[int]:
    return list(table.lookup(*pack(keys, 3), hashes, limit).tolist())


def test_agrees_with_a_dict(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (2000 if long else 60)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        largest = int(rng.choice([1, 10, 300, 4000]))
        hash_of = murmur if largest > 300 or seed % 3 else (constant, few)[seed // 3 % 2]
        keys = distinct_keys(rng, 3 * largest)
        table, expected = KeyTable(seed, int(rng.choice([0, 1, 5000]))), oracle.KeyTable()
        done = 0
        while done < len(keys) * 3 // 4:
            batch = keys[done : done + int(rng.integers(1, largest + 1))]
            hashes = hash_of(batch)
            if rng.random() < 0.5:
                rows = rng.permutation(len(batch))
                first = table.append(*pack(batch, int(rng.integers(3))), hashes, rows)
                batch, hashes = [batch[i] for i in rows], hashes[rows]
            else:
                first = table.append(*pack(batch, int(rng.integers(3))), hashes)
            assert first == expected.append(batch, hashes.tolist()) == done
            done += len(batch)
            limit = int(rng.integers(0, done + 3))
            probes = [keys[i] for i in rng.integers(0, len(keys), 50)]
            hashes = hash_of(probes)
            wanted = [expected.find(key, limit) for key in probes]
            assert lookup(table, probes, hashes, limit) == wanted
            rows = rng.integers(0, 50, int(rng.integers(0, 40)))
            assert table.lookup(*pack(probes), hashes, limit, rows).tolist() == [wanted[i] for i in rows]
            assert table.find(probes[0], int(hashes[0]), limit) == wanted[0]
        assert table.count == len(table) == len(expected.keys)
        data, offsets = table.keys()
        assert [bytes(data[a:b]) for a, b in pairwise(offsets)] == expected.keys
        assert table.hashes().tolist() == expected.hashes
        assert table.key_bytes == sum(map(len, expected.keys))
        assert lookup(table, keys, hash_of(keys), 1 << 60) == [expected.find(key, done) for key in keys]


def test_append_one_equals_append_of_one_row() -> None:
    keys = distinct_keys(np.random.default_rng(FIRST_SEED + 5), 2000)
    by_row, by_batch = KeyTable(1), KeyTable(1)
    hashes = murmur(keys)
    for i, key in enumerate(keys):
        assert by_row.append_one(key, int(hashes[i])) == i
    by_batch.append(*pack(keys), hashes)
    for one, other in zip(by_row.keys(), by_batch.keys(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(by_row.hashes(), by_batch.hashes())
    assert lookup(by_row, keys, hashes, len(keys)) == list(range(len(keys)))


@pytest.mark.parametrize("hash_of", [murmur, constant, few])
def test_keys_of_the_same_hash_stay_apart(hash_of: object) -> None:
    keys = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b", b"b"] + [b"k%d" % i for i in range(300)]
    hashes = hash_of(keys)  # type: ignore[operator]
    table = KeyTable(9)
    table.append(*pack(keys), hashes)
    assert lookup(table, keys, hashes, len(keys)) == list(range(len(keys)))
    strangers = [key + b"!" for key in keys]
    assert lookup(table, strangers, hashes, len(keys)) == [-1] * len(keys)
    assert lookup(table, keys, hashes, 3) == [0, 1, 2] + [-1] * (len(keys) - 3)
    assert [table.find(key, int(h), 1 << 70) for key, h in zip(keys, hashes, strict=True)] == list(
        range(len(keys))
    )
    assert [table.key(i) for i in range(len(keys))] == keys


def test_an_empty_table_and_empty_batches() -> None:
    nothing: tuple[U8, I64] = np.empty(0, np.uint8), np.zeros(1, np.int64)
    no_hashes = np.empty(0, np.uint64)
    table = KeyTable()
    assert table.append(*nothing, no_hashes) == 0
    assert table.lookup(*nothing, no_hashes, 0).tolist() == []
    assert table.find(b"", 0, 10) == table.find(b"x", 5, 10) == -1
    assert lookup(table, [b"", b"x"], murmur([b"", b"x"]), 10) == [-1, -1]
    data, offsets = table.keys()
    assert len(data) == 0 and offsets.tolist() == [0] and len(table.hashes()) == 0
    assert table.append(np.empty(0, np.uint8), np.zeros(2, np.int64), np.zeros(1, np.uint64)) == 0
    assert table.find(b"", 0, 1) == 0
    assert table.append(*pack([b"x"]), np.zeros(1, np.uint64), np.empty(0, np.int64)) == 1
    assert table.count == 1


def test_views_stay_as_they_are_while_the_table_grows() -> None:
    table = KeyTable(3)
    keys = [b"key-%d" % i for i in range(20_000)]
    hashes = murmur(keys)
    table.append(*pack(keys[:30]), hashes[:30])
    data, offsets = table.keys(10, 20)
    before = bytes(data), offsets.tolist()
    stored = table.hashes(10, 20)
    for i in range(30, len(keys), 1000):
        table.append(*pack(keys[i : i + 1000]), hashes[i : i + 1000])
    assert (bytes(data), offsets.tolist()) == before
    assert [bytes(data[a:b]) for a, b in pairwise(offsets)] == keys[10:20]
    assert stored.tolist() == hashes[10:20].tolist()
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1
    del table
    assert bytes(data) == before[0]


def test_the_seed_changes_places_only() -> None:
    keys = [b"%d" % i for i in range(500)]
    for seed in (0, 1, -1, 2**64 - 1, 2**70):
        table = KeyTable(seed)
        table.append(*pack(keys), murmur(keys))
        assert lookup(table, keys, murmur(keys), 500) == list(range(500))


def test_reserved_room_is_used_and_counted() -> None:
    table = KeyTable()
    table.reserve(10_000, 100_000)
    size = table.nbytes
    keys = [b"%010d" % i for i in range(10_000)]
    table.append(*pack(keys), murmur(keys))
    assert table.nbytes == size > 10_000 * (10 + 8 + 8 + 8)


def test_faulty_batches_change_nothing() -> None:
    table = KeyTable()
    data, offsets = pack([b"a", b"bc"])
    hashes = np.zeros(2, np.uint64)
    faulty: list[tuple[U8, I64, U64, I64 | None]] = [
        (data, np.empty(0, np.int64), hashes, None),
        (data, offsets, hashes[:1], None),
        (data, np.array([0, 1, 99]), hashes, None),
        (data, np.array([0, 2, 1]), hashes, None),
        (data, np.array([-1, 1, 2]), hashes, None),
        (data, offsets, hashes, np.array([0, 2])),
        (data, offsets, hashes, np.array([-1])),
    ]
    for bad_data, bad_offsets, bad_hashes, rows in faulty:
        with pytest.raises(ValueError):
            table.append(bad_data, bad_offsets, bad_hashes, rows)
        with pytest.raises(ValueError):
            table.lookup(bad_data, bad_offsets, bad_hashes, 5, rows)
    with pytest.raises(ValueError, match="negative"):
        table.lookup(data, offsets, hashes, -1)
    with pytest.raises(ValueError, match="negative"):
        table.find(b"a", 0, -1)
    with pytest.raises(ValueError, match="capacity"):
        KeyTable(0, -1)
    with pytest.raises(ValueError, match="fewer than"):
        table.reserve(1 << 32, 0)
    for lower, upper in ((0, 1), (-1, 0), (1, 0)):
        with pytest.raises(ValueError):
            table.keys(lower, upper)
        with pytest.raises(ValueError):
            table.hashes(lower, upper)
    with pytest.raises(IndexError):
        table.key(0)
    assert table.count == 0 and table.append(data, offsets, hashes) == 0


def test_readers_beside_the_writer_see_every_key_of_their_prefix(long: bool) -> None:
    total = 2_000_000 if long else 200_000
    width = 16
    rng = np.random.default_rng(FIRST_SEED)
    keys = rng.integers(0, 256, (total, width), np.uint8)
    keys[:, :4] = np.arange(total, dtype=">u4").view(np.uint8).reshape(total, 4)
    data = keys.reshape(-1)
    offsets = np.arange(total + 1, dtype=np.int64) * width
    hashes = rng.integers(0, 2**64, total, np.uint64)
    table = KeyTable(11)
    finished = threading.Event()
    faults: list[str] = []
    looked_up = [0, 0]

    def read(reader: int) -> None:
        mine = np.random.default_rng(FIRST_SEED + 1 + reader)
        last_turn = False
        while not last_turn and not faults:
            last_turn = finished.is_set()
            limit = table.count
            rows = mine.integers(0, max(1, min(total, limit + 500)), 2000)
            got = table.lookup(data, offsets, hashes, limit, rows)
            if not np.array_equal(got, np.where(rows < limit, rows, -1)):
                faults.append(f"{limit} keys: wrong ordinals")
            row = int(rows[0])
            if table.find(keys[row].tobytes(), int(hashes[row]), limit) != (row if row < limit else -1):
                faults.append(f"{limit} keys: wrong ordinal of {row}")
            lower = max(0, limit - 300)
            seen, ends = table.keys(lower, limit)
            if not np.array_equal(seen[int(ends[0]) : int(ends[-1])], data[lower * width : limit * width]):
                faults.append(f"{limit} keys: wrong bytes")
            looked_up[reader] += len(rows)

    readers = [threading.Thread(target=read, args=(i,)) for i in range(2)]
    for reader in readers:
        reader.start()
    at = 0
    while at < total:
        size = min(total - at, int(rng.integers(1, 3000)))
        assert table.append(data, offsets[at : at + size + 1], hashes[at : at + size]) == at
        at += size
    finished.set()
    for reader in readers:
        reader.join()
    assert not faults
    assert min(looked_up) > 0
