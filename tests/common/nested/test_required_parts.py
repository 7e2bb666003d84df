"""Parts of structs that take no NULL: below a struct that is NULL they have none either, as Arrow has it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kudu_core.common.types.nested.nested_casts import nested_cast

PARTS: list[tuple[pa.DataType, pa.DataType, Any]] = [
    (pa.int64(), pa.int32(), 5),
    (pa.string(), pa.large_string(), "x"),
    (pa.bool_(), pa.bool_(), True),
    (pa.struct([pa.field("z", pa.int64(), False)]), pa.struct([pa.field("z", pa.int32(), False)]), {"z": 3}),
    (pa.list_(pa.int64()), pa.list_(pa.int32()), [1, 2]),
    (pa.list_view(pa.int64()), pa.list_view(pa.int32()), [3]),
    (pa.list_(pa.int64(), 2), pa.list_(pa.int32(), 2), [1, 2]),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32()), [("a", 1)]),
]


@pytest.mark.parametrize(("given", "wanted", "value"), PARTS, ids=[str(part[1]) for part in PARTS])
@pytest.mark.parametrize("lower", [0, 1])
def test_no_null_lies_below_null(given: pa.DataType, wanted: pa.DataType, value: Any, lower: int) -> None:
    fields = [pa.field("x", given, False), pa.field("y", pa.int64())]
    columns = [pa.array([value] * 4, given), pa.array([1, 2, 3, 4])]
    mask = pa.array([True, False, True, False])
    array = pa.StructArray.from_arrays(columns, fields=fields, mask=mask).slice(lower, 3)
    type_ = pa.struct([pa.field("x", wanted, False), pa.field("y", pa.int32())])
    made = nested_cast(array, type_, "c")
    made.validate(full=True)
    assert made.field(0).null_count == 0
    assert pa.chunked_array([made]).cast(type_).to_pylist() == made.to_pylist() == array.to_pylist()


def test_a_null_beside_values_stays() -> None:
    """Who writes it is told."""
    array = pa.StructArray.from_arrays(
        [pa.array([1, None, 3])], fields=[pa.field("x", pa.int64())], mask=pa.array([True, False, False])
    )
    made = nested_cast(array, pa.struct([pa.field("x", pa.int32(), False)]), "c")
    assert made.field(0).null_count == 2
