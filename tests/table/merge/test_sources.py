"""What a merge is given: forms, keys under other names, columns of its own, several rows of one key, and what
of it is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.cases.foreign import HOSTILE
from tests.support.hostile.doors import as_batch
from tests.support.tables import Make


@pytest.fixture
def stock(table: kc.Table) -> kc.Table:
    table.insert({"k": [1, 2, 3], "a": [10, 20, 30], "s": ["x", "y", "z"]})
    return table


def values(table: kc.Table, column: str = "a") -> dict[int, Any]:
    return {row["k"]: row[column] for row in table.scan(["k", column], order="key").to_pylist()}


@dataclass
class Row:
    k: int
    a: int


ROWS = {"k": [1, 9], "a": [5, 6]}
FORMS = {
    "dict": lambda: ROWS,
    "list": lambda: [{"k": 1, "a": 5}, {"k": 9, "a": 6}],
    "dataclasses": lambda: [Row(1, 5), Row(9, 6)],
    "table": lambda: pa.table(ROWS),
    "pieces": lambda: pa.concat_tables([pa.table(ROWS).slice(0, 1), pa.table(ROWS).slice(1)]),
    "reader": lambda: pa.table(ROWS).to_reader(1),
    "generator": lambda: iter(pa.table(ROWS).to_batches(1)),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(stock: kc.Table, form: str) -> None:
    merge = stock.merge(FORMS[form]()).when_matched().when_not_matched_insert()
    assert merge.execute().clauses == (1, 1)
    assert values(stock) == {1: 5, 2: 20, 3: 30, 9: 6}


def test_a_table_of_ours_and_frames_are_sources(stock: kc.Table, make: Make, tmp_path: Any) -> None:
    other = make(at=tmp_path / "other")
    other.insert({"k": [1, 9], "a": [5, 6]})
    stock.merge(other).when_matched().execute()
    assert values(stock)[1] == 5
    for package in ("pandas", "polars"):
        frame = pytest.importorskip(package).DataFrame({"k": [2], "more": [7]})
        stock.merge(frame).when_matched({"a": kc.old("a") + kc.new("more")}).execute()
    assert values(stock)[2] == 34


def test_rows_with_different_columns(stock: kc.Table) -> None:
    """Each says what it sets; expressions need their columns of all."""
    rows = [{"k": 1, "a": 5}, {"k": 2, "s": "new"}, {"k": 9, "a": 6, "s": "nine"}]
    merge = stock.merge(rows).when_matched().when_not_matched_insert()
    assert merge.execute().clauses == (2, 1)
    assert values(stock) == {1: 5, 2: 20, 3: 30, 9: 6}
    assert values(stock, "s") == {1: "x", 2: "new", 3: "z", 9: "nine"}


def test_the_key_under_other_names(make: Make) -> None:
    table = make(pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())]), ["a", "b"])
    table.insert({"a": [1, 1], "b": ["x", "y"], "n": [1, 2]})
    source = {"second": ["x", "z"], "first": [1, 1], "n": [10, 30]}
    merge = table.merge(source, on={"a": "first", "b": "second"}).when_matched().when_not_matched_insert()
    assert merge.execute().clauses == (1, 1)
    assert sorted(table.scan(["n"]).to_table()["n"].to_pylist()) == [2, 10, 30]
    one = pa.table({"b": ["y"], "n": [1]})
    assert table.merge(one, on={"a": "n", "b": "b"}).when_matched_delete().execute().deleted == 1


@pytest.mark.parametrize("on", ["k", ["k"], ("k",), {"k": "k"}, None])
def test_the_key_named(stock: kc.Table, on: Any) -> None:
    assert stock.merge(ROWS, on).when_matched().execute().updated == 1


def test_wrong_keys(stock: kc.Table) -> None:
    for on, error, told in (
        ("a", kc.NotSupported, "by the primary key, k, not by a"),
        ([], kc.NotSupported, "not by nothing"),
        (5, kc.InvalidArgument, "a list of them or a mapping from them, not 5"),
        ([1], kc.InvalidArgument, r"not \[1\]"),
    ):
        with pytest.raises(error, match=told):
            stock.merge(ROWS, on)
    for source, on, told in (
        ({"a": [1]}, None, "column 'k' is missing"),
        ({"a": [1]}, {"k": "id"}, "the rows have no column 'id'; they have a"),
        ({"k": [1], "id": [1]}, {"k": "id"}, "a column 'k' of their own; leave it out"),
        ({"k": ["x"], "a": [1]}, None, "'k'"),
    ):
        with pytest.raises(kc.SchemaMismatch, match=told):
            stock.merge(source, on).when_matched({"a": 1}).execute()


def test_columns_that_the_table_does_not_have(stock: kc.Table) -> None:
    """They are for expressions; what would be lost unseen is refused."""
    source = {"k": [1, 9], "sold": [3, 4]}
    stock.merge(source).when_matched({"a": kc.old("a") - kc.new("sold")}, where=kc.new("sold") < 4).execute()
    assert values(stock)[1] == 7
    for merge in (stock.merge(source).when_matched(), stock.merge(source).when_not_matched_insert()):
        with pytest.raises(kc.SchemaMismatch, match="'sold' of the rows is unknown; the table has k, a"):
            merge.execute()
    assert stock.merge(source).when_matched_delete().execute().deleted == 1
    with pytest.raises(kc.SchemaMismatch, match="'sold' of the rows is unknown"):
        stock.upsert(source, if_=kc.old("a") > 1)


def test_columns_of_their_own_are_of_any_type(stock: kc.Table) -> None:
    source = pa.table(
        {
            "k": [1, 2],
            "view": pa.array(["p", None], pa.string_view()),
            "code": pa.array(["q", "r"]).dictionary_encode(),
            "many": pa.array([[1], []]),
            "at": pa.array([{"x": 1}, None]),
        }
    )
    merge = stock.merge(source).when_matched({"s": kc.new("view")}, where=kc.new("view").is_valid())
    merge.when_matched({"s": kc.new("code"), "a": pc.list_value_length(kc.new("many"))}).execute()
    assert values(stock, "s") == {1: "p", 2: "r", 3: "z"} and values(stock)[2] == 0


BROKEN = [case for case in HOSTILE if not re.search("that fit|not fit|unscaled", str(case))]
"""Memory that is not what it says, beside cells that a column's type does not have."""


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_broken_columns_are_refused(make: Make, case: Any) -> None:
    """Also those that the table does not have, which nobody casts."""
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"])
    table.insert({"k": [0, 1, 2]})
    array, spoil = case.make()
    with pytest.raises(kc.InvalidArgument, match=f"column '{re.escape(case.column)}'"):
        table.merge(as_batch([0, 1, 2], case.column, array, spoil)).when_matched({"v": 1}).execute()
    assert table.count(pc.field("v") == 1) == 0


