"""What each operation does to a row that is there and to one that is not, and how it is counted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.tables import Make

OPERATIONS = ("insert", "insert_ignore", "upsert", "update", "update_ignore", "delete", "delete_ignore")

# operation -> (counts or code when the row is there, the same when it is not)
RULES: dict[str, tuple[Any, Any]] = {
    "insert": ("already_present", (1, 0, 0, 0)),
    "insert_ignore": ((0, 0, 0, 1), (1, 0, 0, 0)),
    "upsert": ((0, 1, 0, 0), (1, 0, 0, 0)),
    "update": ((0, 1, 0, 0), "not_found"),
    "update_ignore": ((0, 1, 0, 0), (0, 0, 0, 1)),
    "delete": ((0, 0, 1, 0), "not_found"),
    "delete_ignore": ((0, 0, 1, 0), (0, 0, 0, 1)),
}
PLACES = ("memory", "disk", "deleted in memory", "deleted on disk", "reinserted", "never")


def call(table: kc.Table, operation: str, data: Any, **more: Any) -> kc.WriteResult:
    kind, _, ignore = operation.partition("_")
    if ignore:
        more["on_conflict" if kind == "insert" else "on_missing"] = "ignore"
    result: kc.WriteResult = getattr(table, kind)(data, **more)
    return result


def put(table: kc.Table, place: str) -> bool:
    """Bring the row of key 1 to a place; whether it is there for reads."""
    if place == "never":
        return False
    table.insert({"k": [1], "a": [10], "s": ["old"]})
    if place in ("disk", "deleted on disk"):
        table.flush()
    if place.startswith("deleted") or place == "reinserted":
        table.delete({"k": [1]})
    if place == "deleted on disk":
        table.flush()
    if place == "reinserted":
        table.insert({"k": [1], "a": [10], "s": ["old"]})
    return not place.startswith("deleted")


@pytest.mark.parametrize("way", ["log", "ingest", "one row"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_on_each_kind_of_row(make: Make, operation: str, place: str, way: str) -> None:
    table = make(ingest_threshold_rows=1 if way == "ingest" else 100_000)
    live = put(table, place)
    before = table.get(1)
    assert (before is not None) == live
    row = {"k": 1} if operation.startswith("delete") else {"k": 1, "a": 11}
    data: Any = [row] if way == "one row" else {name: [cell] for name, cell in row.items()}
    wanted = RULES[operation][0 if live else 1]
    if isinstance(wanted, str):
        with pytest.raises(kc.RowErrors) as refused:
            call(table, operation, data)
        assert refused.value.errors.to_pylist() == [{"row": 0, "code": wanted, "key": {"k": 1}}]
        assert table.get(1) == before
        result = call(table, operation, data, on_error="return")
        assert result.counts == (0, 0, 0, 0)
        assert result.errors is not None and result.errors["code"].to_pylist() == [wanted]
        assert table.get(1) == before
        return
    result = call(table, operation, data)
    assert result.counts == wanted
    assert result.errors is None
    after = table.get(1)
    if operation.startswith("delete"):
        assert after is None
    elif result.updated:
        assert after == {"k": 1, "a": 11, "s": "old", "must": 7}
    elif result.inserted:
        assert after == {"k": 1, "a": 11, "s": None, "must": 7}
    else:
        assert after == before


def test_an_upsert_keeps_what_it_does_not_give(table: kc.Table) -> None:
    table.insert({"k": [1], "a": [10], "s": ["x"], "must": [3]})
    assert table.upsert({"k": [1, 2], "s": ["y", "z"]}).counts == (1, 1, 0, 0)
    assert table.get(1) == {"k": 1, "a": 10, "s": "y", "must": 3}
    assert table.get(2) == {"k": 2, "a": None, "s": "z", "must": 7}


def test_null_sets_null_and_missing_keeps(table: kc.Table) -> None:
    table.insert({"k": [1], "a": [10], "s": ["x"]})
    table.upsert({"k": [1], "a": pa.array([None], pa.int64())})
    assert table.get(1) == {"k": 1, "a": None, "s": "x", "must": 7}
    table.update({"k": [1], "s": [None]})
    assert table.get(1) == {"k": 1, "a": None, "s": None, "must": 7}


def test_an_upsert_of_keys_alone_leaves_rows_as_they_are(table: kc.Table) -> None:
    table.insert({"k": [1], "a": [10]})
    first = table.timestamp
    assert table.upsert({"k": [1]}).counts == (0, 1, 0, 0)
    assert table.get(1) == {"k": 1, "a": 10, "s": None, "must": 7}
    assert table.upsert({"k": [1, 2]}).counts == (1, 1, 0, 0)
    assert table.get(2) == {"k": 2, "a": None, "s": None, "must": 7}
    assert table.count(at=first) == 1


def test_tables_of_keys_alone(make: Make) -> None:
    table = make(pa.schema([("k", pa.string())]))
    assert table.insert({"k": ["a", "b"]}).inserted == 2
    assert table.upsert({"k": ["b", "c"]}).counts == (1, 1, 0, 0)
    with pytest.raises(kc.InvalidArgument, match="beside the key"):
        table.update({"k": ["a"]})
    table.flush()
    assert table.delete({"k": ["a"]}).deleted == 1
    assert table.scan(order="key").to_pylist() == [{"k": "b"}, {"k": "c"}]


def test_defaults_fill_what_an_insert_leaves_out(make: Make) -> None:
    table = make(
        [
            kc.Column("k", pa.int32()),
            kc.Column("n", pa.int64(), default=-1),
            kc.Column("t", pa.string(), nullable=False, default="new"),
            kc.Column("u", pa.timestamp("us", "UTC")),
        ],
    )
    table.insert({"k": [1]})
    table.insert({"k": [2], "n": [None]})
    assert table.get(1) == {"k": 1, "n": -1, "t": "new", "u": None}
    assert table.get(2) == {"k": 2, "n": None, "t": "new", "u": None}, "NULL is not missing"
    table.delete({"k": [1]})
    table.flush()
    table.upsert({"k": [1], "t": ["again"]})
    assert table.get(1) == {"k": 1, "n": -1, "t": "again", "u": None}


def test_nulls_in_required_columns_are_errors_of_their_rows(table: kc.Table) -> None:
    data = pa.table(
        {
            "k": pa.array([1, None, 3, 4], pa.int64()),
            "must": pa.array([1, 2, None, 4], pa.int32()),
        }
    )
    with pytest.raises(kc.RowErrors, match="2 null_in_required") as refused:
        table.insert(data)
    assert refused.value.errors["row"].to_pylist() == [1, 2]
    assert refused.value.errors["key"].to_pylist() == [{"k": None}, {"k": 3}]
    assert table.count() == 0
    result = table.insert(data, on_error="return")
    assert result.inserted == 2
    assert [r["k"] for r in table.scan(order="key").to_pylist()] == [1, 4]


def test_a_required_column_without_default_must_be_given(make: Make) -> None:
    table = make(
        [kc.Column("k", pa.int64()), kc.Column("must", pa.int64(), nullable=False), kc.Column("o", "string")]
    )
    with pytest.raises(kc.SchemaMismatch, match="'must' takes no NULL and has no default"):
        table.insert({"k": [1]})
    table.insert({"k": [1], "must": [5]})
    # An upsert may leave it out for rows that are there.
    result = table.upsert({"k": [1, 2], "o": ["x", "x"]}, on_error="return")
    assert result.counts == (0, 1, 0, 0)
    assert result.errors is not None
    assert result.errors.to_pylist() == [{"row": 1, "code": "null_in_required", "key": {"k": 2}}]


def test_repeated_keys_are_decided_in_order(table: kc.Table) -> None:
    result = table.insert({"k": [1, 2, 1], "a": [1, 2, 3]}, on_error="return")
    assert result.inserted == 2
    assert result.errors is not None and result.errors["row"].to_pylist() == [2]
    assert table.get(1, ["a"]) == {"a": 1}
    assert table.upsert({"k": [5, 5, 5], "a": [1, 2, 3]}).counts == (1, 2, 0, 0)
    assert table.get(5, ["a"]) == {"a": 3}
    result = table.delete({"k": [5, 5]}, on_error="return")
    assert result.deleted == 1
    assert result.errors is not None and result.errors.to_pylist() == [
        {"row": 1, "code": "not_found", "key": {"k": 5}}
    ]
    assert table.insert({"k": [9, 9, 9]}, on_conflict="ignore").counts == (1, 0, 0, 2)


def test_apply_mixes_operations_in_order(table: kc.Table) -> None:
    table.insert({"k": [1, 2], "a": [1, 2], "s": ["x", "y"]})
    data = {
        "k": [1, 1, 1, 2, 3, 4, 9, 9],
        "a": [None, 5, 6, 7, 8, None, None, None],
        "_op": ["delete", "insert", "update", "upsert", "insert", "delete_ignore", "insert_ignore", "delete"],
    }
    assert table.apply(data).counts == (3, 2, 2, 1)
    assert table.scan(["k", "a", "s"], order="key").to_pylist() == [
        {"k": 1, "a": 6, "s": None},
        {"k": 2, "a": 7, "s": "y"},
        {"k": 3, "a": 8, "s": None},
    ]


def test_a_delete_in_apply_reads_its_key_only(table: kc.Table) -> None:
    table.insert({"k": [1, 2]})
    data = pa.table({"k": [1, 2], "must": pa.array([None, 3], pa.int32()), "what": ["delete", "update"]})
    assert table.apply(data, op_column="what").counts == (0, 1, 1, 0)
    assert table.get(2, ["must"]) == {"must": 3}


def test_deleting_takes_keys_in_many_forms(make: Make) -> None:
    table = make()
    table.insert({"k": list(range(6))})
    assert table.delete([0]).deleted == 1
    assert table.delete(pa.array([1])).deleted == 1
    assert table.delete([{"k": 2}]).deleted == 1
    assert table.delete(pa.table({"k": [3]})).deleted == 1
    assert table.delete([4, 99], on_missing="ignore").counts == (0, 0, 1, 1)
    with pytest.raises(kc.SchemaMismatch, match="'a' is none of them"):
        table.delete({"k": [5], "a": [1]})
    assert table.count() == 1


def test_row_errors_say_what_to_do(table: kc.Table) -> None:
    table.insert({"k": list(range(10))})
    with pytest.raises(kc.RowErrors) as refused:
        table.insert({"k": list(range(12))})
    text = str(refused.value)
    assert "10 rows were refused (10 already_present); nothing was applied" in text
    assert 'on_error="return"' in text
    assert refused.value.errors.schema.names == ["row", "code", "key"]
    assert refused.value.errors.num_rows == 10
    assert table.count() == 10


def test_row_errors_of_keys_that_python_has_no_value_for(make: Make) -> None:
    table = make([kc.Column("k", pa.timestamp("us")), kc.Column("s", pa.string())], ("k", "s"))
    far = pa.table({"k": pa.array([2**62], pa.timestamp("us")), "s": ["x" * 17_000]})
    with pytest.raises(kc.RowErrors, match="too_large") as refused:
        table.insert(far)
    assert str(2**62) in str(refused.value) and len(str(refused.value)) < 500


def test_errors_of_a_composite_key(make: Make) -> None:
    table = make(pa.schema([("a", pa.string()), ("b", pa.int8()), ("v", pa.int8())]), ("b", "a"))
    table.insert({"a": ["x"], "b": [1], "v": [1]})
    result = table.insert({"a": ["x", "y"], "b": [1, 1], "v": [2, 2]}, on_error="return")
    assert result.errors is not None
    assert result.errors["key"].to_pylist() == [{"b": 1, "a": "x"}]
