"""What leaves of a nested column hold that does not go together is found, and named; so is broken input."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core.common.types.nested.nested_layout import NestedLayout, layout_of
from kudu_core.errors import ColumnTooLarge, SchemaMismatch
from tests.support.nested import drawn

F = pa.field


def spoiled(rng: random.Random, leaves: list[pa.Array]) -> list[pa.Array]:
    """Leaves of which one is another one: sound Arrow, but for what its cells hold."""
    leaves = list(leaves)
    at = rng.randrange(len(leaves))
    cells = leaves[at].to_pylist() if leaves[at].type == pa.binary() else None
    if cells is None:
        if rng.random() < 0.5:
            leaves[at] = pa.nulls(len(leaves[at]), leaves[at].type)
        else:
            leaves[at] = leaves[at].take(pa.array(rng.choices(range(len(leaves[at])), k=len(leaves[at]))))
        return leaves
    kind = rng.randrange(7)
    row = rng.randrange(len(cells))
    cell = cells[row] or b""
    if kind == 0:
        cells[row] = rng.randbytes(rng.choice((0, 1, 3, 4, 8, 12, 64)))
    elif kind == 1 and cell:
        place = rng.randrange(len(cell))
        cells[row] = cell[:place] + bytes([cell[place] ^ 1 << rng.randrange(8)]) + cell[place + 1 :]
    elif kind == 2:
        cells[row] = cell[: rng.randrange(len(cell) + 1)]
    elif kind == 3:
        cells[row] = cell + cell[: rng.choice((1, 4, 8))]
    elif kind == 4:
        cells[row] = None
    elif kind == 5:
        rng.shuffle(cells)
    else:
        other = rng.randrange(len(leaves))
        if leaves[other].type == pa.binary():
            cells = leaves[other].to_pylist()
    leaves[at] = pa.array(cells, pa.binary())
    return leaves


@pytest.mark.parametrize("part", range(2))
def test_spoiled_leaves_give_a_sound_array_or_an_error(seed: int, long: bool, part: int) -> None:
    found = sound = 0
    for number in range(3_000 if long else 150):
        rng = random.Random(f"{seed} {part} damage {number}")
        type_ = drawn.nested_type(rng, 1 + number % 4)
        layout = layout_of("c", type_, rng.random() < 0.5)
        array = drawn.nested_array(rng, type_, rng.choice((1, 3, 20)), layout.nullable)
        leaves = layout.flatten(array)
        for _ in range(8):
            try:
                made = layout.assemble(spoiled(rng, leaves))
            except PageError as error:
                assert "leaf 'c" in error.reason and 0 <= error.offset < len(array)
                found += 1
            else:
                made.validate(full=True)
                assert made.type == type_ and len(made) == len(array)
                drawn.as_bits(made)
                sound += 1
    assert found > 200 and sound > 200


def i32(*numbers: int) -> bytes:
    return np.array(numbers, np.int32).tobytes()


LONG = 1 << 30
NOT_NULL = F("e", pa.int16(), False)
CASES = [
    # type, leaf, its cells of three rows, what the error says
    (pa.list_(NOT_NULL), "a[]", [b"12", b"3", b""], "row 1: a cell has no multiple of 2 bytes"),
    (pa.list_(NOT_NULL, 2), "a[]", [b"1234", b"1234", b"12"], "row 2: a cell has not 2 bytes for each"),
    (pa.list_(NOT_NULL, 2), "a[]", [b"1234", None, b"12"], "row 2: a cell has not the 4 bytes of its list"),
    (pa.list_(NOT_NULL, 0), "a[]", [b"", b"12", b""], "row 1: elements, where the type has none"),
    (pa.list_(pa.bool_()), "a[]", [b"\0\1", b"\2", b""], "a truth value that is neither 0 nor 1"),
    (pa.list_(pa.string()), "a[]:length", [i32(2), i32(-1), b""], "a length below zero"),
    (pa.list_(pa.string()), "a[]:length", [i32(LONG), i32(LONG), i32(LONG)], "lengths of more than 2 GiB"),
    (pa.list_(pa.string()), "a[]:length", [i32(2), i32(1, 3), i32(1)], "row 1: other bytes than lengths"),
    (pa.list_(pa.string()), "a[]", [b"ab", b"\xffde", b"f"], "row 1: text that is not UTF-8"),
    (pa.list_(pa.string()), "a[]:null", [b"", b"\0", b""], "row 1: flags of other elements than there are"),
    (pa.list_(pa.string()), "a[]:null", [b"\2", b"", b""], "a flag that is neither 0 nor 1"),
    (pa.list_(pa.string()), "a[]:null", [b"", None, b""], "row 1: NULL, which only the first leaf"),
    (
        pa.list_(pa.decimal128(2, 0)),
        "a[]",
        [bytes(16), (100).to_bytes(16, "little") + bytes(16), bytes(16)],
        "row 1: a decimal has more digits than its type",
    ),
    (pa.list_(pa.list_(NOT_NULL, 0)), "a[]:length", [i32(0), i32(1), b""], "elements, where the type has"),
    (pa.list_(pa.list_(NOT_NULL)), "a[][]", [b"", b"", b"12"], "row 2: a cell has not 2 bytes for each"),
]


def leaves_of(layout: NestedLayout) -> dict[str, pa.Array]:
    """Of three rows: two elements, two, one."""
    type_ = layout.arrow
    if pa.types.is_fixed_size_list(type_):
        value: object = [1] * type_.list_size
    elif pa.types.is_list(type_.value_type) or pa.types.is_fixed_size_list(type_.value_type):
        value = [[]]
    else:
        value = {pa.string(): ["ab"], pa.bool_(): [True]}.get(type_.value_type, [1])
    rows = [value, value * 2 if pa.types.is_list(type_) else value, value]
    if type_ == pa.list_(pa.string()):
        rows = [["ab"], ["cd", "e"], ["f"]]
    names = (leaf.name for leaf in layout.leaves)
    return dict(zip(names, layout.flatten(pa.array(rows, type_)), strict=True))


@pytest.mark.parametrize("type_, name, cells, message", CASES, ids=[f"{c[0]}-{c[3]}"[:60] for c in CASES])
def test_damage_is_named(type_: pa.DataType, name: str, cells: list[bytes | None], message: str) -> None:
    layout = layout_of("a", type_, True)
    leaves = leaves_of(layout)
    layout.assemble(list(leaves.values()))
    leaves[name] = pa.array(cells, pa.binary())
    with pytest.raises(PageError, match=message) as raised:
        layout.assemble(list(leaves.values()))
    assert f"leaf '{name}" in raised.value.reason or name.endswith(":length")


def test_null_where_none_may_be_is_damage() -> None:
    struct = pa.struct([F("x", pa.int8(), False), F("l", pa.list_(pa.int8()), False)])
    layout = layout_of("a", struct, True)
    sound = layout.flatten(pa.array([{"x": 1, "l": [1]}, None, {"x": 2, "l": []}], struct))
    layout.assemble(sound)
    for number, row, cells in ((0, 2, [1, None, None]), (1, 0, [None, None, b""])):
        leaves = list(sound)
        leaves[number] = pa.array(cells, leaves[number].type)
        with pytest.raises(PageError, match=rf"row {row}: NULL, where the type is declared not null"):
            layout.assemble(leaves)
    leaves = [*sound[:-1], pa.array([False, None, False])]
    with pytest.raises(PageError, match="'a:null' of a nested column, row 1: NULL among flags"):
        layout.assemble(leaves)


def test_cells_of_null_lists_may_hold_anything() -> None:
    """What lies below NULL is nobody's, also where a stored column keeps it."""
    layout = layout_of("a", pa.list_(F("e", pa.string(), False)), True)
    lengths = pa.Array.from_buffers(
        pa.binary(),
        3,
        [pa.py_buffer(b"\x05"), pa.py_buffer(i32(0, 4, 11, 15)), pa.py_buffer(i32(1) + b"garbage" + i32(2))],
    )
    made = layout.assemble([lengths, pa.array([b"a", b"", b"bc"])])
    made.validate(full=True)
    assert made.to_pylist() == [["a"], None, ["bc"]]