# ---- several rows of one key


def test_several_rows_of_one_key_are_refused(stock: kc.Table) -> None:
    source = {"k": [1, 2, 1, 9, 9], "a": [1, 2, 3, 4, 5]}
    merge = stock.merge(source).when_matched().when_not_matched_insert()
    told = r"4 rows were refused \(4 duplicate_in_batch\).*row 0 .*'k': 1"
    with pytest.raises(kc.RowErrors, match=told) as caught:
        merge.execute()
    assert caught.value.errors["row"].to_pylist() == [0, 2, 3, 4]
    assert values(stock) == {1: 10, 2: 20, 3: 30}
    done = merge.execute(on_error="return")
    assert (done.clauses, done.refused, done.counts) == ((3, 2), 4, (0, 1, 0, 0))
    assert values(stock) == {1: 10, 2: 2, 3: 30}


def test_rows_to_which_no_clause_is_applied_do_not_count(stock: kc.Table) -> None:
    source = {"k": [1, 1, 1], "a": [1, 7, 3]}
    done = stock.merge(source).when_matched(where=kc.new("a") > 5).execute()
    assert (done.clauses, done.ignored) == ((1,), 2)
    assert values(stock)[1] == 7


def test_the_last_of_several_rows(stock: kc.Table) -> None:
    source = {"k": [1, 1, 9, 9, 2], "a": [1, 2, 3, 4, 5], "seq": [7, 6, None, 1, 3]}
    merge = stock.merge(source, on_duplicate="last", sequence_by="seq")
    merge.when_matched({"a": kc.new("a")}).when_not_matched_insert({"a": kc.new("a")}).execute()
    assert values(stock) == {1: 1, 2: 5, 3: 30, 9: 4}
    tied = stock.merge({"k": [1, 1], "a": [8, 9], "seq": [5, 5]}, on_duplicate="last", sequence_by="seq")
    with pytest.raises(kc.RowErrors, match="duplicate_in_batch"):
        tied.when_matched({"a": 1}).execute()


def test_the_last_of_several_rows_with_different_columns(stock: kc.Table) -> None:
    rows = [{"k": 1, "a": 5, "must": 3}, {"k": 1, "s": "new", "must": 4}, {"k": 2, "must": 1}]
    merge = stock.merge(rows, on_duplicate="last", sequence_by="must").when_matched()
    assert merge.execute().updated == 2
    assert stock.get(1) == {"k": 1, "a": 10, "s": "new", "must": 4}


