"""Rows of views as Arrow batches: whoever takes one over frees it; what is asked wrongly is refused.

That the rows are right in every state of a table: ``tests/table/read/test_short_scan.py``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core._ext.ordered.few_in_order import RowsOfViews
from kudu_core._ext.ordered.in_order import RowsInOrder
from kudu_core._ext.ordered.looked_up import LookedUp
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.shape import TAGS, RowShape
from kudu_core._ext.row.view import PointView, RowsetPoints
from kudu_core.common.rows.keys import EncodedKeys
from tests.kernels.row.test_file import fixed, index_of, strings

ROWS = 3000
TEXTS = [b"%d" % i * (i % 3) for i in range(ROWS)]
ARROW = pa.schema([("k", pa.uint32()), ("s", pa.binary()), ("none", pa.int16()), ("flag", pa.bool_())])


def never(view: int, memory: int) -> Any:
    raise AssertionError("there are no rows in memory")


def view_of(first: int) -> PointView:
    """Of one file with the keys ``first``, ``first + 3``, ..."""
    numbers = np.arange(first, first + 3 * ROWS, 3, dtype=np.uint32)
    keys = [int(x).to_bytes(4, "big") for x in numbers]
    whole = np.ones(ROWS, bool)
    key = fixed(numbers, whole, 0, 0)
    columns = {
        0: key,
        1: strings(TEXTS, np.arange(ROWS) % 5 != 0, 0, prefix=False, page_bits=12),
        3: fixed((np.arange(ROWS) % 2).astype(np.uint8), np.arange(ROWS) % 7 != 0, 0, 0),
    }
    file = PointFile(ROWS, columns, [(key, 0, 4, 0)], None, index_of(keys), None)
    bounds = [(np.frombuffer(x, np.uint8), np.array([0, 4], np.int64)) for x in (keys[0], keys[-1])]
    return PointView([], [RowsetPoints(lambda: file, [], None, 0, -1)], BoundsTree(*bounds))


def unsearchable() -> PointView:
    file = PointFile(1, {}, None, None, None, None)
    bound = (
        (np.zeros(4, np.uint8), np.array([0, 4], np.int64)),
        (np.full(4, 255, np.uint8), np.array([0, 4], np.int64)),
    )
    return PointView([], [RowsetPoints(lambda: file, [], None, 0, -1)], BoundsTree(*bound))


def shape_of(default: bytes | None = None) -> RowShape:
    raw: list[Any] = [TAGS["raw"]] * 4
    return RowShape(ARROW.names, [0, 1, 2, 3], raw, [repr] * 4, [None, None, default, None])


def few(order: RowsInOrder, default: bytes | None = None) -> RowsOfViews:
    return RowsOfViews(order, shape_of(default), (4, 0, 2, 1), (False, False, False, True))


def order_of(lower: bytes | None = None, *, ordered: bool = True, views: int = 3) -> RowsInOrder:
    return RowsInOrder.of_views([view_of(i) for i in range(views)], 2**64 - 1, never, lower, None, ordered)


def row_of(key: int, default: int | None) -> dict[str, Any]:
    at = key // 3
    return {
        "k": key,
        "s": TEXTS[at] if at % 5 else None,
        "none": default,
        "flag": bool(at % 2) if at % 7 else None,
    }


@pytest.mark.parametrize("default", [None, 77])
def test_batches_are_freed_by_whoever_has_them(default: int | None) -> None:
    stored = None if default is None else default.to_bytes(2, "little")
    rows = few(order_of((3070).to_bytes(4, "big")), stored)
    assert rows.take(100, 1000) == rows.count == rows.taken == 100 and not rows.at_end
    assert few(order_of()).batch(1 << 20).address  # nobody takes it
    batch = rows.batch(1 << 20)
    made = pa.RecordBatch._import_from_c(batch.address, ARROW)
    made.validate(full=True)
    column = made.column(1)
    assert made.to_pylist() == [row_of(key, default) for key in range(3070, 3170)]
    del rows, batch, made
    assert column.to_pylist() == [row_of(key, None)["s"] for key in range(3070, 3170)]


class CArray(ctypes.Structure):
    """Of Arrow's C data interface."""


CArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(CArray))),
    *((name, ctypes.c_void_p) for name in ("dictionary", "release", "private_data")),
]


def release(array: CArray) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(array.release)(ctypes.addressof(array))
    assert array.release is None


def test_columns_that_are_moved_away_outlive_their_batch() -> None:
    """As the interface has it: whoever moves a child marks the place where it was as released."""
    keys = range(3070, 3170)
    for _ in range(20):
        rows = few(order_of((3070).to_bytes(4, "big")))
        rows.take(100, 1000)
        batch = rows.batch(1 << 20)
        top = CArray.from_address(batch.address)
        moved = [CArray(), CArray()]
        for at, child in enumerate(moved):
            ctypes.memmove(ctypes.addressof(child), top.children[at], ctypes.sizeof(CArray))
            top.children[at].contents.release = None
        release(top)
        del rows, batch, top
        others = [bytearray(b"x" * size) for size in range(64, 16384, 64)]  # what is free is written to
        numbers = np.frombuffer(ctypes.string_at(moved[0].buffers[1], 400), np.uint32)
        assert numbers.tolist() == list(keys)
        release(moved[0])
        ends = np.frombuffer(ctypes.string_at(moved[1].buffers[1], 404), np.int32)
        texts = ctypes.string_at(moved[1].buffers[2], int(ends[-1]))
        assert texts == b"".join(row_of(key, None)["s"] or b"" for key in keys)
        release(moved[1])
        del others


