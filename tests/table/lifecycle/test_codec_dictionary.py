"""A table whose text zstd packs with a dictionary of its column, in every state that a table goes through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support.cases.texts import text
from tests.support.inside import rowsets_of
from tests.support.tables import Make

COLUMNS = [kc.Column("k", "int64"), kc.Column("s", "string", compression="zstd"), kc.Column("n", "int64")]
ROWS = 6000
Rows = dict[int, dict[str, Any]]


def with_dictionary(table: kc.Table) -> list[bool]:
    """Of each rowset, whether its text has one."""
    files = [rowset.base.open() for rowset in rowsets_of(table)]
    return [file.columns[file.column_ids[1]].codec_dictionary is not None for file in files]


def same(table: kc.Table, rows: Rows) -> None:
    wanted = [rows[k] for k in sorted(rows)]
    assert table.scan(order="key").to_table().to_pylist() == wanted
    some = sorted(rows)[::97]
    assert table.get_many(some)["s"].to_pylist() == [rows[k]["s"] for k in some]
    for k in some[:5]:
        assert table.get(k) == rows[k]
    where = pc.starts_with(pc.field("s"), rows[some[0]]["s"][:3])
    found = table.scan(["k"], where).to_table()["k"].to_pylist()
    assert sorted(found) == [k for k in sorted(rows) if rows[k]["s"].startswith(rows[some[0]]["s"][:3])]


def test_every_state(make: Make, path: Path, tmp_path: Path) -> None:
    table = make(COLUMNS)
    rows: Rows = {k: {"k": k, "s": s, "n": k % 7} for k, s in enumerate(text(1, 100, ROWS))}
    table.insert(pa.Table.from_pylist(list(rows.values())))
    table.flush()
    assert with_dictionary(table) == [True]
    same(table, rows)
    before, first = table.timestamp, {k: dict(row) for k, row in rows.items()}

    new = text(2, 100, ROWS)
    for k in range(0, ROWS, 2):
        rows[k]["s"] = new[k]
    table.update({"k": list(range(0, ROWS, 2)), "s": new[::2]})
    for state in (table.flush, lambda: table.compact(full=True)):
        same(table, rows)
        state()
    assert with_dictionary(table) == [True]
    same(table, rows)
    assert table.scan(at=before, order="key").to_table().to_pylist() == list(first.values())
    told = table.changes(before, table.timestamp, images="both").to_table().to_pylist()
    assert {event["k"]: event["s"] for event in told} == {k: new[k] for k in range(0, ROWS, 2)}
    assert all(event["_before"]["s"] == first[event["k"]]["s"] for event in told)

    table.alter(add=[kc.Column("more", "string", default="x", compression="zstd")])
    rows = {k: row | {"more": "x"} for k, row in rows.items()}
    same(table, rows)
    table.delete({"k": list(range(0, ROWS, 3))})
    rows = {k: row for k, row in rows.items() if k % 3}
    table.compact(full=True)
    same(table, rows)
    assert table.verify()
    table.backup(tmp_path / "backup")
    with kc.restore(tmp_path / "backup", tmp_path / "restored") as restored:
        same(restored, rows)
    table.close()
    with kc.open_table(path, options={"page_cache_bytes": 1 << 17}) as small:
        same(small, rows)
