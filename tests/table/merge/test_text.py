"""SQL text in clauses and conditions: over the columns of both rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

pytest.importorskip("sqlglot")

SCHEMA = pa.schema(
    [("k", pa.int64()), ("n", pa.int64()), ("s", pa.string()), ("in", pa.struct([("a", pa.int64())]))]
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    with kc.create_table(tmp_path / "t", SCHEMA, "k") as table:
        table.insert([{"k": k, "n": k, "s": str(k), "in": {"a": k}} for k in range(1, 5)])
        yield table


def rows_of(table: kc.Table) -> list[tuple[int, int, str]]:
    found = table.scan(["k", "n", "s"], order="key").to_table().to_pylist()
    return [tuple(row.values()) for row in found]  # type: ignore[misc]


def test_conditions_and_values_of_clauses(table: kc.Table) -> None:
    source = [{"k": 1, "n": 10, "x": True}, {"k": 2, "n": 20, "x": False}, {"k": 9, "n": 3, "x": True}]
    merge = table.merge(source).when_matched(
        {"n": kc.expr("old.n + new.n * $by", by=2), "s": "old.s"}, where='x AND old."in".a < 3'
    )
    merge = merge.when_matched_delete(where="NOT x")
    merge = merge.when_not_matched_insert({"n": kc.expr("n * 2")}, where="new.n % 3 = 0")
    merge = merge.when_not_matched_by_source_update({"s": kc.expr("s || '!'")}, where="n = 4")
    assert merge.execute().clauses == (1, 1, 1, 1)
    assert rows_of(table) == [(1, 21, "old.s"), (3, 3, "3"), (4, 4, "4!"), (9, 6, None)]


def test_conditional_writes(table: kc.Table) -> None:
    assert table.update({"k": [1]}, set={"n": kc.expr("old.n * 3")}).updated == 1
    assert table.upsert([{"k": 1, "n": 2}], if_="new.n < old.n").updated == 1
    assert table.delete([1, 2], if_="n <= 2").deleted == 2
    assert table.insert([{"k": 8, "n": 1}], if_=kc.expr("n = $one", one=1)).inserted == 1
    refused = table.update([{"k": 3, "n": 0}], if_="old.s = '4'", on_error="return")
    assert [row["there"]["s"] for row in refused.errors.to_pylist()] == ["3"]


WRONG: list[tuple[Callable[[kc.Table], Any], str]] = [
    (lambda t: t.update([{"k": 1, "n": 5}], if_="n > 3"), "update: SQL: `n` may be old.n and new.n"),
    (lambda t: t.update([{"k": 1, "n": 5}], if_="new.n"), "int64, no condition"),
    (lambda t: t.merge([{"k": 1}]).when_matched_delete(where="z > 3").execute(), "no column 'z'"),
    (lambda t: t.merge([{"k": 1}]).when_matched_delete(where="old.n >").execute(), "something is missing"),
    (lambda t: t.merge([{"k": 1}]).when_matched({"n": kc.expr("'x'")}).execute(), "column 'n'"),
    (
        lambda t: t.merge([{"k": 1}]).when_not_matched_by_source_delete(where="new.n > 1").execute(),
        "no column 'new'",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said(table: kc.Table, call: Callable[[kc.Table], Any], message: str) -> None:
    before = rows_of(table)
    with pytest.raises(kc.InvalidArgument, match=message):
        call(table)
    assert rows_of(table) == before


def test_a_merge_statement(table: kc.Table) -> None:
    source = pa.table({"id": [1, 3, 77], "n": [100, 1, 7]})
    done = table.sql(
        "MERGE INTO this USING given AS g ON g.id = this.k "
        "WHEN MATCHED AND g.n > 3 THEN UPDATE SET n = this.n + g.n "
        "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (g.id, g.n) "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        given=source,
    )
    assert done.clauses == (1, 1, 2)
    assert rows_of(table) == [(1, 101, "1"), (3, 3, "3"), (77, 7, None)]


def test_the_key_of_a_new_row_is_the_one_that_is_given(table: kc.Table) -> None:
    merge = table.merge([{"k": 9}])
    assert merge.when_not_matched_insert({"k": kc.new("k"), "n": 1}).execute().inserted == 1
    for other in (kc.new("k") + 1, 7):
        with pytest.raises(kc.InvalidArgument, match="'k' is a key column"):
            table.merge([{"k": 10}]).when_not_matched_insert({"k": other}).execute()
