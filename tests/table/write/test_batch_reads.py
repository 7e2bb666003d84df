"""A batch reads what it wrote, and is applied only if all that it has read is still so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.write.batch_reads import ReadSet
from tests.support import cells
from tests.support.differential.drawing import VALUE_TYPES
from tests.support.inside import applied_writes_of, tablets_of
from tests.support.interrupts import is_held
from tests.support.tables import Make


@pytest.fixture(params=["log", "files"])
def stock(request: pytest.FixtureRequest, make: Make) -> kc.Table:
    """Rows 1 to 3 in five tablets; small batches through the log, or all straight to files."""
    threshold = 1 if request.param == "files" else 1000
    table = make(partition_by=kc.HashPartition("k", 5), ingest_threshold_rows=threshold)
    table.insert({"k": [1, 2, 3], "a": [10, 20, None], "s": ["x", "y", "z"]})
    return table


def values(table: kc.Table) -> dict[int, Any]:
    return {row["k"]: row["a"] for row in table.scan(["k", "a"], order="key").to_pylist()}


def test_a_batch_reads_what_it_wrote(stock: kc.Table) -> None:
    with stock.batch() as batch:
        assert batch.get(1) == {"k": 1, "a": 10, "s": "x", "must": 7}
        batch.update([{"k": 1, "a": 11}])
        assert batch.get(1) == {"k": 1, "a": 11, "s": "x", "must": 7}
        batch.delete([2])
        assert batch.get(2) is None
        batch.insert([{"k": 2, "a": 5}])
        assert batch.get(2) == {"k": 2, "a": 5, "s": None, "must": 7}
        batch.upsert({"k": [9, 1], "s": ["nine", "one"]})
        assert batch.get(9, ["s", "must"]) == {"s": "nine", "must": 7}
        assert batch.get(1, ["a", "s"]) == {"a": 11, "s": "one"}
        batch.apply({"_op": ["delete", "update"], "k": [9, 3], "a": [None, 33]})
        found = batch.get_many([9, 3, 4], ["k", "a"])
        assert found.to_pylist() == [
            {"k": 9, "a": None, "_found": False},
            {"k": 3, "a": 33, "_found": True},
            {"k": 4, "a": None, "_found": False},
        ]
    assert values(stock) == {1: 11, 2: 5, 3: 33}


def test_an_answer_is_that_of_the_table(stock: kc.Table) -> None:
    """The same schema and rows for every form of keys, whether the batch has written or not."""
    for columns in (None, ["a"], ["s", "k"]):
        for keys in ([1, 5, 3], {"k": [3, 1]}, pa.array([2, 2]), pa.table({"k": pa.array([], pa.int64())})):
            wanted = stock.get_many(keys, columns)
            with stock.batch() as batch:
                assert batch.get_many(keys, columns).equals(wanted)
                batch.upsert({"k": [77], "a": [1]})
                batch.upsert({"k": [1], "a": [10]})
                assert batch.get_many(keys, columns).equals(wanted)


def test_rows_that_would_be_refused_are_read_as_they_will_be(stock: kc.Table) -> None:
    with stock.batch(on_error="return") as batch:
        batch.insert([{"k": 1, "a": 99}])
        assert batch.get(1, ["a"]) == {"a": 10}
        batch.update([{"k": 50, "a": 1}])
        assert batch.get(50) is None
        batch.update([{"k": 2, "must": None}])
        assert batch.get(2, ["must"]) == {"must": 7}
    assert batch.result.errors is not None and batch.result.refused == 3


def changed(table: kc.Table) -> None:
    table.update([{"k": 1, "a": 0}])


OTHERS: dict[str, Callable[[kc.Table], object]] = {
    "an update": lambda t: t.update([{"k": 1, "a": 0}]),
    "an update of many": lambda t: t.update(where=pc.field("k") > 0, set={"a": 0}),
    "a deletion": lambda t: t.delete([1]),
    "a merge": lambda t: t.merge({"k": [1]}).when_matched({"a": 0}).execute(),
    "rows of a bulk": lambda t: t.upsert({"k": [*range(1, 4000)], "a": [0] * 3999}),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("read", ["get", "get_many"])
def test_a_row_that_has_changed_is_a_conflict(stock: kc.Table, other: str, read: str) -> None:
    told = r"1 rows have changed since the batch read them, among them \{'k': 1\}.*run the batch again"
    with pytest.raises(kc.Conflict, match=told), stock.batch() as batch:
        batch.get(1) if read == "get" else batch.get_many([1] if "of" in other else [2, 1])
        batch.upsert([{"k": 5000, "a": 1}])
        OTHERS[other](stock)
    assert stock.get(5000) is None, "nothing was applied"
    with pytest.raises(kc.InvalidArgument, match="ended with an error"):
        _ = batch.result


def test_a_row_that_came_is_a_conflict(stock: kc.Table) -> None:
    with pytest.raises(kc.Conflict), stock.batch() as batch:
        assert batch.get(9) is None
        batch.insert([{"k": 8}])
        stock.insert([{"k": 9}])
    assert stock.get(8) is None


def test_other_rows_and_other_columns_may_change(stock: kc.Table) -> None:
    with stock.batch() as batch:
        assert batch.get(1, ["a"]) == {"a": 10}
        stock.update([{"k": 1, "s": "other"}, {"k": 2, "s": "other"}])
        stock.insert([{"k": 9}])
        batch.update([{"k": 1, "a": 11}])
    assert stock.get(1, ["a", "s"]) == {"a": 11, "s": "other"}


def test_a_row_that_is_again_what_it_was_is_no_conflict(stock: kc.Table) -> None:
    """What counts is what was read, not when it was written."""
    with stock.batch() as batch:
        batch.get(1)
        row = stock.get(1)
        stock.delete([1])
        stock.insert([row])
        batch.update([{"k": 1, "a": 12}])
    assert values(stock)[1] == 12


def test_what_was_read_over_the_own_calls_counts_as_it_was_before_them(stock: kc.Table) -> None:
    with pytest.raises(kc.Conflict), stock.batch() as batch:
        batch.update([{"k": 1, "a": 11}])
        assert batch.get(1, ["a"]) == {"a": 11}
        stock.update([{"k": 1, "a": 11}])
    assert values(stock)[1] == 11


def test_a_batch_that_only_reads_is_a_check(stock: kc.Table) -> None:
    writes = applied_writes_of(stock)
    with stock.batch() as batch:
        batch.get_many([1, 2, 99])
    assert batch.result.counts == (0, 0, 0, 0) and batch.result.timestamp == stock.timestamp
    assert applied_writes_of(stock) == writes, "no record"
    with pytest.raises(kc.Conflict), stock.batch() as batch:
        batch.get_many([1, 2, 99])
        changed(stock)


def test_maintenance_is_no_conflict(stock: kc.Table) -> None:
    with stock.batch() as batch:
        batch.get_many([1, 2, 3])
        stock.flush()
        stock.compact(full=True)
        batch.update([{"k": 1, "a": 1}])
    assert values(stock)[1] == 1


def test_a_change_of_columns_under_a_batch(stock: kc.Table) -> None:
    """New ones are no conflict; one that was read and is gone is."""
    with stock.batch() as batch:
        batch.get(1)
        stock.alter(add=[kc.Column("more", "int32", default=1)])
        batch.update([{"k": 1, "a": 1}])
    assert stock.get(1, ["a", "more"]) == {"a": 1, "more": 1}
    with pytest.raises(kc.Conflict, match="a column that the batch has read was dropped"), stock.batch() as b:
        b.get(1)
        stock.alter(drop=["more"])
        b.update([{"k": 1, "a": 2}])
    assert values(stock)[1] == 1


def test_the_tablets_of_what_was_read_are_held_while_it_is_applied(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another write could come between the check and the record: two such batches would be a skew."""
    table = make(partition_by=kc.HashPartition("k", 5))
    table.insert({"k": [1, 2], "a": [1, 1]})
    held: list[int] = []
    check = ReadSet.check

    def checked(reads: ReadSet) -> None:
        check(reads)
        held.extend(tablet.id for tablet in tablets_of(table) if is_held(tablet.mutex))

    monkeypatch.setattr(ReadSet, "check", checked)

    with table.batch() as batch:
        batch.get(1)
        batch.update([{"k": 2, "a": 2}])
    of_two = list(held)
    held.clear()
    with table.batch() as batch:
        batch.get(1)
    of_one = list(held)
    assert len(of_two) == 2 and len(of_one) == 1 and set(of_one) < set(of_two)
    assert of_two == sorted(of_two)


