"""Writes by predicate change rows where they were found: in memory, in files, in each tablet."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.rowset.scan import scan
from kudu_core.table.write import where
from kudu_core.tablet.store.tablet import freeze_memrowset
from tests.support.inside import engine_of
from tests.support.tables import Make

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
ROWS = 60


def rows_of(table: kc.Table) -> dict[int, tuple[Any, Any]]:
    return {row["k"]: (row["v"], row["s"]) for row in table.scan(order="key").to_pylist()}


@pytest.fixture(params=[1, 3], ids="{} tablets".format)
def table(make: Make, request: pytest.FixtureRequest) -> kc.Table:
    """Keys of every third number in a file, of the next in a frozen MemRowSet, of the last in the active one;
    of each kind some were changed and some deleted since."""
    partitions = kc.HashPartition(["k"], request.param) if request.param > 1 else ()
    table = make(SCHEMA, partition_by=partitions)
    for rest in range(3):
        keys = range(rest, ROWS, 3)
        table.insert({"k": keys, "v": keys, "s": ["old"] * len(keys)})
        if rest == 0:
            table.flush()
        elif rest == 1:
            for tablet in engine_of(table).tablets:
                with tablet.mutex:
                    freeze_memrowset(tablet)
    table.update({"k": range(0, ROWS, 4), "s": ["changed"] * (ROWS // 4)})
    table.delete({"k": range(0, ROWS, 10)})
    return table


WRITES: dict[str, tuple[Any, Any]] = {
    "a literal": ({"v": 7}, lambda k, v, s: (7, s)),
    "a NULL": ({"s": None}, lambda k, v, s: (v, None)),
    "an expression": ({"v": pc.field("v") * 2 + pc.field("k")}, lambda k, v, s: (2 * v + k, s)),
    "both": ({"s": "new", "v": pc.field("k") - 1}, lambda k, v, s: (k - 1, "new")),
    "nothing left": (None, lambda k, v, s: None),
}
CONDITIONS: dict[str, tuple[Any, Any]] = {
    "of values": (pc.field("v") < 40, lambda k, v, s: v < 40),
    "of changed values": (pc.field("s") == "changed", lambda k, v, s: s == "changed"),
    "of the key": ((pc.field("k") >= 5) & (pc.field("k") < 50), lambda k, v, s: 5 <= k < 50),
    "all": (pc.scalar(True), lambda k, v, s: True),
    "none": (pc.field("v") < 0, lambda k, v, s: False),
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("write", WRITES)
def test_rows_change_where_they_are_found(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch, condition: str, write: str
) -> None:
    monkeypatch.setattr(where, "BATCH_ROWS", 7)  # more than one batch of each store
    before = rows_of(table)
    set_, new = WRITES[write]
    predicate, passes = CONDITIONS[condition]
    found = {k for k, (v, s) in before.items() if passes(k, v, s)}
    wanted = {k: new(k, *row) if k in found else row for k, row in before.items()}
    wanted = {k: row for k, row in wanted.items() if row is not None}
    if set_ is None:
        assert table.delete(where=predicate).counts == (0, 0, len(found), 0)
    else:
        assert table.update(where=predicate, set=set_).counts == (0, len(found), 0, 0)
    assert rows_of(table) == wanted
    table.verify()
    path = table.path
    table.close()
    with kc.open_table(path, "rw") as again:  # from the record
        assert rows_of(again) == wanted
        again.flush()
        again.compact(full=True)
        assert rows_of(again) == wanted


def test_an_answer_says_what_was_refused_where_that_is_asked(table: kc.Table) -> None:
    done = table.update(where=pc.field("k") == 1, set={"v": 3}, on_error="return")
    assert done.updated == 1 and done.errors is not None and done.errors.num_rows == 0
    assert table.update(where=pc.field("k") == 1, set={"v": 3}).errors is None


def test_a_write_by_predicate_is_made_once(table: kc.Table) -> None:
    expression = pc.field("k") < 9
    first = table.update(where=expression, set={"v": 3}, txn=("app", 1))
    again = table.update(where=expression, set={"v": 3}, txn=("app", 1))
    assert first.updated and again.deduplicated and again.updated == first.updated
    with pytest.raises(kc.TokenMismatch):
        table.update(where=expression, set={"v": 4}, txn=("app", 1))
    nothing = table.delete(where=pc.field("k") < -1, txn=("app", 2))
    assert nothing.deleted == 0 and table.delete(where=pc.field("k") < -1, txn=("app", 2)).deduplicated


def test_a_large_literal_is_given_to_few_rows_at_a_time(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, "BATCH_BYTES", 4000)
    made: list[int] = []
    finish = scan._finish

    def noted(spec: Any, columns: Any, rows: int, rowids: Any = None) -> Any:
        made.append(rows)
        return finish(spec, columns, rows, rowids)

    monkeypatch.setattr(scan, "_finish", noted)
    text = "x" * 1000
    table.update(where=pc.field("k") >= 0, set={"s": text})
    assert max(made) <= 3
    assert {s for _, s in rows_of(table).values()} == {text}


def test_a_column_that_takes_no_null_refuses_only_rows_that_are_there(make: Make) -> None:
    table = make([kc.Column("k", pa.int64()), kc.Column("v", pa.int64(), nullable=False)])
    table.insert({"k": [1], "v": [2]})
    assert table.update(where=pc.field("k") == 2, set={"v": None}).updated == 0
    with pytest.raises(kc.InvalidArgument, match="'v' takes no NULL"):
        table.update(where=pc.field("k") == 1, set={"v": None})
    assert table.get(1) == {"k": 1, "v": 2}
