"""Python values of nested columns: what Arrow finds in them is what taking them apart one by one gives."""

from __future__ import annotations

import random
import re
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.rows import nested_values
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.python_columns import of_columns
from kudu_core.common.schema.declare import declare
from tests.support.nested.drawn import nested_type

Point = namedtuple("Point", "a b")


@dataclass
class Pair:
    a: int
    b: str


PARTS = pa.struct([("a", pa.int32()), ("b", pa.string()), pa.field("c", pa.float32())])
TYPES = [
    PARTS, pa.list_(PARTS), pa.list_(pa.int16()), pa.list_view(pa.float32()), pa.list_(pa.float64(), 2),
    pa.large_list(pa.list_(pa.large_string())), pa.list_(pa.binary()), pa.list_(pa.bool_()),
    pa.map_(pa.string(), pa.list_(pa.int8())), pa.struct([pa.field("a", pa.int32(), False), ("b", PARTS)]),
    pa.list_(pa.uint64()), pa.list_(pa.timestamp("us")), pa.list_(pa.float16()), pa.list_(pa.uuid()),
    pa.struct([("a", pa.list_(pa.decimal128(5, 2))), ("b", pa.list_(pa.int32()))]), pa.list_(pa.null()),
]  # fmt: skip
LEAVES: list[Any] = [  # but bytes, which are text among text, and NumPy's times, see ``test_misfits``
    None, 0, 1, -1, 1 << 20, 1 << 40, 2**53 + 1, 2**63, 2**70, True, 0.5, 2.0, 1e300, float("nan"),
    float("inf"), "", "x", "\ud800", "1", Decimal("1.5"), pd.NA, pd.NaT, pd.Timestamp(0), np.int8(3),
    np.float32(0.1), np.bool_(True), pa.scalar(5), pa.scalar("q"), "2020-01-01",
    object(), 5j,
]  # fmt: skip
NOT_NULL = "NULL, where none may be"
"""Arrow and we say that in other words."""
OTHERS: list[Any] = [
    {}, [], (), {"a": 1}, {"zz": 1}, {1: 2}, [1], [[]], Point(1, "x"), Pair(1, "y"), {5},
]  # fmt: skip


def drawn(rng: random.Random, type_: pa.DataType) -> Any:
    """Mostly a value of the type, and now and then anything."""
    if rng.random() < 0.03:
        return rng.choice((*LEAVES, *OTHERS))
    if rng.random() < 0.1:
        return None
    if pa.types.is_struct(type_):
        fields = [field for field in type_ if rng.random() < 0.9]
        made = {field.name: drawn(rng, field.type) for field in fields}
        if rng.random() < 0.05:
            return rng.choice((OrderedDict(made), tuple(made.values())))
        return made
    if pa.types.is_map(type_):
        pairs = [(drawn(rng, type_.key_type), drawn(rng, type_.item_type)) for _ in range(rng.randrange(3))]
        plain = all(isinstance(key, str | int) for key, _ in pairs)
        return dict(pairs) if plain and rng.random() < 0.7 else pairs
    if hasattr(type_, "value_field"):
        size = getattr(type_, "list_size", rng.choice((0, 1, 2, 3)))
        made = [drawn(rng, type_.value_type) for _ in range(size)]
        if rng.random() < 0.1:
            return rng.choice((tuple(made), [*made, None]))
        if rng.random() < 0.1 and pa.types.is_floating(type_.value_type):
            return np.arange(size, dtype=rng.choice((np.float32, np.float64, np.int16)))
        return made
    if rng.random() < 0.05:
        return rng.choice(LEAVES)
    plain = {pa.bool_(): True, pa.binary(): b"b", pa.string(): "s", pa.large_string(): "l", pa.null(): None}
    if pa.types.is_floating(type_):
        return rng.choice((0.5, 1, -2.25, 0.1))
    if pa.types.is_integer(type_):
        return rng.choice((0, 5, 100))
    return plain.get(type_, rng.choice(LEAVES))


def finds_nothing(values: object) -> pa.DataType:
    """Arrow, which then leaves all to us."""
    raise pa.ArrowInvalid("not of one type")


def conformed(type_: pa.DataType, cells: list[Any]) -> pa.Array:
    """What an insert makes of the cells of a column."""
    schema = declare(pa.schema([("k", pa.int64()), ("v", type_)]), "k")
    [batch] = of_columns({"k": list(range(len(cells))), "v": cells}, schema)
    conform(schema, batch)
    return batch.column(1)


def outcome(type_: pa.DataType, cells: list[Any]) -> Any:
    """The type and the values, or the first row that is refused and why."""
    try:
        made = conformed(type_, cells)
        return made.type, repr(made.to_pylist())
    except (kc.SchemaMismatch, kc.InvalidArgument) as error:
        told = str(error)
        [row] = re.findall(r"\brow (\d+)", told)[:1]
        is_null = "non-nullable" in told or "not null" in told  # found at another step, maybe of another row
        return (None, NOT_NULL) if is_null else (row, told)


@pytest.mark.parametrize("part", range(2))
def test_values_and_errors_are_the_same(
    monkeypatch: pytest.MonkeyPatch, seed: int, long: bool, part: int
) -> None:
    taken = refused = 0
    for number in range(20_000 if long else 500):
        rng = random.Random(f"{seed} {part} by arrow {number}")
        type_ = rng.choice(TYPES) if rng.random() < 0.8 else nested_type(rng, 2)
        cells = [drawn(rng, type_) for _ in range(rng.choice((1, 2, 5, 9)))]
        found = outcome(type_, cells)
        with monkeypatch.context() as patch:
            patch.setattr(pa, "infer_type", finds_nothing)
            apart = outcome(type_, cells)
        assert apart == found or NOT_NULL in (apart[1], found[1]), (seed, number, type_, cells)
        assert isinstance(apart[0], pa.DataType) == isinstance(found[0], pa.DataType)
        if isinstance(found[0], pa.DataType):
            taken += 1
        else:
            assert "column 'v" in found[1] or found[1] == NOT_NULL
            refused += 1
    assert taken > 100 and refused > 100


def test_plain_values_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [{"a": 1, "b": "x", "c": 0.1}, None, {"b": None}]
    expected = (PARTS, repr(pa.array(cells, PARTS).to_pylist()))
    looked: list[object] = []
    monkeypatch.setattr(nested_values, "is_row", looked.append)
    assert outcome(PARTS, cells) == expected
    assert outcome(pa.list_(PARTS), [cells, []])[0] == pa.list_(PARTS)
    assert outcome(pa.map_(pa.string(), PARTS), [{"m": cells[0]}])[0] == pa.map_(pa.string(), PARTS)
    assert not looked


def test_text_that_cannot_be_stored_is_told_with_its_row() -> None:
    for type_, cell in ((PARTS, {"b": "\ud800"}), (pa.map_(pa.string(), pa.int8()), {"\udc00": 1})):
        with pytest.raises(kc.InvalidArgument, match=r"column 'v.*', row 1: .*cannot be written as UTF-8"):
            conformed(type_, [None, cell])


def test_dicts_of_other_keys_do_not_become_a_struct_of_them_all() -> None:
    """Arrow would make one of as many columns, each with all rows."""
    cells = [{"a": 1, f"key {number}": 2} for number in range(20_000)]
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(kc.InvalidArgument, match="'v', row 0: no field 'key 0'; there are a, b, c"):
        conformed(PARTS, cells)
    assert pa.default_memory_pool().max_memory() - before < 1 << 26
