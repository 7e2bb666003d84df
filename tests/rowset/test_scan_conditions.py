"""Predicates on stored values select what pyarrow selects, whatever is stored and was changed since."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.where.analysis import Condition
from kudu_core.common.where.predicates import compile_where
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.rowset.scan import filescan
from tests.support import cells
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.tables import Make

PAGE = 16_384
FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
F = pc.field
TYPES = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float32", "float64", "bool", "string", "binary", "date32"),
    *("timestamp[us]", "timestamp[us,UTC]", "decimal128(10,2)", "decimal128(38,0)"),
]


def column(rng: np.random.Generator, name: str, rows: int) -> pa.Array:
    """Cells of a type: many equal, runs, extremes, NULLs; strings with and without a dictionary."""
    type_ = cells.arrow_type(name)
    pool = list(cells.ugly(type_))
    what = rng.integers(0, 4)
    picked = rng.integers(0, len(pool), rows)
    if what == 1:
        picked = np.sort(picked)
    if what == 2:
        picked = np.where(rng.random(rows) < 0.97, picked[0], picked)
    found: list[Any] = [pool[k] for k in picked.tolist()]
    if rng.random() < 0.6:
        share = rng.random()
        found = [None if r < share else c for r, c in zip(rng.random(rows).tolist(), found, strict=True)]
    return cells.to_arrow(found, type_)


def leaf(rng: np.random.Generator, name: str, type_: pa.DataType) -> pc.Expression:
    pool = cells.ugly(type_)
    field = F(name)
    one = cells.scalar(pool[int(rng.integers(0, len(pool)))], type_)
    what = int(rng.integers(0, 9))
    if what == 0:
        return field.is_null(nan_is_null=bool(rng.random() < 0.5) and pa.types.is_floating(type_))
    if what == 1:
        return field.is_valid()
    if what == 2:
        picked: list[Any] = [pool[int(k)] for k in rng.integers(0, len(pool), int(rng.integers(0, 5)))]
        if rng.random() < 0.3:
            picked.append(None)
        skip = bool(rng.random() < 0.3)
        options = pc.SetLookupOptions(cells.to_arrow(picked, type_), skip_nulls=skip)
        return pc.Expression._call("is_in", [field], options)
    if what == 3 and pa.types.is_boolean(type_):
        return field
    if what == 3 and pa.types.is_floating(type_):
        return pc.is_nan(field)
    if what in (3, 4) and (pa.types.is_string(type_) or pa.types.is_binary(type_)):
        text = "".join(rng.choice(list("aé\0b%_~"), int(rng.integers(0, 3))))
        return pc.starts_with(field, text) if what == 3 else pc.match_like(field, text + "%")
    if what == 5 and pa.types.is_floating(type_):
        one = pa.scalar(int(rng.integers(-3, 4)))
    if what == 6 and pa.types.is_integer(type_):
        one = pa.scalar(int(rng.integers(0, 100)))
    compare = [field.__eq__, field.__ne__, field.__lt__, field.__le__, field.__gt__, field.__ge__]
    return compare[int(rng.integers(0, 6))](one)


def predicate(rng: np.random.Generator, schema: pa.Schema, depth: int = 2) -> pc.Expression:
    what = rng.integers(0, 6)
    if depth and what < 2:
        left, right = predicate(rng, schema, depth - 1), predicate(rng, schema, depth - 1)
        return left & right if what else left | right
    if depth and what == 2:
        return ~predicate(rng, schema, depth - 1)
    field = schema.field(int(rng.integers(0, len(schema))))
    if depth and what == 3:  # two on one column
        one, two = leaf(rng, field.name, field.type), leaf(rng, field.name, field.type)
        return one & two if rng.random() < 0.5 else one | two
    return leaf(rng, field.name, field.type)


def same(found: pa.Table, wanted: pa.Table) -> bool:
    """Cell by cell, so that NaN is itself; in order of the key."""
    return sorted(cells.rows_of(found), key=lambda r: r[0]) == sorted(
        cells.rows_of(wanted), key=lambda r: r[0]
    )


def passing(rows: pa.Table, where: pc.Expression) -> pa.Table | None:
    """What pyarrow selects; None where it cannot say (a cast of the column fails)."""
    try:
        return rows.filter(where)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def compare(table: kc.Table, truth: pa.Table, where: pc.Expression, rng: np.random.Generator) -> int:
    wanted = passing(truth, where)
    if wanted is None:
        return 0
    names = [n for n in truth.schema.names[1:] if rng.random() < 0.3]
    found = table.scan(["k", *names], where=where).to_table()
    assert same(found, wanted.select(["k", *names])), str(where)
    assert table.count(where) == wanted.num_rows, str(where)
    return wanted.num_rows


def truth_of(table: kc.Table) -> pa.Table:
    return table.scan(order="key").to_table()


@pytest.mark.parametrize("rows", [50, PAGE + 1500])
def test_random_predicates(make: Make, path: Path, rows: int, long: bool) -> None:
    selected = 0
    for part in range(20 if long else 2):
        rng = np.random.default_rng(FIRST_SEED + rows + part)
        print(f"KUDU_CORE_SEED={FIRST_SEED}, part {part}")
        data: dict[str, Any] = {"k": np.arange(rows)}
        data |= {name: column(rng, name, rows) for name in TYPES}
        wide = ("string", "binary")
        columns = [kc.Column("k", pa.int64())] + [
            kc.Column(n, cells.arrow_type(n), encoding="plain" if n in wide and part % 2 else "auto")
            for n in TYPES
        ]
        table = make(columns, at=path.parent / f"part {part}")
        table.insert(data)
        for state in ("in memory", "flushed", "changed", "deleted", "flushed again"):
            if state.startswith("flushed"):
                table.flush()
            if state == "changed":
                few = rng.choice(rows, 20, replace=False)
                change = {"k": few} | {n: column(rng, n, 20) for n in TYPES[:6]}
                table.update(change)
            if state == "deleted":
                table.delete(rng.choice(rows, rows // 3, replace=False).tolist())
            truth = truth_of(table)
            for _ in range(25 if rows < 100 else 10):
                selected += compare(table, truth, predicate(rng, truth.schema), rng)
    assert selected


CONDITIONS = [
    (F("i") > 5, 1, False),
    ((F("i") > 5) & (F("s") == "x") & (F("i") < 9), 2, False),
    ((F("i") > 5) & (F("f") * 2 > 3), 1, True),
    ((F("i") > 5) | (F("f") > 3), 0, True),
    (~((F("f") > 5) | F("f").is_null()), 1, False),
    (pc.match_like(F("s"), "a%"), 1, False),
    (pc.match_like(F("s"), "a%b"), 0, True),
    (F("f").isin([1.0]), 0, True),
    (F("u") > 5, 0, True),
    (F("u") > pa.scalar(5, pa.uint64()), 1, False),
    (F("t") > pa.scalar(1, pa.timestamp("ns")), 0, True),
    (F("i") == 2.0, 0, True),
    (F("i") == 2**40, 0, True),
    (F("i").cast("int64") == 5, 0, True),
]


@pytest.mark.parametrize(("where", "count", "rest"), CONDITIONS, ids=lambda v: str(v)[:50])
def test_what_becomes_a_condition(where: pc.Expression, count: int, rest: bool) -> None:
    schema = declare(
        [
            Column("k", "int64"),
            Column("i", "int32"),
            Column("f", "float64"),
            Column("s", "string"),
            Column("u", "uint64"),
            Column("t", "timestamp[us]"),
        ],
        ["k"],
    )
    found = compile_where(where, schema)
    assert found is not None
    assert len(found.conditions) == count and (found.rest is not None) == rest
    assert all(isinstance(c, Condition) for c in found.conditions)


# ---- what is read


@pytest.fixture
def counted(make: Make, path: Path) -> Iterator[tuple[FaultyFileSystem, kc.Table, int]]:
    rows = 8 * PAGE
    table = make(
        pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string()), ("w", pa.int64())]),
    )
    k = np.arange(rows)
    words = np.array(["ok", "warn", "error"])[k // PAGE % 3]
    table.insert({"k": k, "v": k, "s": words, "w": (k * 7919) % rows})
    table.close()
    fs = FaultyFileSystem(PosixFileSystem())
    options = {"page_cache_bytes": 0, "scan_threads": 1}
    with kc.open_table(path, _fs=fs, options=options) as reader:
        reader.scan().to_table()
        yield fs, reader, rows


def reads(fs: FaultyFileSystem) -> int:
    return fs.counts["pread"] + fs.counts["preadv"]


def test_zone_maps_decide_without_the_predicates_column(
    counted: tuple[FaultyFileSystem, kc.Table, int],
) -> None:
    fs, reader, _ = counted

    def cost(act: Any) -> int:
        before = reads(fs)
        act()
        return reads(fs) - before

    inside = [("v", ">=", 2 * PAGE), ("v", "<", 4 * PAGE)]
    assert cost(lambda: reader.count(inside)) == 0, "every row of these pages passes"
    assert cost(lambda: reader.count([("s", "=", "warn")])) == 0, "by codes"
    assert cost(lambda: reader.count([("v", "<", 10)])) == 1
    assert cost(lambda: reader.scan(["w"], inside).to_table()) == 1, "one run of pages of w"
    assert reader.count(inside) == 2 * PAGE and reader.count([("s", "=", "warn")]) == 3 * PAGE


def test_one_condition_leaves_nothing_for_the_next(counted: tuple[FaultyFileSystem, kc.Table, int]) -> None:
    fs, reader, _ = counted
    where = (F("v") > 5) & (F("v") < 7) & (F("w") * 2 > 3) & (F("s") == "ok")
    before = reads(fs)
    assert reader.scan(["k"], where).to_table()["k"].to_pylist() == [6]
    assert reads(fs) - before == 3, "one page each of v, w and k"


def test_a_scan_reads_a_bounded_number_of_units_ahead(
    counted: tuple[FaultyFileSystem, kc.Table, int], path: Path
) -> None:
    _, _, rows = counted
    fs = FaultyFileSystem(PosixFileSystem())
    with kc.open_table(path, _fs=fs, options={"page_cache_bytes": 0, "scan_threads": 2}) as reader:
        reader.scan(["k"]).to_table()
        before = reads(fs)
        whole = len([0 for _ in reader.scan(["k"], batch_rows=1000)])
        cost = reads(fs) - before
        before = reads(fs)
        scan = iter(reader.scan(["k"], batch_rows=1000))
        next(scan)
        scan.close()  # type: ignore[attr-defined]
        assert whole >= rows // 1000 and (reads(fs) - before) * 5 < cost


def test_memory_of_a_stream_does_not_grow_with_the_table(make: Make) -> None:
    """Batches are dropped as they come: Arrow's pool holds a few of them, never the table."""
    table = make(pa.schema([("k", pa.int64()), *((f"c{i}", pa.float64()) for i in range(6))]))
    rows = 60 * 4096
    rng = np.random.default_rng(0)
    table.insert({"k": np.arange(rows)} | {f"c{i}": rng.random(rows) for i in range(6)})
    table.flush()
    before = pa.total_allocated_bytes()
    most = seen = 0
    for batch in table.scan(batch_rows=4096):
        seen += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert seen == rows and most < rows * 56 / 4


