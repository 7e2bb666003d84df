"""Plain values of one row become the bytes of their columns, keys and records, and nothing else does."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import random
from decimal import Decimal
from typing import Any

import pytest

from kudu_core._ext.row.key_encoder import KeyEncoder
from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import MISSING, TAGS, RowShape
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT
from tests.support.oracles.row import codec as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
UTC = dt.UTC
COLUMNS = [
    *[("signed", w) for w in (1, 2, 4, 8)],
    *[("unsigned", w) for w in (1, 2, 4, 8)],
    *[("float", w) for w in (4, 8)],
    ("bool", 1),
    ("text", 0),
    ("bytes", 0),
    ("date", 4),
    ("time", 8),
    ("time_utc", 8),
]
VALUES: list[Any] = [
    *[s * (2**b) + d for b in (0, 7, 8, 15, 16, 31, 32, 63, 64, 70) for d in (-1, 0, 1) for s in (-1, 1)],
    *[0.0, -0.0, 0.1, 1e300, 3.5e38, 3.4e38, 1e-46, float("inf"), float("-inf"), float("nan")],
    *[True, False, None, "", "a", "nul\0in", "\0", "\xe4\u20ac", "\udc80", b"", b"\0\0", b"ab", "x" * 2000],
    *[dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2000, 2, 29), dt.date(9999, 12, 31)],
    *[
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1969, 12, 31, 23, 59, 59, 1),
    ],
    *[dt.datetime(2024, 2, 29, 12, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC)],
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    *[Decimal(1), [1], (1,), {"k": 1}, object],
]


def shape_of(tag: str, default: Any = None) -> RowShape:
    return RowShape(["c"], [1], [TAGS[tag]], [bytes], [default])


@pytest.mark.parametrize("tag, width", COLUMNS)
def test_cells_are_the_oracles_and_come_back(tag: str, width: int) -> None:
    writer = RowWriter([("c", 1, TAGS[tag], width, True)], [0], [None])
    for value in VALUES:
        expected = oracle.cell(tag, width, value)
        cells = writer.cells({"c": value}, 1 << 20)
        if value is None:
            assert cells == [None]
        elif expected is None:
            assert cells is None, value
        else:
            assert cells == [expected], value
            back = shape_of(tag).row(cells)["c"]
            assert repr(back) == repr(oracle.value(tag, expected)), value
            assert type(back) is type(value)


@pytest.mark.parametrize("tag", ["date", "time", "time_utc"])
def test_times_beyond_python_are_the_decoders(tag: str) -> None:
    width = 4 if tag == "date" else 8
    shape = shape_of(tag)
    for number in (-(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1):
        raw = number.to_bytes(width, "little", signed=True)
        assert shape.value(0, raw) == raw
    days = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
    unit = 1 if tag == "date" else 86_400_000_000
    for number in (days + 1) * unit, -719163 * unit:
        assert isinstance(shape.value(0, number.to_bytes(width, "little", signed=True)), bytes)


def test_keys_are_the_oracles(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (5000 if long else 300)):
        print(f"seed {seed}")
        r = random.Random(seed)
        columns = [r.choice(COLUMNS) for _ in range(r.randint(1, 4))]
        names = [f"k{i}" for i in range(len(columns))]
        encoder = KeyEncoder(names, [TAGS[t] for t, _ in columns], [w for _, w in columns])
        for _ in range(30):
            fits = [[v for v in VALUES if oracle.cell(t, w, v) is not None] for t, w in columns]
            key = tuple(r.choice(f if r.random() < 0.9 else VALUES) for f in fits)
            expected = oracle.key(columns, key)
            if expected is not None and len(expected) > 900:
                continue  # as long as that, it may be left to the general path
            assert encoder.encode(key) == expected
            assert encoder.encode(dict(zip(names, key, strict=True))) == expected
            if len(key) == 1 and type(key[0]) not in (tuple, dict):
                assert encoder.encode(key[0]) == expected
            assert encoder.encode((*key, 1)) is None and encoder.encode(key[:-1]) is None
            assert encoder.encode(list(key)) is None
            assert encoder.encode({**dict(zip(names, key, strict=True)), "other": 1}) is None


def test_many_keys_are_the_single_ones() -> None:
    encoder = KeyEncoder(["a", "b"], [TAGS["text"], TAGS["signed"]], [0, 8])
    for size in (0, 1, 900):
        keys = [("x" * (i * size % 1000), i) for i in range(200)]
        found = encoder.encode_many(keys)
        assert found is not None
        data, ends = found
        assert [data[lower:upper].tobytes() for lower, upper in itertools.pairwise(ends)] == [
            encoder.encode(key) for key in keys
        ]
    empty = encoder.encode_many([])
    assert empty is not None and empty[1].tolist() == [0]
    assert encoder.encode_many([("a", 1), ("a", 1.5)]) is None


def test_rows_for_each_kind_of_operation() -> None:
    writer = RowWriter(
        [("k", 1, TAGS["signed"], 8, False), ("v", 2, TAGS["signed"], 4, True)], [0], [MISSING, None]
    )
    key, cell = (1 << 63 | 7).to_bytes(8, "big"), (7).to_bytes(8, "little")
    five = (5).to_bytes(4, "little")
    assert writer.prepare({"k": 7}, CALL_INSERT, 1 << 20) == (key, [cell, None])
    for call in (CALL_UPSERT, CALL_UPDATE):
        assert writer.prepare({"k": 7}, call, 1 << 20) is None
        assert writer.prepare({"v": 5, "k": 7}, call, 1 << 20) == (key, [cell, five])
    assert writer.prepare({"k": 7, "v": 5}, CALL_DELETE, 1 << 20) is None
    assert writer.prepare({"k": 7}, CALL_DELETE, 1 << 20) == (key, [cell, MISSING])
    assert writer.prepare({"v": 5}, CALL_INSERT, 1 << 20) is None
    assert (writer.value_ids, writer.widths) == ((None, 2), (8, 4))
    cells: list[Any] = [cell, MISSING]
    assert writer.complete(cells) and cells == [cell, None]
    assert not writer.complete([MISSING, five])
    with pytest.raises(ValueError):
        writer.complete([cell])


def test_many_key_columns_are_left_to_the_general_path() -> None:
    encoder = KeyEncoder([f"k{i}" for i in range(40)], [TAGS["signed"]] * 40, [4] * 40)
    assert encoder.encode(tuple(range(40))) is None


def test_records_are_the_oracles(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (5000 if long else 300)):
        print(f"seed {seed}")
        r = random.Random(seed)
        columns = [(f"c{i}", 3 * i, *r.choice(COLUMNS), r.random() < 0.7) for i in range(r.randint(1, 12))]
        writer = RowWriter(
            [(n, i, TAGS[t], w, null) for n, i, t, w, null in columns], [0], [MISSING] * len(columns)
        )
        row = {}
        for name, _, tag, width, nullable in columns:
            if r.random() < 0.8:
                fits = [v for v in VALUES if oracle.cell(tag, width, v) is not None]
                row[name] = None if nullable and r.random() < 0.3 else r.choice(fits)
        cells = writer.cells(row, 1 << 20)
        assert cells is not None
        given = [
            (i, w, None if row[n] is None else oracle.cell(t, w, row[n]))
            for n, i, t, w, _ in columns
            if n in row
        ]
        assert [c for c in cells if c is not MISSING] == [c for _, _, c in given]
        assert writer.payload(2, 77, cells) == oracle.payload(2, 77, given)


def test_what_is_unusual_is_left_to_the_general_path() -> None:
    writer = RowWriter(
        [("a", 1, TAGS["signed"], 8, False), ("b", 2, TAGS["text"], 0, True)], [0], [MISSING, None]
    )
    assert writer.cells({"a": 1, "b": None}, 1000) == [(1).to_bytes(8, "little"), None]
    assert writer.cells({"a": None}, 1000) is None
    assert writer.cells({"a": 1, "c": 1}, 1000) is None
    assert writer.cells({"a": 1, 5: 1}, 1000) is None
    assert writer.cells({"a": 1, "b": "x" * 900}, 1000) is None
    assert writer.cells({}, 1000) == [MISSING, MISSING]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError):
        shape_of("signed").row([b"123"])
    with pytest.raises(ValueError):
        shape_of("signed").row([])
    with pytest.raises(IndexError):
        shape_of("signed").value(1, b"1")
    writer = RowWriter([("a", 1, TAGS["signed"], 8, False)], [0], [MISSING])
    with pytest.raises(ValueError):
        writer.payload(1, 1, [b"1234"])
    with pytest.raises(ValueError):
        writer.payload(1, 1, [])
    with pytest.raises(ValueError):
        KeyEncoder([], [], [])
    assert shape_of("signed", default=5).row([MISSING]) == {"c": 5}


def test_texts_of_every_length() -> None:
    """ASCII alone is copied; a byte that is none, wherever it stands, is decoded with the others."""
    shape = RowShape(["a"], [0], [TAGS["text"]], [bytes], [None])
    for size in range(40):
        text = bytes(97 + i % 26 for i in range(size))
        assert shape.value(0, text) == text.decode()
        for at in range(size):
            for other in ("\u00e9".encode(), b"\xff", b"\x80", b"\0"):
                changed = text[:at] + other + text[at + 1 :]
                assert shape.value(0, changed) == changed.decode("utf-8", "surrogateescape")
