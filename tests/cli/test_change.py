"""Commands that change a table do what the methods of the same names do."""

from __future__ import annotations

import os
from pathlib import Path

import kudu_core as kc
from tests.cli.conftest import Call


def test_create(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "events"
    made = call(
        "create", path, "--column", "day:date32", "--column", "device:int64", "--column", "note:string",
        "--key", "day,device", "--hash", "device=3", "--range", 'day=["2026-01-01","2026-02-01"]',
        "--range", 'day=["2026-02-01",null]', "--option", "history_retention_s=null",
        "--option", "durability=group", "--json",
    ).document  # fmt: skip
    assert made == {"path": str(path), "columns": 3, "tablets": 6}
    with kc.open_table(path) as table:
        assert table.options.history_retention_s is None and table.options.durability == "group"
        assert "hash(device) into 3" in repr(table.partitions)


def test_alter(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t"
    call("create", path, "--column", "day:date32", "--column", "n:int64", "--key", "day",
         "--range", 'day=["2026-01-01","2026-02-01"]')  # fmt: skip
    call("alter", path, "--add", "unit:string", "--default", "unit=C", "--not-null", "unit",
         "--rename", "n=value", "--comment", "value=degrees",
         "--add-range", '["2026-02-01",null]', "--option", "durability=none")  # fmt: skip
    with kc.open_table(path, "rw") as table:
        table.insert([{"day": "2026-02-02"}])
        assert table.schema.names == ["day", "value", "unit"]
        assert not table.schema.field("unit").nullable and table.options.durability == "none"
        assert table.scan().to_pylist()[0]["unit"] == "C"
    call("alter", path, "--nullable", "unit", "--no-default", "unit", "--drop-range", '["2026-02-01",null]')
    with kc.open_table(path, "rw") as table:
        assert table.count() == 0 and table.schema.field("unit").nullable
    call("alter", path, "--drop", "unit", "--order", "value")
    with kc.open_table(path) as table:
        assert table.schema.names == ["value", "day"]


def test_tags_and_what_brings_rows_back(call: Call, orders: str) -> None:
    at = call("tag", orders, "audit", "--json").document["timestamp"]
    assert call("tag", orders, "--json").records == [{"name": "audit", "timestamp": at}]
    assert call("truncate", orders, "--yes", "--json").document["timestamp"] > at
    assert call("count", orders).out == "0\n"
    assert call("restore-to", orders, "audit", "--json").document["inserted"] == 3
    call("tag", orders, "audit", "--delete")
    assert call("tag", orders, "--json").records == []


def test_clone_rename_drop(call: Call, orders: str, tmp_path: Path) -> None:
    call("clone", orders, tmp_path / "other")
    call("rename", tmp_path / "other", tmp_path / "third")
    assert call("count", tmp_path / "third").out == "3\n"
    (tmp_path / "third" / "notes").write_text("mine")
    assert call("drop", tmp_path / "third", "--yes", "--json").document["left"] == ["notes"]
    assert os.listdir(tmp_path / "third") == ["notes"] and call("count", orders).out == "3\n"
