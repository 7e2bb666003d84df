"""Payloads of WRITE and INGEST records come back, and what breaks their rules is damage."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption
from kudu_core.tablet.store import records
from kudu_core.tablet.store.records import COLUMN, PAYLOAD, SECTION, Payload, Section

NUMBERS = ColumnBuffers(8, 3, np.arange(3, dtype=np.int64).view(np.uint8), None, None)
WORDS = ColumnBuffers(
    0, 3, np.frombuffer(b"abcde", np.uint8), np.array([0, 2, 2, 5], np.int32), np.array([0b101], np.uint8)
)
EXTRA = {"counts": [3, 0, 0, 0]}

SECTION_AT = PAYLOAD.size + 2 * 4 + 24  # behind two tablets and EXTRA
NUMBERS_AT = SECTION_AT + SECTION.size
WORDS_AT = NUMBERS_AT + COLUMN.size
TABLETS_AT = WORDS_AT + COLUMN.size
OFFSETS_AT = TABLETS_AT + 16 + 3 * 8 + 8  # behind the tablet numbers, the numbers, the validity of the words


def payload(tablets: tuple[int, ...] = (3, 9)) -> Payload:
    rows = np.array([0, len(tablets) - 1, 0], np.int32)
    block = RowBlock({5: NUMBERS, 7: WORDS}, 3)
    return Payload(tablets, [Section(records.RECORD_INSERT, block, rows)], EXTRA)


def encoded(tablets: tuple[int, ...] = (3, 9)) -> bytearray:
    return bytearray(b"".join(bytes(part) for part in records.encode(payload(tablets))))


def decoded(data: bytes | bytearray) -> Payload:
    return records.decode(memoryview(bytes(data)), "wal/a.log", 1000)


@pytest.mark.parametrize("tablets", [(3,), (3, 9)])
def test_a_payload_comes_back(tablets: tuple[int, ...]) -> None:
    found = decoded(encoded(tablets))
    assert (found.tablets, found.extra) == (tablets, EXTRA)
    (section,) = found.sections
    assert section.op == records.RECORD_INSERT and section.block.rows == 3
    assert section.tablets.tolist() == [0, len(tablets) - 1, 0]
    numbers, words = section.block.columns[5], section.block.columns[7]
    assert numbers.values.tolist() == NUMBERS.values.tolist() and numbers.validity is None
    assert words.values.tobytes() == b"abcde"
    assert words.offsets is not None and words.offsets.tolist() == [0, 2, 2, 5]
    assert words.validity is not None and words.validity.tolist() == [0b101]


def put(layout: str, at: int, value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(layout, data, at, value)


FORGED: dict[str, tuple[Callable[[bytearray], None], str]] = {
    "no operation": (put("<B", SECTION_AT, 0), "operation 0"),
    "a fourth operation": (put("<B", SECTION_AT, 4), "operation 4"),
    "an unknown flag": (put("<B", SECTION_AT + 1, 3), "flags 3"),
    "rows of no tablet": (put("<B", SECTION_AT + 1, 0), "rows without tablet numbers"),
    "a tablet behind the last": (put("<i", TABLETS_AT + 4, 2), "a row names a tablet"),
    "a tablet before the first": (put("<i", TABLETS_AT + 8, -1), "a row names a tablet"),
    "an odd width": (put("<B", NUMBERS_AT + 4, 3), "values of 3 bytes"),
    "a width of other cells": (put("<B", NUMBERS_AT + 4, 4), "24 bytes for 3 values of 4 bytes"),
    "too few cells": (put("<Q", NUMBERS_AT + 8, 16), "16 bytes for 3 values of 8 bytes"),
    "numbers with offsets": (put("<Q", NUMBERS_AT + 16, 16), "24 bytes for 3 values of 8 bytes"),
    "too few offsets": (put("<Q", WORDS_AT + 16, 12), "12 bytes of offsets for 3 rows"),
    "no offsets": (put("<Q", WORDS_AT + 16, 0), "0 bytes of offsets for 3 rows"),
    "offsets from behind zero": (put("<i", OFFSETS_AT, 1), "offsets do not ascend"),
    "offsets that descend": (put("<i", OFFSETS_AT + 8, 1), "offsets do not ascend"),
    "offsets to another end": (put("<i", OFFSETS_AT + 12, 4), "offsets do not ascend"),
    "more JSON than a reader takes": (put("<I", 8, records.MAX_EXTRA_BYTES + 1), "bytes of JSON"),
    "JSON that is none": (put("<B", PAYLOAD.size + 8, 0), "record payload"),
    "values that are not there": (put("<Q", WORDS_AT + 8, 1 << 40), "offsets do not ascend"),
    "more sections": (put("<I", 0, 2), "are promised"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_breaks_a_rule_is_damage(name: str) -> None:
    forge, reason = FORGED[name]
    data = encoded()
    forge(data)
    with pytest.raises(Corruption, match=reason) as caught:
        decoded(data)
    assert "wal/a.log at byte 1" in str(caught.value), "it says where"


def test_a_payload_that_is_cut_anywhere_is_damage() -> None:
    data = encoded()
    for length in range(len(data) - 3):  # behind the last value there are three bytes of padding
        with pytest.raises(Corruption):
            decoded(data[:length])
    assert len(decoded(data[:-3]).sections) == 1


@pytest.mark.parametrize("tablets", [1, 2, 5, 40])
@pytest.mark.parametrize("rows", [0, 1, 9, 100])
def test_each_tablet_gets_its_rows_in_their_order(tablets: int, rows: int) -> None:
    rng = np.random.default_rng(tablets * 1000 + rows)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 4, rows))]).astype(np.int32)
    text = rng.integers(97, 123, int(offsets[-1])).astype(np.uint8)
    validity = rng.integers(0, 256, (rows + 7) // 8).astype(np.uint8)
    numbers = np.arange(rows, dtype=np.int64)
    block = RowBlock(
        {
            5: ColumnBuffers(8, rows, numbers.view(np.uint8), None, None),
            7: ColumnBuffers(0, rows, text, offsets, validity),
        },
        rows,
    )
    drawn = rng.integers(0, tablets, rows).astype(np.int32)
    sections = [
        Section(records.RECORD_INSERT, block, drawn),
        Section(records.RECORD_UPDATE, block, np.full(rows, tablets - 1, np.int32)),
    ]
    names = {5: ("n", ColumnType.parse("int64")), 7: ("s", ColumnType.parse("string"))}
    found = records.split(sections, tablets)
    assert len(found) == tablets
    for position, parts in enumerate(found):
        wanted = []
        for section in sections:
            mine = np.flatnonzero(section.tablets == position)
            if len(mine):
                wanted.append((section.op, section.block.take(mine).to_arrow(names)))
        assert [(op, part.to_arrow(names)) for op, part in parts] == wanted