def test_an_error_in_the_block_is_the_one_that_is_raised(stock: kc.Table) -> None:
    with pytest.raises(ZeroDivisionError), stock.batch() as batch:
        batch.get(1)
        batch.update([{"k": 1, "a": 5}])
        changed(stock)
        raise ZeroDivisionError
    assert values(stock)[1] == 0


def test_with_a_ticket(stock: kc.Table) -> None:
    with stock.batch(wait=False) as batch:
        assert batch.get(1, ["a"]) == {"a": 10}
        batch.update([{"k": 1, "a": 11}])
    assert batch.ticket.result(60).updated == 1
    with pytest.raises(kc.Conflict), stock.batch(wait=False) as again:
        again.get(1)
        changed(stock)


def test_wrong_reads(stock: kc.Table) -> None:
    with stock.batch() as batch:
        with pytest.raises(kc.InvalidArgument, match="'nope'"):
            batch.get(1, ["nope"])
        with pytest.raises(kc.InvalidArgument, match="k"):
            batch.get("one")
        with pytest.raises(kc.InvalidArgument, match="key 1 has a NULL"):
            batch.get_many(pa.array([1, None]))
    with pytest.raises(kc.Closed, match="begin another one"):
        batch.get(1)
    with pytest.raises(kc.Closed), stock.batch() as other:
        stock.close()
        other.get(1)


