"""Columns of lists, structs and maps: their parts are named, set, asked for, altered; what is refused."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.types.nested.nested_layout import NestedLayout
from tests.support.tables import Make

F = pc.field
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("a", pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])),
        ("v", pa.list_(pa.float32(), 3)),
        ("m", pa.map_(pa.string(), pa.int32())),
        pa.field("r", pa.struct([pa.field("q", pa.int32(), False)]), False),
    ]
)
ROW: dict[str, Any] = {
    "k": 1, "a": {"b": 1, "c": ["x", "y"]}, "v": [1.0, 2.0, 3.0], "m": [("p", 7)], "r": {"q": 5}
}  # fmt: skip


@pytest.fixture(params=["memory", "flushed"])
def table(request: pytest.FixtureRequest, make: Make) -> kc.Table:
    made = make(SCHEMA)
    made.insert([ROW, {"k": 2, "r": {"q": 6}, "a": None, "v": None, "m": {}}])
    if request.param == "flushed":
        made.flush()
    return made


def test_python_values_go_in_and_come_out(table: kc.Table) -> None:
    assert table.get(1) == ROW
    assert table.get(2) == {"k": 2, "a": None, "v": None, "m": [], "r": {"q": 6}}
    assert table.schema == SCHEMA.set(0, pa.field("k", pa.int64(), False))
    table.upsert({"k": [2], "m": [{"z": 1}]})
    assert table.get(2, ["m", "k"]) == {"m": [("z", 1)], "k": 2}


def test_a_point_read_makes_no_arrays(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def assembled(layout: NestedLayout, leaves: object) -> None:
        raise AssertionError("an array of one row takes as long as one of a thousand")

    monkeypatch.setattr(NestedLayout, "assemble", assembled)
    now = table.timestamp
    assert table.get(1) == table.get(1, at=now) == ROW
    assert table.get(2, ["m", "a", "r.q"]) == {"m": [], "a": None, "r.q": 6}
    assert table.get(3) is None


def test_a_field_is_read_by_its_path_and_only_its_leaf(table: kc.Table) -> None:
    scan = table.scan(["a.b", "r.q"])
    assert sorted(scan.to_pylist(), key=str) == [{"a.b": 1, "r.q": 5}, {"a.b": None, "r.q": 6}]
    assert [column.name for column in scan.schema] == ["a.b", "r.q"]
    assert "columns   a.b, r.q" in str(scan.explain())
    assert table.scan(["a.c"], F("k") == 1).to_pylist() == [{"a.c": ["x", "y"]}]
    assert table.scan(["a", "a.b"], F("k") == 1).to_pylist() == [{"a": ROW["a"], "a.b": 1}]
    assert table.get(1, ["a.c"]) == {"a.c": ["x", "y"]}


def test_a_field_of_a_struct_prunes(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))]))
    for start in (0, 100_000):
        keys = list(range(start, start + 20_000))
        table.insert({"k": keys, "s": [{"x": key, "y": "some text"} for key in keys]})
        table.flush()
    explained = table.scan(["k"], F("s", "x") == 100_007).explain()
    assert (explained.rowsets, explained.rowsets_pruned) == (2, 1)
    assert table.scan(["k"], F("s", "x") == 100_007).to_pylist() == [{"k": 100_007}]


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (F("a").is_null(), [2]),
        (F("a").is_valid(), [1]),
        (~F("a").is_null(), [1]),
        (F("v").is_null() | (F("k") == 1), [1, 2]),
        (F("r").is_null(), []),
        (F("r").is_valid(), [1, 2]),
        (F("a", "c").is_null(), [2]),
        (F("a", "b") > 0, [1]),
        (F("a.b") > 0, [1]),
        ([("a.b", "==", 1)], [1]),
        ([("r.q", "in", [5, 6])], [1, 2]),
    ],
    ids=str,
)
def test_predicates_ask_for_fields_and_for_null(table: kc.Table, where: Any, keys: list[int]) -> None:
    assert sorted(row["k"] for row in table.scan(["k"], where).to_pylist()) == keys
    assert table.count(where) == len(keys)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (F("a") == 1, "beside struct.*whether they are NULL, and for flat fields of a struct"),
        (F("v") < F("v"), "no kernel.*of lists, structs and maps a predicate asks"),
        (F("a", "z") == 1, "no column 'a.z'"),
        (F("a[]") == 1, r"no column 'a\[\]'"),
    ],
    ids=str,
)
def test_what_a_predicate_cannot_ask_is_refused(table: kc.Table, where: Any, why: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=why):
        table.count(where)


def test_a_nested_column_has_no_smallest_value(table: kc.Table) -> None:
    assert table.scan().min_max("a.b") == (1, 1)
    with pytest.raises(kc.InvalidArgument, match="'a' is struct"):
        table.scan().min_max("a")


def test_set_addresses_a_column_or_a_field(table: kc.Table) -> None:
    one = F("k") == 1
    table.update(where=one, set={"a.b": F("a.b") + 1, "a.c": None})
    assert table.get(1, ["a"]) == {"a": {"b": 2, "c": None}}
    table.update(where=one, set={"a": {"b": 8, "c": ["z"]}, "v": [3, 2, 1]})
    assert table.get(1, ["a", "v"]) == {"a": {"b": 8, "c": ["z"]}, "v": [3.0, 2.0, 1.0]}
    table.update(where=one, set={"a": None})
    assert table.get(1, ["a"]) == {"a": None}
    table.update({"k": [1], "a.c": [["q"]]})
    assert table.get(1, ["a"]) == {"a": {"b": None, "c": ["q"]}}, "who sets a field makes the struct"
    table.update(where=F("k") == 2, set={"a.b": 3})
    assert table.get(2, ["a"]) == {"a": {"b": 3, "c": None}}
    table.update(where=one, set={"v": F("v"), "a": F("a")})
    assert table.get(1, ["v"]) == {"v": [3.0, 2.0, 1.0]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"a[]": [b""]}, r"'a\[\]' is unknown"),
    ({"a:null": [True]}, "'a:null' is unknown"),
    ({"a": [{"zz": 1}]}, "'a', row 0: no field 'zz'; there are b, c"),
    ({"v": [[1, 2]]}, "'v'"),
    ({"v": pa.array([[1.0, 2.0]])}, "'v'"),
    ({"a.b": [1], "a": [None]}, "'a.b' and 'a' give the same"),
    ({"a.b": pa.array([1.5])}, "'a.b' is int64"),
    ({"a": pa.array([{"b": 1.5}])}, "'a.b'"),
    ({"a": pa.array([{"b": 1, "d": 1}])}, "'a'.*no field 'd'"),
    ({"m": pa.array([5])}, "'m' is map"),
    ({"r": [None]}, "'r', row 0: NULL"),
    ({"r": pa.array([{"other": 1}])}, "'r'.*no field 'other'"),
]


@pytest.mark.parametrize(("columns", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_rows_that_do_not_fit_are_refused(table: kc.Table, columns: dict[str, Any], why: str) -> None:
    before = table.scan(order="key").to_pylist()
    with pytest.raises((kc.SchemaMismatch, kc.InvalidArgument), match=why):
        table.upsert({"k": [1], **({} if "r" in columns else {"r": [{"q": 1}]}), **columns})
    assert table.scan(order="key").to_pylist() == before


def test_an_insert_gives_all_of_what_takes_no_null(make: Make) -> None:
    table = make(SCHEMA)
    for row in ([{"k": 1}], {"k": [1], "r.q": [1]}):
        if isinstance(row, list):
            with pytest.raises(kc.SchemaMismatch, match="'r' takes no NULL"):
                table.insert(row)
        else:
            table.insert(row)
    assert table.get(1) == {"k": 1, "a": None, "v": None, "m": None, "r": {"q": 1}}


def test_columns_and_fields_are_added_renamed_and_dropped(table: kc.Table) -> None:
    before = table.timestamp
    table.alter(add=[pa.field("n", pa.list_(pa.int8()))], rename={"a": "s"})
    assert table.get(1, ["s.b", "n"]) == {"s.b": 1, "n": None}
    table.alter(add=[pa.field("s.d", pa.list_(pa.struct([("e", pa.string())]))), pa.field("s.f", pa.int8())])
    assert table.get(1, ["s"]) == {"s": {**ROW["a"], "d": None, "f": None}}
    table.update({"k": [1], "s.d": [[{"e": "x"}]], "s.f": [3]})
    assert table.get(1, ["s"]) == {"s": {**ROW["a"], "d": [{"e": "x"}], "f": 3}}
    assert table.get(1, ["s"], at=before) == {"s": {**ROW["a"], "d": None, "f": None}}
    table.upsert([{"k": 9, "r": {"q": 1}, "s": {"d": []}}])
    assert table.get(9, ["s"]) == {"s": {"b": None, "c": None, "d": [], "f": None}}
    table.flush()
    table.compact()
    assert table.get(1, ["s"]) == {"s": {**ROW["a"], "d": [{"e": "x"}], "f": 3}}
    table.alter(drop=["s"])
    assert [field.name for field in table.schema] == ["k", "v", "m", "r", "n"]
    with pytest.raises(kc.InvalidArgument, match="'s'"):
        table.scan(["s"])
    table.verify()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"drop": ["a.b"]}, "'a.b' is a part of column 'a'"),
        ({"rename": {"a.b": "a.c"}}, "'a.b'"),
        ({"rename": {"v": "m"}}, "'m'"),
        ({"add": [pa.field("a", pa.int8())]}, "'a' exists already"),
        ({"add": [pa.field("a.b", pa.int8())]}, "'a' has a field 'b'"),
        ({"add": [pa.field("v.b", pa.int8())]}, "'v' is fixed_size_list"),
        ({"add": [pa.field("a.z.y", pa.int8())]}, "'a' has no field 'z'"),
        ({"add": [pa.field("a.z", pa.int8(), False)]}, "'a.z'.*NULL at first"),
        ({"add": [pa.field("w", pa.list_(pa.int8()), False)]}, "'w'.*nullable"),
    ],
    ids=str,
)
def test_changes_that_cannot_be_are_refused(table: kc.Table, change: dict[str, Any], why: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=why):
        table.alter(**change)
    assert table.get(1) == ROW


@pytest.mark.parametrize(
    ("columns", "key", "why"),
    [
        ([("k", pa.list_(pa.int8()))], "k", "'k': a key cannot hold list"),
        ([("k", pa.int8()), ("a", pa.struct([]))], "k", "'a': a struct without fields"),
        ([("k", pa.int8()), ("a", pa.struct([("b", pa.int8())])), ("a.b", pa.int8())], "k", "'a.b'"),
        ([("k", pa.int8()), ("x.y", pa.list_(pa.int8()))], "k", r"'x\.y'"),
    ],
)
def test_schemas_that_cannot_be_are_refused(make: Make, columns: Any, key: str, why: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=why):
        make(pa.schema(columns), key)


def test_a_default_or_an_encoding_of_a_nested_column_is_refused(make: Make) -> None:
    for options in ({"default": [1]}, {"encoding": "plain"}):
        with pytest.raises(kc.InvalidArgument, match="column 'v'"):
            make([kc.Column("k", "int64"), kc.Column("v", pa.list_(pa.int8()), **options)])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.list_(pa.float16()), [1.0, 1e9]),
        (pa.list_(pa.list_(pa.float32(), 1)), [[1e300]]),
        (pa.struct([("a", pa.float16()), ("b", pa.uuid())]), {"a": 1e9}),
        (pa.map_(pa.string(), pa.float32()), {"a": -1e300}),
    ],
    ids=str,
)
def test_a_number_outside_the_range_of_floats_is_refused(make: Make, type_: pa.DataType, value: Any) -> None:
    """Arrow makes it infinite."""
    table = make(pa.schema([("k", pa.int64()), ("v", type_)]))
    for rows in ([{"k": 1, "v": None}, {"k": 2, "v": value}], {"k": [1, 2], "v": [None, value]}):
        with pytest.raises(kc.InvalidArgument, match=r"column 'v.*', row 1: .*outside the range of float"):
            table.insert(rows)
    assert table.count() == 0
    known = make(pa.schema([("k", pa.int64()), ("v", pa.list_(pa.float16()))]), at=Path(table.path + "2"))
    known.insert([{"k": 1, "v": [float("inf"), 0.1, None]}])
    assert known.get(1)["v"][0] == float("inf")  # type: ignore[index]


def test_values_of_extension_types_in_lists_and_structs(make: Make) -> None:
    parts = pa.struct([("id", pa.uuid()), ("on", pa.bool8()), ("list", pa.large_list(pa.uuid()))])
    types = [("v", parts), ("m", pa.map_(pa.string(), pa.uuid())), ("f", pa.list_(pa.uuid(), 1))]
    table = make(pa.schema([("k", pa.int64()), *types]))
    one = uuid.UUID(int=1)
    row = {"v": {"id": one, "on": True, "list": [one, None]}, "m": [("a", one)], "f": [one]}
    table.insert([{"k": 1, **row}, {"k": 2, "v": None}])
    table.insert({"k": [3], **{name: [value] for name, value in row.items()}})
    assert table.get(1, list(row)) == table.get(3, list(row)) == row
    assert table.scan().schema.field("v").type == parts


def test_a_field_that_is_a_dictionary_is_read_in_its_struct(tmp_path: Any) -> None:
    coded = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("d", coded), ("t", pa.string())]))])
    rows = [{"id": 1, "s": {"d": "a", "t": "b"}}, {"id": 2, "s": None}]
    with kc.create_table(tmp_path / "t", schema, "id") as table:
        table.insert(rows)
        assert table.scan(order="key").to_pylist() == rows
        assert table.scan(["s"], limit=1, order="key").to_pylist() == [{"s": rows[0]["s"]}]
        both = table.scan(["s.d", "s"], order="key").to_table()
        assert both.schema == pa.schema([("s.d", coded), schema.field("s")])
        assert both.to_pylist()[0] == {"s.d": "a", "s": rows[0]["s"]}
        assert table.to_dataset().to_table().num_rows == 2
        with pytest.raises(kc.InvalidArgument, match=r"'s.t' is not a flat column of the scan"):
            table.scan(["s"], dictionary=["s.t"])
        with pytest.raises(kc.InvalidArgument, match="'s' is asked for twice"):
            table.scan(["s", "s"])
        with pytest.raises(kc.InvalidArgument, match=r"filter on 's': .*1 is not a dict of d, t"):
            table.count([("s", "==", 1)])


def test_expressions_name_fields_of_structs(tmp_path: Any) -> None:
    schema = pa.schema([
        ("id", pa.int64()), ("n", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("u", pa.list_(pa.uuid()))])),
    ])  # fmt: skip
    with kc.create_table(tmp_path / "t", schema, "id") as table:
        table.insert([{"id": 1, "s": {"x": 4}}, {"id": 2}])
        table.update(where=pc.field("id") > 0, set={"n": pc.field("s", "x") + 1})
        assert table.scan(["n"], order="key").to_pylist() == [{"n": 5}, {"n": None}]
        table.update(where=pc.field("id") > 0, set={"n": pc.if_else(pc.field("s").is_null(), 1, 2)})
        assert table.scan(["n"], order="key").to_pylist() == [{"n": 2}, {"n": 1}]
        with pytest.raises(kc.InvalidArgument, match=r"no column 's\.y'"):
            table.update(where=pc.field("id") > 0, set={"n": pc.field("s", "y")})
        columns = {"twice": pc.multiply(pc.field("s", "x"), 2)}
        found = table.to_dataset().to_table(columns=columns, filter=pc.field("id") == 1)
        assert found.to_pylist() == [{"twice": 8}]
        assert table.lazy().select("id").collect()["id"].to_list() == [1, 2]


def test_types_that_pyarrow_does_not_pickle_whole_travel_in_tokens_and_scans(make: Make) -> None:
    """A pickled fixed_size_list of pyarrow forgets that its items take no NULL."""
    item = pa.field("item", pa.map_(pa.int32(), pa.date32()), nullable=False)
    struct = pa.struct([("x", pa.list_(item, 1))])
    schema = pa.schema([("k", pa.int64()), ("v", pa.list_(item, 2)), ("s", struct)])
    table = make(schema)
    table.insert({"k": [1, 2], "v": [[[(1, None)], []], None], "s": [{"x": [[]]}, None]})
    whole = table.scan().to_table()
    for token in pickle.loads(pickle.dumps(table.scan_tokens())):
        assert table.scan_token(token).to_table().equals(whole)
    assert pickle.loads(pickle.dumps(table.scan(["s.x", "k"]))).to_table()["k"].to_pylist() == [1, 2]
