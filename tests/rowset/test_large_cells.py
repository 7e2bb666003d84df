"""Columns whose cells come to more at once than Arrow's offsets address: doors go on in smaller pieces.

The bounds, 2 GiB and some, are lowered to KiB: rows of 3 KiB, of which twenty are too many for one column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core._ext.columns import growing
from kudu_core.common.rows import rowblock
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.history import merging
from kudu_core.rowset.scan import filescan, scan
from kudu_core.table.changes import states
from kudu_core.table.ingest import build, ingest, spill
from kudu_core.table.jobs import stager
from kudu_core.table.read import few_keys
from tests.support.inside import tablet_of
from tests.support.tables import Make

LIMIT = 64 << 10
ROWS = 200
WIDE = 3000
Rows = dict[int, dict[str, Any]]


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rowblock, "MAX_DATA_BYTES", LIMIT)
    for module in (filescan, scan, states):
        monkeypatch.setattr(module, "MOST_BYTES", LIMIT // 4)
    monkeypatch.setattr(few_keys, "STRING_BYTES", LIMIT // 4)
    monkeypatch.setattr(merging, "MAX_COLUMN_BYTES", LIMIT // 2)
    for module in (build, stager, ingest, spill):
        monkeypatch.setattr(module, "MAX_BYTES", LIMIT // 4)
    before = growing.limit_data(LIMIT)
    yield
    growing.limit_data(before)


def text(k: int, turn: int = 0) -> str:
    return chr(97 + (k + turn) % 26) * WIDE


class Story:
    """A table with two columns of wide text, and what is in it."""

    def __init__(self, table: kc.Table, wide: str) -> None:
        self.table = table
        self.wide = wide
        """Whether the text is given ("values") or is the default of a column that came later ("default")."""
        self.rows: Rows = {}
        self.past: list[tuple[int, Rows]] = []

    def note(self, ts: int) -> None:
        self.past.append((ts, {k: dict(row) for k, row in self.rows.items()}))

    def insert(self, keys: range) -> None:
        for first in range(keys.start, keys.stop, 8 * keys.step):  # of more, a call goes to files
            some = range(first, min(first + 8 * keys.step, keys.stop), keys.step)
            data: dict[str, Any] = {"k": list(some), "v": [k % 7 for k in some]}
            if self.wide == "values":
                data["note"] = [text(k) for k in some]
            ts = self.table.insert(data).timestamp
            for i, k in enumerate(some):
                self.rows[k] = {"k": k, "v": data["v"][i]}
                if self.wide == "values":
                    self.rows[k]["note"] = text(k)
        self.note(ts)

    def add_column(self) -> None:
        self.table.alter(add=[kc.Column("note", "string", default="d" * WIDE)])
        for row in self.rows.values():
            row["note"] = "d" * WIDE
        self.past.clear()  # before there was no such column

    def update(self, keys: list[int], turn: int) -> None:
        for at in range(0, len(keys), 8):
            some = keys[at : at + 8]
            ts = self.table.update({"k": some, "note": [text(k, turn) for k in some]}).timestamp
            for k in some:
                self.rows[k]["note"] = text(k, turn)
        self.note(ts)

    def delete(self, keys: list[int]) -> None:
        ts = self.table.delete({"k": keys}).timestamp
        for k in keys:
            del self.rows[k]
        self.note(ts)


STATES = ["memory", "flushed", "churned", "merged"]


@pytest.fixture(params=[(wide, state) for wide in ("values", "default") for state in STATES], ids="-".join)
def story(request: pytest.FixtureRequest, make: Make) -> Story:
    wide, state = request.param
    columns = [kc.Column("k", pa.int64()), kc.Column("v", pa.int64())]
    if wide == "values":
        columns.append(kc.Column("note", pa.string()))
    story = Story(make(columns, durability="sync"), wide)
    story.insert(range(0, ROWS, 2))
    if state != "memory":
        story.table.flush()
    story.insert(range(1, ROWS, 2))
    if state != "memory":
        story.table.flush()
    if wide == "default":
        story.add_column()
    if state in ("churned", "merged"):
        story.update(list(range(0, ROWS, 3)), 1)
        story.table.flush()
        story.update(list(range(0, ROWS, 5)), 2)
        story.delete(list(range(0, ROWS, 20)))
    if state == "merged":
        story.table.compact(full=True)
    story.note(story.table.timestamp)
    return story


def by_key(table: pa.Table) -> Rows:
    found = {row["k"]: row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def test_every_way_to_read(story: Story, tmp_path: Path) -> None:
    table = story.table
    for at, rows in story.past:
        assert by_key(table.scan(at=at).to_table()) == rows
    rows = story.rows
    for batch in table.scan(["k", "note"]):
        assert batch.num_rows * WIDE <= LIMIT, "batches are cut where they would be too large"
    for options in ({}, {"batch_rows": 7}):
        ordered = table.scan(order="key", **options).to_table()
        assert ordered["k"].to_pylist() == sorted(rows)
        assert by_key(ordered) == rows
    some = table.scan(where=[("note", ">", "m"), ("k", "<", 150)], order="key").to_table()
    assert by_key(some) == {k: row for k, row in rows.items() if row["note"] > "m" and k < 150}
    assert table.scan(where=[("note", ">=", "a")]).count() == len(rows)
    assert table.scan(columns=["note"], limit=50).to_table().num_rows == 50
    assert by_key(table.to_dataset().to_table()) == rows
    assert table.scan().min_max("note") == (
        min(r["note"] for r in rows.values()), max(r["note"] for r in rows.values()),
    )  # fmt: skip
    few = sorted(rows)[:15]
    assert [r["note"] for r in table.get_many({"k": few}).to_pylist()] == [rows[k]["note"] for k in few]
    with pytest.raises(ColumnTooLarge, match="ask for fewer rows at a time"):
        table.get_many({"k": sorted(rows)})
    assert table.get(few[-1]) == rows[few[-1]]
    for kind in ({}, {"images": "both"}, {"net": True}, {"net": True, "images": "both"}):
        for since in (None, story.past[0][0]):
            state: Rows = {} if since is None else dict(story.past[0][1])
            for event in table.changes(since, **kind).to_table().to_pylist():
                if event["_op"] == "delete":
                    gone = state.pop(event["k"])
                    if "_before" in event:
                        assert event["_before"] == gone
                else:
                    if event.get("_before") is not None:
                        assert event["_before"] == state[event["k"]]
                    state[event["k"]] = {name: event[name] for name in ("k", "v", "note")}
            assert state == rows
    table.backup(tmp_path / "backup")
    with kc.restore(tmp_path / "backup", tmp_path / "restored") as restored:
        assert by_key(restored.scan().to_table()) == rows


def test_every_way_to_compact_and_reopen(story: Story, path: Path) -> None:
    table, rows = story.table, story.rows
    table.close()
    for mode in ("r", "rw"):
        with kc.open_table(path, mode) as again:
            for at, then in story.past:
                assert by_key(again.scan(at=at).to_table()) == then
    table = kc.open_table(path, "rw")
    table.flush()
    assert by_key(table.scan().to_table()) == rows
    table.compact()
    assert by_key(table.scan().to_table()) == rows
    table.compact(full=True)
    for at, then in story.past:
        assert by_key(table.scan(at=at).to_table()) == then
    table.maintain()
    table.verify()
    table.close()


def largest_rowset(table: kc.Table) -> int:
    """In rows.  A MemRowSet, which a write of much flushes first, becomes one too."""
    view = tablet_of(table).view
    return max(*(len(m) for m in (view.active, *view.frozen)), *(r.meta.rows for r in view.rowsets), 0)


def test_every_way_to_write(story: Story, path: Path) -> None:
    table, rows = story.table, story.rows
    changed = {"note": pc.binary_join_element_wise(pc.field("note"), "!", "")}
    if largest_rowset(table) * WIDE > LIMIT:
        # One call, one delta file for each rowset: it does not fit, and says so before anything.
        with pytest.raises(kc.MemoryLimit, match="write it in smaller pieces"):
            table.update(where=pc.scalar(True), set=changed)
        assert by_key(table.scan().to_table()) == rows
        for first in range(0, ROWS, 10):
            table.update(where=[("k", ">=", first), ("k", "<", first + 10)], set=changed)
    else:
        table.update(where=pc.scalar(True), set=changed)
    for row in rows.values():
        row["note"] += "!"
    assert by_key(table.scan().to_table()) == rows
    keys = list(range(1000, 1300))
    wide = pa.table({"k": keys, "v": keys, "note": [text(k) for k in keys]})
    table.upsert(wide)
    table.upsert(wide.slice(0, 100).to_reader(max_chunksize=10))
    with table.batch() as b:
        b.upsert(wide.slice(0, 5))
        b.delete({"k": keys[5:10]})
    rows |= {k: {"k": k, "v": k, "note": text(k)} for k in keys if k not in keys[5:10]}
    assert by_key(table.scan().to_table()) == rows
    if story.wide == "default":
        narrow = list(range(5000, 5300))
        table.insert(pa.table({"k": narrow, "v": narrow}))
        table.insert([{"k": 6000}, {"k": 6001}])
        table.insert([{"k": 6002}])
        for k in (*narrow, 6000, 6001, 6002):
            rows[k] = {"k": k, "v": k if k < 6000 else None, "note": "d" * WIDE}
        assert by_key(table.scan().to_table()) == rows
    table.delete(where=[("k", "<", 50)])
    rows = {k: row for k, row in rows.items() if k >= 50}
    assert by_key(table.scan().to_table()) == rows
    table.close()
    with kc.open_table(path, "r") as reader:
        assert by_key(reader.scan().to_table()) == rows


def test_rows_older_than_a_column_are_replayed_without_its_default(make: Make, path: Path) -> None:
    """Else a record of many narrow rows could not be laid into memory after ``alter``."""
    table = make([kc.Column("k", pa.int64()), kc.Column("v", pa.int64())])
    table.insert({"k": list(range(500)), "v": [1] * 500})
    table.alter(add=[kc.Column("note", "string", default="d" * WIDE)])
    table.insert([{"k": 500 + i, "v": 2} for i in range(5)])
    table.update({"k": [1, 2, 501], "note": ["x", "y", "z"]})
    table.delete({"k": [3]})
    table.upsert({"k": [3, 4], "v": [9, 9]})
    expected = {row["k"]: row for row in table.scan(["k", "v", "note"]).to_table().to_pylist()}
    table.close()
    for mode in ("r", "rw"):
        with kc.open_table(path, mode) as again:
            assert by_key(again.scan(["k", "v", "note"]).to_table()) == expected
            assert again.get(7)["note"] == "d" * WIDE
    with kc.open_table(path, "rw") as again:
        again.insert([{"k": 9000}])
        again.upsert([{"k": 9001, "note": "n"}, {"k": 9002, "note": "m"}])
        again.flush()
        assert again.get(9000)["note"] == "d" * WIDE
        assert again.get(9001)["note"] == "n"
        found = by_key(again.scan(["k", "v", "note"]).to_table())
        assert {k: row for k, row in found.items() if k < 9000} == expected


def test_a_memrowset_is_closed_when_its_rows_and_their_changes_fill_a_column(make: Make) -> None:
    """A flush reads both together: each alone fits into a column, and both do not."""
    table = make([kc.Column("k", pa.int64()), kc.Column("note", pa.string())])
    for first in range(0, 16, 8):
        table.insert({"k": list(range(first, first + 8)), "note": ["a" * WIDE] * 8})
    for _ in range(2):
        table.update({"k": list(range(8)), "note": ["b" * WIDE] * 8})
    assert len(tablet_of(table).view.frozen) == 1
    table.flush()
    assert {k: row["note"][0] for k, row in by_key(table.scan().to_table()).items()} == {
        k: "b" if k < 8 else "a" for k in range(16)
    }


def test_raw_overflows_do_not_leave_the_buffers() -> None:
    """Whatever puts cells together says that it is too much by an error of ours."""
    rows = np.zeros(100, np.int64)
    string = ColumnType.parse("string")
    column = rowblock.ColumnBuffers.constant(string, "x" * 1000, 1)
    ways: list[Callable[[], Any]] = [
        lambda: column.take(rows),
        lambda: rowblock.ColumnBuffers.concat([column] * 100),
        lambda: rowblock.ColumnBuffers.interleave([column, column], np.zeros(100, np.int32), rows),
        lambda: rowblock.ColumnBuffers.constant(string, "x" * 1000, 100),
    ]
    for way in ways:
        with pytest.raises(ColumnTooLarge, match="cells of one column at once"):
            way()