# ------------------------------------------------------------------------------ input


def test_broken_buffers_give_leaves_that_go_together_or_an_error(seed: int, long: bool) -> None:
    """Any byte of any buffer: what ``validate(full=True)`` says of the whole array decides, except that a
    slice is not refused for what lies outside of it."""
    refused = taken = 0
    for number in range(10_000 if long else 600):
        rng = random.Random(f"{seed} buffers {number}")
        type_ = drawn.nested_type(rng, 1 + number % 4)
        layout = layout_of("c", type_, True)
        array = drawn.nested_array(rng, type_, 9)
        buffers = [buffer for buffer in array.buffers() if buffer is not None and buffer.size]
        if not buffers:
            continue
        for _ in range(rng.choice((1, 1, 4))):
            buffer = rng.choice(buffers)
            place = buffer.address + rng.randrange(buffer.size)
            ctypes.c_uint8.from_address(place).value ^= 1 << rng.randrange(8)
        try:
            leaves = layout.flatten(array)
        except SchemaMismatch as error:
            assert "column 'c" in str(error)
            refused += 1
            continue
        except ColumnTooLarge:
            continue
        back = layout.assemble(leaves)
        back.validate(full=True)
        taken += 1
        if sound(array):
            assert drawn.same(back, array)
    assert refused > 100 and taken > 100


