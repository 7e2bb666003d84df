"""Which leaves a nested type has, and which types no table stores."""

from __future__ import annotations

import pickle
import re

import pyarrow as pa
import pytest

from kudu_core.common.types.nested.nested_casts import nested_cast
from kudu_core.common.types.nested.nested_layout import is_nested, layout_of
from kudu_core.common.types.nested.nested_nodes import MAX_DEPTH, MAX_LEAVES
from kudu_core.errors import InvalidArgument

F = pa.field


def leaves(type_: pa.DataType, nullable: bool = True) -> list[str]:
    """Names of leaves; ? for one that takes NULL; the type of one that is not binary."""
    return [
        f"{leaf.name}{'?' * leaf.nullable}" + (f" {leaf.type}" if leaf.type.name != "binary" else "")
        for leaf in layout_of("a", type_, nullable).leaves
    ]


UNION = pa.sparse_union([F("b", pa.int8())])
POINT = pa.struct([F("x", pa.int8(), False), F("y", pa.string())])


@pytest.mark.parametrize(
    "type_, expected",
    [
        (pa.int8(), ["a? int8"]),
        (POINT, ["a.x? int8", "a.y? string", "a:null bool"]),
        (pa.list_(pa.float64()), ["a[]?", "a[]:null"]),
        (pa.list_(F("e", pa.bool_(), False)), ["a[]?"]),
        (pa.large_list(pa.string()), ["a[]:length?", "a[]", "a[]:null"]),
        (pa.list_view(pa.binary()), ["a[]:length?", "a[]", "a[]:null"]),
        (pa.list_(F("e", pa.float32(), False), 768), ["a[]?"]),
        (pa.list_(POINT), ["a[].x?", "a[].y:length", "a[].y", "a[].y:null", "a[]:null"]),
        (pa.map_(pa.string(), pa.int8()), ["a[].key:length?", "a[].key", "a[].value", "a[].value:null"]),
        (
            pa.list_(pa.list_(pa.int8())),
            ["a[]:length?", "a[][]", "a[][]:null", "a[]:null"],
        ),
        (pa.list_(pa.list_(F("e", pa.int8(), False), 2)), ["a[][]?", "a[]:null"]),
        (pa.list_(F("e", pa.list_(F("e", pa.int8(), False), 0), False)), ["a[]:length?", "a[][]"]),
        (
            pa.struct([F("b", POINT, False), F("c", pa.list_(F("e", pa.int8(), False)), False)]),
            ["a.b.x? int8", "a.b.y? string", "a.c[]?", "a:null bool"],
        ),
    ],
    ids=str,
)
def test_leaves_of_a_type(type_: pa.DataType, expected: list[str]) -> None:
    assert leaves(type_) == expected
    assert is_nested(type_) == (expected != ["a? int8"])


def test_what_takes_no_null_has_no_leaf_for_it() -> None:
    assert leaves(POINT, False) == ["a.x int8", "a.y? string"]
    assert leaves(pa.list_(pa.int8()), False) == ["a[]", "a[]:null"]
    assert layout_of("a", POINT, False).null_test() is None
    assert layout_of("a", pa.list_(POINT), True).null_test() == ("a[].x", "is_null")
    assert layout_of("a", POINT, True).null_test() == ("a:null", "is_true")


def test_a_layout_travels() -> None:
    layout = layout_of("a", pa.struct([F("m", pa.map_(pa.string(), POINT))]), True)
    copied = pickle.loads(pickle.dumps(layout))
    assert copied.leaves == layout.leaves and copied.arrow == layout.arrow and copied.nullable


def struct_of(*names: str) -> pa.DataType:
    return pa.struct([F(name, pa.int8()) for name in names])


