"""Rows of one call on the row path: prepared, found, laid, and as the payload of a record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.columns.growing import AppendColumn, limit_data
from kudu_core._ext.few import few_rows
from kudu_core._ext.few.payload import payload_of_rows
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.keys.hashing import murmur3_one
from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import MISSING, TAGS
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.tablet.store import records

ROOM = 1 << 20
IDS, WIDTHS = (3, 4, 9), (8, 0, 4)
CELLS: list[list[Any]] = [
    [b"12345678", b"ab", b"wxyz"],
    [b"abcdefgh", None, None],
    [b"--------", b"", b"1234"],
]


@pytest.fixture
def writer() -> RowWriter:
    columns = [
        ("k", 3, TAGS["signed"], 8, False),
        ("s", 4, TAGS["text"], 0, True),
        ("n", 9, TAGS["signed"], 4, False),
    ]
    return RowWriter(columns, [0], [MISSING, None, MISSING])


def test_rows_are_prepared(writer: RowWriter) -> None:
    rows = [{"k": 1, "n": 2}, {"n": 3, "k": -1}]
    prepared = writer.prepare_rows(rows, CALL_INSERT, ROOM)
    assert prepared is not None
    assert prepared[0] == [(1 << 63 | 1).to_bytes(8, "big"), ((1 << 63) - 1).to_bytes(8, "big")]
    assert [cells[1:] for cells in prepared[1]] == [[None, b"\2\0\0\0"], [None, b"\3\0\0\0"]]
    prepared = writer.prepare_rows(rows, CALL_UPSERT, ROOM)
    assert prepared is not None and [cells[1] for cells in prepared[1]] == [MISSING, MISSING]
    assert writer.prepare_rows([], CALL_UPSERT, ROOM) == ([], [])


@pytest.mark.parametrize(
    ("operation", "rows"),
    [
        (CALL_UPSERT, [{"k": 1, "n": 2}, {"k": 2, "s": "a"}]),
        (CALL_UPSERT, [{"k": 1, "n": 2}, {"k": 2}]),
        (CALL_UPSERT, [{"k": 1, "n": 2}, {"k": 1, "n": 3}]),
        (CALL_UPSERT, [{"k": 1, "n": 2}, {"k": 2, "n": None}]),
        (CALL_UPSERT, [{"k": 1, "n": 2}, {"k": 2, "n": 2.0}]),
        (CALL_UPSERT, [{"k": 1, "n": 2}, {"s": "a", "n": 2}]),
        (CALL_UPSERT, [{"k": 1, "n": 2}, ("k", 2)]),
        (CALL_INSERT, [{"k": 1, "s": "a"}, {"k": 2, "s": "b"}]),
        (CALL_UPDATE, [{"k": 1}, {"k": 2}]),
        (CALL_DELETE, [{"k": 1, "n": 2}, {"k": 2, "n": 2}]),
        (CALL_UPSERT, [{"k": 1, "s": "a" * ROOM}, {"k": 2, "s": "b"}]),
    ],
)
def test_what_is_not_plain_is_left(writer: RowWriter, operation: int, rows: list[Any]) -> None:
    assert writer.prepare_rows(rows, operation, ROOM) is None


@pytest.mark.parametrize("tablets", [(7,), (7, 8, 12)])
def test_the_payload_is_read_as_it_was_meant(tablets: tuple[int, ...]) -> None:
    places = [len(tablets) - 1, 0, 0]
    keys = [[cells[0], MISSING, MISSING] for cells in CELLS]
    payload = payload_of_rows(
        IDS, WIDTHS, tablets, [(records.RECORD_INSERT, CELLS, places), (records.RECORD_DELETE, keys, places)]
    )
    read = records.decode(memoryview(payload), "log", 0)
    assert read.tablets == tablets and read.extra == {}
    inserts, deletes = read.sections
    assert (inserts.op, deletes.op) == (records.RECORD_INSERT, records.RECORD_DELETE)
    assert inserts.tablets.tolist() == deletes.tablets.tolist() == places
    assert list(inserts.block.columns) == list(IDS) and list(deletes.block.columns) == [3]
    for i, column in enumerate(inserts.block.columns.values()):
        cells = [None if column.is_null(row) else column.cell(row) for row in range(3)]
        assert cells == [row[i] for row in CELLS]
    assert payload == b"".join(bytes(part) for part in records.encode(read))


@pytest.mark.parametrize(
    ("rows", "places"),
    [
        ([], []),
        (CELLS, [0, 0]),
        (CELLS, [0, 0, 1]),
        (CELLS, [0, 0, -1]),
        ([CELLS[0][:2]], [0]),
        ([[b"1234567", b"", b"1234"]], [0]),
        ([CELLS[0], [b"12345678", MISSING, b"wxyz"]], [0, 0]),
        ([["12345678", b"", b"1234"]], [0]),
    ],
)
def test_a_payload_of_wrong_rows_is_refused(rows: list[Any], places: list[int]) -> None:
    with pytest.raises((ValueError, TypeError)):
        payload_of_rows(IDS, WIDTHS, (1,), [(records.RECORD_INSERT, rows, places)])


def test_grouped_and_picked() -> None:
    assert few_rows.grouped([5, 2, 5, 5, 2]) == {5: [0, 2, 3], 2: [1, 4]}
    given = ["a", "b", "c"]
    assert few_rows.picked(given, [2, 0]) == ["c", "a"] and few_rows.picked(given, [0, 1, 2]) is given
    for place in (3, -1):
        with pytest.raises(IndexError):
            few_rows.picked(given, [place])


class Points:
    """Where keys have entries, as a view's points say it."""

    def __init__(self, entries: dict[bytes, list[tuple[int, int]]]) -> None:
        self.entries = entries

    def find(self, key: bytes, hash: int) -> list[tuple[int, int]]:
        assert hash == murmur3_one(key)
        return self.entries.get(key, [])


