"""Values that lie as they are to be stored are not copied, neither on the way in nor on the way out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from kudu_core.common.types.nested.nested_layout import layout_of

F = pa.field
ROWS, EACH = 1_000, 10
NUMBERS = pa.array(np.arange(ROWS * EACH, dtype=np.float64))
TEXTS = pa.array([f"text {n}" for n in range(ROWS * EACH)])
ENDS = pa.array(np.arange(ROWS + 1) * EACH, pa.int32())
LISTS = pa.ListArray.from_arrays(ENDS, NUMBERS)


def places(array: pa.Array) -> Iterator[tuple[int, int]]:
    """Where the buffers of an array lie that have as many bytes as an element of each row, or more."""
    for buffer in array.buffers():
        if buffer is not None and buffer.size >= 8 * ROWS * EACH:
            yield buffer.address, buffer.address + buffer.size


def inside(array: pa.Array, other: pa.Array) -> bool:
    """Whether the large buffers of one array, of which there are some, are parts of another's."""
    all_of = list(places(other))
    found = list(places(array))
    return bool(found) and all(any(a <= lower and upper <= b for a, b in all_of) for lower, upper in found)


@pytest.mark.parametrize(
    "array",
    [
        LISTS,
        LISTS.cast(pa.large_list(pa.float64())),
        pa.ListViewArray.from_arrays(ENDS[:-1], pa.array([EACH] * ROWS, pa.int32()), NUMBERS),
        pa.FixedSizeListArray.from_arrays(NUMBERS, EACH),
        pa.ListArray.from_arrays(ENDS, TEXTS),
        pa.ListArray.from_arrays(ENDS, pa.StructArray.from_arrays([NUMBERS, TEXTS], ["x", "y"])),
        pa.MapArray.from_arrays(ENDS, TEXTS, NUMBERS),
        pa.ListArray.from_arrays(pa.array([0, 500, 1000], pa.int32()), LISTS),
        pa.StructArray.from_arrays([NUMBERS, TEXTS], ["x", "y"]),
        pa.StructArray.from_arrays([NUMBERS, TEXTS], ["x", "y"], mask=pa.array([False, True] * 5_000)),
    ],
    ids=lambda array: str(array.type)[:40],
)
def test_values_and_text_are_not_copied(array: pa.Array) -> None:
    layout = layout_of("a", array.type, True)
    leaves = layout.flatten(array)
    large = [leaf for leaf in leaves if list(places(leaf))]
    assert large and all(inside(leaf, array) for leaf in large)
    back = layout.assemble(leaves)
    assert back.equals(array)
    assert inside(back, array)


def test_a_slice_is_not_copied_either() -> None:
    layout = layout_of("a", LISTS.type, True)
    for lower in (0, 1, 8):
        leaves = layout.flatten(LISTS.slice(lower))
        (data,) = (leaf.buffers()[2] for leaf in leaves[:1])
        whole = NUMBERS.buffers()[1]
        assert whole.address <= data.address and data.address + data.size <= whole.address + whole.size


def test_flags_cost_nothing_where_no_element_is_null() -> None:
    layout = layout_of("a", LISTS.type, True)
    _, flags = layout.flatten(LISTS)
    assert flags.nbytes <= 4 * (ROWS + 1)
    assert layout.assemble(layout.flatten(LISTS)).values.buffers()[0] is None


def test_only_rows_with_null_have_flags() -> None:
    layout = layout_of("a", pa.list_(pa.int8()), True)
    _, flags = layout.flatten(pa.array([[1, 2], [None, 3, None], [], [4]], pa.list_(pa.int8())))
    assert flags.to_pylist() == [b"", b"\1\0\1", b"", b""]


def test_cells_at_an_odd_address_are_laid_anew() -> None:
    """Arrow's compute functions may read misaligned numbers wrongly, or not at all."""
    layout = layout_of("a", pa.list_(F("e", pa.int64(), False)), False)
    data = pa.py_buffer(np.arange(3, dtype=np.int64).tobytes().rjust(25, b"\0")).slice(1)
    offsets = pa.py_buffer(np.array([0, 8, 24], np.int32))
    back = layout.assemble([pa.Array.from_buffers(pa.binary(), 2, [None, offsets, data])])
    assert back.to_pylist() == [[0], [1, 2]]
    assert back.values.buffers()[1].address % 8 == 0