def test_rows_end_and_are_not_looked_for_without_end() -> None:
    rows = few(order_of((3 * ROWS - 5).to_bytes(4, "big")))
    assert rows.take(100, 1000) == 5 and rows.at_end
    rows = few(order_of())
    assert rows.take(100, 7) == 7 and not rows.at_end
    assert rows.take(100, 1000) == 100 and rows.taken == 100


def test_without_order_one_rowset_comes_after_the_other() -> None:
    rows = few(order_of((0).to_bytes(4, "big"), ordered=False))
    rows.take(ROWS + 3, 2 * ROWS)
    batch = rows.batch(1 << 20)
    keys = pa.RecordBatch._import_from_c(batch.address, ARROW)["k"].to_pylist()
    assert keys == [*range(0, 3 * ROWS, 3), 1, 4, 7]
    # Without bounds no key is read: of a file that nobody has opened for keys, nothing is.
    with pytest.raises(NeedsGeneralPath):
        few(order_of(ordered=False)).take(1, 1)


def test_what_is_asked_wrongly() -> None:
    order = order_of()
    with pytest.raises(ValueError, match="1 widths and 4 kinds of 4 columns"):
        RowsOfViews(order, shape_of(), (4,), (False,) * 4)
    with pytest.raises(ValueError, match="cells of 3 bytes"):
        RowsOfViews(order, shape_of(), (4, 0, 3, 1), (False,) * 4)
    with pytest.raises(ValueError, match="rows of views"):
        few(RowsInOrder([], [], never, None, None))
    with pytest.raises(TypeError, match="a view is missing"):
        RowsInOrder.of_views([None], 1, never, None, None, True)  # type: ignore[list-item]
    rows = RowsOfViews(order, shape_of(), (8, 0, 2, 1), (False,) * 4)
    rows.take(3, 3)
    with pytest.raises(NeedsGeneralPath):
        rows.batch(1 << 20)
    rows = few(order_of(), b"123")
    rows.take(3, 3)
    with pytest.raises(ValueError, match="a cell of 3 bytes, 2 are wanted"):
        rows.batch(1 << 20)
    rows = few(order_of((600).to_bytes(4, "big")))
    rows.take(10, 10)
    with pytest.raises(NeedsGeneralPath):
        rows.batch(10)  # longer strings than that


# ---- rows that are looked up ----


PLACES = (0, 1, 2, 3)
ANSWER = ARROW.append(pa.field("found", pa.bool_()))


def looked_up(keys: int, default: bytes | None = None) -> LookedUp:
    return LookedUp(2**64 - 1, shape_of(default), (4, 0, 2, 1), (False, False, False, True), keys)


def batch_of(keys: list[int]) -> tuple[Any, Any, Any]:
    encoded = EncodedKeys.from_list([key.to_bytes(4, "big") for key in keys])
    return encoded.data, encoded.offsets, encoded.hashes()


def test_keys_are_looked_up_in_one_view_after_the_other() -> None:
    asked = [5, 3 * ROWS, 4, 0, 5, 8999, 1]
    data, offsets, hashes = batch_of(asked)
    rows = looked_up(len(asked))
    shares = [[i for i, key in enumerate(asked) if key % 3 == number] for number in range(3)]
    ends = np.cumsum([len(share) for share in shares])
    rows.look_up([view_of(n) for n in range(3)], data, offsets, hashes, np.concatenate(shares), ends)
    assert rows.found.tolist() == [True, False, True, True, True, True, True] and rows.count == 6
    # Those that have a row are not looked for again, and keys need not come in order.
    rows.look_up([view_of(2)], data, offsets, hashes, np.arange(len(asked)), np.array([len(asked)]))
    assert rows.count == 6
    batch = rows.batch(1 << 20, PLACES, [])
    made = pa.RecordBatch._import_from_c(batch.address, ANSWER)
    assert made["found"].to_pylist() == rows.found.tolist()
    made = made.drop_columns("found")
    made.validate(full=True)
    assert made.column(0).null_count == 1
    nulls = dict.fromkeys(ARROW.names)
    assert made.to_pylist() == [nulls if key == 3 * ROWS else row_of(key, None) for key in asked]
    nothing = looked_up(len(asked))
    nothing.look_up([view_of(0)], data, offsets, hashes, np.empty(0, np.int64), np.zeros(1, np.int64))
    batch = nothing.batch(1 << 20, PLACES, [])
    made = pa.RecordBatch._import_from_c(batch.address, ANSWER).drop_columns("found")
    made.validate(full=True)
    assert made.to_pylist() == [nulls] * len(asked)


