"""What columns get: values of every type, expressions over both rows, nested columns and their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support import cells
from tests.support.differential.drawing import VALUE_TYPES
from tests.support.tables import Make

Set = Callable[[kc.Table, dict[str, Any]], object]
WAYS: dict[str, Set] = {
    "matched": lambda t, set_: t.merge({"k": [1]}).when_matched(set_).execute(),
    "not matched": lambda t, set_: t.merge({"k": [2]}).when_not_matched_insert(set_).execute(),
    "by source": lambda t, set_: t.merge({"k": [3]}).when_not_matched_by_source_update(set_).execute(),
    "update": lambda t, set_: t.update({"k": [1]}, set=set_),
    "upsert": lambda t, set_: t.upsert({"k": [1]}, set=set_),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("type_", VALUE_TYPES)
def test_values_of_every_type(make: Make, type_: str, way: str) -> None:
    """As a scalar of the column's type, as a NULL of it, and as a NULL of no type."""
    arrow = cells.arrow_type(type_)
    table = make(pa.schema([("k", pa.int64()), ("v", arrow)]), ["k"])
    cell = cells.ugly(arrow)[-1]
    key = 2 if way == "not matched" else 1
    for given, wanted in (
        (cells.scalar(cell, arrow), cell),
        (None, None),
        (cells.scalar(cell, arrow), cell),
        (pa.scalar(None, arrow), None),
        (pa.scalar(None), None),
    ):
        table.delete(where=pc.scalar(True))
        table.insert({"k": [1]})
        WAYS[way](table, {"v": given})
        [[found]] = cells.rows_of(table.get_many([key], ["v"]).select(["v"]))
        assert found == wanted


@pytest.mark.parametrize("type_", VALUE_TYPES)
def test_a_column_of_every_type_is_taken_from_both_rows(make: Make, type_: str) -> None:
    arrow = cells.arrow_type(type_)
    table = make(pa.schema([("k", pa.int64()), ("v", arrow), ("w", arrow)]), ["k"])
    pool = [*cells.ugly(arrow)[:3], None]
    keys = list(range(len(pool)))
    table.insert({"k": keys, "v": cells.to_arrow(pool, arrow)})
    source = {"k": keys, "mine": cells.to_arrow(pool[::-1], arrow)}
    table.merge(source).when_matched({"w": kc.old("v"), "v": kc.new("mine")}).execute()
    rows = table.get_many(keys, ["v", "w"])
    assert cells.from_arrow(rows["v"]) == pool[::-1]
    assert cells.from_arrow(rows["w"]) == pool


def test_a_value_of_another_type_is_refused_with_its_column(table: kc.Table) -> None:
    table.insert({"k": [1]})
    for set_ in ({"a": "text"}, {"a": 2.5}, {"must": 2**40}, {"s": 5}):
        [name] = set_
        for way, call in WAYS.items():
            with pytest.raises(kc.SchemaMismatch, match=f"'{name}'"):
                call(table, set_)
            assert table.count() == 1, way
    with pytest.raises(kc.SchemaMismatch, match="when_matched: column 'a'"):
        table.merge({"k": [1]}).when_matched({"a": kc.new("k").cast("string")}).execute()


def test_an_expression_that_fails_on_a_row_applies_nothing(table: kc.Table) -> None:
    table.insert({"k": [1, 2], "a": [1, 0]})
    before = table.scan().to_pylist()
    merge = table.merge({"k": [1, 2]}).when_matched({"a": pc.divide(kc.new("k"), kc.old("a"))})
    with pytest.raises(kc.InvalidArgument, match="when_matched: divide by zero"):
        merge.execute()
    with pytest.raises(kc.InvalidArgument, match="divide by zero"):
        where = pc.divide(pc.scalar(1), kc.old("a")) > 0
        table.merge({"k": [1, 2]}).when_matched_delete(where=where).execute()
    assert table.scan().to_pylist() == before


