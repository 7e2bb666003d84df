"""Rows of several files come in the order of their keys, whatever these are made of; files are begun late."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.ordered.in_order import RowsInOrder
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from tests.kernels.row.test_file import fixed, index_of, strings, worded
from tests.support.oracles.ordered.in_order import rows_in_order

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
FORMS = ("number", "steps", "gaps", "jumps", "unsigned", "string", "prefix", "composite", "encoded", "words")
SIZES = (1, 2, 17, 1000, 1024, 1025, 2049, 3000)


@dataclass
class Source:
    """A file with keys, and what is asked of it."""

    keys: list[bytes]
    points: PointFile
    listed: int = 0

    def lists(self, row: int, lower: bytes | None, size: int) -> Iterator[tuple[Any, Any, Any]]:
        self.listed += 1
        if row < 0:
            row = sum(lower is not None and key < lower for key in self.keys)
        for at in range(row, len(self.keys), size):
            part = self.keys[at : at + size]
            ends = np.cumsum([0, *map(len, part)]).astype(np.int64)
            yield np.arange(at, at + len(part)), np.frombuffer(b"".join(part), np.uint8), ends


def source_of(r: random.Random, form: str, n: int) -> Source:
    encoded: PointColumn | None = None
    order: list[tuple[PointColumn, int, int, int]] | None = None
    if form in ("number", "steps", "gaps", "jumps"):
        first = r.randrange(-500, 500)
        if form == "number":
            numbers = sorted(r.sample(range(-(2**31), 2**31), n))
        elif form == "steps":
            numbers = list(range(first, first + 7 * n, 7))
        else:  # deltas; some of them are exceptions
            far = 0.0 if form == "gaps" else r.choice([0.003, 0.02, 0.1])
            gaps = [r.randrange(10**5) if r.random() < far else r.randrange(1, 9) for _ in range(n)]
            numbers = np.cumsum([first, *gaps])[:n].tolist()
        keys = [(x + 2**31).to_bytes(4, "big") for x in numbers]
        order = [(fixed(np.array(numbers, np.int32), np.ones(n, bool), 1, 0), 0, 4, 1 << 31)]
    elif form == "unsigned":
        numbers = sorted(r.sample(range(2**16), n))
        keys = [x.to_bytes(2, "big") for x in numbers]
        order = [(fixed(np.array(numbers, np.uint16), np.ones(n, bool), 0, 0), 0, 2, 0)]
    elif form in ("string", "prefix"):
        keys = sorted({bytes(r.choices(b"ab\0", k=r.randrange(12))) + str(i).encode() for i in range(n)})
        bits = r.choice([10, 14])
        column = strings(keys, np.ones(len(keys), bool), 0, prefix=form == "prefix", page_bits=bits)
        order = [(column, 2, 0, 0)]
    elif form == "words":  # a word of a dictionary at the end of the key
        pairs = sorted({(r.randrange(100), r.choice([b"", b"a", b"a\0", b"b" * 40])) for _ in range(n)})
        keys = [x.to_bytes(1, "big") + word for x, word in pairs]
        valid = np.ones(len(keys), bool)
        number = fixed(np.array([x for x, _ in pairs], np.uint8), valid, 0, 0)
        order = [(number, 0, 1, 0), (worded([w for _, w in pairs], valid, 1), 1, 0, 0)]
    else:
        hosts = [b"", b"a\0b", b"a", *(b"host-%d" % r.randrange(10**6) for _ in range(r.choice([1, 40])))]
        times = sorted({(r.choice(hosts), r.randrange(-(10**6), 10**6)) for _ in range(n)})
        keys = [h.replace(b"\0", b"\0\1") + b"\0\0" + (t + 2**63).to_bytes(8, "big") for h, t in times]
        valid = np.ones(len(keys), bool)
        if form == "encoded":
            encoded = strings(keys, valid, 0, prefix=True, page_bits=r.choice([10, 12]))
        else:
            number = fixed(np.array([t for _, t in times], np.int64), valid, 1, 0)
            order = [(worded([h for h, _ in times], valid, 1), 1, 0, 0), (number, 0, 8, 1 << 63)]
    return Source(keys, PointFile(len(keys), {}, order, encoded, index_of(keys), None))


def in_order(
    sources: list[Source], lower: bytes | None, upper: bytes | None, size: int = 16, files: bool = True
) -> RowsInOrder:
    return RowsInOrder(
        [s.keys[0] for s in sources],
        [s if files else None for s in sources],
        lambda number, row: sources[number].lists(row, lower, size),
        lower,
        upper,
    )


def bound(r: random.Random, sources: list[Source]) -> bytes | None:
    key = r.choice(r.choice(sources).keys)
    return r.choice([None, key, key[:-1], key + b"\0", key[: len(key) // 2]])


def taken(order: RowsInOrder, r: random.Random, most: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    while True:
        count = r.choice([0, 1, 2, 16, most])
        found, rows = order.take(count)
        out += zip(found.tolist(), rows.tolist(), strict=True)
        if len(found) < count:
            return out


@pytest.mark.parametrize("form", FORMS)
def test_every_row_comes_in_its_place(form: str, long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (200 if long else 12)):
        print(f"seed {seed}")
        r = random.Random(seed)
        sources = [source_of(r, form, r.choice(SIZES)) for _ in range(r.choice([1, 2, 3, 20]))]
        keys = [s.keys for s in sources]
        for _ in range(3):
            lower, upper = bound(r, sources), bound(r, sources)
            if r.random() < 0.4:
                upper = None
            expected = rows_in_order(keys, lower, upper)
            order = in_order(sources, lower, upper)
            assert taken(order, r, 400) == expected
            assert not any(s.listed for s in sources)
            assert order.begun <= len(sources)
            by_lists = in_order(sources, lower, upper, r.choice([1, 5, 1000]), files=False)
            assert taken(by_lists, r, 400) == expected
            for source in sources:
                source.listed = 0


def test_a_source_is_begun_when_its_first_key_is_the_next() -> None:
    sources = []
    for i in range(20):
        numbers = np.arange(1000 * i, 1000 * i + 1000, dtype=np.uint32)
        column = fixed(numbers, np.ones(1000, bool), 0, 0)
        keys = [int(x).to_bytes(4, "big") for x in numbers]
        points = PointFile(1000, {}, [(column, 0, 4, 0)], None, index_of(keys), None)
        sources.append(Source(keys, points))
    order = in_order(sources, None, None)
    assert order.begun == 0 and order.last_key == b""
    assert order.take(1000)[1].tolist() == list(range(1000))
    assert order.begun == 1 and order.last_key == sources[0].keys[-1]
    assert order.take(1)[0].tolist() == [1] and order.begun == 2
    assert sum(s.points.pages for s in sources) == 2
    order = in_order(sources, sources[7].keys[5], sources[7].keys[8])
    assert order.take(9)[1].tolist() == [5, 6, 7]
    # Those before it could have had such keys, for all that it knows of them.
    assert order.begun == 8


def test_a_file_that_ends_goes_on_by_lists() -> None:
    """As when a compaction lets go of it, or the cache keeps no page."""
    r = random.Random(3)
    sources = [source_of(r, "composite", 2000) for _ in range(3)]
    expected = rows_in_order([s.keys for s in sources], None, None)
    order = in_order(sources, None, None)
    found, rows = order.take(100)
    sources[1].points.close()
    more = taken(order, r, 400)
    assert [*zip(found.tolist(), rows.tolist(), strict=True), *more] == expected
    assert [s.listed for s in sources] == [0, 1, 0]

    def unkept(number: int) -> Any:
        raise NeedsGeneralPath

    column = PointColumn(unkept, 1, 4)
    keys = [i.to_bytes(4, "big") for i in range(50)]
    source = Source(keys, PointFile(50, {}, [(column, 0, 4, 0)], None, index_of(keys), None))
    order = in_order([source], keys[20], keys[30])
    assert order.take(99)[1].tolist() == list(range(20, 30)) and source.listed == 1


def test_damaged_pages_are_left_to_the_lists(long: bool) -> None:
    """Whatever the bytes are, rows are rows of the file."""
    from kudu_core._ext.pages import blocks

    for seed in range(FIRST_SEED, FIRST_SEED + (3000 if long else 200)):
        print(f"seed {seed}")
        r = random.Random(seed)
        n = r.choice([1, 100, 1024, 3000])
        keys = sorted({b"%d-%d" % (r.randrange(50), r.randrange(10**6)) for _ in range(n)})
        ends = np.cumsum([0, *map(len, keys)]).astype(np.int32)
        data = np.frombuffer(b"".join(keys), np.uint8)
        page = bytearray(blocks.encode_binary(ends, data, None, r.random() < 0.5))
        for _ in range(r.randint(1, 6)):
            near = min(len(page), r.choice([64, 200, len(page)]))
            page[r.randrange(near)] = r.choice([0, 1, 127, 128, 255])
        broken = bytes(page[: r.choice([len(page), len(page), r.randrange(len(page))])])
        column = PointColumn(lambda number, broken=broken: (broken, 0), 1, 0)  # type: ignore[misc]
        points = PointFile(len(keys), {}, [(column, 2, 0, 0)], None, index_of(keys), None)
        source = Source(keys, points)
        for lower in (None, r.choice(keys)):
            found, rows = in_order([source], lower, None).take(2 * len(keys))
            assert not found.any() and ((rows >= 0) & (rows < len(keys))).all()


def test_wrong_arguments() -> None:
    source = source_of(random.Random(0), "number", 10)
    with pytest.raises(ValueError, match="1 first keys, 0 files"):
        RowsInOrder([b""], [], lambda number, row: iter(()), None, None)
    with pytest.raises(ValueError, match="-1 rows"):
        in_order([source], None, None).take(-1)
    assert [len(a) for a in RowsInOrder([], [], lambda number, row: iter(()), None, None).take(3)] == [0, 0]
    for rows, ends in (([0, 1], [0, 1]), ([0], [0, 9]), ([0], [1, 0])):
        lists = [(np.array(rows, np.int64), np.zeros(2, np.uint8), np.array(ends, np.int64))]
        with pytest.raises(ValueError):
            RowsInOrder([b""], [None], partial(_given, lists), None, None).take(1)


def _given(lists: list[Any], number: int, row: int) -> Iterator[Any]:
    return iter(lists)
