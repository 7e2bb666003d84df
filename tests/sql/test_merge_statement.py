"""MERGE as calls of ``table.merge``, seen by one that writes down what it is asked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make

F = pc.field
SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("n", pa.int32()), ("s", pa.string())])
SOURCE = pa.table({"id": [1, 2], "j": ["x", "y"], "n": [10, 20], "s": ["p", "q"]})
BY_KEY = "USING source AS s ON s.id = this.k AND s.j = this.j "
ON = "MERGE INTO this AS t USING source AS s ON s.id = t.k AND t.j = s.j "


class Written:
    """The calls, as ``table.merge`` has them."""

    def __init__(self) -> None:
        self.source: Any = None
        self.on: Any = None
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**given: Any) -> Any:
            self.calls.append((name, given))
            return self

        if name.startswith("when_"):
            return call
        if name == "execute":
            return lambda: len(self.calls)
        raise AttributeError(name)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    found = Written()

    def merge(table: kc.Table, source: Any, on: Any) -> Written:
        found.source, found.on = source, on
        return found

    monkeypatch.setattr(kc.Table, "merge", merge, raising=False)
    return found


@pytest.fixture
def table(make: Make) -> kc.Table:
    return make(SCHEMA, ("k", "j"))


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in wanted)
    return bool(found.equals(wanted)) if isinstance(wanted, pc.Expression) else found == wanted


def one(value: Any, type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, type_)


I64, I32 = pa.int64(), pa.int32()


@pytest.mark.parametrize(
    ("clause", "name", "given"),
    [
        ("WHEN MATCHED THEN DELETE", "when_matched_delete", {"where": None}),
        (
            "WHEN MATCHED AND s.n > 5 THEN DELETE",
            "when_matched_delete",
            {"where": F("new", "n") > one(5, I64)},
        ),
        (
            "WHEN MATCHED THEN UPDATE SET s = s.s, n = 3",
            "when_matched",
            {"set": {"s": F("new", "s"), "n": pc.scalar(one(3, I32))}, "where": None},
        ),
        (
            "WHEN MATCHED AND t.n IS NULL THEN UPDATE SET n = COALESCE(t.n, 0)",
            "when_matched",
            {
                "set": {"n": pc.coalesce(F("old", "n"), pc.scalar(one(0, I32)))},
                "where": F("old", "n").is_null(),
            },
        ),
        (
            "WHEN MATCHED THEN UPDATE SET *",
            "when_matched",
            {"set": {"n": F("new", "n"), "s": F("new", "s")}, "where": None},
        ),
        (
            "WHEN MATCHED THEN UPDATE",
            "when_matched",
            {"set": {"n": F("new", "n"), "s": F("new", "s")}, "where": None},
        ),
        ("WHEN NOT MATCHED THEN INSERT", "when_not_matched_insert", {"values": None, "where": None}),
        (
            "WHEN NOT MATCHED BY TARGET THEN INSERT *",
            "when_not_matched_insert",
            {"values": None, "where": None},
        ),
        (
            "WHEN NOT MATCHED AND s.s = $s THEN INSERT (k, j, s) VALUES (s.id, s.j, 'new')",
            "when_not_matched_insert",
            {
                "values": {"k": F("new", "k"), "j": F("new", "j"), "s": pc.scalar("new")},
                "where": F("new", "s") == "it's",
            },
        ),
        (
            "WHEN NOT MATCHED BY SOURCE AND n < 5 THEN UPDATE SET n = n + 1",
            "when_not_matched_by_source_update",
            {"set": {"n": F("old", "n") + one(1, I32)}, "where": F("old", "n") < one(5, I32)},
        ),
        (
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "when_not_matched_by_source_delete",
            {"where": None},
        ),
        (
            "WHEN MATCHED AND t.n IN (SELECT n FROM source) THEN DELETE",
            "when_matched_delete",
            {"where": pc.if_else(F("old", "n").is_valid(), F("old", "n").isin(pa.array([10, 20], I32)),
                                 one(None, pa.bool_()))},
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_a_clause_becomes_a_call(
    table: kc.Table, written: Written, clause: str, name: str, given: dict[str, Any]
) -> None:
    assert table.sql(ON + clause, source=SOURCE, s="it's") == 1
    assert written.on == ["k", "j"]
    assert written.source.column_names == ["k", "j", "n", "s"], "under the names of the key"
    [(called, asked)] = written.calls
    assert called == name and same(asked, given), asked


def test_clauses_keep_their_order(table: kc.Table, written: Written) -> None:
    text = ON + "WHEN MATCHED AND s.n = 1 THEN DELETE WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
    assert table.sql(text, source=SOURCE) == 3
    assert [name for name, _ in written.calls] == [
        "when_matched_delete", "when_matched", "when_not_matched_insert"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "using",
    [
        "(SELECT id AS k, j, n FROM source) AS s USING (k, j)",
        "(SELECT id, j, n FROM source) AS s ON (s.id = this.k) AND this.j = s.j",
        "source ON source.id = this.k AND source.j = this.j",
        "(VALUES (1, 'x')) AS s(k, j) USING (k, j)",
    ],
)
def test_a_source_is_any_rows(table: kc.Table, written: Written, using: str) -> None:
    assert table.sql(f"MERGE INTO this USING {using} WHEN MATCHED THEN DELETE", source=SOURCE) == 1
    assert written.source.column_names[:2] == ["k", "j"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("USING source AS s ON s.id = this.k WHEN MATCHED THEN DELETE", "of the key, k, j, equals"),
        (BY_KEY + "AND s.n > 1 WHEN MATCHED THEN DELETE", "`s.n > 1`"),
        ("USING source AS s ON s.id > this.k AND s.j = this.j WHEN MATCHED THEN DELETE", "`s.id > this.k`"),
        ("USING source AS s USING (k) WHEN MATCHED THEN DELETE", "each column of the key"),
        (BY_KEY + "WHEN MATCHED THEN DO NOTHING", "match no clause"),
        (BY_KEY + "WHEN MATCHED THEN UPDATE SET n = n", "may be"),
        ("USING more AS s ON s.id = this.k AND s.j = this.j WHEN MATCHED THEN UPDATE", "has not, q"),
        ("USING (SELECT *, 1 AS k FROM source) AS s ON s.id = t.k AND s.j = t.j WHEN MATCHED THEN DELETE",
         "beside the one that ON names"),
        (BY_KEY + "WHEN NOT MATCHED THEN INSERT (k, j) VALUES (1)",
         "1 values for 2 columns"),
        (BY_KEY + "WHEN NOT MATCHED THEN INSERT (k) VALUES (this.n)",
         "no column 'this'"),
        (BY_KEY + "WHEN NOT MATCHED BY SOURCE THEN UPDATE", "what to SET"),
        ("USING nobody AS s ON s.id = this.k AND s.j = this.j WHEN MATCHED THEN DELETE", "DuckDB .*nobody"),
    ],
)  # fmt: skip
def test_what_a_merge_cannot_say(table: kc.Table, written: Written, text: str, said: str) -> None:
    with pytest.raises((kc.InvalidArgument, kc.NotSupported), match=said):
        table.sql(f"MERGE INTO this AS t {text}", source=SOURCE, more=SOURCE.append_column("q", SOURCE["n"]))


@pytest.mark.skipif(hasattr(kc.Table, "merge"), reason="tables merge")
def test_without_merge_it_is_said(table: kc.Table) -> None:
    with pytest.raises(kc.NotSupported, match="MERGE needs"):
        table.sql(ON + "WHEN MATCHED THEN DELETE", source=SOURCE)