def test_keys_that_are_asked_for_wrongly() -> None:
    data, offsets, hashes = batch_of([3, 6])
    one = np.zeros(1, np.int64)
    for wanted in (-1, 2):
        with pytest.raises(ValueError, match=f"key {wanted} of 2"):
            looked_up(2).look_up([view_of(0)], data, offsets, hashes, one + wanted, one + 1)
    with pytest.raises(ValueError, match="1 hashes of 2 keys"):
        looked_up(2).look_up([view_of(0)], data, offsets, hashes[:1], one, one + 1)
    with pytest.raises(ValueError):
        looked_up(2).look_up([view_of(0)], data[:5], offsets, hashes, one, one + 1)
    with pytest.raises(ValueError, match="2 hashes of 2 keys in a batch of 3"):
        looked_up(3).look_up([view_of(0)], data, offsets, hashes, one, one + 1)
    for end in (-1, 2):
        with pytest.raises(ValueError, match=f"view 0 ends at {end} of 1 keys"):
            looked_up(2).look_up([view_of(0)], data, offsets, hashes, one, one + end)
    with pytest.raises(ValueError, match="1 ends of 2 views"):
        looked_up(2).look_up([view_of(0), view_of(1)], data, offsets, hashes, one, one + 1)
    with pytest.raises(TypeError):
        looked_up(2).look_up([None], data, offsets, hashes, one, one + 1)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="cells of 3 bytes"):
        LookedUp(1, shape_of(), (3, 0, 2, 1), (False,) * 4, 2)
    rows = looked_up(2)
    with pytest.raises(NeedsGeneralPath):  # a file that nobody has opened for keys
        rows.look_up([unsearchable()], data, offsets, hashes, one, one + 1)


def test_columns_of_the_keys_stand_where_they_were_asked_for() -> None:
    asked = [5, 3 * ROWS, 4]
    data, offsets, hashes = batch_of(asked)
    rows = looked_up(len(asked))
    rows.look_up([view_of(n) for n in range(3)], data, offsets, hashes, np.arange(9) % 3, np.array([3, 6, 9]))
    words = np.frombuffer(b"-onefour", np.uint8).copy()
    ends = np.array([1, 4, 4, 8], np.int32)
    flags = np.array([1, 0, 3], np.uint8)
    numbers = np.arange(12, dtype=np.uint8)
    keys: list[Any] = [(0, 0, False, words, ends), (3, 1, True, flags, None), (6, 4, False, numbers, None)]
    fields = [pa.field("word", pa.string()), *list(ARROW)[:2], pa.field("yes", pa.bool_()), *list(ARROW)[2:]]
    schema = pa.schema(
        [*fields[:6], pa.field("number", pa.uint32()), *fields[6:], pa.field("found", pa.bool_())]
    )
    batch = rows.batch(1 << 20, (1, 2, 4, 5), keys)
    made = pa.RecordBatch._import_from_c(batch.address, schema)
    words[:], flags[:], numbers[:] = 0, 0, 0
    made.validate(full=True)
    assert made["word"].to_pylist() == ["one", "", "four"] and made["yes"].to_pylist() == [True, False, True]
    assert made["number"].to_numpy().tobytes() == bytes(range(12))
    assert made["found"].to_pylist() == [True, False, True]
    own = made.select(ARROW.names).to_pylist()
    assert own == [row_of(5, None), dict.fromkeys(ARROW.names), row_of(4, None)]


def test_columns_of_the_keys_that_are_none() -> None:
    rows = looked_up(2)
    four, two, ends = np.zeros(4, np.uint8), np.zeros(2, np.uint8), np.array([0, 1, 2], np.int32)
    wrong: list[tuple[tuple[int, ...], list[Any], str]] = [
        ((0, 1, 2), [], "3 places of 4 columns"),
        ((0, 1, 2, 2), [], "places"),
        ((0, 1, 2, 4), [], "places"),
        ((0, 1, 2, 3), [(3, 1, False, two, None)], "places"),
        ((0, 1, 2, 3), [(5, 1, False, two, None)], "places"),
        ((0, 1, 2, 3), [(4, 1, False, four, None)], "4 bytes in 2 cells of 1"),
        ((0, 1, 2, 3), [(4, 2, True, four, None)], "4 bytes in 2 cells of 2"),
        ((0, 1, 2, 3), [(4, 1, False, two, ends)], "2 bytes in 2 cells of 1"),
        ((0, 1, 2, 3), [(4, 0, False, two, ends[:2])], "2 offsets of 2 strings in 2 bytes"),
        ((0, 1, 2, 3), [(4, 0, False, two[:1], ends)], "3 offsets of 2 strings in 1 bytes"),
        ((0, 1, 2, 3), [(4, 0, False, two, ends - 1)], "3 offsets of 2 strings in 2 bytes"),
        ((0, 1, 2, 3), [(4, 0, False, two, ends[[0, 2, 1]].copy())], "offsets descend at string 1"),
    ]
    for places, keys, said in wrong:
        with pytest.raises(ValueError, match=said):
            rows.batch(1 << 20, places, keys)
    with pytest.raises((TypeError, ValueError)):
        rows.batch(1 << 20, PLACES, [(4, 0, False, two, None)])