@pytest.fixture
def nested(make: Make) -> kc.Table:
    schema = pa.schema([("k", pa.int64()), ("at", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    table = make(schema, ["k"])
    table.insert([{"k": 1, "at": {"x": 1, "y": "a"}}, {"k": 2, "at": None}])
    return table


def test_nested_columns(nested: kc.Table) -> None:
    with nested.batch() as batch:
        batch.upsert([{"k": 2, "at": {"x": 5, "y": None}}])
        assert batch.get_many([1, 2, 3]).to_pylist() == [
            {"k": 1, "at": {"x": 1, "y": "a"}, "_found": True},
            {"k": 2, "at": {"x": 5, "y": None}, "_found": True},
            {"k": 3, "at": None, "_found": False},
        ]
        assert batch.get(2, ["at.x"]) == {"at.x": 5}
        batch.delete([2])
        assert batch.get(2) is None
    assert nested.count() == 1


@pytest.mark.parametrize("type_", VALUE_TYPES)
def test_values_are_those_of_get(make: Make, type_: str) -> None:
    """Python has no nanoseconds, and no far dates: nothing is lost unseen, and then written back."""
    arrow = cells.arrow_type(type_)
    table = make(pa.schema([("k", pa.int64()), ("v", arrow)]), ["k"])
    pool = [*cells.ugly(arrow), None]
    table.insert({"k": list(range(len(pool))), "v": cells.to_arrow(pool, arrow)})

    def answer(read: Callable[[int], Any], key: int) -> str:
        try:
            return repr(read(key))
        except kc.InvalidArgument as error:
            return str(error)

    with table.batch() as batch:
        for key in (*range(len(pool)), 999):
            wanted = answer(table.get, key)
            assert answer(batch.get, key) == wanted
            if wanted.startswith("column"):
                with pytest.raises(kc.InvalidArgument, match="column 'v'"):
                    table.modify(key, lambda row: row)


def test_where_stays_out_of_batches(stock: kc.Table) -> None:
    with stock.batch() as batch, pytest.raises(kc.NotSupported, match="where= inside a batch"):
        batch.update(where=pc.field("a") > 1, set={"a": 1})
