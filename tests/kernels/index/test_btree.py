"""The B-tree gives the order of its keys, whatever came in which runs."""

from __future__ import annotations

import os
import threading

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.index.btree import BTree
from tests.support.oracles.index import btree as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]


def pack(keys: list[bytes]) -> tuple[U8, I64]:
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    return np.frombuffer(b"".join(keys), np.uint8), offsets


def distinct_keys(rng: np.random.Generator, count: int, shape: int) -> list[bytes]:
    def number(below: int) -> int:
        return int(rng.integers(below))

    if shape == 0:
        made = [bytes(rng.integers(0, 256, 8, np.uint8)) for _ in range(count)]
    elif shape == 1:
        made = [b"host-%05d\0\0" % number(1000) + number(2**40).to_bytes(8, "big") for _ in range(count)]
    elif shape == 2:
        made = [b"host-%05d\0\0" % (i % 100) + i.to_bytes(8, "big") for i in range(count)]
    elif shape == 3:
        made = [bytes(rng.integers(0, 3, number(30), np.uint8)) for _ in range(count)]
    elif shape == 4:
        made = [b"p" * 40 + i.to_bytes(8, "big") for i in range(count)]
    elif shape == 5:
        made = [bytes(number(5000)) for _ in range(count)]
    else:
        # What all keys share gets shorter again and again: nodes must take their prefixes anew.
        made = [b"x" * (40 - i * 40 // count) + b"%d" % number(10**9) for i in range(count)]
    return list(dict.fromkeys(made))


def random_bound(rng: np.random.Generator, keys: list[bytes]) -> bytes | None:
    kind = rng.integers(6)
    if kind == 0:
        return None
    if kind == 1:
        return bytes(rng.integers(0, 256, int(rng.integers(0, 6)), np.uint8))
    key = keys[int(rng.integers(len(keys)))]
    if kind == 2:
        return key[: int(rng.integers(len(key) + 1))]
    if kind == 3:
        return key + b"\0"
    return key


def test_agrees_with_a_sorted_list(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (2100 if long else 70)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        keys = distinct_keys(rng, int(rng.choice([1, 65, 300, 6000])), seed % 7)
        if seed % 5 == 0:
            keys.reverse()
        data, offsets = pack(keys)
        tree, expected = BTree(), oracle.BTree(keys)
        largest = int(rng.choice([1, 10, 100, 10_000]))
        done = 0
        while done < len(keys):
            run = list(range(done, min(len(keys), done + int(rng.integers(1, largest + 1)))))
            run.sort(key=keys.__getitem__)
            tree.insert_sorted(data, offsets, np.array(run, np.uint32))
            done += len(run)
            assert tree.count == done
            if largest > 10 or done == len(keys):
                expected.insert_sorted(run if largest > 10 else list(range(done)))
                assert tree.range(data, offsets, None, None, done).tolist() == expected.ordinals
        for _ in range(20):
            lower, upper = random_bound(rng, keys), random_bound(rng, keys)
            limit = int(rng.integers(0, done + 2))
            for most in (None, 0, 1, int(rng.integers(0, done + 2))):
                found = tree.range(data, offsets, lower, upper, limit, most).tolist()
                assert found == expected.range(lower, upper, limit, most)


def test_an_empty_tree_and_the_empty_key() -> None:
    data, offsets = pack([b""])
    tree = BTree()
    assert tree.range(data, offsets, None, None, 5).tolist() == []
    tree.insert_sorted(data, offsets, np.empty(0, np.uint32))
    assert tree.count == 0
    tree.insert_sorted(data, offsets, np.zeros(1, np.uint32))
    assert tree.range(data, offsets, None, None, 5).tolist() == [0]
    assert tree.range(data, offsets, b"", None, 5).tolist() == [0]
    assert tree.range(data, offsets, b"", b"", 5).tolist() == []
    assert tree.range(data, offsets, b"\0", None, 5).tolist() == []
    assert tree.range(data, offsets, None, b"\0", 5).tolist() == [0]


def test_keys_that_differ_in_trailing_zeros_keep_their_order() -> None:
    keys = [b"host" + bytes(i) for i in range(200)]
    data, offsets = pack(keys)
    tree = BTree()
    for parity in (1, 0):
        tree.insert_sorted(data, offsets, np.arange(parity, 200, 2, dtype=np.uint32))
    assert tree.range(data, offsets, None, None, 200).tolist() == list(range(200))
    assert tree.range(data, offsets, keys[7], keys[9], 200).tolist() == [7, 8]


def test_the_arena_may_be_replaced_by_a_longer_one() -> None:
    keys = [b"host-%05d" % (i * 7919 % 100_000) for i in range(3000)]
    tree = BTree()
    for done in range(0, 3000, 500):
        data, offsets = pack(keys[: done + 500])
        run = np.array(sorted(range(done, done + 500), key=keys.__getitem__), np.uint32)
        tree.insert_sorted(data, offsets, run)
    order = sorted(range(3000), key=keys.__getitem__)
    assert tree.range(*pack(keys), None, None, 3000).tolist() == order
    assert tree.range(*pack(keys), None, None, 700).tolist() == [i for i in order if i < 700]


def test_ascending_keys_pack_the_nodes() -> None:
    keys = np.arange(1 << 16, dtype=">u8")
    data, offsets = keys.view(np.uint8), np.arange((1 << 16) + 1, dtype=np.int64) * 8
    at_once, in_runs = BTree(), BTree()
    at_once.insert_sorted(data, offsets, np.arange(1 << 16, dtype=np.uint32))
    for lower in range(0, 1 << 16, 100):
        in_runs.insert_sorted(data, offsets, np.arange(lower, min(1 << 16, lower + 100), dtype=np.uint32))
    # 1,024 full leaves of 832 bytes and their parents: not one leaf more than the power of two.
    assert at_once.nbytes == in_runs.nbytes < 1024 * 832 * 1.1
    for tree in (at_once, in_runs):
        assert tree.range(data, offsets, None, None, 1 << 16).tolist() == list(range(1 << 16))


def test_faulty_arguments_change_nothing() -> None:
    data, offsets = pack([b"a", b"b", b"c"])
    tree = BTree()
    for ordinals in ([3], [0, 2**32 - 1]):
        with pytest.raises(ValueError, match="arena holds 3 keys"):
            tree.insert_sorted(data, offsets, np.array(ordinals, np.uint32))
    tree.insert_sorted(data, offsets, np.arange(3, dtype=np.uint32))
    with pytest.raises(ValueError, match="arena holds 2 keys"):
        tree.range(data, offsets[:3], None, None, 3)
    with pytest.raises(ValueError, match="negative"):
        tree.range(data, offsets, None, None, -1)
    assert tree.range(data, offsets, None, None, 1 << 70).tolist() == [0, 1, 2]


def test_threads_fill_and_read_one_tree(long: bool) -> None:
    total = 200_000 if long else 30_000
    rng = np.random.default_rng(FIRST_SEED)
    keys = rng.permutation(total).astype(">u8")
    data, offsets = keys.view(np.uint8), np.arange(total + 1, dtype=np.int64) * 8
    rank = keys.astype(np.int64)
    tree = BTree()
    faults: list[str] = []

    def work(seed: int) -> None:
        mine = np.random.default_rng(seed)
        while tree.count < total and not faults:
            wanted = min(total, tree.count + int(mine.integers(1, 2000)))
            with tree.lock:
                first = tree.count
                if first < wanted:
                    run = first + np.argsort(rank[first:wanted]).astype(np.uint32)
                    tree.insert_sorted(data, offsets, run.astype(np.uint32))
            got = tree.range(data, offsets, None, None, wanted)
            if not np.array_equal(got, np.argsort(rank[:wanted])):
                faults.append(f"order of {wanted} keys")

    workers = [threading.Thread(target=work, args=(FIRST_SEED + i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not faults
    assert tree.count == total
