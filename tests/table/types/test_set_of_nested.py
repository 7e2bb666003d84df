"""``set=`` with expressions that see nested columns, and that make them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make

F = pc.field
ID = uuid.UUID(int=7)
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int64()),
        ("s", pa.struct([("a", pa.int32()), ("t", pa.list_view(pa.string_view())), ("u", pa.uuid())])),
        ("l", pa.list_(pa.int64())),
        ("o", pa.large_list(pa.int16())),
        ("v", pa.list_(pa.float32(), 2)),
        ("m", pa.map_(pa.string(), pa.int32())),
        pa.field("r", pa.list_(pa.field("item", pa.int64(), False)), False),
        ("w", pa.struct([pa.field("x", pa.int8(), False), ("y", pa.list_(pa.int8()))])),
    ]
)
Row = dict[str, Any]
ROWS: list[Row] = [
    {"k": 1, "n": 5, "s": {"a": 1, "t": ["x", "y"], "u": ID}, "l": [1, 2, 3], "o": [9], "v": [1.0, 2.0],
     "m": [("p", 1)], "r": [1], "w": {"x": 1, "y": [1]}},
    {"k": 2, "n": 7, "s": None, "l": None, "o": None, "v": None, "m": None, "r": [], "w": None},
    {"k": 3, "n": None, "s": {"a": None, "t": None, "u": None}, "l": [None], "o": [], "v": [0.5, 0.5],
     "m": [], "r": [4, 5], "w": {"x": 2, "y": None}},
]  # fmt: skip


CASES: list[tuple[dict[str, Any], Callable[[Row], Row]]] = [
    ({"l": F("r")}, lambda row: {"l": row["r"]}),
    ({"l": F("o"), "o": F("r")}, lambda row: {"l": row["o"], "o": row["r"]}),
    ({"s": pc.make_struct(F("n"), F("s", "t"), field_names=["a", "t"])},
     lambda row: {"s": {"a": row["n"], "t": row["s"] and row["s"]["t"], "u": None}}),
    ({"s": pc.make_struct(F("s", "u"), pc.scalar(3), field_names=["u", "a"])},
     lambda row: {"s": {"a": 3, "t": None, "u": row["s"] and row["s"]["u"]}}),
    ({"s": F("s")}, lambda row: {}),
    ({"l": [7, None]}, lambda row: {"l": [7, None]}),
    ({"l": pc.scalar(pa.scalar([1, None])), "v": pc.scalar(pa.scalar([1.5, 2.5]))},
     lambda row: {"l": [1, None], "v": [1.5, 2.5]}),
    ({"r": pc.coalesce(F("r"), F("l"))}, lambda row: {}),
    ({"l": pc.coalesce(F("l"), F("r")), "m": None},
     lambda row: {"l": row["r"] if row["l"] is None else row["l"], "m": None}),
    ({"n": pc.list_value_length(F("l"))}, lambda row: {"n": None if row["l"] is None else len(row["l"])}),
    ({"n": pc.list_element(F("r"), 1)}, lambda row: {"n": row["r"][1] if len(row["r"]) > 1 else None}),
    ({"n": pc.if_else(F("l") == pa.scalar([1, 2, 3]), 1, 0)},
     lambda row: {"n": None if row["l"] is None else int(row["l"] == [1, 2, 3])}),
    ({"s.t": pc.list_slice(F("s", "t"), 0, 1), "s.a": pc.struct_field(F("s"), "a")},
     lambda row: {"s": {**(row["s"] or {"a": None, "u": None}), "t": row["s"] and row["s"]["t"] and ["x"]}}),
    ({"o": pc.list_slice(F("l"), 0, 1), "n": pc.map_lookup(F("m"), pa.scalar("p"), "first")},
     lambda row: {"o": row["l"] and row["l"][:1], "n": dict(row["m"] or ()).get("p")}),
    ({"w": pc.make_struct(pc.scalar(3), F("o"), field_names=["x", "y"])},
     lambda row: {"w": {"x": 3, "y": row["o"]}}),
    ({"w.y": F("o"), "w.x": 4}, lambda row: {"w": {"x": 4, "y": row["o"]}}),
]  # fmt: skip


@pytest.fixture(params=["memory", "flushed"])
def table(request: pytest.FixtureRequest, make: Make) -> kc.Table:
    made = make(SCHEMA)
    made.insert(ROWS)
    if request.param == "flushed":
        made.flush()
    return made


@pytest.mark.parametrize(("set_", "changed"), CASES, ids=[str(set_)[:60] for set_, _ in CASES])
def test_what_expressions_make_is_what_python_makes(
    table: kc.Table, set_: dict[str, Any], changed: Callable[[Row], Row]
) -> None:
    before = table.timestamp
    result = table.update(where=F("k") > 0, set=set_)
    assert result.updated == 3
    assert table.scan(order="key").to_pylist() == [{**row, **changed(row)} for row in ROWS]
    assert table.scan(order="key", at=before).to_pylist() == ROWS
    told = table.changes(before, table.timestamp, net=True).to_table()["k"].to_pylist()
    assert sorted(told) == [row["k"] for row in ROWS if {**row, **changed(row)} != row]
    table.flush()
    table.compact()
    assert table.scan(order="key").to_pylist() == [{**row, **changed(row)} for row in ROWS]
    table.verify()


@pytest.mark.parametrize(
    ("set_", "why"),
    [
        ({"l": F("n")}, "set: column 'l' is list.*int64 does not fit"),
        ({"n": F("l")}, "set: column 'n' is int64; data of type list"),
        ({"s": F("s"), "s.a": 1}, "'s.a' is given twice"),
        ({"s": F("s"), "s.t": F("s", "t")}, "'s.t.*' is given twice"),
        ({"v": pc.scalar(pa.scalar([1.5]))}, "set: column 'v' is fixed_size_list"),
        ({"r": F("l")}, r"set: column 'r.*', row 1: NULL"),
        ({"r": pc.scalar(pa.scalar([1, None]))}, r"set: column 'r\[\]', row 0: NULL"),
        ({"o": pc.scalar(pa.scalar([1 << 20]))}, r"set: column 'o\[\]'.*1048576"),
        ({"s": pc.make_struct(F("n"), field_names=["z"])}, "no field 'z'"),
        ({"w.y": F("o")}, "'w.x' takes no NULL"),
        ({"w": pc.make_struct(F("n"), field_names=["x"])}, "set: column 'w.x', row 2: NULL"),
        ({"l": F("nothing")}, "no column 'nothing'"),
        ({"l": pc.list_flatten(F("l"))}, "set: "),
        ({"l": pc.add(F("l"), 1)}, "set: .*no kernel"),
        ({"k": pc.list_element(F("l"), 0)}, "'k' is a key column"),
    ],
    ids=str,
)
def test_what_does_not_fit_changes_nothing(table: kc.Table, set_: dict[str, Any], why: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=why):
        table.update(where=F("k") > 0, set=set_)
    assert table.scan(order="key").to_pylist() == ROWS


def test_a_predicate_on_the_column_chooses_what_is_set(table: kc.Table) -> None:
    longest = pc.list_value_length(F("l")) == 3
    done = table.update(where=longest, set={"l": pc.list_slice(F("l"), 1, 3), "n": 0})
    assert (done.updated, table.get(1, ["l", "n"])) == (1, {"l": [2, 3], "n": 0})
    assert [row["l"] for row in table.scan(["l"], order="key").to_pylist()] == [[2, 3], None, [None]]
