"""Maintenance, checks, backups, and what is shown of a table at work."""

from __future__ import annotations

import json
from pathlib import Path

import kudu_core as kc
from kudu_core.cli.inside.file_pieces import FilePiece, whole
from tests.cli.conftest import Call


def test_flush_compact_and_gc(call: Call, orders: str) -> None:
    with kc.open_table(orders, "rw") as table:
        table.insert([{"customer": "a", "number": 0}])
    told = call("flush", orders, "--json").document
    assert told["memory_rows"] == {"before": 1, "after": 0} and told["rowsets"] == {"before": 1, "after": 2}
    assert call("compact", orders, "--full", "--json").document["rowsets"] == {"before": 2, "after": 1}
    call("alter", orders, "--option", "history_retention_s=0")
    call("gc", orders)
    assert call("stats", orders, "--by", "rowset", "--json").records[0]["undo_bytes"] == 0
    assert "->" in call("flush", orders).out


def test_verify_says_what_was_read_or_where_the_damage_is(call: Call, orders: str) -> None:
    sound = call("verify", orders, "--json").document
    with kc.open_table(orders) as table:
        assert sound["sound"] and sound["bytes"] == table.verify().bytes
    [file] = Path(orders).rglob("*.rows")
    data = bytearray(file.read_bytes())
    data[60] ^= 1
    file.write_bytes(data)
    damaged = call("verify", orders, "--json", code=3)
    assert damaged.document["file"].endswith(file.name) and damaged.document["offset"] == 40
    assert damaged.err.count("\n") == 1 and "docs/repair.md" in damaged.err
    assert call("verify", orders, code=3).out == ""


def test_repair_tells_and_only_writes_when_told(call: Call, orders: str, tmp_path: Path) -> None:
    assert call("repair", orders, "--json").document["is_sound"]
    [file] = Path(orders).rglob("*.rows")
    file.write_bytes(b"")
    told = call("repair", orders, "--json", code=3).document
    assert not told["is_sound"] and told["rows_lost"] == 3 and not told["written"]
    assert not Path(f"{orders}.repaired").exists()
    call("repair", orders, "--write", "--target", tmp_path / "mended", code=3)
    assert call("count", tmp_path / "mended").out == f"{told['rows_kept']}\n"


def test_backup_and_restore(call: Call, orders: str, tmp_path: Path) -> None:
    full = call("backup", orders, tmp_path / "b", "--json").document
    assert full["inserted"] == 3 and full["since"] is None
    with kc.open_table(orders, "rw") as table:
        table.delete([("bob", 1)])
    assert call("backup", orders, tmp_path / "b", "--since", "last", "--json").document["deleted"] == 1
    assert call("restore", tmp_path / "b", tmp_path / "now", "--json").document["rows"] == 2
    then = call("restore", tmp_path / "b", tmp_path / "then", "--at", full["timestamp"], "--json")
    assert then.document["rows"] == 3


def test_top_counts_what_a_writer_writes(call: Call, orders: str) -> None:
    with kc.open_table(orders, "rw") as table:
        table.insert([{"customer": "a", "number": 0}])
        first, second = call("top", orders, "--times", 2, "--interval", 0.01, "--json").records
        assert first["memory_rows"] == 1 and second["records"] == first["records"] >= 3
        assert second["writes_per_s"] == 0 and first["writes_per_s"] is None
    assert "memory rows" in call("top", orders, "--times", 1).out


def test_bench_measures_and_leaves_nothing(call: Call, tmp_path: Path) -> None:
    records = call("bench", tmp_path / "b", "--rows", 1000, "--json").records
    assert len(records) == 6 and all(record["kudu_core_s"] > 0 for record in records)
    assert not (tmp_path / "b").exists()
    assert "is there" in call("bench", tmp_path, "--rows", 1000, code=1).err


# ---- inspect ----


def test_every_byte_of_every_file_is_shown_once(call: Call, orders: str) -> None:
    with kc.open_table(orders, "rw") as table:
        table.insert([{"customer": f"c{i}", "number": i} for i in range(3000)])
        table.alter(options={"durability": "none"})
    files = call("inspect", orders, "--json").records
    assert {file["kind"] for file in files} == {
        "table", "manifest", "committed", "lock", "log segment", "rows", "delta",
    }  # fmt: skip
    for file in files:
        spans = call("inspect", Path(orders, file["file"]), "--json", "--hex").records
        at = 0
        for span in spans:
            assert span["offset"] == at and len(span["hex"]) == 2 * span["length"]
            at += span["length"]
            assert span["sound"] is not False and span["what"] != "bytes that nothing names"
        assert at == file["bytes"], file["file"]


def test_records_of_the_log_are_told(call: Call, orders: str) -> None:
    with kc.open_table(orders, "rw") as table:
        at = table.delete([("ann", 1), ("bob", 1)]).timestamp
    [log] = Path(orders).rglob("*.log")
    records = [span["fields"] for span in call("inspect", log, "--json").records if span["what"] == "record"]
    [delete] = [record for record in records if record["ts"] == at]
    assert delete["kind"] == "WRITE" and delete["sections"] == [{"op": "DELETE", "rows": 2}]


def test_damage_is_marked_where_it_is(call: Call, orders: str) -> None:
    [file] = Path(orders).rglob("*.rows")
    data = bytearray(file.read_bytes())
    data[60] ^= 1
    file.write_bytes(data)
    spans = call("inspect", file, "--json", code=3).records
    assert [span["offset"] for span in spans if span["sound"] is False] == [40]
    assert "DAMAGED" in call("inspect", file, "--offset", 60, code=3).out
    assert call("inspect", file, "--offset", 0, "--hex").out.count("KUCFILE") == 1
    file.write_bytes(data[:-1])
    assert call("inspect", file, code=3).err.count("\n") == 1


def test_what_no_piece_has_is_named() -> None:
    spans = list(whole([FilePiece(2, 2, "piece")], b"\x01\x00ab\x00\x00"))
    assert [(span.offset, span.length, span.what) for span in spans] == [
        (0, 2, "bytes that nothing names"), (2, 2, "piece"), (4, 2, "zeros"),
    ]  # fmt: skip


def contents(folder: str) -> dict[Path, tuple[int, bytes]]:
    files = [file for file in Path(folder).rglob("*") if file.is_file()]
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def test_nothing_is_written_by_a_look(call: Call, orders: str) -> None:
    files = contents(orders)
    for file in files:
        call("inspect", file)
    call("verify", orders)
    call("info", orders, "--json")
    assert files == contents(orders)
    assert json.loads(call("list", Path(orders).parent, "--json").out)["name"] == "orders"