@pytest.mark.parametrize(
    "type_, message",
    [
        (pa.struct([]), "column 'a': a struct without fields stores nothing; give it a field, or declare"),
        (pa.list_(struct_of("x", "x")), "column 'a[]': two fields of the struct are named 'x'; rename one"),
        (struct_of("x.y"), "column 'a': field name 'x.y' has a '.', which tells the parts"),
        (struct_of("x:null"), "field name 'x:null' has a ':'"),
        (struct_of("x[]"), "field name 'x[]' has a '['"),
        (struct_of(""), "column 'a': a field's name is text that is not empty, without NUL"),
        (struct_of("x\0"), "a field's name is text that is not empty, without NUL"),
        (struct_of("x" * 257), "has 257 bytes; at most 256 are stored"),
        (struct_of("x" * 248), "stored columns have names of up to 256 bytes"),
        (pa.map_(pa.string(), UNION), "column 'a[].value': sparse_union<b: int8=0> is not a column type"),
        (pa.list_(pa.struct([F("u", UNION)])), "column 'a[].u': sparse_union"),
        (pa.list_(pa.list_(pa.int64(), 1 << 28)), "column 'a[]': one fixed_size_list"),
        (pa.list_(pa.list_(pa.list_(pa.int8(), 1 << 16), 1 << 15)), "column 'a[]': one fixed_size_list"),
    ],
    ids=lambda given: given[:40] if isinstance(given, str) else "",
)
def test_what_is_not_stored_is_refused_by_its_place(type_: pa.DataType, message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        layout_of("a", type_, True)


def test_names_that_just_fit() -> None:
    assert layout_of("a", struct_of("x" * 247), True).leaves[0].name == "a." + "x" * 247
    layout_of("c" * 256, pa.string(), True)
    layout_of("a.b:c[", pa.string(), True)
    with pytest.raises(InvalidArgument, match=r"column 'a\.b': field name 'a\.b' has a '\.'"):
        layout_of("a.b", pa.list_(pa.string()), True)


def test_a_list_of_a_fixed_size_just_fits() -> None:
    element = F("e", pa.int8(), False)
    assert layout_of("a", pa.list_(element, (1 << 31) - 1), True).leaves[0].name == "a[]"


def deep(levels: int) -> pa.DataType:
    type_: pa.DataType = pa.int8()
    for _ in range(levels):
        type_ = pa.list_(type_)
    return type_


def test_depth_has_a_limit() -> None:
    assert len(layout_of("a", deep(MAX_DEPTH), True).leaves) == 2 * MAX_DEPTH
    with pytest.raises(InvalidArgument, match=rf"column .*: more than {MAX_DEPTH} lists.* declare string"):
        layout_of("a", deep(MAX_DEPTH + 1), True)


def test_leaves_have_a_limit() -> None:
    """Also of a type that names few fields."""
    fits = struct_of(*(f"x{n}" for n in range(MAX_LEAVES - 1)))
    assert len(layout_of("a", fits, True).leaves) == MAX_LEAVES
    over = struct_of(*(f"x{n}" for n in range(MAX_LEAVES)))
    with pytest.raises(InvalidArgument, match=r"column 'a.*': .*more than 10,000 stored columns"):
        layout_of("a", over, True)
    many = struct_of(*"abcdefghij")
    for _ in range(8):
        many = pa.struct([F(name, many) for name in "abcdefghij"])
    with pytest.raises(InvalidArgument, match="more than 10,000 stored columns"):
        layout_of("a", many, True)


def test_how_a_type_calls_the_parts_of_a_map_says_nothing() -> None:
    """Arrow forgets it where a type is written down."""
    inner = pa.struct([("x", pa.int32())])
    named = pa.map_(pa.field("word", pa.string(), False), pa.field("sense", inner))
    plain = pa.map_(pa.string(), inner)
    layouts = [layout_of("m", type_, True) for type_ in (named, plain)]
    assert layouts[0].leaves == layouts[1].leaves
    other = pa.map_(pa.field("a", pa.large_string(), False), pa.field("b", inner))
    for wanted in (named, plain):
        made = nested_cast(pa.array([[("k", {"x": 1})], None], other), wanted, "m")
        assert made.type == wanted and made.to_pylist() == [[("k", {"x": 1})], None]
