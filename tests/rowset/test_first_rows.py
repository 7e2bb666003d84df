"""The first rows of a scan in the order of keys: what they are in every state, and how little is read."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.rowset.scan import first_rows, ordered
from kudu_core.rowset.scan.first_rows import ROWS_ONE_BY_ONE, ROWS_TESTED
from kudu_core.rowset.scan.scan_counts import ScanCounts
from kudu_core.table.read import scan
from tests.support.inside import page_cache_of, rowsets_of
from tests.support.tables import Make

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
SCHEMA = pa.schema([("h", pa.string()), ("t", pa.int32()), ("v", pa.float64()), ("s", pa.string())])
NUMBERS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KEYS = {"composite": ("h", "t"), "string": ("h",), "number": ("t",)}
LAYOUTS: dict[str, Callable[[str], list[Any]]] = {
    "one": lambda key: [],
    "hash": lambda key: [kc.HashPartition([key], 7)],
    "range": lambda key: [
        kc.RangePartition([key], [(None, CUTS[key][0]), (CUTS[key][0], CUTS[key][1]), (CUTS[key][1], None)])
    ],
}
CUTS: dict[str, tuple[Any, Any]] = {"h": ("host-3", "host-6"), "t": (300, 700)}
Row = dict[str, Any]
Model = dict[tuple[Any, ...], Row]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[ScanCounts]:
    """What each scan counted."""
    made: list[ScanCounts] = []

    def count() -> ScanCounts:
        made.append(ScanCounts())
        return made[-1]

    monkeypatch.setattr(scan, "ScanCounts", count)
    return made


# ---- what the rows are ----


class Pair:
    """A table, and the same rows as a dict of each moment."""

    def __init__(self, table: kc.Table, key: tuple[str, ...], r: random.Random) -> None:
        self.table, self.key, self.r = table, key, r
        self.model: Model = {}
        self.past: list[tuple[int, Model]] = []

    def row(self) -> Row:
        r = self.r
        host = f"host-{r.randrange(10)}" + r.choice(["", "", "\0", "x" * 30])
        if len(self.key) == 1 and "h" in self.key:
            host += f"/{r.randrange(60)}"
        text = r.choice([None, "", "a", "long " * r.randrange(40)])
        return {"h": host, "t": r.randrange(1000), "v": r.choice([None, r.random()]), "s": text}

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def upsert(self, count: int) -> None:
        rows = {self.key_of(row): row for row in (self.row() for _ in range(count))}
        self.table.upsert(pa.Table.from_pylist(list(rows.values()), SCHEMA))
        self.model |= rows

    def change(self, share: float) -> None:
        some = [key for key in self.model if self.r.random() < share]
        gone = [key for key in some if self.r.random() < 0.5]
        names = [*self.key, "v"]
        kept = [key for key in some if key not in set(gone)]
        if kept:
            rows = [dict(zip(names, (*key, self.r.random()), strict=True)) for key in kept]
            self.table.update(rows)
            for key, row in zip(kept, rows, strict=True):
                self.model[key] = self.model[key] | {"v": row["v"]}
        if gone:
            self.table.delete([dict(zip(self.key, key, strict=True)) for key in gone])
            for key in gone:
                del self.model[key]

    def in_order(self, model: Model) -> list[Row]:
        encoded = lambda key: tuple(c.encode() if isinstance(c, str) else c for c in key)  # noqa: E731
        return [model[key] for key in sorted(model, key=encoded)]

    def check(self) -> None:
        r = self.r
        moments: list[tuple[int | None, Model]] = [(None, self.model)]
        if self.past:
            moments.append(r.choice(self.past))
        for at, model in moments:
            rows = self.in_order(model)
            for _ in range(3):
                first = r.randrange(len(rows) + 1)
                lower = self.key_of(rows[first]) if first < len(rows) else None
                end = r.choice([len(rows), min(len(rows), first + r.randrange(1, 400))])
                upper = self.key_of(rows[end]) if end < len(rows) else None
                begun = first if lower is not None else 0
                asked = rows[begun:end]
                limit = r.choice([None, 0, 1, 10, 100, 700])
                columns = r.choice([None, ["v"], ["s", "t"], []])
                where, test = r.choice(
                    [
                        (None, lambda row: True),
                        (pc.field("v") > 0.5, lambda row: row["v"] is not None and row["v"] > 0.5),
                        (pc.field("t") < 900, lambda row: row["t"] < 900),
                    ]
                )
                wanted = [row for row in asked if test(row)][:limit]
                names = SCHEMA.names if columns is None else columns
                made = self.table.scan(
                    columns, where, key_range=(lower, upper), order="key", limit=limit, at=at,
                    batch_rows=r.choice([65_536, 7]),
                )  # fmt: skip
                found = pa.Table.from_batches(list(made), made.schema)
                if r.random() < 0.5:
                    found = made.to_table()
                assert found.num_rows == len(wanted)
                assert found.to_pylist() == [{name: row[name] for name in names} for row in wanted]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", KEYS)
def test_rows_in_every_state(form: str, layout: str, tmp_path: Path, long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (40 if long else 1)):
        print(f"seed {seed}")
        r = random.Random(seed)
        key = KEYS[form]
        options = {"durability": "none", "maintenance": "manual", "history_retention_s": 10_000}
        with kc.create_table(
            tmp_path / str(seed), SCHEMA, key, partition_by=LAYOUTS[layout](key[0]), options=options
        ) as table:
            pair = Pair(table, key, r)
            for step in range(6):
                pair.upsert(r.choice([3, 200, 900]))
                pair.past.append((table.timestamp, dict(pair.model)))
                pair.check()  # rows in memory too
                if r.random() < 0.7:
                    table.flush()
                pair.change(0.3)
                if step == 4:
                    table.compact(full=r.random() < 0.5)
                pair.check()


def test_columns_that_are_younger_than_the_rows(make: Make) -> None:
    table = make(NUMBERS)
    for first in (0, 1):
        table.insert(pa.table({"k": range(first, 400, 4), "v": range(first, 400, 4)}, NUMBERS))
        table.flush()
    table.alter(add=[kc.Column("new", pa.string(), default="d" * 1000), kc.Column("none", pa.int16())])
    table.insert(pa.table({"k": [2], "v": [2], "new": ["own"], "none": [3]}, table.schema))
    got = table.scan(order="key", limit=4).to_pylist()
    assert [row["k"] for row in got] == [0, 1, 2, 4]
    assert [row["new"] for row in got] == ["d" * 1000, "d" * 1000, "own", "d" * 1000]
    assert [row["none"] for row in got] == [None, None, 3, None]


def test_files_that_a_compaction_takes_away_are_read_on(make: Make) -> None:
    table = make(NUMBERS, file_grace_s=0)
    for first in range(4):
        table.insert(pa.table({"k": range(first, 4000, 4), "v": range(first, 4000, 4)}, NUMBERS))
        table.flush()
    rows: Iterator[pa.RecordBatch] = iter(table.scan(["k"], order="key"))
    begun = next(rows).to_pydict()["k"]
    table.compact(full=True)
    assert begun + [k for batch in rows for k in batch.to_pydict()["k"]] == list(range(4000))


# ---- what is read for them ----


def apart(make: Make, rowsets: int, each: int = 2000) -> kc.Table:
    """Rowsets one behind the other."""
    table = make(NUMBERS)
    for first in range(0, rowsets * each, each):
        table.insert(pa.table({"k": range(first, first + each), "v": range(first, first + each)}, NUMBERS))
        table.flush()
    assert len(rowsets_of(table)) == rowsets
    return table


def overlapping(make: Make, rowsets: int, rows: int = 20_000) -> kc.Table:
    """Rowsets whose rows take turns."""
    table = make(NUMBERS)
    for first in range(rowsets):
        table.insert(pa.table({"k": range(first, rows, rowsets), "v": range(first, rows, rowsets)}, NUMBERS))
        table.flush()
    return table


def keys_of(batches: Any) -> list[int]:
    return [k for batch in batches for k in batch.to_pydict()["k"]]


def test_a_rowset_behind_what_is_asked_is_not_begun(make: Make, counts: list[ScanCounts]) -> None:
    table = apart(make, 20)
    assert keys_of(table.scan(order="key", limit=10)) == list(range(10))
    assert (counts[-1].rowsets_begun, counts[-1].rows_read) == (1, 10)
    assert keys_of(table.scan(order="key", limit=10, key_range=(7995, None))) == list(range(7995, 8005))
    assert (counts[-1].rowsets_begun, counts[-1].rows_read) == (2, 10)
    # Behind the first rows blocks are read, of no more rowsets than there are rows for.
    assert keys_of(table.scan(order="key", limit=3000)) == list(range(3000))
    assert counts[-1].rowsets_begun <= 2 + 1
    rows = iter(table.scan(order="key"))
    assert [next(rows).num_rows for _ in range(4)] == [16, 32, 64, 128]
    assert counts[-1].rowsets_begun == 1


def test_rows_of_many_rowsets_are_read_one_by_one(make: Make, counts: list[ScanCounts]) -> None:
    table = overlapping(make, 40)
    for limit in (1, 10, 100):
        assert keys_of(table.scan(order="key", limit=limit, key_range=(5555, None))) == list(
            range(5555, 5555 + limit)
        )
        assert counts[-1].rows_read == limit and counts[-1].rowsets_begun > 30
    table.delete(pa.table({"k": range(5555, 5575)}, pa.schema([("k", pa.int64())])))
    assert keys_of(table.scan(order="key", limit=10, key_range=(5555, None))) == list(range(5575, 5585))
    assert counts[-1].rows_read == 10 + 20  # twice as many after the first ten were dead
    where = pc.field("v") == 5600
    assert keys_of(table.scan(where=where, order="key", limit=1, key_range=(5590, None))) == [5600]
    assert counts[-1].rows_read <= ROWS_TESTED


def test_pages_of_rowsets_that_are_not_begun_are_not_read(make: Make, path: Path) -> None:
    apart(make, 12).close()
    with kc.open_table(path, mode="r") as table:
        cache = page_cache_of(table)
        assert keys_of(table.scan(order="key", limit=10)) == list(range(10))
        one = cache.statistics().misses
        assert keys_of(table.scan(order="key", limit=10)) == list(range(10))
        assert cache.statistics().misses == one
        assert keys_of(table.scan(order="key", limit=10, key_range=(4000, None))) == list(range(4000, 4010))
        # The end of the rowset before it, whose last key is just below the bound, was looked for.
        assert cache.statistics().misses <= 3 * one


@pytest.mark.parametrize("rowsets", [10, 40])
def test_each_step_of_a_merge_asks_those_who_have_a_part(
    make: Make, rowsets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing grows with the square of the rowsets: a block is filled once."""
    table = overlapping(make, rowsets)
    filled: list[int] = []
    blocks: list[int] = []
    usual, begin = ordered._Cursor.fill, ordered.scan_rowset

    def fill(cursor: Any) -> bool:
        filled.append(1)
        return usual(cursor)

    def begun(*arguments: Any) -> Iterator[Any]:
        for block in begin(*arguments):
            blocks.append(1)
            yield block

    monkeypatch.setattr(ordered._Cursor, "fill", fill)
    monkeypatch.setattr(ordered, "scan_rowset", begun)
    rows = table.scan(order="key", limit=ROWS_ONE_BY_ONE)
    assert keys_of(rows) == list(range(ROWS_ONE_BY_ONE)) and not filled
    assert keys_of([table.scan(order="key").to_table()]) == list(range(20_000))
    assert len(blocks) == rowsets and len(filled) == 2 * rowsets
    filled.clear(), blocks.clear()
    assert keys_of(table.scan(order="key")) == list(range(20_000))
    assert len(filled) == len(blocks) + rowsets