def sound(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except (pa.ArrowException, ValueError):
        return False
    return True


def test_null_where_the_type_has_none_is_refused_with_its_row() -> None:
    inner = pa.struct([F("x", pa.int8(), False)])
    flat = pa.Array.from_buffers(inner, 3, [None], children=[pa.array([1, None, 3], pa.int8())])
    with pytest.raises(SchemaMismatch, match=r"column 'a\.x', row 101: NULL, where the type is declared not"):
        layout_of("a", inner, False).flatten(flat, 100)
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), flat)
    with pytest.raises(SchemaMismatch, match=r"column 'a\[\]\.x', row 2: NULL, where"):
        layout_of("a", listed.type, False).flatten(listed)
    with pytest.raises(SchemaMismatch, match=r"column 'a', row 1: NULL, where"):
        layout_of("a", pa.list_(pa.int8()), False).flatten(pa.array([[], None], pa.list_(pa.int8())))


def test_null_below_null_is_nothing_wrong() -> None:
    inner = pa.struct([F("x", pa.int8(), False)])
    child = pa.array([1, None, 3], pa.int8())
    array = pa.Array.from_buffers(inner, 3, [pa.py_buffer(b"\x05")], children=[child])
    layout = layout_of("a", inner, True)
    assert layout.assemble(layout.flatten(array)).to_pylist() == [{"x": 1}, None, {"x": 3}]


def test_broken_input_is_refused() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(i32(0, 1, 2, 3)), pa.py_buffer(b"a\xffc")]
    )
    for offsets, values in (((0, 2, 1, 3), pa.array([1, 2, 3], pa.int16())), ((0, 1, 2, 3), text)):
        type_ = pa.list_(values.type)
        array = pa.Array.from_buffers(type_, 3, [None, pa.py_buffer(i32(*offsets))], children=[values])
        layout = layout_of("a", type_, True)
        why = r"b'\\xff' is not UTF-8" if values is text else "broken Arrow data: a list leaves its elements"
        with pytest.raises(SchemaMismatch, match=rf"^column 'a(\[\])?', row 51: {why}"):
            layout.flatten(array, 50)
        assert layout.flatten(array.slice(0, 1))[0].type == pa.binary()  # nothing is wrong with that row


def zeros(count: int, type_: pa.DataType) -> pa.Array:
    """Memory that nobody touches, so that there need not be any."""
    values = np.zeros(count * type_.bit_width // 8, np.uint8)
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(values)])


def test_more_than_a_leaf_holds_is_refused() -> None:
    values = zeros((1 << 28) + 8, pa.int64())
    lists = pa.ListArray.from_arrays(pa.array([0, 1 << 27, 1 << 28], pa.int32()), values)
    for array in (lists, pa.FixedSizeListArray.from_arrays(values, 8)):
        with pytest.raises(ColumnTooLarge, match=r"cells of column 'a(\[\])?' at once: 2,147,483,\d+ bytes"):
            layout_of("a", array.type, True).flatten(array)
    layout = layout_of("a", lists.type, True)
    assert [len(leaf) for leaf in layout.flatten(lists.slice(0, 1))] == [1, 1]


def test_views_that_overlap_are_counted_before_they_are_laid_out() -> None:
    values = zeros(1 << 20, pa.int8())
    starts, sizes = np.zeros(4096, np.int32), np.full(4096, 1 << 20, np.int32)
    array = pa.ListViewArray.from_arrays(pa.array(starts), pa.array(sizes), values)
    with pytest.raises(ColumnTooLarge, match="4,096 cells of column 'a' at once: 4,294,967,296 bytes"):
        layout_of("a", array.type, True).flatten(array)


def test_padding_of_null_lists_of_a_fixed_size_is_counted() -> None:
    layout = layout_of("a", pa.list_(F("e", pa.int64(), False), 1 << 27), True)
    with pytest.raises(ColumnTooLarge, match="3 cells of column"):
        layout.assemble([pa.nulls(3, pa.binary())])
