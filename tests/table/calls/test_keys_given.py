"""What ``delete`` takes for keys: of a table with one key column they may be given bare."""

from __future__ import annotations

import types
from typing import Any

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


@pytest.mark.parametrize("wrong", [1, "abc", b"abc", 1.5, pa.scalar(1)], ids=repr)
def test_one_bare_key_is_told_to_be_listed(table: kc.Table, wrong: Any) -> None:
    with pytest.raises(kc.InvalidArgument, match=r"a list of keys, or rows with the key column 'k'"):
        table.delete(wrong)
    assert table.count() == 3


def test_several_key_columns_are_named(make: Make) -> None:
    table = make([kc.Column("a", "int64"), kc.Column("b", "int64")], ["a", "b"])
    table.insert({"a": [1], "b": [2]})
    for unclear in ((1, 2), [(1, 2)], [1, 2], np.array([1, 2])):
        with pytest.raises(kc.InvalidArgument):
            table.delete(unclear)
    assert table.delete(({"a": 1, "b": 2},)).deleted == 1
