"""Reads that want few rows say what all reads say, in every state of a table, and do less for it."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import operator
import os
import random
import weakref
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core.table.opened import kept_plans
from kudu_core.table.opened.handle import handle_of
from kudu_core.table.read import few_keys, points, scan, short_scan
from tests.support.inside import rowsets_of
from tests.support.tables import Make

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
TYPES: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "i8": (pa.int8(), lambda r: r.randrange(-128, 128)),
    "u16": (pa.uint16(), lambda r: r.randrange(2**16)),
    "i64": (pa.int64(), lambda r: r.choice([r.randrange(10), r.randrange(-(2**63), 2**63)])),
    "f32": (pa.float32(), lambda r: r.randrange(1000) / 8),
    "f64": (pa.float64(), lambda r: r.choice([r.random(), r.randrange(1000) / 10])),
    "flag": (pa.bool_(), lambda r: r.random() < 0.5),
    "day": (pa.date32(), lambda r: dt.date(2020, 1, 1) + dt.timedelta(r.randrange(1000))),
    "dec": (pa.decimal128(20, 2), lambda r: decimal.Decimal(r.randrange(-(10**9), 10**9)).scaleb(-2)),
    "word": (pa.string(), lambda r: r.choice(["", "red", "green"])),
    "text": (pa.string(), lambda r: "x" * r.randrange(60) + str(r.random())),
    "raw": (pa.binary(), lambda r: r.randbytes(r.randrange(9))),
}
SCHEMA = pa.schema([("h", pa.string()), ("t", pa.int32()), *((name, t) for name, (t, _) in TYPES.items())])
NUMBERS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KEYS = {"composite": ("h", "t"), "number": ("t",), "string": ("h",)}


class Both:
    """Counts the reads that were answered in this way, and lets others be answered in the general one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.answered = self.looked_up = 0
        usual, usual_of_keys = short_scan.few_rows, points.looked_up

        def counted(*arguments: Any) -> Any:
            found = usual(*arguments)
            self.answered += found is not None
            return found

        def counted_of_keys(*arguments: Any) -> Any:
            found = usual_of_keys(*arguments)
            self.looked_up += found is not None
            return found

        patch.setattr(scan, "few_rows", counted)
        patch.setattr(points, "looked_up", counted_of_keys)

    def general(self, read: Callable[[], pa.Table]) -> pa.Table:
        with self.patch.context() as patch:
            patch.setattr(scan, "wants_few", lambda plan: None)
            patch.setattr(points, "are_few", lambda keys: False)
            return read()


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    return Both(monkeypatch)


def row_of(r: random.Random) -> dict[str, Any]:
    host = f"host-{r.randrange(5)}" + r.choice(["", "\0", "/x"]) + str(r.randrange(40))
    row = {name: None if r.random() < 0.2 else make(r) for name, (_, make) in TYPES.items()}
    return {"h": host, "t": r.randrange(-500, 500), **row}


def compare(table: kc.Table, both: Both, key: tuple[str, ...], r: random.Random, moments: list[Any]) -> None:
    names = table.schema.names
    for _ in range(6):
        row, other = row_of(r), row_of(r)
        bounds = [tuple(x[name] for name in key) for x in (row, other)]
        if len(key) > 1 and r.random() < 0.3:
            bounds = [bound[:1] for bound in bounds]
        lower, upper = (r.choice([None, bound]) for bound in sorted(bounds, key=str))
        order = r.choice(["key", "any"])
        options: dict[str, Any] = {
            "columns": r.choice([None, r.sample(names, 4), ["t"]]),
            "key_range": (lower, upper),
            "order": order,
            "limit": r.choice([None, 0, 1, 10, 100]),
            "at": r.choice(moments),
        }
        if r.random() < 0.4:
            options["where"] = equal(key[: r.randint(1, len(key))], row)

        def read(options: dict[str, Any] = options) -> pa.Table:
            return table.scan(**options).to_table()

        found, expected = read(), both.general(read)
        assert found.schema == expected.schema
        found.validate(full=True)
        if order == "key":
            assert found.to_pylist() == expected.to_pylist()
            continue
        assert found.num_rows == expected.num_rows
        whole = both.general(lambda options=options: table.scan(**{**options, "limit": None}).to_table())
        rows = [repr(row) for row in whole.to_pylist()]
        for row in found.to_pylist():
            rows.remove(repr(row))