def test_a_null_where_none_may_be_is_a_matter_of_its_row(table: kc.Table) -> None:
    table.insert({"k": [1, 2, 3], "a": [1, None, 3]})
    merge = table.merge({"k": [1, 2, 3]}).when_matched({"must": kc.old("a").cast("int32")})
    with pytest.raises(kc.RowErrors, match="row 1 null_in_required"):
        merge.execute()
    done = merge.execute(on_error="return")
    assert done.errors is not None
    assert (done.updated, done.errors["row"].to_pylist()) == (2, [1])
    assert [row["must"] for row in table.scan(["must"], order="key").to_pylist()] == [1, 7, 3]
    by_source = table.merge({"k": [9]}).when_not_matched_by_source_update({"must": None})
    with pytest.raises(kc.InvalidArgument, match="'must' takes no NULL"):
        by_source.execute()


NESTED = pa.schema(
    [
        ("k", pa.int64()),
        ("at", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("by", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS = [
    {"k": 1, "at": {"x": 1, "y": "a"}, "tags": ["t"], "by": [("m", 1)]},
    {"k": 2, "at": None, "tags": None, "by": []},
]


@pytest.fixture
def nested(make: Make) -> kc.Table:
    table = make(NESTED, ["k"])
    table.insert(ROWS)
    return table


def test_fields_of_structs_in_conditions_and_values(nested: kc.Table) -> None:
    source = {"k": [1, 2], "at": [{"x": 10, "y": "b"}, {"x": 20, "y": "c"}]}
    merge = nested.merge(source)
    summed = {"at.x": kc.old("at.x") + kc.new("at.x")}
    done = merge.when_matched(summed, where=kc.old("at.y") == "a").execute()
    assert done.clauses == (1,)
    assert nested.get(1, ["at"]) == {"at": {"x": 11, "y": "a"}}
    assert nested.get(2, ["at"]) == {"at": None}
    nested.merge(source).when_matched({"at.y": kc.new("at.y")}, where=kc.old("at.x").is_null()).execute()
    assert nested.get(2, ["at"]) == {"at": {"x": None, "y": "c"}}, "a field that is set makes the struct be"


def test_whole_nested_columns(nested: kc.Table) -> None:
    source = pa.Table.from_pylist(
        [
            {"k": 2, "at": {"x": 5, "y": None}, "tags": ["p", None], "by": [("q", 2)]},
            {"k": 3, "at": None, "tags": [], "by": None},
        ],
        schema=NESTED,
    )
    nested.merge(source).when_matched().when_not_matched_insert().execute()
    assert nested.scan(order="key").to_pylist() == [ROWS[0], *source.to_pylist()]
    nested.merge({"k": [1]}).when_matched({"at": {"x": 7}, "tags": ["u", "v"]}).execute()
    assert nested.get(1) == {"k": 1, "at": {"x": 7, "y": None}, "tags": ["u", "v"], "by": [("m", 1)]}


def test_rows_for_which_none_is_given_with_nested_columns(nested: kc.Table) -> None:
    merge = nested.merge({"k": [9]})
    merge.when_not_matched_by_source_delete(where=kc.old("at.x").is_null())
    done = merge.when_not_matched_by_source_update({"at.x": kc.old("at.x") * 3, "tags": ["n"]}).execute()
    assert done.clauses == (1, 1)
    assert nested.scan().to_pylist() == [{**ROWS[0], "at": {"x": 3, "y": "a"}, "tags": ["n"]}]


def test_a_whole_nested_column_of_the_other_row(nested: kc.Table) -> None:
    """What its functions make of structs and lists is Arrow's to say."""
    source = pa.Table.from_pylist(
        [{"k": 1, "at": {"x": 5, "y": "new"}, "tags": ["new"], "by": []}], schema=NESTED
    )
    nested.merge(source).when_matched({"tags": kc.new("tags")}, where=kc.new("at").is_valid()).execute()
    assert nested.get(1) == {**ROWS[0], "tags": ["new"]}
    where = pc.list_value_length(kc.old("tags")) == 1
    nested.merge(source).when_matched({"at": kc.new("at")}, where=where).execute()
    assert nested.get(1, ["at"]) == {"at": {"x": 5, "y": "new"}}
