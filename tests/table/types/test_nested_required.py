"""What takes no NULL inside of nested columns: no call leaves a table whose rows cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc

HOME = pa.struct([
    pa.field("city", pa.string(), False),
    pa.field("at", pa.list_(pa.float64()), False),
    pa.field("inner", pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.int32())]), False),
    pa.field("zip", pa.int32()),
])  # fmt: skip
WHOLE = {"city": "x", "at": [], "inner": {"a": 1, "b": None}, "zip": None}


@pytest.fixture
def table(tmp_path: Any) -> Iterator[kc.Table]:
    schema = pa.schema([("id", pa.int64()), ("home", HOME)])
    with kc.create_table(tmp_path / "t", schema, "id") as made:
        made.insert([{"id": 1, "home": None}])
        yield made


@pytest.mark.parametrize("given", [
    {"home.city": "x"},
    {"home.zip": 1},
    {"home.inner": {"a": 1}},
    {"home.inner.b": 1, "home.city": "x", "home.at": []},
    {"home.city": "x", "home.inner.a": 1},
], ids=str)  # fmt: skip
def test_a_field_makes_no_struct_whose_others_take_no_null(table: kc.Table, given: dict[str, Any]) -> None:
    calls = [
        lambda: table.update([{"id": 1, **given}]),
        lambda: table.upsert([{"id": 1, **given}]),
        lambda: table.insert([{"id": 2, **given}]),
        lambda: table.apply([{"id": 1, "_op": "update", **given}]),
        lambda: table.update(where=pc.field("id") == 1, set=given),
    ]
    for call in calls:
        with pytest.raises(kc.SchemaMismatch, match=r"takes no NULL.*give it too, or all of 'home'"):
            call()
    assert table.scan().to_pylist() == [{"id": 1, "home": None}]


def test_the_fields_that_take_no_null_make_a_struct(table: kc.Table) -> None:
    given = {"home.city": "x", "home.at": [], "home.inner.a": 1}
    table.insert([{"id": 2, **given}])
    table.update([{"id": 1, **given}])
    assert table.scan(["home"]).to_pylist() == [{"home": WHOLE}] * 2
    table.update({"id": [1], "home": [None]})
    some = {"home.city": "x", "home.at": [], "home.inner": {"a": 1}, "home.zip": 5}
    table.update(where=pc.field("id") == 1, set=some)
    assert table.get(1)["home"] == {**WHOLE, "zip": 5}


def test_a_field_that_takes_no_null_gets_none(table: kc.Table) -> None:
    table.insert([{"id": 2, "home": WHOLE}])
    whole = {"home.city": "x", "home.at": [], "home.inner.a": 1}
    for name in whole:
        given = {**whole, name: None}
        with pytest.raises(kc.RowErrors, match="1 null_in_required"):
            table.update([{"id": 2, **given}])
        with pytest.raises(kc.InvalidArgument, match="takes no NULL"):
            table.update(where=pc.field("id") == 2, set=given)
    for call in (
        lambda: table.update({"id": [2], "home.inner": [None]}),
        lambda: table.update(where=pc.field("id") == 2, set={"home.inner": None}),
    ):
        with pytest.raises(kc.SchemaMismatch, match="takes no NULL"):
            call()
    assert table.get(2)["home"] == WHOLE


@pytest.mark.parametrize("name", ["home:null", "home.at[]"])
def test_what_stores_a_nested_column_is_not_set(table: kc.Table, name: str) -> None:
    with pytest.raises(kc.InvalidArgument, match="no column"):
        table.update(where=pc.field("id") == 1, set={name: None})


def test_a_new_row_has_what_takes_no_null(tmp_path: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), pa.field("l", pa.list_(pa.int8()), False)])
    with kc.create_table(tmp_path / "t", schema, "id", options=kc.Options(ingest_threshold_rows=3)) as table:
        for rows in (1, 2, 5):
            with pytest.raises(kc.RowErrors, match="null_in_required"):
                table.upsert({"id": list(range(rows)), "n": [1] * rows})
        assert table.count() == 0
        table.upsert([{"id": 0, "l": [1]}])
        table.upsert([{"id": 0, "n": 2}])
        assert table.get(0) == {"id": 0, "n": 2, "l": [1]}
