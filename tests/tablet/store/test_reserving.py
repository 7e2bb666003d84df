"""What is appended to the log can be applied: a write makes room before, or nothing happens.

The bound of a column in memory, 2 GiB, is lowered to some KiB here; one test behind ``--long`` is of real
size.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.memory import growing
from tests.support.inside import (
    rowsets_of,
    tablet_of,
    tablets_of,
)
from tests.support.tables import Make

pytestmark = pytest.mark.usefixtures("checked")

SCHEMA = [
    kc.Column("k", pa.int64()),
    kc.Column("s", pa.string()),
    kc.Column("n", pa.int32()),
    kc.Column("b", pa.binary(), default=b"some bytes"),
]
LIMIT = 16 << 10
LIMITED = 48 << 10
"""Twice the bytes of a call: one that comes to half of the limit goes to files."""
Rows = dict[int, dict[str, Any]]


def rows_of(table: kc.Table, at: int | None = None) -> Rows:
    return {row["k"]: row for row in table.scan(at=at).to_table().to_pylist()}


def stores(table: kc.Table) -> tuple[int, int, int]:
    """(frozen MemRowSets, logs of changes beyond the first in MemRowSets, frozen DeltaMemStores)."""
    views = [tablet.view for tablet in tablets_of(table)]
    memories = [m for v in views for m in (v.active, *v.frozen)]
    logs = [log for v in views for r in v.changed for log in r.memory_stores]
    return (
        sum(len(v.frozen) for v in views),
        sum(len(m.logs) - 1 for m in memories),
        sum(log.frozen_at is not None for log in logs),
    )


class Story:
    """A table, and what must be in it."""

    def __init__(self, table: kc.Table, seed: int) -> None:
        self.table = table
        self.r = random.Random(seed)
        self.rows: Rows = {}
        self.past: list[tuple[int, Rows]] = []
        self.flushed = False
        self.closed = np.zeros(3, int)
        """The most stores of each kind that were closed for room at one time."""

    def row(self, k: int, size: int) -> dict[str, Any]:
        text = self.r.choice("abcdef") * self.r.randint(0, size)
        given = self.r.choice([text, text, None])
        return {"k": k, "s": given, "n": self.r.randint(0, 9), "b": b"x" * (k % 5)}

    def step(self) -> None:
        table, r = self.table, self.r
        size = r.choice([20, 1000, 4000])
        keys = sorted(r.sample(range(60), r.choice([1, 1, 2, 3] if len(self.past) > 20 else [12])))
        kinds = ["upsert", "update", "update", "update", "delete", "batch", "flush", "partial", "partial"]
        kind = r.choice(kinds) if self.past else "upsert"
        given = [self.row(k, size) for k in keys]
        present = [k for k in keys if k in self.rows]
        if kind == "upsert":
            ts = table.upsert(given).timestamp
            self.rows |= {row["k"]: row for row in given}
        elif kind == "update" and present:
            ts = table.update([row for row in given if row["k"] in present]).timestamp
            self.rows |= {row["k"]: row for row in given if row["k"] in present}
        elif kind == "partial" and present:
            some = [{"k": row["k"], "s": row["s"]} for row in given if row["k"] in present]
            ts = table.update(some).timestamp
            self.rows |= {row["k"]: self.rows[row["k"]] | row for row in some}
        elif kind == "delete":
            ts = table.delete([{"k": k} for k in keys], on_missing="ignore").timestamp
            self.rows = {k: row for k, row in self.rows.items() if k not in keys}
        elif kind == "batch":
            with table.batch() as b:
                b.delete([{"k": k} for k in keys], on_missing="ignore")
                b.upsert(given)
            assert b.result is not None
            ts = b.result.timestamp
            self.rows |= {row["k"]: row for row in given}
        else:
            if kind == "flush" and (not self.flushed or r.random() < 0.1):
                self.flushed = True
                table.flush()
            return
        self.past.append((ts, dict(self.rows)))
        self.closed = np.maximum(self.closed, stores(table))

    def check(self) -> None:
        assert rows_of(self.table) == self.rows
        for key in range(0, 60, 7):
            assert self.table.get(key) == self.rows.get(key)
        for ts, rows in self.r.sample(self.past, min(6, len(self.past))):
            assert rows_of(self.table, ts) == rows
            assert self.table.get(7, at=ts) == rows.get(7)
        events = self.table.changes(self.past[0][0] - 1).to_table().num_rows
        assert events >= len(self.rows)


@pytest.mark.parametrize("number", range(3))
def test_full_stores_are_closed_and_every_write_fits(
    make: Make, path: Path, limit_columns: Callable[[int], None], seed: int, number: int, long: bool
) -> None:
    limit_columns(LIMIT)
    story = Story(make(SCHEMA), seed * 1000 + number)
    for _ in range(2000 if long else 250):
        story.step()
    assert story.closed.any(), "some store is full at some time"
    story.check()
    story.table.close()
    for limit in (LIMIT, 1 << 20):
        limit_columns(limit)
        story.table = kc.open_table(path, "rw")
        story.check()
        story.table.close()
        with kc.open_table(path, "r") as reader:
            story.table = reader
            story.check()
    story.table = kc.open_table(path, "rw")
    story.table.flush()
    story.check()
    story.table.compact(full=True)
    story.check()
    story.table.close()


@pytest.mark.parametrize("when", ["while it is written", "rw", "r"])
def test_stores_of_every_kind_are_closed_when_they_are_full(
    make: Make, path: Path, limit_columns: Callable[[int], None], when: str
) -> None:
    """Also in replay, of a log of a build with other bounds: each record fits into a store, all of them into
    none."""
    mode = "r" if when == "r" else "rw"
    table = make(SCHEMA)
    if when == "while it is written":
        limit_columns(LIMITED)
    table.insert([{"k": k, "s": "a" * 500, "n": 0} for k in range(20)])
    table.flush()
    table.insert([{"k": k, "s": "b" * 500, "n": 0} for k in range(20, 40)])
    for turn in range(12):
        table.update([{"k": k, "s": str(turn % 10) * 500} for k in range(40)])
    expected = rows_of(table)
    middle = table.update({"k": [1], "s": ["m"]}).timestamp - 1
    if when == "while it is written":
        assert all(stores(table)), stores(table)
    table.close()
    limit_columns(LIMITED)
    with kc.open_table(path, mode) as again:
        assert rows_of(again, middle) == expected
        assert again.get(1)["s"] == "m"
        frozen, more_logs, frozen_deltas = stores(again)
        assert frozen and frozen_deltas
        assert more_logs, "changes of a frozen MemRowSet outgrow a log, too"
    with kc.open_table(path, "rw") as again:
        again.flush()
        assert rows_of(again, middle) == expected


@pytest.mark.parametrize("shape", ["update", "where", "upsert"])
def test_a_bulk_write_of_rows_in_memory_that_no_store_takes(
    make: Make, path: Path, limit_columns: Callable[[int], None], shape: str
) -> None:
    """Their changes would go through the log, by key: the rows are flushed first."""
    table = make(SCHEMA, ingest_threshold_rows=40)
    for first in (0, 30):
        table.insert([{"k": k, "s": "a", "n": 1} for k in range(first, first + 30)])
    limit_columns(16 << 10)
    if shape == "where":
        table.update(where=[("n", "=", 1)], set={"s": "w" * 1000})
        wanted = dict.fromkeys(range(60), "w" * 1000)
    else:
        wanted = {k: chr(97 + k % 26) * 1000 for k in range(60)}
        data = pa.table({"k": list(wanted), "s": list(wanted.values())})
        (table.upsert if shape == "upsert" else table.update)(data)
    assert {k: row["s"] for k, row in rows_of(table).items()} == wanted
    table.close()
    with kc.open_table(path, "r") as reader:
        assert {k: row["s"] for k, row in rows_of(reader).items()} == wanted


def test_one_record_holds_no_more_changes_by_key_than_one_store(
    make: Make, limit_columns: Callable[[int], None]
) -> None:
    """Of several tablets each part fits; together they would be a record without a bound."""
    table = make(SCHEMA, partition_by=kc.HashPartition(["k"], 4), ingest_threshold_rows=40)
    for first in (0, 30):
        table.insert([{"k": k, "s": "a"} for k in range(first, first + 30)])
    limit_columns(30 << 10)
    table.update({"k": list(range(60)), "s": ["b" * 1000] * 60})
    assert not any(len(tablet.view.active) for tablet in tablets_of(table)), "flushed before"
    assert {row["s"] for row in rows_of(table).values()} == {"b" * 1000}


def test_rows_are_written_one_by_one_past_every_first_buffer(make: Make) -> None:
    """The debug switch looks after each row whether anything has grown."""
    table = make(SCHEMA)
    for k in range(1100):
        table.insert([{"k": k, "s": "a", "n": 1, "b": b""}])
    for k in range(600):
        table.update([{"k": k, "s": "b"}])
    assert len(tablet_of(table).view.active) == 1100
    table.flush()
    for k in range(600):
        table.update([{"k": k, "n": 2}])
    assert table.get(599) == {"k": 599, "s": "b", "n": 2, "b": b""}
    assert table.count() == 1100


def test_a_call_too_large_for_a_store_goes_to_files(make: Make, limit_columns: Callable[[int], None]) -> None:
    limit_columns(LIMIT)
    table = make(SCHEMA)
    table.insert([{"k": k, "s": "a" * 1000} for k in range(40)])
    assert len(rowsets_of(table)) == 1 and not len(tablet_of(table).view.active)
    table.insert([{"k": 100, "s": "b" * LIMIT}])
    assert len(rowsets_of(table)) == 2
    assert len(rows_of(table)) == 41


def test_the_numbers_of_rows_and_changes_are_bounds_too(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "MAX_ROWS", 50)
    table = make(SCHEMA)
    for first in range(0, 200, 40):
        table.insert({"k": list(range(first, first + 40))})
    for _ in range(3):
        table.update({"k": list(range(40)), "n": [1] * 40})
    assert stores(table)[0] == 4 and stores(table)[1] == 2
    monkeypatch.setattr(growing, "MAX_ROWS", 10)
    with pytest.raises(kc.MemoryLimit, match="no store in memory can take the batch"):
        table.update({"k": list(range(60)), "n": [2] * 60})
    monkeypatch.setattr(growing, "MAX_ROWS", 50)
    table.flush()
    for _ in range(3):
        table.update({"k": list(range(40)), "n": [3] * 40})
    assert stores(table)[2] >= 2
    expected = rows_of(table)
    table.close()
    with kc.open_table(path, "r") as reader:
        assert rows_of(reader) == expected


def test_two_gibibytes_of_one_column(tmp_path: Path, long: bool) -> None:
    """The bound as it is: 41 calls of 50 MiB."""
    if not long:
        pytest.skip("takes 8 GiB of memory and of disk")
    one = "x" * (1 << 20)
    options = {
        "maintenance": "manual",
        "memory_limit_bytes": 12 << 30,
        "durability": "none",
        "ingest_threshold_bytes": 64 << 20,
        "page_cache_bytes": 0,
    }
    columns = pa.schema([("k", pa.int64()), ("s", pa.string())])
    table = kc.create_table(tmp_path / "t", columns, "k", options=options)
    for call in range(42):
        table.insert(pa.table({"k": np.arange(call * 50, call * 50 + 50), "s": pa.array([one] * 50)}))
    assert stores(table)[0] == 1
    table.close()
    for mode in ("r", "rw"):
        with kc.open_table(tmp_path / "t", mode) as again:
            assert again.count() == 42 * 50