def test_few_rows_hold_no_more_memory_than_theirs(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("s", pa.string())]))
    table.insert(pa.table({"k": range(5000), "s": [f"{k:01000d}" for k in range(5000)]}))
    for _ in range(2):
        for order in ("key", "any"):
            for where in (None, pc.field("k") >= 100):
                found = table.scan(where=where, order=order, limit=10).to_table()
                assert found.num_rows == 10
                assert found.get_total_buffer_size() < 4 * 10 * 1016
        table.flush()


@pytest.mark.parametrize("where", [None, [("k", ">=", 0)]], ids=["all", "tested"])
def test_a_key_of_several_copies_at_the_end_of_the_first_rows(
    tmp_path: Path, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was deleted and came back lies in two rowsets: wherever the first rows end, the scan that
    goes on behind them has the copy that is present, once."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    options = {"maintenance": "manual", "durability": "none"}
    with kc.create_table(tmp_path / "t", schema, "k", options=options) as table:
        table.insert({"k": list(range(12)), "v": [0] * 12})
        table.flush()
        for turn in (1, 2):
            back = list(range(turn, 12, 3))
            table.delete({"k": back})
            table.flush()
            table.insert({"k": back, "v": [turn] * len(back)})
            table.flush()
        table.delete({"k": [1, 5]})
        table.flush()
        wanted = table.scan(order="key").to_table()
        assert wanted["k"].to_pylist() == [k for k in range(12) if k not in (1, 5)]
        for most in range(1, 24):
            monkeypatch.setattr(first_rows, "ROWS_TESTED", most)
            monkeypatch.setattr(first_rows, "ROWS_ONE_BY_ONE", most)
            found = table.scan(where=where, order="key", limit=1000).to_table()
            assert found == wanted, f"after {most} rows"
