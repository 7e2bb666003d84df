"""Nested arrays are the same after they were taken apart into leaves and put together again."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kudu_core.common.types.nested.nested_layout import NestedLayout, layout_of
from kudu_core.errors import InvalidArgument
from tests.support.nested import drawn

ROWS = (0, 1, 2, 7, 30, 64)


def checked(layout: NestedLayout, array: pa.Array) -> list[pa.Array]:
    """The leaves of an array, which are what the layout says and give the array back."""
    leaves = layout.flatten(array)
    assert [made.type for made in leaves] == [leaf.type.arrow for leaf in layout.leaves]
    for made, leaf in zip(leaves, layout.leaves, strict=True):
        made.validate(full=True)
        assert len(made) == len(array)
        assert leaf.nullable or made.null_count == 0
    back = layout.assemble(leaves)
    back.validate(full=True)
    assert drawn.same(back, array), f"{array.type}\n{array.to_pylist()}\n{back.to_pylist()}"
    return leaves


def cases(seed: int, count: int) -> list[tuple[random.Random, pa.DataType, bool]]:
    made = []
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        made.append((rng, drawn.nested_type(rng, 1 + number % 5), rng.random() < 0.6))
    return made


@pytest.mark.parametrize("part", range(4))
def test_any_array_comes_back(seed: int, long: bool, part: int) -> None:
    for rng, type_, nullable in cases(seed + 1_000_000 * part, 4_000 if long else 150):
        layout = layout_of("c", type_, nullable)
        assert layout.arrow == type_ and layout.nullable == nullable and layout.name == "c"
        assert len({leaf.name for leaf in layout.leaves}) == len(layout.leaves)
        array = drawn.nested_array(rng, type_, rng.choice(ROWS), nullable)
        array.validate(full=True)
        checked(layout, array)


def test_rows_mean_the_same_by_themselves(seed: int) -> None:
    """The leaves of some rows are those rows of the leaves: cells are carried one by one in between."""
    for rng, type_, nullable in cases(seed + 7, 150):
        layout = layout_of("c", type_, nullable)
        array = drawn.nested_array(rng, type_, 23, nullable)
        leaves = layout.flatten(array)
        rows = pa.array(rng.choices(range(23), k=11), pa.int64())
        taken = [leaf.take(rows) for leaf in leaves]
        assert drawn.same(layout.assemble(taken), pa.concat_arrays([array.slice(r.as_py(), 1) for r in rows]))
        pieces = [layout.flatten(array.slice(0, 9)), layout.flatten(array.slice(9))]
        joined = [pa.concat_arrays(parts) for parts in zip(*pieces, strict=True)]
        assert all(a.equals(b) or drawn.same(a, b) for a, b in zip(joined, leaves, strict=True))
        assert drawn.same(layout.assemble([leaf.slice(5, 9) for leaf in leaves]), array.slice(5, 9))


def test_equal_arrays_have_equal_leaves(seed: int) -> None:
    """Whatever lies below NULL, and however lists lie: writes are compared by the cells of leaves."""
    for rng, type_, nullable in cases(seed + 11, 150):
        layout = layout_of("c", type_, nullable)
        array = drawn.nested_array(rng, type_, 17, nullable)
        leaves = layout.flatten(array)
        again = layout.flatten(layout.assemble(leaves))
        assert all(drawn.same(a, b) for a, b in zip(again, leaves, strict=True)), type_
        try:
            copied = array.take(pa.array(range(17)))
        except pa.ArrowException:
            continue  # pyarrow cannot
        made = layout.flatten(copied)
        assert all(drawn.same(a, b) for a, b in zip(made, leaves, strict=True)), type_


def paths_of(type_: pa.DataType) -> list[tuple[str, ...]]:
    if not pa.types.is_struct(type_):
        return []
    return [p for f in type_ for p in ((f.name,), *((f.name, *rest) for rest in paths_of(f.type)))]


def test_a_part_is_the_field(seed: int) -> None:
    tried = 0
    for number in range(300):
        rng = random.Random(f"{seed} part {number}")
        types = {"s": drawn.nested_type(rng, 3), "t": drawn.nested_type(rng, 2), "f": pa.bool_()}
        type_ = pa.struct(list(types.items()))
        nullable = rng.random() < 0.5
        layout = layout_of("c", type_, nullable)
        array = drawn.nested_array(rng, type_, 25, nullable)
        leaves = dict(zip((leaf.name for leaf in layout.leaves), layout.flatten(array), strict=True))
        of_name = {leaf.name: leaf for leaf in layout.leaves}
        for path in paths_of(type_):
            part = layout.part(path)
            assert part is not None
            assert part.name == ".".join(("c", *path))
            assert all(of_name[leaf.name] == leaf for leaf in part.leaves)
            found = part.assemble([leaves[leaf.name] for leaf in part.leaves])
            found.validate(full=True)
            assert part.arrow == found.type
            assert drawn.same(found, pc.struct_field(array, list(path))), (type_, path)
            assert part.nullable or found.null_count == 0
            assert_null_test(part, found, leaves)
            tried += 1
        assert_null_test(layout, array, leaves)
        assert layout.part(("nobody",)) is None
        assert layout.part(("f", "nobody")) is None
    assert tried > 900


def assert_null_test(layout: NestedLayout, array: pa.Array, leaves: dict[str, pa.Array]) -> None:
    test = layout.null_test()
    if test is None:
        assert not layout.nullable and array.null_count == 0
        return
    name, how = test
    assert name in {leaf.name for leaf in layout.leaves}
    found = leaves[name].is_null() if how == "is_null" else leaves[name]
    assert found.equals(array.is_null()), (layout.arrow, test)


def test_a_part_of_a_part_is_the_part_of_the_whole() -> None:
    deep = pa.struct([("y", pa.struct([("z", pa.int8())]))])
    layout = layout_of("c", pa.struct([pa.field("x", deep, False)]), True)
    whole, first = layout.part(("x", "y")), layout.part(("x",))
    assert whole is not None and first is not None
    second = first.part(("y",))
    assert second is not None and second.leaves == whole.leaves
    assert [leaf.name for leaf in first.leaves] == ["c.x.y.z", "c.x.y:null", "c:null"]
    assert layout.part(()) is not None and layout.part(("x", "y", "z", "no")) is None
    assert first.null_test() == ("c:null", "is_true")


def test_a_field_that_takes_no_null_has_none_below_a_struct_that_is_null() -> None:
    """As Arrow's builders make it; Parquet's writer refuses anything else."""
    inner = pa.list_(pa.field("e", pa.int16(), False), 2)
    kinds = (pa.int64(), pa.string(), pa.bool_(), pa.decimal128(5, 1), pa.list_(pa.int8()), inner)
    type_ = pa.struct([pa.field(f"f{n}", kind, False) for n, kind in enumerate(kinds)])
    row = {"f0": 1, "f1": "text", "f2": True, "f3": 5, "f4": [1], "f5": [1, 2]}
    array = pa.array([row, None, row], type_)
    layout = layout_of("c", type_, True)
    back = layout.assemble(checked(layout, array))
    for number in range(len(kinds)):
        assert back.field(number).null_count == 0
    assert back.field(5).values.null_count == 0
    assert back.field(5)[1].as_py() == [0, 0]
    assert back.field(1)[1].as_py() == "" and back.field(2)[1].as_py() is False


@pytest.mark.parametrize("type_", drawn.FLAT, ids=str)
def test_a_flat_column_is_its_own_leaf(type_: pa.DataType) -> None:
    layout = layout_of("a.b", type_, True)
    (leaf,) = layout.leaves
    assert (leaf.name, leaf.type.arrow, leaf.nullable) == ("a.b", type_, True)
    array = drawn.array_of(random.Random(3), type_, 9, 0.3)
    assert drawn.same(layout.assemble(layout.flatten(array)), array)
    assert layout.null_test() == ("a.b", "is_null")


class Tagged(pa.ExtensionType):
    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Tagged:
        return cls(storage)


def test_extension_types_of_nested_storage() -> None:
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 2])
    storage = pa.array([[1.0, 2, 3, 4], None], tensor.storage_type)
    array = pa.ExtensionArray.from_storage(tensor, storage)
    layout = layout_of("t", tensor, True)
    assert layout.assemble(layout.flatten(array)).equals(array)
    struct = Tagged(pa.struct([("x", pa.int8())]))
    values = pa.array([{"x": 1}, None, {"x": None}], struct.storage_type)
    for type_ in (pa.list_(struct), pa.struct([("s", struct)]), pa.list_(Tagged(pa.list_(pa.string())))):
        element = type_.field(0).type
        inside = values if element == struct else pa.array([["a"], None, []], element.storage_type)
        wrapped = pa.ExtensionArray.from_storage(element, inside)
        if pa.types.is_list(type_):
            array = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), wrapped)
        else:
            array = pa.StructArray.from_arrays([wrapped], fields=[pa.field("s", element)])
        layout = layout_of("t", array.type, False)
        assert layout.assemble(layout.flatten(array)).equals(array)


def test_data_of_another_type_is_refused() -> None:
    layout = layout_of("c", pa.list_(pa.int32()), True)
    with pytest.raises(InvalidArgument, match=r"column 'c' is list<.*int32>; data of type list<.*64> does"):
        layout.flatten(pa.array([[1]], pa.list_(pa.int64())))


def test_lists_that_do_not_lie_in_order() -> None:
    values = pa.array(["a", "bb", "ccc", None, "dddd"])
    view = pa.ListViewArray.from_arrays(
        pa.array([3, 0, 0, 4], pa.int32()), pa.array([2, 3, 1, 0], pa.int32()), values
    )
    layout = layout_of("v", view.type, False)
    leaves = checked(layout, view)
    assert leaves[1].to_pylist() == [b"dddd", b"abbccc", b"a", b""]
    under = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 5], pa.int32()), values, mask=pa.array([False, True, False])
    )
    leaves = checked(layout_of("v", under.type, True), under)
    assert leaves[1].to_pylist() == [b"abb", b"", b"dddd"]
    assert np.frombuffer(leaves[0][0].as_py(), np.int32).tolist() == [1, 2]
