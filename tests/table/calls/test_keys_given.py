"""What ``delete`` takes for keys: of a table with one key column they may be given bare."""

from __future__ import annotations

import types
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.tables import Make

TWO: dict[str, Any] = {
    "a list": [1, 2],
    "a tuple": (1, 2),
    "a range": range(1, 3),
    "a set": {1, 2},
    "the keys of a dict": {1: "a", 2: "b"}.keys(),
    "a numpy array": np.array([1, 2]),
    "an Arrow array": pa.array([1, 2]),
    "a chunked array": pa.chunked_array([[1], [2]]),
    "a tuple of rows": ({"k": 1}, {"k": 2}),
    "a list of mappings": [types.MappingProxyType({"k": 1}), types.MappingProxyType({"k": 2})],
    "a list of tables": [pa.table({"k": [1]}), pa.table({"k": [2]})],
    "a tuple of batches": (pa.record_batch({"k": [1, 2]}),),
    "a batch": pa.record_batch({"k": [1, 2]}),
    "a generator of rows": ({"k": k} for k in (1, 2)),
}


@pytest.fixture
def table(make: Make) -> kc.Table:
    made = make()
    made.insert({"k": [1, 2, 3]})
    return made


@pytest.mark.parametrize("name", TWO)
def test_keys_in_any_form(table: kc.Table, name: str) -> None:
    assert table.delete(TWO[name]).deleted == 2
    assert table.scan(["k"]).to_pylist() == [{"k": 3}]


@pytest.mark.parametrize("none", [[], (), range(0), set(), np.array([], np.int64)], ids=repr)
def test_no_keys_delete_nothing(table: kc.Table, none: Any) -> None:
    assert table.delete(none).deleted == 0
    assert table.count() == 3


class Key(NamedTuple):
    k: int


class Both(NamedTuple):
    b: str
    a: int


@pytest.mark.parametrize("one", [2, np.int64(2), pa.scalar(2), Key(2), [Key(2)]], ids=repr)
def test_one_bare_key(table: kc.Table, one: Any) -> None:
    assert table.delete(one).deleted == 1
    assert table.scan(["k"], order="key").to_pylist() == [{"k": 1}, {"k": 3}]


@pytest.mark.parametrize(
    ("type_", "key"), [("string", "abc"), ("binary", b"abc"), ("date32", date(2026, 1, 5))]
)
def test_one_bare_key_of_other_types(make: Make, type_: str, key: Any) -> None:
    """Text is one key, not a list of letters."""
    table = make([kc.Column("k", type_), kc.Column("v", "int64")], "k")
    table.insert({"k": [key], "v": [1]})
    assert table.delete(key).deleted == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("abc", "'k' is int64.*row 0 has 'abc'"),
        (1.5, "'k' is int64.*row 0 has 1.5"),
        (b"abc", "'k' is int64"),
        (object(), "'k', row 0|column 'k'"),
    ],
    ids=["text", "float", "bytes", "object"],
)
def test_a_bare_key_of_another_type(table: kc.Table, wrong: Any, told: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=told):
        table.delete(wrong)
    assert table.count() == 3


def test_several_key_columns(make: Make) -> None:
    table = make([kc.Column("a", "int64"), kc.Column("b", "string")], ["a", "b"])
    keys: list[Any] = [(1, "x"), [(1, "x"), (2, "y")], {(1, "x")}]
    keys += [Both("x", 1), [Both("x", 1)], ({"a": 1, "b": "x"},)]
    for given in keys:
        table.upsert({"a": [1, 2, 3], "b": ["x", "y", "z"]})
        wanted = 2 if given == keys[1] else 1
        assert table.delete(given).deleted == wanted, given
        assert table.get((1, "x")) is None and table.get((3, "z")) is not None


@pytest.mark.parametrize(
    ("unclear", "told"),
    [
        ([1, 2], "int among the rows"),
        ((1, "x", 2), r"a key is \(a, b\)"),
        ((1,), r"a key is \(a, b\)"),
        ([(1, "x"), (1,)], r"row 1: .* a key is \(a, b\)"),
        ([(1, "x"), {"a": 1, "b": "x"}], r"row 1: .* a key is \(a, b\)"),
        (np.array([1, 2]), "ndarray"),
        (1, "int is no kind of rows"),
    ],
    ids=repr,
)
def test_what_is_no_key_of_several_columns(make: Make, unclear: Any, told: str) -> None:
    table = make([kc.Column("a", "int64"), kc.Column("b", "string")], ["a", "b"])
    table.insert({"a": [1], "b": ["x"]})
    with pytest.raises(kc.InvalidArgument, match=told):
        table.delete(unclear)
    assert table.count() == 1