def test_the_order_may_be_of_a_column_of_the_table(stock: kc.Table) -> None:
    source = {"k": [1, 1], "s": ["b", "a"], "a": [1, 2]}
    stock.merge(source, on_duplicate="last", sequence_by="s").when_matched().execute()
    assert stock.get(1, ["s", "a"]) == {"s": "b", "a": 1}


def test_wrong_words_for_several_rows(stock: kc.Table) -> None:
    for how in ({"on_duplicate": "last"}, {"sequence_by": "a"}, {"on_duplicate": "first"}):
        with pytest.raises(kc.InvalidArgument, match='"last" together with sequence_by='):
            stock.merge(ROWS, **how)  # type: ignore[arg-type]
    with pytest.raises(kc.InvalidArgument, match="the rows that are given have no column 'seq'"):
        stock.merge(ROWS, on_duplicate="last", sequence_by="seq").when_matched().execute()
    source = {"k": [1, 1], "seq": [[1], [2]]}
    with pytest.raises(kc.InvalidArgument, match="sequence_by: 'seq' is list"):
        stock.merge(source, on_duplicate="last", sequence_by="seq").when_matched({"a": 1}).execute()


# ---- a NULL in a key is no key


@pytest.mark.parametrize("zero", [0, 5])
def test_a_null_in_the_key_is_not_the_key_that_is_encoded_like_it(table: kc.Table, zero: int) -> None:
    """It matches nothing, repeats nothing, and is refused where it would be written."""
    table.insert({"k": [0, 5], "a": [1, 1]})
    rows = {"k": [None, zero, None], "a": [7, 8, 9], "seq": [3, 1, 2]}
    source = {"k": rows["k"], "a": rows["a"]}
    done = table.merge(source).when_matched().execute()
    assert (done.updated, done.ignored, done.refused) == (1, 2, 0)
    assert values(table)[zero] == 8
    done = table.merge(source).when_matched().when_not_matched_insert().execute(on_error="return")
    assert done.errors is not None
    assert (done.updated, done.errors["row"].to_pylist()) == (1, [0, 2])
    assert set(done.errors["code"].to_pylist()) == {"null_in_required"}
    last = table.merge(rows, on_duplicate="last", sequence_by="seq").when_matched({"a": kc.new("seq")})
    assert last.execute().updated == 1 and values(table)[zero] == 1
    by_source = table.merge({"k": [None]}).when_not_matched_by_source_update({"a": 0})
    assert by_source.execute().updated == 2


@pytest.mark.parametrize("word", ["error", "ignore"])
def test_a_conditional_write_of_a_null_in_the_key_is_refused(table: kc.Table, word: Any) -> None:
    table.insert({"k": [0], "a": [1]})
    rows, condition = {"k": pa.array([None], pa.int64()), "a": [5]}, kc.old("a") > 0
    for done in (
        table.update(rows, if_=condition, on_missing=word, on_error="return"),
        table.delete(rows, if_=condition, on_missing=word, on_error="return"),
        table.upsert(rows, if_=condition, on_error="return"),
        table.insert(rows, if_=kc.new("a") > 0, on_conflict=word, on_error="return"),
    ):
        assert done.errors is not None and done.counts == (0, 0, 0, 0)
        assert done.errors["code"].to_pylist() == ["null_in_required"]
        assert done.errors["there"].to_pylist() == [None]
    assert values(table) == {0: 1}


def test_a_row_that_no_partition_takes(make: Make) -> None:
    table = make(partition_by=kc.RangePartition(["k"], bounds=[(0, 10)]))
    table.insert({"k": [1]})
    source = {"k": [1, 50], "a": [1, 2]}
    assert table.merge(source).when_matched().execute().counts == (0, 1, 0, 1)
    merge = table.merge(source).when_matched().when_not_matched_insert()
    with pytest.raises(kc.RowErrors, match=r"row 1 no_partition \{'k': 50\}"):
        merge.execute()
    done = merge.execute(on_error="return")
    assert (done.updated, done.refused) == (1, 1) and table.count() == 1
    assert table.merge({"k": [50]}).when_matched_delete().execute().ignored == 1


def test_refused_rows_keep_their_numbers_beside_rows_for_which_none_is_given(table: kc.Table) -> None:
    table.insert({"k": list(range(5)), "a": [0] * 5})
    source = pa.table({"k": pa.array([*range(100, 140), None]), "a": [*range(40), 7]})
    merge = table.merge(source).when_not_matched_insert(where=kc.new("a") == 7)
    done = merge.when_not_matched_by_source_update({"a": 1}).execute(on_error="return")
    assert done.errors is not None and done.errors["row"].to_pylist() == [40]
    assert done.counts == (1, 5, 0, 39)