class Store:
    def __init__(self, *dead: int) -> None:
        self.dead = dead

    def lives(self, row: int) -> bool:
        return row not in self.dead


def test_keys_are_located() -> None:
    points: Any = Points({b"a": [(0, 4)], b"c": [(1, 7), (2, 3)], b"d": [(1, 7)], b"e": [(2, 9)]})
    stores = Store(), Store(7), Store()
    keys = [b"a", b"b", b"c", b"d", b"e"]
    rowids = [0] * 5
    found = few_rows.locate(points, stores, keys, None, rowids)
    assert found == ([1, 3], {0: [0], 2: [2, 4]}) and rowids == [4, 0, 3, 0, 9]
    assert few_rows.locate(points, stores, keys, [4, 3], rowids) == ([3], {2: [4]})
    # A dead entry of the active MemRowSet is revived by the general path.
    assert few_rows.locate(points, (Store(4), *stores[1:]), keys, None, rowids) is None
    for places in ([5], [-1]):
        with pytest.raises(IndexError):
            few_rows.locate(points, stores, keys, places, rowids)
    with pytest.raises(ValueError, match="room for 1 rows"):
        few_rows.locate(points, stores, keys, None, [0])


def test_inserts_take_the_room_that_was_made() -> None:
    table, inserted = KeyTable(1), AppendColumn(8)
    columns = [AppendColumn(width) for width in WIDTHS]
    laid: list[list[Any]] = []
    for step in range(400):
        keys = [f"{step}-{i}".encode() for i in range(3)]
        rows = [[bytes([i] * 8), None if i == 1 else keys[i] * step, bytes(4)] for i in range(3)]
        few_rows.reserve_inserts(table, inserted, columns, keys, rows)
        buffers = table.nbytes, inserted.allocated, *(column.allocated for column in columns)
        few_rows.put_inserts(table, inserted, columns, step, keys, rows)
        assert buffers == (table.nbytes, inserted.allocated, *(column.allocated for column in columns))
        assert [table.find(key, murmur3_one(key), 10**6) for key in keys] == list(
            range(3 * step, 3 * step + 3)
        )
        laid += rows
    assert [[column.cell(i) for column in columns] for i in range(len(laid))] == laid
    times = inserted.snapshot(0, 1200)[0].view(np.uint64)
    assert times.tolist() == [step for step in range(400) for _ in range(3)]


def test_room_for_wrong_rows_is_refused() -> None:
    table, inserted = KeyTable(1), AppendColumn(8)
    columns = [AppendColumn(width) for width in WIDTHS]
    wrong: list[list[Any]] = [
        [b"12345678", b""],
        [b"1234567", b"", b"1234"],
        [b"12345678", MISSING, b"1234"],
    ]
    for cells in wrong:
        with pytest.raises((ValueError, TypeError)):
            few_rows.reserve_inserts(table, inserted, columns, [b"a"], [cells])
    with pytest.raises(ValueError, match="2 keys of 1 rows"):
        few_rows.reserve_inserts(table, inserted, columns, [b"a", b"b"], [CELLS[0]])
    assert len(table) == len(inserted) == 0


def test_half_a_column_is_the_most() -> None:
    usual = limit_data(1000)
    try:
        columns = [AppendColumn(0)]
        rows: list[list[Any]] = [[b"x" * 251], [b"y" * 250]]
        with pytest.raises(OverflowError):
            few_rows.reserve_inserts(KeyTable(1), AppendColumn(8), columns, [b"a", b"b"], rows)
        rows[0] = [b"x" * 250]
        few_rows.reserve_inserts(KeyTable(1), AppendColumn(8), columns, [b"a", b"b"], rows)
    finally:
        limit_data(usual)


def test_changes_are_those_of_one_row_each() -> None:
    few, each = ChangeLog(), ChangeLog()
    ids = (None, 4, 9)
    rows: list[list[Any]] = [[b"12345678", cells[1], MISSING] for cells in CELLS]
    for step in range(300):
        rowids = [step, 1000 + step, 5]
        few.reserve_few(ids, WIDTHS, rows)
        allocated = few.allocated
        few.append_few(step, records.RECORD_UPDATE, rowids, ids, rows)
        assert few.allocated == allocated
        for rowid, cells in zip(rowids, rows, strict=True):
            each.reserve_one(ids, WIDTHS, cells)
            each.append_one(step, records.RECORD_UPDATE, rowid, ids, cells)
    assert few.column_ids == each.column_ids == (4,)
    for mine, other in zip(few.changes(0, 900), each.changes(0, 900), strict=True):
        assert mine.tolist() == other.tolist()
    for at in (few, each):
        assert at.points.touched(5) and not at.points.touched(600)
    mine_values, other_values = (log.column_changes(4, 0, 900)[2] for log in (few, each))
    assert isinstance(mine_values, ColumnBuffers)
    assert [mine_values.is_null(i) or mine_values.cell(i) for i in range(900)] == [
        other_values.is_null(i) or other_values.cell(i) for i in range(900)
    ]