def equal(names: tuple[str, ...], row: dict[str, Any]) -> pc.Expression:
    """That these columns have the values of a row."""
    tests = [pc.field(name) == row[name] for name in names]
    return reduce(operator.and_, tests)


def compare_keys(
    table: kc.Table, both: Both, key: tuple[str, ...], r: random.Random, moments: list[Any]
) -> None:
    """Keys that are there and others, twice too, in order and not."""
    there = table.scan(list(key)).to_table().to_pylist()
    for _ in range(4):
        keys = r.choices(there, k=r.choice([r.randrange(12), r.randrange(400)])) if there else []
        keys += [{name: row[name] for name in key} for row in (row_of(r) for _ in range(r.randrange(4)))]
        if r.random() < 0.5:
            keys.sort(key=lambda one: tuple(one.values()))
        columns = r.choice([None, r.sample(table.schema.names, 4), list(key), ["word"]])
        at = r.choice(moments)

        def read(keys: Any = keys, columns: Any = columns, at: Any = at) -> pa.Table:
            return table.get_many(keys, columns, at=at)

        found, expected = read(), both.general(read)
        found.validate(full=True)
        assert found.schema == expected.schema
        assert found.to_pylist() == expected.to_pylist()
        rows = found.drop_columns(["_found"]).to_pylist()
        for one, row, is_there in zip(keys, rows, found["_found"].to_pylist(), strict=True):
            single = table.get(one, columns, at=at)
            assert (single is not None) == is_there
            assert single is None or single == row


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("form", KEYS)
def test_rows_are_those_of_every_scan(form: str, parts: int, tmp_path: Path, both: Both, long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (40 if long else 1)):
        print(f"seed {seed}")
        r, key = random.Random(seed), KEYS[form]
        options = {"durability": "none", "maintenance": "manual", "history_retention_s": 10_000}
        hashes = [kc.HashPartition([key[0]], parts)] if parts > 1 else []
        with kc.create_table(
            tmp_path / str(seed), SCHEMA, key, partition_by=hashes, options=options
        ) as table:
            moments: list[Any] = [None]
            for step in range(5):
                rows = {tuple(row[k] for k in key): row for row in (row_of(r) for _ in range(150))}
                full = dict.fromkeys(table.schema.names)
                table.upsert(pa.Table.from_pylist([full | row for row in rows.values()], table.schema))
                compare(table, both, key, r, moments)  # rows in memory too
                compare_keys(table, both, key, r, moments)
                moments.append(table.timestamp)
                if r.random() < 0.7:
                    table.flush()
                some = [dict(zip(key, k, strict=True)) for k in list(rows)[::3]]
                table.update([{**k, "word": r.choice(["blue", None]), "f64": r.random()} for k in some])
                table.delete(some[::2])
                if step == 1:
                    new = kc.Column("new", pa.string(), default="d")
                    table.alter(add=[new, kc.Column("none", pa.bool_())])
                if step == 3:
                    table.flush()
                compare(table, both, key, r, moments)
                compare_keys(table, both, key, r, moments)
            assert both.answered > 20 and both.looked_up > 10
            both.answered = both.looked_up = 0


def test_a_few_rows_between_two_bounds_are_looked_for_and_more_are_not(make: Make, both: Both) -> None:
    table = make(NUMBERS)
    table.insert(pa.table({"k": range(5000), "v": range(5000)}, NUMBERS))
    table.flush()
    for order in ("any", "key"):
        assert table.scan(key_range=(70, 90), order=order).to_table()["v"].to_pylist() == list(range(70, 90))
    assert both.answered == 2
    found = table.scan(key_range=(70, 4000)).to_table()
    assert found.num_rows == 3930 and both.answered == 2
    # A predicate, a dictionary and no column are the general way's.
    assert table.scan(where=pc.field("v") == 3, limit=1).to_table().num_rows == 1
    assert table.scan([], limit=1).to_table().num_rows == 1
    assert both.answered == 2


