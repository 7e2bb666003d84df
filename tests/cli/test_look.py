"""Commands that read say what the methods of the same names say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.cli.shared.json_values import json_rows
from tests.cli.conftest import Call

ANN_1 = {
    "customer": "ann", "number": 1, "amount": "3.00", "placed": "2026-01-05T12:30:00.000000Z", "mark": "AHg=",
}  # fmt: skip


def test_info_and_schema(call: Call, orders: str) -> None:
    facts = call("info", orders, "--json").document
    with kc.open_table(orders) as table:
        assert facts["rows"] == table.count() == 3
        assert facts["newest_timestamp"] == table.timestamp
        assert facts["options"] == table.options.to_json()
    assert facts["primary_key"] == ["customer", "number"]
    columns = call("schema", orders, "--json").records
    keys = [(column["column"], column["key"]) for column in columns]
    assert keys[:3] == [("customer", 1), ("number", 2), ("amount", None)]
    assert columns[2]["type"] == "decimal128(12, 2)" and columns[2]["nullable"]
    assert "customer, number" in call("info", orders).out


def test_layout_and_stats(call: Call, orders: str) -> None:
    with kc.open_table(orders) as table:
        assert call("layout", orders).out.strip() == table.layout()
        for by in ("table", "tablet", "rowset", "column"):
            told: Any = table.stats(by)  # type: ignore[arg-type]
            assert call("stats", orders, "--by", by, "--json").records == told.to_pylist()


def test_list_names_tables_and_opens_none(call: Call, orders: str) -> None:
    [found] = call("list", Path(orders).parent, "--json").records
    assert (found["name"], found["problem"]) == ("orders", None)


def test_rows_of_head_and_scan_are_those_of_a_scan(call: Call, orders: str) -> None:
    with kc.open_table(orders) as table:
        rows = list(json_rows(table.scan(order="key").to_table()))
    assert rows[0] == ANN_1
    assert call("head", orders, "--json").records == rows
    assert call("head", orders, "-n", 1, "--columns", "number", "--json").records == [{"number": 1}]
    assert call("scan", orders, "--order", "key", "--json").records == rows
    assert call("scan", orders, "--where", "amount > 5", "--columns", "customer", "--json").records == [
        {"customer": "bob"}
    ]
    ranged = call("scan", orders, "--key-range", '[["ann", 2], ["b"]]', "--json").records
    assert [row["number"] for row in ranged] == [2]
    assert call("scan", orders, "--limit", 0, "--json").out == ""


def test_people_see_a_table_and_are_told_of_what_is_left_out(
    call: Call, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = call("scan", orders)
    assert "NULL" in shown.out and "3.00" in shown.out and shown.err == ""
    monkeypatch.setattr("kudu_core.cli.look.row_commands.SHOWN", 2)
    cut = call("scan", orders, "--order", "key")
    assert "first 2 rows" in cut.err and "bob" not in cut.out
    assert "bob" in call("scan", orders, "--order", "key", "--limit", 3).out


def test_a_terminal_is_not_steered_by_what_is_stored(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with kc.create_table(path, {"k": "string"}, "k") as table:
        table.insert([{"k": "a\x1b[2Jb\nc"}])
    out = call("head", path).out
    assert "\x1b" not in out and "\\x1b[2J" in out


def test_get(call: Call, orders: str) -> None:
    assert call("get", orders, "ann", 1, "--json").document == ANN_1
    assert call("get", orders, '["ann", 1]', "--json").document == ANN_1
    assert call("get", orders, "ann", 1, "--columns", "mark", "--json").document == {"mark": "AHg="}
    gone = call("get", orders, "zed", 1, code=1)
    assert gone.out == "" and gone.err == "kudu_core: there is no row zed 1\n"
    assert call("get", orders, "zed", 1, "--json", code=1).document is None


def test_at_is_a_timestamp_a_time_or_a_tag(call: Call, orders: str) -> None:
    with kc.open_table(orders, "rw") as table:
        versions = table.history_of(("ann", 1))["_valid_from"].to_pylist()
        table.tag("first", versions[0])
    for moment in (versions[0], "first"):
        assert call("get", orders, "ann", 1, "--at", moment, "--json").document["amount"] == "19.90"
        assert call("scan", orders, "--at", moment, "--limit", 1, "--order", "key", "--json").records[0][
            "amount"
        ] == "19.90"
    ahead = datetime(2111, 1, 1, tzinfo=UTC).isoformat()
    assert "lies after" in call("count", orders, "--at", ahead, code=1).err
    assert "no time zone" in call("count", orders, "--at", "2026-01-05T00:00", code=2).err


def test_count(call: Call, orders: str) -> None:
    assert call("count", orders).out == "3\n"
    assert call("count", orders, "--where", "customer = 'ann'", "--json").document == {"rows": 2}


def test_history_and_changes(call: Call, orders: str) -> None:
    with kc.open_table(orders) as table:
        versions = list(json_rows(table.history_of(("ann", 1), ["amount"])))
        feed = table.changes(images="both")
        changes = list(json_rows(feed.to_table()))
    assert [version["amount"] for version in versions] == ["19.90", "3.00"]
    assert call("history", orders, "ann", 1, "--columns", "amount", "--json").records == versions
    assert call("changes", orders, "--images", "both", "--json").records == changes
    since = versions[0]["_valid_from"]
    [last] = call("changes", orders, "--since", since, "--columns", "amount", "--json").records
    assert (last["_op"], last["amount"]) == ("update", "3.00")
    shown = call("history", orders, "ann", 1).out
    assert "Z" in shown and str(since) not in shown


def test_sql_reads_and_writes(call: Call, orders: str) -> None:
    text = "SELECT customer, sum(amount) AS s FROM this GROUP BY customer ORDER BY customer"
    assert call("sql", orders, text, "--json").records == [
        {"customer": "ann", "s": "3.00"}, {"customer": "bob", "s": "7.25"},
    ]  # fmt: skip
    delete = " -- all of bob\nDELETE FROM this WHERE customer = $who"
    done = call("sql", orders, delete, "--set", "who=bob", "--json")
    assert done.document["deleted"] == 1
    assert call("sql", orders, "-", "--json", stdin="SELECT count(*) AS n FROM orders").records == [{"n": 2}]
    assert call("sql", orders, "SELEC 1", code=1).err.startswith("kudu_core: error: ")


def test_readers_read_beside_a_writer_and_writers_are_told_who_it_is(call: Call, orders: str) -> None:
    with kc.open_table(orders, "rw") as table:
        table.insert([{"customer": "cho", "number": 1}])
        assert call("count", orders).out == "4\n"
        refused = call("truncate", orders, "--yes", code=1)
    assert "open for writing by process" in refused.err and "--timeout" in refused.err
    assert refused.err.count("\n") == 1
    assert call("count", orders).out == "4\n"