def test_wide_rows_come_in_smaller_batches(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filescan, "MOST_BYTES", 20_000)
    table = make(pa.schema([("k", pa.int64()), ("s", pa.string())]))
    rows = [{"k": k, "s": f"{k:04d}" * (k % 50)} for k in range(3000)]
    rows[77]["s"] = "x" * 50_000
    table.insert(rows)
    table.flush()
    batches = list(table.scan())
    assert len(batches) > 10 and [r for b in batches for r in b.to_pylist()] == rows
    assert all(b.num_rows == 1 or b["s"].nbytes < 40_000 for b in batches)
    where = pc.utf8_length(F("s")) > 100
    assert table.scan(where=where).to_pylist() == [r for r in rows if len(str(r["s"])) > 100]
    assert table.scan(order="key").to_pylist() == rows


# ---- dictionaries


@pytest.mark.parametrize("encoding", ["auto", "plain"])
def test_dictionaries_on_request(make: Make, encoding: str) -> None:
    columns = [
        kc.Column("k", pa.int64()),
        kc.Column("s", pa.string(), encoding=encoding),
        kc.Column("b", pa.binary()),
    ]
    table = make(columns)
    words = [None, "warn", "", "ok", "é"]
    rows = [{"k": k, "s": words[k % 5], "b": None if k % 3 else b"%d" % (k % 7)} for k in range(3000)]
    table.insert(rows[:2000])
    table.flush()
    table.insert(rows[2000:])
    table.update({"k": [5], "s": ["changed"]})
    rows[5]["s"] = "changed"
    for _ in range(2):
        for order in ("any", "key"):
            scan = table.scan(dictionary=["s", "b"], order=order)
            coded = pa.dictionary(pa.int32(), pa.string())
            assert scan.schema.types == [pa.int64(), coded, pa.dictionary(pa.int32(), pa.binary())]
            found = scan.to_table()
            assert found.schema == scan.schema
            assert sorted(found.to_pylist(), key=lambda r: r["k"]) == rows
            assert [r for b in scan for r in b.to_pylist()] == found.to_pylist()
            found.validate(full=True)
        where = F("s") == "warn"
        some = table.scan(["s"], where, dictionary=["s"]).to_table()
        assert some["s"].to_pylist() == [r["s"] for r in rows if r["s"] == "warn"]
        assert pa.table(table.scan(["s"], dictionary=["s"])).unify_dictionaries()["s"].num_chunks >= 1
        table.flush()


def test_what_is_no_dictionary(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("s", pa.string())]))
    for names, message in ((["k"], "not a string"), (["x"], "'x'"), ("s", "list of names")):
        with pytest.raises(kc.InvalidArgument, match=message):
            table.scan(dictionary=names)
    with pytest.raises(kc.InvalidArgument, match="not a flat column of the scan"):
        table.scan(["k"], dictionary=["s"])