def test_what_cannot_be_read_so_is_read_in_the_general_way(
    make: Make, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.binary())])
    table = make(schema)
    table.insert(pa.table({"k": range(20), "s": [bytes([k]) * 1_000_000 for k in range(20)]}, schema))
    for _ in range(2):  # in memory, in files
        rows = table.scan(order="key", limit=10).to_table()["s"].to_pylist()
        assert [row[0] for row in rows] == list(range(10)) and both.answered == 0
        table.flush()
    assert table.scan(["k"], order="key", limit=10).to_table()["k"].to_pylist() == list(range(10))
    assert both.answered == 1

    def refuse(*_: Any) -> Any:
        raise NeedsGeneralPath

    monkeypatch.setattr(short_scan, "RowsOfViews", refuse)
    assert table.scan(["k"], order="key", limit=10).to_table()["k"].to_pylist() == list(range(10))
    assert both.answered == 1
    monkeypatch.setattr(few_keys, "LookedUp", refuse)
    assert table.get_many([1, 30])["s"].to_pylist() == [b"\1" * 1_000_000, None]
    assert both.looked_up == 0


def test_rows_of_which_a_predicate_gives_the_key_are_looked_for(make: Make, both: Both) -> None:
    schema = pa.schema([("h", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
    table = make(schema, ["h", "t"])
    rows = [{"h": f"h{h}", "t": t, "v": h * t} for h in range(20) for t in range(50)]
    table.insert(pa.Table.from_pylist(rows, schema))
    table.flush()
    h, t, v = map(pc.field, schema.names)
    for where in ((h == "h3") & (t == 7), (t == 7) & (h == "h3"), t.isin([7]) & (h == "h3") & (h <= "h3")):
        assert table.scan(["v"], where=where).to_table().to_pydict() == {"v": [21]}
    assert table.scan(where=h == "h3").to_table().num_rows == 50
    assert table.scan(where=(h == "h3") & (t == -1)).to_table().num_rows == 0
    assert both.answered == 5
    # What says more, or less, than the first columns of a key.
    for where in (t == 7, (h == "h3") & (v == 21), (h == "h3") & (t > 7), (h == "h3") | (t == 7), h != "h3"):
        expected = both.general(lambda where=where: table.scan(where=where).to_table())
        assert table.scan(where=where).to_table().sort_by("t") == expected.sort_by("t")
    assert both.answered == 5


def test_very_many_keys_are_the_general_ways(make: Make, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(NUMBERS)
    table.insert(pa.table({"k": range(5000), "v": range(5000)}, NUMBERS))
    table.flush()
    for most, answered in ((1999, 0), (2000, 1)):
        monkeypatch.setattr(few_keys, "MOST_KEYS", most)
        assert table.get_many(list(range(2000)))["v"].to_pylist() == list(range(2000))
        assert both.looked_up == answered
    assert table.get_many([3, 9999, 3])["v"].to_pylist() == [3, None, 3]
    assert both.looked_up == 2


def test_rows_that_are_mostly_dead(make: Make, both: Both) -> None:
    table = make(NUMBERS)
    table.insert(pa.table({"k": range(9000), "v": range(9000)}, NUMBERS))
    table.flush()
    table.delete(pa.table({"k": [k for k in range(9000) if k % 1000 > 1]}, NUMBERS.remove(1)))
    found = table.scan(order="key", limit=3).to_table()["k"].to_pylist()
    assert found == [0, 1, 1000] and both.answered == 1
    found = table.scan(order="key", limit=16).to_table()["k"].to_pylist()
    assert found == [k + i for k in range(0, 8000, 1000) for i in (0, 1)] and both.answered == 1


# ---- what is kept, and for how long ----


def test_plans_are_kept_as_long_as_the_schema_and_not_more_than_some(make: Make) -> None:
    table = make(NUMBERS)
    table.insert(pa.table({"k": [1, 2], "v": [3, 4]}, NUMBERS))
    engine = handle_of(table).engine
    for _ in range(3):
        for bound in (None, 1, 2):
            expected = [k for k in (1, 2) if bound is None or k >= bound]
            rows = table.scan(["k"], order="key", limit=10, key_range=(bound, None)).to_table()
            assert rows.to_pydict() == {"k": expected}
    assert len(engine.plans) == 1
    for limit in range(3 * kept_plans._MOST):
        assert table.scan(limit=limit).to_table().num_rows == min(2, limit)
        assert len(engine.plans) <= kept_plans._MOST
    for wrong in ({"limit": 1.0}, {"limit": True}, {"limit": [1]}, {"order": ["key"]}, {"batch_rows": True}):
        table.scan(limit=1, batch_rows=1)
        with pytest.raises(kc.InvalidArgument):
            table.scan(**{"limit": 1, **wrong})
    old = weakref.ref(engine.plans)
    table.alter(rename={"v": "w"})
    assert table.scan(limit=1).to_table().column_names == ["k", "w"]
    gc.collect()
    assert old() is None
    with pytest.raises(kc.InvalidArgument, match="no column 'v'"):
        table.scan(["v"])


def test_a_scan_that_has_ended_holds_no_view_and_no_file(make: Make, path: Path) -> None:
    table = make(NUMBERS, file_grace_s=0, history_retention_s=0)
    for first in range(3):
        table.insert(pa.table({"k": range(first, 300, 3), "v": range(first, 300, 3)}, NUMBERS))
        table.flush()
    kept = table.scan(order="key", limit=5)
    for _ in range(2):
        rows = kept.to_table()
        assert rows["k"].to_pylist() == list(range(5))
        assert table.scan(key_range=(3, 9)).to_table().num_rows == 6
    bases = [weakref.ref(rowset.base) for rowset in rowsets_of(table)]
    before = {file.name for file in path.rglob("*.rows")}
    table.compact(full=True)
    table.gc()
    assert not {file.name for file in path.rglob("*.rows")} & before
    assert all(base() is None for base in bases)
    assert rows["v"].to_pylist() == list(range(5))  # the answer is its own
    assert kept.to_table()["k"].to_pylist() == list(range(5))


def test_a_reader_whose_files_are_gone_reads_the_newer_state(make: Make, path: Path, both: Both) -> None:
    table = make(NUMBERS, file_grace_s=0)
    for first in range(3):
        table.insert(pa.table({"k": range(first, 300, 3), "v": range(first, 300, 3)}, NUMBERS))
        table.flush()
    with kc.open_table(path, mode="r") as reader:
        rows = reader.scan(order="key", limit=5)
        assert rows.to_table()["k"].to_pylist() == list(range(5))
        table.delete([{"k": 1}])
        table.compact(full=True)
        table.gc()
        fresh = reader.scan(order="key", limit=5)
        assert fresh.to_table()["k"].to_pylist() == list(range(5))  # its files are open
        reader.refresh()
        assert reader.scan(order="key", limit=5).to_table()["k"].to_pylist() == [0, 2, 3, 4, 5]
    with kc.open_table(path, mode="r") as other:
        table.insert(pa.table({"k": [1], "v": [1]}, NUMBERS))
        table.flush()
        table.compact(full=True)
        table.gc()
        assert len(other.scan(order="key", limit=5).to_table()) == 5
    assert both.answered >= 4
    with pytest.raises(kc.Closed):
        rows.to_table()


def test_batches_are_no_larger_than_asked_for(make: Make) -> None:
    table = make(NUMBERS)
    table.insert(pa.table({"k": range(50), "v": range(50)}, NUMBERS))
    rows: Iterator[pa.RecordBatch] = iter(table.scan(order="key", limit=10, batch_rows=4))
    assert [batch.num_rows for batch in rows] == [4, 4, 2]


@pytest.mark.parametrize("tablets", [8, 16])
def test_tablets_are_asked_in_compiled_code_alone(
    make: Make, tablets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made for a tablet or a rowset but what the kernel keeps for itself."""
    table = make(NUMBERS, partition_by=[kc.HashPartition(["k"], tablets)])
    table.insert(pa.table({"k": range(1000), "v": range(1000)}, NUMBERS))
    table.flush()

    def never(*_: Any) -> Any:
        raise AssertionError("a rowset was prepared for a scan of many rows")

    for rowset in rowsets_of(table):
        monkeypatch.setattr(type(rowset), "opened_at", never)
        monkeypatch.setattr(type(rowset), "at", never)
    for lower in (None, 500):
        rows = table.scan(order="key", limit=10, key_range=(lower, None)).to_table()
        assert rows["k"].to_pylist() == list(range(lower or 0, (lower or 0) + 10))
    assert table.scan(limit=10).to_table().num_rows == 10
    assert table.scan(key_range=(7, 12)).to_table().num_rows == 5
