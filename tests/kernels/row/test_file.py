"""Point reads find every key and read every cell of every encoding, and survive any bytes."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.index import bloom
from kudu_core._ext.keys import hashing
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.shape import TAGS, RowShape
from tests.support.oracles.row import file as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
PAGE = 16_384
Load = Callable[[int], tuple[Any, Any]]


def loader(pages: list[bytes], place: int = 0) -> Load:
    return lambda number: (pages[number], (place, number))


def bitmap(valid: np.ndarray) -> np.ndarray | None:
    return None if valid.all() else np.packbits(valid, bitorder="little")


def fixed(
    values: np.ndarray, valid: np.ndarray, kind: int, place: int, *, page_bits: int = 14, **more: Any
) -> PointColumn:
    page = 1 << page_bits
    raw = values.view(np.uint8).reshape(len(values), -1)
    pages = [
        blocks.encode_fixed(
            np.ascontiguousarray(raw[i : i + page]).reshape(-1),
            raw.shape[1],
            kind,
            bitmap(valid[i : i + page]),
            **more,
        )
        for i in range(0, len(values), page)
    ]
    return PointColumn(loader(pages, place), len(pages), raw.shape[1], page_bits=page_bits)


def offsets_of(words: list[bytes]) -> np.ndarray:
    return np.cumsum([0, *map(len, words)]).astype(np.int32)


def strings(
    words: list[bytes], valid: np.ndarray, place: int, *, prefix: bool = False, page_bits: int = 14
) -> PointColumn:
    page = 1 << page_bits
    pages = [
        blocks.encode_binary(
            offsets_of(words[i : i + page]),
            np.frombuffer(b"".join(words[i : i + page]), np.uint8),
            bitmap(valid[i : i + page]),
            prefix,
        )
        for i in range(0, len(words), page)
    ]
    return PointColumn(loader(pages, place), len(pages), 0, page_bits=page_bits)


def worded(words: list[bytes], valid: np.ndarray, place: int) -> PointColumn:
    data = np.frombuffer(b"".join(words), np.uint8)
    built = blocks.dictionary_build(offsets_of(words), data, bitmap(valid), 1 << 20)
    assert built is not None
    codes: np.ndarray = built[0]
    _, ends, data = built
    codes = np.where(valid, codes, 0).astype(codes.dtype)
    width = codes.dtype.itemsize
    raw = codes.view(np.uint8).reshape(len(words), -1)
    pages = [
        blocks.encode_fixed(
            np.ascontiguousarray(raw[i : i + PAGE]).reshape(-1), width, 0, bitmap(valid[i : i + PAGE])
        )
        for i in range(0, len(words), PAGE)
    ]
    return PointColumn(loader(pages, place), len(pages), width, (ends, data))


def index_of(keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    firsts = keys[::1024]
    return np.frombuffer(b"".join(firsts), np.uint8), np.cumsum([0, *map(len, firsts)]).astype(np.int64)


def filter_of(keys: list[bytes]) -> np.ndarray:
    return bloom.build(np.array([hashing.murmur3_one(k) for k in keys], np.uint64), 12)


def series(r: random.Random, n: int, dtype: Any) -> np.ndarray:
    """Numbers that come out as constants, frames, runs, deltas and exceptions."""
    rng = np.random.default_rng(r.getrandbits(32))
    info = np.iinfo(dtype)
    kind = r.randrange(6)
    if kind == 0:
        return np.full(n, r.choice([info.min, info.max, 1]), dtype)
    if kind == 1:
        return rng.integers(0, 100, n).astype(dtype)
    if kind == 2:
        return (np.arange(n) * 3 % info.max).astype(dtype)
    if kind == 3:
        return np.repeat(rng.integers(0, 100, n // 300 + 1), 300)[:n].astype(dtype)
    values = rng.integers(0, 100, n).astype(dtype) if kind == 4 else (np.arange(n) % 120).astype(dtype)
    values[rng.integers(0, n, max(1, n // 200))] = info.max
    return values


SIZES = (1, 2, 1000, 1024, 1025, 2048, 5000, PAGE, PAGE + 1)


def test_every_cell_of_every_encoding(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (300 if long else 25)):
        print(f"seed {seed}")
        r = random.Random(seed)
        n = r.choice(SIZES)
        rng = np.random.default_rng(seed)
        columns: dict[str, list[Any]] = {}
        made: dict[int, PointColumn] = {}
        tags = []
        for i in range(6):
            valid = rng.random(n) < r.choice([0.3, 0.95]) if r.random() < 0.5 else np.ones(n, bool)
            form = r.choice(["int", "int", "float", "string", "words"])
            if form == "int":
                dtype = r.choice(
                    [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
                )
                values = series(r, n, dtype)
                signed = np.dtype(dtype).kind == "i"
                made[i] = fixed(values, valid, int(signed), i, page_bits=r.choice([10, 12, 14]))
                tags.append(TAGS["signed" if signed else "unsigned"])
                cells = values.tolist()
            elif form == "float":
                values = r.choice([np.round(rng.random(n) * 100, 2), rng.random(n), np.full(n, -0.0)])
                made[i] = fixed(values, valid, 2, i, page_bits=r.choice([10, 12, 14]))
                tags.append(TAGS["float"])
                cells = values.tolist()
            else:
                cells = [r.choice(["", "a", "word", f"{r.randrange(50)}" * 9]).encode() for _ in range(n)]
                made[i] = (
                    strings(cells, valid, i, page_bits=r.choice([0, 3, 8, 10, 13, 14]))
                    if form == "string" or not valid.any()
                    else worded(cells, valid, i)
                )
                tags.append(TAGS["bytes"])
            columns[f"c{i}"] = [c if v else None for c, v in zip(cells, valid.tolist(), strict=True)]
        file = PointFile(n, made, None, None, None, None)
        shape = RowShape([*columns, "new"], [*made, 99], [*tags, 0], [bytes] * 7, [*[None] * 6, "default"])
        for row in {0, n - 1, *(r.randrange(n) for _ in range(60))}:
            found = file.row(row, shape)
            assert found.pop("new") == "default"
            assert repr(found) == repr(oracle.row(columns, row)), row
        picked = [r.randrange(n) for _ in range(r.choice([0, 1, 200]))]
        for i in made:
            values_, ends, validity = file.cells([i], np.array(picked, np.int64))[0]  # type: ignore[misc]
            for k, row in enumerate(picked):
                null = validity is not None and not validity[k >> 3] >> (k & 7) & 1
                width = len(values_) // len(picked)
                raw = (
                    values_[ends[k] : ends[k + 1]]
                    if ends is not None
                    else values_[k * width : (k + 1) * width]
                )
                want = columns[f"c{i}"][row]
                cell = shape.value(i, raw.tobytes())
                assert null == (want is None) and (null or repr(cell) == repr(want))
        assert file.cells([99], np.array([0], np.int64)) == [None]


def composite(r: random.Random, n: int) -> tuple[list[bytes], list[tuple[bytes, int]]]:
    hosts = sorted({f"host-{r.randrange(10**6)}".encode() for _ in range(r.choice([1, 3, 40, n]))})
    pairs = sorted({(r.choice(hosts), r.choice([-1, 1]) * r.randrange(10**6)) for _ in range(n)})
    keys = [host + b"\0\0" + ((ts + 2**63).to_bytes(8, "big")) for host, ts in pairs]
    return keys, pairs


def test_every_key_is_found_and_no_other(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (200 if long else 20)):
        print(f"seed {seed}")
        r = random.Random(seed)
        n = r.choice(SIZES)
        form = r.choice(["composite", "prefix", "string", "number", "steps"])
        all_valid = np.ones(n, bool)
        if form in ("composite", "prefix"):
            keys, pairs = composite(r, n)
            n = len(keys)
            all_valid = np.ones(n, bool)
            hosts = worded([h for h, _ in pairs], all_valid, 0)
            ts = fixed(
                np.array([t for _, t in pairs], np.int64),
                all_valid,
                1,
                1,
                page_bits=r.choice([10, 14]),
                allow_delta=r.random() < 0.7,
            )
            bits = r.choice([10, 13, 14])
            encoded = strings(keys, all_valid, 2, prefix=True, page_bits=bits) if form == "prefix" else None
            order = None if encoded else [(hosts, 1, 0, 0), (ts, 0, 8, 1 << 63)]
            made = {0: hosts, 1: ts}
        elif form == "string":
            keys = sorted({bytes(r.choices(b"ab\0", k=r.randrange(12))) + str(i).encode() for i in range(n)})
            prefix, bits = r.random() < 0.5, r.choice([10, 11, 14])
            encoded = None
            column = strings(keys, np.ones(len(keys), bool), 0, prefix=prefix, page_bits=bits)
            made, order = {0: column}, [(column, 2, 0, 0)]
        else:
            step = 7 if form == "steps" else 0
            numbers = sorted(
                set(range(-500, -500 + step * n, step))
                if step
                else {r.randrange(-(2**31), 2**31) for _ in range(n)}
            )
            if step and len(numbers) > 3000:
                numbers = sorted({*numbers[:1500], *(x + 10**6 for x in numbers[1500:])})
            keys = [(x + 2**31).to_bytes(4, "big") for x in numbers]
            column = fixed(np.array(numbers, np.int32), np.ones(len(keys), bool), 1, 0)
            encoded, made, order = None, {0: column}, [(column, 0, 4, 1 << 31)]
        rows = {key: i for i, key in enumerate(keys)}
        file = PointFile(
            len(keys), made, order, encoded, index_of(keys), filter_of(keys) if r.random() < 0.5 else None
        )
        probes = [*r.sample(keys, min(len(keys), 150)), keys[0], keys[-1]]
        probes += [p[:-1] for p in probes[:40]] + [p + b"\0" for p in probes[:40]] + [b"", b"\xff" * 20]
        probes += [bytes(bytearray(p)[:-1]) + bytes([p[-1] ^ 1]) for p in probes[:40] if p]
        hashes = [hashing.murmur3_one(p) for p in probes]
        expected = [rows.get(p, -1) for p in probes]
        assert expected[:3] == [oracle.find(keys, p) for p in probes[:3]]
        assert [file.find(p, h) for p, h in zip(probes, hashes, strict=True)] == expected
        data = np.frombuffer(b"".join(probes), np.uint8)
        ends = np.cumsum([0, *map(len, probes)]).astype(np.int64)
        assert file.find_many(data, ends, np.array(hashes, np.uint64)).tolist() == expected


def test_a_byte_00_inside_a_leading_string_is_left_to_the_general_path() -> None:
    words = [b"a\0b", b"c"]
    keys = [b"a\0\1b\0\0" + bytes(4), b"c\0\0" + bytes(4)]
    valid = np.ones(2, bool)
    numbers = fixed(np.zeros(2, np.uint32), valid, 0, 1)
    hosts = worded(words, valid, 0)
    file = PointFile(2, {}, [(hosts, 1, 0, 0), (numbers, 0, 4, 0)], None, index_of(keys), None)
    assert file.find(keys[1], 0) == 1
    with pytest.raises(NeedsGeneralPath):
        file.find(keys[0], 0)


def test_damaged_pages_raise_and_nothing_worse(long: bool) -> None:
    """Whatever the bytes are, the answer is a row of the file, a value or one of two errors."""
    for seed in range(FIRST_SEED, FIRST_SEED + (3000 if long else 250)):
        print(f"seed {seed}")
        r = random.Random(seed)
        n = r.choice([1, 100, 1024, 3000])
        keys, pairs = composite(r, n)
        n = len(keys)
        valid = np.ones(n, bool)
        sources = {
            0: [
                blocks.encode_fixed(
                    np.sort(np.random.default_rng(seed).integers(0, 3, n)).astype(np.uint8), 1, 0
                )
            ],
            1: [
                blocks.encode_fixed(
                    series(r, n, np.int64).view(np.uint8), 8, 1, bitmap(valid), allow_delta=True
                )
            ],
            2: [
                blocks.encode_binary(
                    offsets_of(keys), np.frombuffer(b"".join(keys), np.uint8), None, r.random() < 0.5
                )
            ],
        }
        for pages in sources.values():
            page = bytearray(pages[0])
            for _ in range(r.randint(1, 6)):
                page[r.randrange(min(len(page), r.choice([64, 200, len(page)])))] = r.choice(
                    [0, 1, 127, 128, 255, r.randrange(256)]
                )
            pages[0] = bytes(page[: r.choice([len(page), len(page), r.randrange(len(page))])])
        words = sorted({h for h, _ in pairs})[:3] or [b"x"]
        columns = {
            0: PointColumn(
                loader(sources[0]), 1, 1, (offsets_of(words), np.frombuffer(b"".join(words), np.uint8))
            ),
            1: PointColumn(loader(sources[1], 1), 1, 8),
            2: PointColumn(loader(sources[2], 2), 1, 0),
        }
        order = [(columns[0], 1, 0, 0), (columns[1], 0, 8, 1 << 63)]
        tags = [TAGS["text"], TAGS["signed"], TAGS["bytes"]]
        shape = RowShape("abc", [0, 1, 2], tags, [bytes] * 3, [None] * 3)
        one = [RowShape("a", [i], [tags[i]], [bytes], [None]) for i in range(3)]
        for encoded in (None, columns[2]):
            file = PointFile(n, columns, order, encoded, index_of(keys), None)
            for key in r.sample(keys, min(n, 10)):
                with suppress(PageError, NeedsGeneralPath):
                    assert -1 <= file.find(key, 0) < n
            for row in (0, n - 1, r.randrange(n)):
                for each in (shape, *one):
                    with suppress(PageError, NeedsGeneralPath):
                        file.row(row, each)
                for i in range(3):
                    with suppress(PageError, NeedsGeneralPath):
                        file.cells([i], np.array([row, 0, row], np.int64))


def test_pages_are_forgotten_when_the_cache_says_so() -> None:
    values = np.arange(3 * PAGE, dtype=np.uint32)
    column = fixed(values, np.ones(len(values), bool), 0, 0)
    keys = [int(v).to_bytes(4, "big") for v in values]
    file = PointFile(len(values), {0: column}, [(column, 0, 4, 0)], None, index_of(keys), None)
    assert [file.find(keys[i], 0) for i in (0, PAGE, 2 * PAGE)] == [0, PAGE, 2 * PAGE]
    assert file.pages == 3
    assert file.forget((9, 9))
    assert not file.forget((0, 0))  # used since it was last asked
    assert file.forget((0, 0)) and file.pages == 2
    assert file.find(keys[5], 0) == 5 and file.pages == 3
    file.close()
    assert file.closed and file.pages == 0
    with pytest.raises(NeedsGeneralPath):
        file.find(keys[5], 0)
    with pytest.raises(NeedsGeneralPath):
        file.row(5, RowShape("a", [0], [TAGS["unsigned"]], [bytes], [None]))


def test_pages_stay_for_look_ups_that_run_beside(long: bool) -> None:
    values = np.arange(8 * PAGE, dtype=np.uint32)
    column = fixed(values, np.ones(len(values), bool), 0, 0)
    keys = values.astype(">u4").tobytes()
    firsts = [keys[4096 * i : 4096 * i + 4] for i in range(len(values) // 1024)]
    index = np.frombuffer(b"".join(firsts), np.uint8), np.arange(0, 4 * len(firsts) + 1, 4, dtype=np.int64)
    file = PointFile(len(values), {0: column}, [(column, 0, 4, 0)], None, index, None)
    data, ends = np.frombuffer(keys, np.uint8), np.arange(0, len(keys) + 1, 4, dtype=np.int64)
    hashes = np.zeros(len(values), np.uint64)
    stop = threading.Event()

    def forget() -> None:
        while not stop.is_set():
            for number in range(8):
                file.forget((0, number))

    thread = threading.Thread(target=forget)
    thread.start()
    try:
        for _ in range(200 if long else 10):
            np.testing.assert_array_equal(file.find_many(data, ends, hashes), values)
            found, _, _ = file.cells([0], values.astype(np.int64))[0]  # type: ignore[misc]
            np.testing.assert_array_equal(found.view(np.uint32), values)
    finally:
        stop.set()
        thread.join()


def test_pages_that_the_cache_does_not_keep_are_not_held() -> None:
    page = blocks.encode_fixed(np.zeros(8, np.uint8), 8, 0)
    column = PointColumn(lambda number: (page, None), 1, 8)
    file = PointFile(1, {0: column}, None, None, None, None)
    with pytest.raises(NeedsGeneralPath):
        file.row(0, RowShape("a", [0], [TAGS["unsigned"]], [bytes], [None]))
    assert file.pages == 0


def test_bad_arguments_are_refused() -> None:
    column = fixed(np.zeros(4, np.uint32), np.ones(4, bool), 0, 0)
    file = PointFile(4, {0: column}, None, None, None, None)
    shape = RowShape("a", [0], [TAGS["unsigned"]], [bytes], [None])
    for row in (-1, 4):
        with pytest.raises(IndexError):
            file.row(row, shape)
        with pytest.raises(IndexError):
            file.cells([0], np.array([row], np.int64))
    with pytest.raises(NeedsGeneralPath):
        file.find(b"", 0)
    with pytest.raises(ValueError):
        PointFile(4, {}, None, None, (np.zeros(4, np.uint8), np.zeros(1, np.int64)), None)
    with pytest.raises(ValueError):
        PointColumn(loader([]), 0, 3)
    for width, page_bits in ((8, 9), (8, 15), (0, -1), (0, 15)):
        with pytest.raises(ValueError, match="pages of"):
            PointColumn(loader([]), 0, width, page_bits=page_bits)
    words = [b"%09d" % i for i in range(3000)]
    for pages, page_bits in ((2, 10), (3000, 0)):
        short = PointColumn(loader([]), pages, 0, page_bits=page_bits)
        with pytest.raises(ValueError, match="keys in"):
            PointFile(3000, {0: short}, [(short, 2, 0, 0)], None, index_of(words), None)
    with pytest.raises(ValueError):
        PointColumn(loader([]), 0, 1, (np.array([0, 5], np.int32), np.zeros(4, np.uint8)))
