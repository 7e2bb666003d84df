"""One row of a nested column as Python has it, made without Arrow, is what Arrow makes of it."""

from __future__ import annotations

import random
import re
from typing import Any

import pyarrow as pa
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core.common.types.nested.nested_casts import nested_cast
from kudu_core.common.types.nested.nested_layout import NestedLayout, layout_of
from kudu_core.common.types.nested.nested_row_values import row_value
from kudu_core.common.types.stored_arrays import outward
from kudu_core.errors import InvalidArgument
from tests.common.nested.test_nested_damage import spoiled
from tests.support.nested import drawn
from tests.table.types.test_every_type import TYPES

NOT_TOLD = (NeedsGeneralPath, InvalidArgument, OverflowError, ValueError)


def made(layout: NestedLayout, leaves: list[pa.Array]) -> list[Any]:
    """Each row; what was raised where there is none."""
    value = row_value(layout.root)
    columns = {
        leaf.name: outward(array, leaf.type) for leaf, array in zip(layout.leaves, leaves, strict=True)
    }
    found: list[Any] = []
    for row in range(len(leaves[0])):
        try:
            found.append(value({name: column[row].as_py() for name, column in columns.items()}))
        except NOT_TOLD as error:
            found.append(error)
    return found


def shown(value: Any) -> str:
    """UTC is Python's own, as in flat columns."""
    return repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def expected(array: pa.Array) -> list[Any]:
    found = []
    for cell in array:
        try:
            found.append(cell.as_py())
        except (OverflowError, ValueError):
            found.append(None)
    return found


def test_rows_are_what_arrow_says(seed: int, long: bool) -> None:
    told = 0
    for number in range(4_000 if long else 200):
        rng = random.Random(f"{seed} row values {number}")
        type_ = drawn.nested_type(rng, 1 + number % 4)
        layout = layout_of("c", type_, rng.random() < 0.5)
        array = drawn.nested_array(rng, type_, rng.choice((1, 3, 8)), layout.nullable)
        for found, wanted in zip(made(layout, layout.flatten(array)), expected(array), strict=True):
            if isinstance(found, Exception):
                with pytest.raises((OverflowError, ValueError)):
                    array.to_pylist()
            else:
                assert shown(found) == shown(wanted), (seed, number, type_)
                told += 1
    assert told > 300


def around(type_: pa.DataType) -> pa.DataType:
    return pa.struct([
        ("a", type_), ("b", pa.list_(type_)), ("c", pa.list_(pa.struct([("d", pa.list_(type_, 2))]))),
        ("m", pa.map_(pa.string(), type_)),
    ])  # fmt: skip


@pytest.mark.parametrize("name", [*TYPES, "another extension type"])
def test_every_flat_type_in_every_place(name: str) -> None:
    type_, one, other = TYPES.get(name, (pa.opaque(pa.int8(), "kind", "vendor"), 1, 2))
    if type_ == pa.uuid():
        one, other = one.bytes, other.bytes
    if type_ == pa.bool8():
        one, other = 1, 0
    rows = [
        {
            "a": one, "b": [one, None, other], "c": [{"d": [other, None]}, None, {"d": None}],
            "m": [("x", one)],
        },
        {"a": None, "b": [], "c": None, "m": [("y", None), ("z", other)]},
        None,
    ]  # fmt: skip
    layout = layout_of("s", around(type_), True)
    # pyarrow makes no extension types within others.
    plain = around(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else layout.arrow
    array = nested_cast(pa.array(rows, plain), layout.arrow, "s")
    found = made(layout, layout.flatten(array))
    if name == "null":
        assert isinstance(found[0], NeedsGeneralPath)
        return
    assert found == array.to_pylist()
    if "[ns]" not in name:  # a whole number of microseconds is of Python's own classes
        assert shown(found) == shown(array.to_pylist())


def is_below_null(value: Any, message: str) -> bool:
    """Whether the leaf of an error lies in a struct that is NULL: nobody looks there."""
    [leaf] = re.findall("leaf 'c([^'\\[:]*)", message)
    for name in leaf.split(".")[1:]:
        if value is None:
            return True
        value = value[name]
    return value is None and f"{leaf}:null" not in message


@pytest.mark.parametrize("part", range(2))
def test_what_is_damaged_is_left_to_others_or_is_the_same(seed: int, long: bool, part: int) -> None:
    left = same = 0
    for number in range(2_000 if long else 100):
        rng = random.Random(f"{seed} {part} damaged row values {number}")
        type_ = drawn.nested_type(rng, 1 + number % 4)
        layout = layout_of("c", type_, rng.random() < 0.5)
        leaves = layout.flatten(drawn.nested_array(rng, type_, 1, layout.nullable))
        for _ in range(6):
            broken = spoiled(rng, leaves)
            [found] = made(layout, broken)
            try:
                wanted = layout.assemble(broken)
            except PageError as error:
                assert isinstance(found, NOT_TOLD) or is_below_null(found, str(error)), (type_, found)
                left += 1
            else:
                if not isinstance(found, NOT_TOLD):
                    assert shown([found]) == shown(expected(wanted))
                    same += 1
    assert left > 50 and same > 50


def test_an_added_field_is_null_in_rows_without_it() -> None:
    layout = layout_of("v", pa.list_(pa.struct([("a", pa.int8()), ("b", pa.int8())])), True)
    value = row_value(layout.root)
    row = {"v[].a": b"\1\2", "v[].a:null": b"", "v[].b": b"", "v[].b:null": b"", "v[]:null": b"\0\1"}
    assert value(row) == [{"a": 1, "b": None}, None]
    with pytest.raises(NeedsGeneralPath):
        value({**row, "v[].b": b"\1"})
    with pytest.raises(NeedsGeneralPath):
        value({**row, "v[]:null": b"\0\2"})
