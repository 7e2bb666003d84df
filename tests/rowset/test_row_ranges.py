"""Which rows a scan touches: searches in keys, zone maps and statistics, held against pyarrow's filters."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.schema.declare import declare
from kudu_core.common.types.types import ColumnType
from kudu_core.common.types.values import pack, physical
from kudu_core.common.where.analysis import Term, passing_all
from kudu_core.common.where.predicates import compile_where
from kudu_core.common.where.sets import closed_ends, place_of, places_of
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from kudu_core.rowset.scan.row_ranges import intersection, pages_of
from kudu_core.table.read import scan as scanning
from tests.support.fs.counting import counting, reads
from tests.support.inside import engine_of, is_opened, plan_of, rowsets_of, schema_of, tablets_of
from tests.support.tables import Make

PAGE = 16_384
NEWEST = 2**64 - 1


def disk_rowsets(table: kc.Table) -> list[DiskRowsAt]:
    found = [s for tablet in tablets_of(table) for s in tablet.view.at(NEWEST)]
    return [s for s in found if isinstance(s, DiskRowsAt)]


# ---- sets of values

TYPES: list[tuple[str, list[Any]]] = [
    ("int8", [-128, -1, 0, 1, 127]),
    ("uint16", [0, 1, 40_000, 65_535]),
    ("int64", [-(2**63), -5, 0, 7, 2**63 - 1]),
    ("uint64", [0, 2**63, 2**64 - 1]),
    ("float32", [float("-inf"), -1.5, -0.0, 0.0, 0.25, float("inf")]),
    ("float64", [float("-inf"), -1e300, -5e-324, -0.0, 0.0, 1.0, float("inf")]),
    ("bool", [False, True]),
    ("date32", [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    ("timestamp[us]", [dt.datetime(1900, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1, 1, 2, 3)]),
    ("decimal128(38,2)", [decimal.Decimal(v) for v in ("-1e35", "-0.01", "0.00", "7.25", "1e35")]),
    ("string", ["", "a", "a\0", "ab", "b", "é", "\U0001f600"]),
    ("binary", [b"", b"\0", b"a", b"a\xff", b"\xff\xff"]),
]
OPERATORS = {
    "eq": lambda cell, value: cell == value,
    "lt": lambda cell, value: cell < value,
    "le": lambda cell, value: cell <= value,
    "gt": lambda cell, value: cell > value,
    "ge": lambda cell, value: cell >= value,
    "in": lambda cell, value: cell in value,
    "prefix": lambda cell, value: cell.startswith(value),
}


def place(type_: ColumnType, cell: Any) -> Any:
    return place_of(type_, physical(type_, cell))


@pytest.mark.parametrize(("name", "cells"), TYPES, ids=[name for name, _ in TYPES])
def test_sets_hold_what_satisfies_the_terms(name: str, cells: list[Any], seed: int) -> None:
    type_ = ColumnType.parse(name)
    rng = np.random.default_rng(seed)
    ops = [op for op in OPERATORS if op != "prefix" or not type_.width]
    for _ in range(150):
        terms = []
        for _ in range(rng.integers(1, 4)):
            op = str(rng.choice(ops))
            one = cells[rng.integers(0, len(cells))]
            value = tuple(sorted({cells[i] for i in rng.integers(0, len(cells), 3)})) if op == "in" else one
            if op != "prefix" or value:
                terms.append(Term(1, op, value, type_))
        found = passing_all(terms)
        if not terms:
            assert found is None
            continue
        assert found is not None
        for cell in cells:
            at = place(type_, cell)
            satisfied = all(OPERATORS[t.op](cell, t.value) for t in terms)
            assert found.meets(at, at) == satisfied, (cell, terms)
            if type_.width not in (0, 16):
                inside = any(low <= at <= high for low, high in closed_ends(type_, found).tolist())
                assert inside == satisfied
        places = sorted(place(type_, cell) for cell in cells)
        for low, high in zip(places, places[2:], strict=False):
            between = [c for c in cells if low <= place(type_, c) <= high]
            known = any(all(OPERATORS[t.op](c, t.value) for t in terms) for c in between)
            assert found.meets(low, high) or not known
            assert found.meets(None, None) or not found.intervals


@pytest.mark.parametrize(("name", "cells"), [t for t in TYPES if ColumnType.parse(t[0]).width])
def test_places_compare_as_the_cells_do(name: str, cells: list[Any]) -> None:
    type_ = ColumnType.parse(name)
    raw = [physical(type_, cell) for cell in cells]
    numbers = [place_of(type_, value) for value in raw]
    many = places_of(type_, np.frombuffer(b"".join(pack(type_, v) for v in raw), np.uint8)).tolist()
    for i, cell in enumerate(cells):
        for j, other in enumerate(cells):
            assert (numbers[i] < numbers[j]) == (cell < other)
            assert (many[i] <= many[j]) or cell > other
            assert (many[i] < many[j]) == (cell < other) or type_.width == 16
    if type_.width != 16:
        assert many == numbers


# ---- lists of ranges


def test_ranges_have_in_common_what_their_rows_have(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(200):
        one, other = (
            np.sort(rng.choice(60, 2 * int(rng.integers(0, 6)), replace=False)).reshape(-1, 2) for _ in "ab"
        )
        common = intersection(one, other)
        rows = [{row for first, end in r.tolist() for row in range(first, end)} for r in (one, other, common)]
        assert rows[2] == rows[0] & rows[1]
        assert (common[:, 0] < common[:, 1]).all()
        assert intersection(np.array([[0, 60]]), one) is one


def test_pages_of_ranges_are_counted_once() -> None:
    ranges = np.array([[5, 9], [20, PAGE], [PAGE, PAGE + 1], [5 * PAGE - 1, 7 * PAGE + 1]])
    assert pages_of(ranges) == 2 + 4
    assert pages_of(ranges[:0]) == 0


# ---- scans of two key columns


def rows_of_hosts(hosts: int, times: int) -> pa.Table:
    count = hosts * times
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "host": np.repeat([f"host {i:03d}" for i in range(hosts)], times),
            "ts": pa.array(np.tile(np.arange(times) * 10, hosts), pa.int64()),
            "v": pa.array(rng.integers(0, 100, count), pa.int64(), mask=rng.random(count) < 0.1),
            "w": pa.array(np.arange(count), pa.int64()),
        }
    )


@pytest.fixture
def hosts(make: Make) -> kc.Table:
    table = make(rows_of_hosts(40, 3000).schema, ("host", "ts"), ingest_threshold_rows=1000)
    table.insert(rows_of_hosts(40, 3000))
    return table


F = pc.field
WHERES: list[Any] = [
    (F("ts") >= 1000) & (F("ts") < 1300),
    (F("ts") == 1000) | (F("ts") == 1001) | (F("ts") == 1010),
    F("host") == "host 007",
    F("host") == "host",
    (F("host") == "host 007") & (F("ts") > 29_000),
    F("host").isin(["host 001", "host 002", "host 030", "nobody"]) & (F("ts") <= 20),
    (F("host") >= "host 010") & (F("host") < "host 020") & (F("ts") > 29_970),
    pc.starts_with(F("host"), "host 01") & (F("ts") < 30),
    (F("ts") < 50) & (F("v") > 90),
    (F("ts") < 50) & (F("w") < 100_000) & F("v").is_null(),
    (F("w") >= 50_000) & (F("w") < 50_010),
    (F("ts") < 0) | (F("ts") > 10**9),
    ~(F("ts") < 29_990),
    (F("host") == "host 001") & (F("host") == "host 002"),
    F("ts").isin(pa.array([], pa.int64())),
    F("ts") > 29_950.5,
    F("v").is_null() & (F("ts") == 70),
    pc.match_like(F("host"), "host 0_5") & (F("ts") == 0),
]


def expected(rows: pa.Table, where: pc.Expression) -> list[tuple[Any, ...]]:
    found = rows.filter(where).sort_by([("host", "ascending"), ("ts", "ascending")])
    return [tuple(row.values()) for row in found.to_pylist()]


def got(table: kc.Table, where: Any, **more: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.scan(where=where, order="key", **more).to_pylist()]


def test_scans_agree_with_pyarrow(hosts: kc.Table) -> None:
    rows = rows_of_hosts(40, 3000)
    for where in WHERES:
        assert got(hosts, where) == expected(rows, where), where
        assert sorted(tuple(r.values()) for r in hosts.scan(where=where).to_pylist()) == expected(rows, where)
        assert hosts.count(where) == len(expected(rows, where))


def test_scans_agree_with_pyarrow_under_changes(hosts: kc.Table) -> None:
    """Deleted, changed and new rows, in memory and in files, now and before."""
    before = hosts.snapshot()
    rows = rows_of_hosts(40, 3000)
    key = [(f"host {i % 40:03d}", 10 * (i * 37 % 3000)) for i in range(3000)]
    gone, changed = key[:1000], key[1000:]
    hosts.delete({"host": [h for h, _ in gone], "ts": [t for _, t in gone]})
    hosts.update({"host": [h for h, _ in changed], "ts": [t for _, t in changed], "w": [-1] * len(changed)})
    more = {"host": ["host 007", "a", "z"], "ts": [1005, 1000, 29_999], "v": [95, None, 99], "w": [1, 2, 3]}
    hosts.insert(more)
    new = {(r["host"], r["ts"]): r for r in rows.to_pylist()}
    for one in gone:
        del new[one]
    for one in changed:
        new[one]["w"] = -1
    for cells in zip(*more.values(), strict=True):
        new[cells[:2]] = dict(zip(more, cells, strict=True))
    now = pa.Table.from_pylist(list(new.values()), rows.schema)
    for flush in (False, True):
        if flush:
            hosts.flush()
        for where in (*WHERES, F("w") == -1, (F("w") == -1) & (F("ts") < 100)):
            assert got(hosts, where) == expected(now, where), where
            assert got(hosts, where, at=before) == expected(rows, where), where


def test_a_range_of_the_second_column_reads_few_rows(hosts: kc.Table) -> None:
    e = hosts.scan(["w"], where=[("ts", ">=", 1000), ("ts", "<", 1300)]).explain()
    assert (e.rows, e.rows_by_keys, e.rows_wanted) == (120_000, 40 * 30, 40 * 30)
    assert "1200 of 120000 looked at" in str(e)
    e = hosts.scan(["w"], where=[("host", "=", "host 007"), ("ts", "<", 50), ("w", ">", 0)]).explain()
    assert (e.rows_by_keys, e.pages - e.pages_pruned) == (5, 1)
    e = hosts.scan(["w"], where=[("ts", "<", 50), ("w", "<", 3)]).explain()
    assert (e.rows_by_keys, e.rows_wanted, e.pages - e.pages_pruned) == (200, 30, 1), "zone maps, then"
    e = hosts.scan(["w"], key_range=(("host 003", 100), ("host 005", 50)), where=[("ts", "=", 30)]).explain()
    assert e.rows_by_keys == 2


def test_many_values_of_the_first_column_are_not_walked(make: Make) -> None:
    table = make(pa.schema([("a", pa.int64()), ("b", pa.int64())]), ("a", "b"), ingest_threshold_rows=100)
    a = np.arange(100_000)
    table.insert({"a": a, "b": a % 1000})
    e = table.scan(where=[("b", "<", 10)]).explain()
    assert e.rows_by_keys > 90_000, "one row a value: a search would cost more than it saves"
    assert got_pairs(table, [("b", "<", 10)]) == [(i, i % 1000) for i in range(100_000) if i % 1000 < 10]
    assert got_pairs(table, [("b", "<", 10), ("a", ">", 50_500)])[0] == (51_000, 0)


def got_pairs(table: kc.Table, where: Any) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in table.scan(where=where, order="key").to_pylist()]


KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "int8": (pa.int8(), lambda rng, n: rng.integers(-100, 100, n)),
    "uint16": (pa.uint16(), lambda rng, n: rng.integers(0, 9, n)),
    "int32": (pa.int32(), lambda rng, n: rng.integers(-(2**31), 2**31, n)),
    "uint64": (pa.uint64(), lambda rng, n: rng.integers(0, 2**64 - 1, n, np.uint64)),
    "date": (pa.date32(), lambda rng, n: rng.integers(0, 40, n).astype("i4")),
    "decimal": (pa.decimal128(9, 2), lambda rng, n: [decimal.Decimal(v) for v in rng.bytes(n)]),
    "word": (pa.string(), lambda rng, n: [f"w{v}" for v in rng.integers(0, 12, n)]),
    "bytes": (pa.binary(), lambda rng, n: [bytes([v % 3, 0, v]) for v in rng.integers(0, 30, n).tolist()]),
    "text": (pa.string(), lambda rng, n: [f"{v:x}" * 5 for v in rng.integers(0, 2**60, n).tolist()]),
}


COMPOSITES = [
    ("word", "int8", "uint16"),
    ("int32",),
    ("text",),
    ("bytes", "text"),
    ("date", "decimal"),
    ("uint16", "uint64"),
    ("word", "bytes", "date"),
]


@pytest.mark.parametrize("names", COMPOSITES, ids=", ".join)
def test_keys_of_every_type(make: Make, names: tuple[str, ...], seed: int) -> None:
    """Random comparisons of random keys: what a scan finds is what pyarrow filters."""
    rng = np.random.default_rng(seed)
    drawn = {name: pa.array(KEYS[name][1](rng, 9000), KEYS[name][0]) for name in names}
    every = pa.table(drawn).group_by(list(names)).aggregate([])
    every = every.append_column("v", pa.array(np.arange(every.num_rows), pa.int64()))
    table = make(every.schema, names, ingest_threshold_rows=100)
    table.insert(every)
    ops = ["=", "<", "<=", ">", ">=", "in", "!="]
    for _ in range(20):
        where = []
        for name in rng.choice(names, int(rng.integers(1, 4))).tolist():
            op = str(rng.choice(ops))
            some = [every[name][int(i)].as_py() for i in rng.integers(0, every.num_rows, 4)]
            where.append((name, op, some if op == "in" else some[0]))
        if rng.random() < 0.3:
            where.append(("v", "<", int(rng.integers(0, every.num_rows))))
        compiled = compile_where(where, declare(every.schema, names))
        assert compiled is not None
        wanted = sorted(every.filter(compiled.expression)["v"].to_pylist())
        assert sorted(table.scan(["v"], where=where).to_table()["v"].to_pylist()) == wanted, where
        ends = rng.integers(0, every.num_rows, 2).tolist()
        lower, upper = sorted(tuple(every[n][i].as_py() for n in names) for i in ends)
        both = table.scan(["v"], where=where, key_range=(lower[: rng.integers(1, len(names) + 1)], upper))
        keys = list(zip(*(every[n].to_pylist() for n in names), every["v"].to_pylist(), strict=True))
        cut = plan_of(both).lower
        inside = {k[-1] for k in keys if k[:-1] < upper}
        inside &= {k[-1] for k in keys if cut is None or schema_of(table).key_codec.encode(k[:-1]) >= cut}
        assert sorted(both.to_table()["v"].to_pylist()) == sorted(set(wanted) & inside)


def test_keys_are_found_without_reading_other_pages(make: Make, path: Path) -> None:
    table = make(rows_of_hosts(40, 3000).schema, ("host", "ts"), ingest_threshold_rows=1000)
    table.insert(rows_of_hosts(40, 3000))
    table.close()
    fs, reader = counting(path, {"page_cache_bytes": 64 << 20})
    with reader:
        reader.scan(["w"], where=[("host", "=", "host 000"), ("ts", "<", 100)]).to_table()  # indexes
        before = reads(fs)
        reader.scan(["w"], where=[("host", "=", "host 020"), ("ts", "<", 100)]).to_table()
        assert reads(fs) - before == 3, "host, ts and w, one page each"
        before = reads(fs)
        reader.scan(["w"], where=[("host", "=", "host 020"), ("ts", "<", 200)]).to_table()
        assert reads(fs) == before


# ---- rowsets


def test_statistics_of_columns_prune_rowsets(make: Make, path: Path) -> None:
    table = make(
        pa.schema([("k", pa.int64()), ("v", pa.int64()), ("f", pa.float64()), ("s", pa.string())]),
        ingest_threshold_rows=10,
    )
    for part in range(4):  # all with the same bounds of keys
        v = np.arange(500) + 1000 * part
        names = [f"{'abcd'[part]}{i}" for i in range(500)]
        s = names if part else [None] * 500
        table.insert({"k": np.arange(part, 2000, 4), "v": v, "f": v / 2, "s": s})

    def read(where: Any, **more: Any) -> int:
        e = table.scan(["k"], where=where, **more).explain()
        return e.rowsets - e.rowsets_pruned

    assert read([("v", "=", 1250)]) == 1
    assert read([("v", "in", [3, 3003])]) == 2
    assert read([("f", ">", 1000.0)]) == 2
    assert read(pc.starts_with(F("s"), "b")) == 1
    assert read([("s", "<", "b")]) == 0, "NULL satisfies no comparison"
    assert read(F("s").is_null()) == 4
    assert read([("v", ">", 10_000)]) == 0
    before = table.snapshot()
    table.update({"k": [1], "v": [10_001]})
    for _ in range(2):
        assert read([("v", ">", 10_000)]) == 1, "a change that is seen keeps its rowset"
        assert read([("v", ">", 10_000)], at=before) == 0
        assert table.scan(["k"], where=[("v", ">", 10_000)]).to_pylist() == [{"k": 1}]
        assert read([("f", ">", 10_000.0)]) == 0, "another column was changed"
        table.flush()
    assert read([("v", ">", 10_000)], at=before) == 0


def test_files_of_pruned_rowsets_are_not_opened(make: Make, path: Path) -> None:
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64())]), ingest_threshold_rows=10)
    for part in range(4):
        table.insert({"k": np.arange(part, 2000, 4), "v": np.arange(500) + 1000 * part})
    table.close()
    with kc.open_table(path) as reader:
        assert reader.scan(["k"], where=[("v", "=", 2250)]).to_pylist() == [{"k": 1002}]
        rowsets = rowsets_of(reader)
        assert [is_opened(rowset.base) for rowset in rowsets].count(True) == 1


# ---- few rows


def test_a_scan_of_little_work_starts_no_thread(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_BYTES_FOR_THREADS", 1 << 20)
    table = make(rows_of_hosts(8, 10_000).schema, ("host", "ts"), ingest_threshold_rows=1000, scan_threads=2)
    table.insert(rows_of_hosts(8, 10_000))
    table.flush()
    pool = engine_of(table).pool
    had = len(pool._workers)
    assert table.scan(where=[("ts", "<", 1000)]).to_table().num_rows == 800
    assert table.scan(where=[("host", "=", "host 003")]).to_table().num_rows == 10_000
    assert len(pool._workers) == had
    assert table.scan(batch_rows=20_000).to_table().num_rows == 80_000
    assert len(pool._workers) == 2


def test_bounds_hold_where_keys_cannot_be_searched(make: Make) -> None:
    """A composite key with a string of many values: its encoded form is searched for the bounds."""
    schema = pa.schema([("name", pa.string()), ("n", pa.int64()), ("v", pa.int64())])
    table = make(schema, ("name", "n"), ingest_threshold_rows=100)
    count = 3 * PAGE + 5 * 16_384
    names = [f"{i * 2654435761 % 2**32:08x}" for i in range(count // 2)]
    table.insert({"name": np.repeat(names, 2), "n": np.tile([1, 2], count // 2), "v": np.arange(count)})
    assert disk_rowsets(table)[0].file.search is None
    e = table.scan(where=[("name", "=", names[77])]).explain()
    assert (e.rows_by_keys, e.pages - e.pages_pruned) == (2, 1)
    found = table.scan(where=[("name", "=", names[77]), ("n", ">", 1)]).to_pylist()
    assert found == [{"name": names[77], "n": 2, "v": 155}]
