"""``table.to_dataset()``: what DuckDB, Polars and pyarrow read through it is what they read of the rows."""

from __future__ import annotations

import datetime as dt
import gc
import math
import pickle
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import kudu_core as kc
from kudu_core.engines.arrow.dataset import TableDataset
from tests.support.inside import engine_of, is_opened, pinned_schemas_of, plan_of, rowsets_of, schema_of
from tests.support.tables import Make

UTC = dt.UTC
ROWS = 2_000
START = dt.datetime(2026, 1, 1)
TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "i8": (pa.int8(), lambda i: i % 256 - 128),
    "i16": (pa.int16(), lambda i: i * 16 - 32_000),
    "i32": (pa.int32(), lambda i: (-1) ** i * i),
    "i64": (pa.int64(), lambda i: (-1) ** i * (i << 40)),
    "u8": (pa.uint8(), lambda i: i % 256),
    "u16": (pa.uint16(), lambda i: i * 32),
    "u32": (pa.uint32(), lambda i: i << 20),
    "u64": (pa.uint64(), lambda i: (1 << 64) - 1 - i),
    "f32": (pa.float32(), lambda i: i / 4 if i % 11 else math.inf),
    "f64": (pa.float64(), lambda i: i / 10 - 50 if i % 13 else -0.0),
    "flag": (pa.bool_(), lambda i: i % 3 == 0),
    "s": (pa.string(), lambda i: f"word {i % 40}" if i % 9 else ""),
    "raw": (pa.binary(), lambda i: bytes([i % 251, 0, 255])),
    "day": (pa.date32(), lambda i: dt.date(2026, 1, 1) + dt.timedelta(days=i)),
    "at": (pa.timestamp("us", "UTC"), lambda i: START.replace(tzinfo=UTC) + dt.timedelta(seconds=i)),
    "local": (pa.timestamp("us"), lambda i: START + dt.timedelta(microseconds=i)),
    "price": (pa.decimal128(12, 2), lambda i: Decimal(i * 7) / 100),
}
SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), False), *(pa.field(name, type_) for name, (type_, _) in TYPES.items())]
)


def cells(name: str) -> list[Any]:
    make = TYPES[name][1]
    return [None if i % 7 == 3 else make(i) for i in range(ROWS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of every type: rows on disk, changed rows, rows in memory."""
    path = tmp_path_factory.mktemp("dataset") / "t"
    data = pa.table({"k": range(ROWS), **{name: cells(name) for name in TYPES}}, schema=SCHEMA)
    options = {"maintenance": "manual"}
    hashed = kc.HashPartition("k", 2)
    with kc.create_table(path, SCHEMA, "k", partition_by=hashed, options=options) as table:
        wrong = data.slice(0, 1_500).set_column(3, SCHEMA.field("i32"), pa.array([5] * 1_500, pa.int32()))
        table.insert(wrong)
        table.insert({"k": [-1, -2]})
        table.flush()
        table.update(data.slice(0, 1_500).select(["k", "i32"]))
        table.delete([-1])
        table.flush()
        table.insert(data.slice(1_500))
        table.delete([-2])
    return path


@pytest.fixture
def reader(folder: Path) -> Any:
    with kc.open_table(folder) as table:
        yield table


FILTERS = [
    "k = 77", "k >= 1990", "k in (3, 4, 5000)", "k between 10 and 20", "k > 5 and k < 9", "k <> 4",
    "i8 < -100", "i16 = -32000", "i32 in (1, -1, 2)", "i64 > 1000000000000", "u8 = 255", "u16 >= 60000",
    "u32 < 1048576", "u64 = 18446744073709551615", "u64 > 18446744073709551000",
    "f32 > 100 and f32 < 101", "f64 = 0", "f64 <= -49.5", "f64 in (-0.0, 1.5)", "flag", "not flag",
    "flag is null", "s = 'word 7'", "s = ''", "s in ('word 7', 'word 8', 'nobody')", "s like 'word 1%'",
    "s > 'word 38'", "s is null", "s is not null and k < 30", "raw = '\\x05\\x00\\xFF'::blob",
    "day = date '2026-02-01'", "day >= date '2031-01-01'", "\"at\" < timestamptz '2026-01-01 00:00:20+00'",
    "local = timestamp '2026-01-01 00:00:00.000005'", "price = 0.49", "price between 1 and 2",
    "price in (0.07, 0.14)", "s = 'word 7' or k = 2", "(k < 5 or i8 = 3) and not flag", "k + 1 = 5",
    "i32 is null and s = 'word 3'", "length(s) = 6 and k < 100", "k = 5 and k = 6", "u8 = 300",
]  # fmt: skip


@pytest.mark.parametrize("where", FILTERS)
def test_duckdb_sees_the_rows(reader: kc.Table, where: str) -> None:
    """The same answer as over the rows in DuckDB's own storage, whatever is pushed down.

    NaN is not among them: it is DuckDB's largest number, and what it pushes down does not say so."""
    dataset = reader.to_dataset()
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        db.register("d", dataset)
        db.register("whole", reader.scan().to_table())
        db.execute("create table own as select * from whole")
        for what in ("*", "k", "count(*), sum(k)", "s, price", "max(i64)"):
            found, wanted = (
                pa.table(db.sql(f"select {what} from {name} where {where}")).to_pylist()
                for name in ("d", "own")
            )
            assert sorted(map(repr, found)) == sorted(map(repr, wanted)), what


P = pl.col
POLARS = {
    "equal": P("k") == 77,
    "range": (P("k") >= 10) & (P("k") < 20),
    "in": P("s").is_in(["word 7", "word 8"]),
    "null": P("s").is_null(),
    "not": ~P("flag"),
    "or": (P("i8") == 3) | (P("s") == "word 5"),
    "prefix": P("s").str.starts_with("word 1") & (P("k") > 1_000),
    "day": P("day") == dt.date(2026, 2, 1),
    "at": P("at") < START.replace(tzinfo=UTC) + dt.timedelta(seconds=20),
    "local": P("local") == START + dt.timedelta(microseconds=5),
    "float": P("f64") <= -49.5,
    "unsigned": P("u64") > (1 << 64) - 10,
    "computed": P("k") + 1 == 5,
}


@pytest.mark.parametrize("name", POLARS)
def test_polars_sees_the_rows(reader: kc.Table, name: str) -> None:
    lazy = pl.scan_pyarrow_dataset(reader.to_dataset())
    own = pl.from_arrow(reader.scan().to_table())
    assert isinstance(own, pl.DataFrame)
    for names in (["k"], ["s", "k", "price"], list(SCHEMA.names)):
        found = lazy.filter(POLARS[name]).select(names).collect().sort("k")
        wanted = own.filter(POLARS[name]).select(names).sort("k")
        assert found.equals(wanted)
    assert lazy.select(pl.len()).collect().item() == ROWS
    assert lazy.head(5).collect().shape == (5, len(SCHEMA))


F = pc.field


@pytest.mark.parametrize(
    "where",
    [
        F("k") < 10,
        F("s").isin(["word 7", None]),
        F("f64") > 1,
        ~(F("f32") < 100),
        F("i8").is_null(),
        pc.if_else(F("k").is_valid(), F("k").isin([4, 5]), pa.scalar(None, pa.bool_())),
        ~pc.if_else(F("i8").is_valid(), F("i8").isin([4, 5]), pa.scalar(None, pa.bool_())),
        pc.if_else(F("s").is_valid(), F("k").isin([4, 5]), pa.scalar(None, pa.bool_())),
        pc.if_else(F("i8") > 3, F("i8").isin([4, 5]), F("flag")),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "columns", [None, ["k"], ["s", "k"], [], ["k", "k"], {"double": F("k") * 2, "s": F("s")}], ids=str
)
def test_pyarrow_sees_the_rows(reader: kc.Table, where: pc.Expression, columns: Any) -> None:
    dataset, own = reader.to_dataset(), ds.InMemoryDataset(reader.scan().to_table())

    def rows(table: pa.Table) -> list[str]:
        return sorted(map(repr, table.to_pylist())) if table.num_columns else [str(table.num_rows)]

    wanted = own.to_table(columns=columns, filter=where)
    found = [
        dataset.to_table(columns=columns, filter=where),
        dataset.scanner(columns=columns, filter=where, batch_size=100).to_table(),
        dataset.filter(where).to_table(columns),
    ]
    for table in found:
        assert table.schema.equals(wanted.schema) and rows(table) == rows(wanted)
    pieces = list(dataset.to_batches(columns=columns, filter=where, batch_size=7))
    assert sum(piece.num_rows for piece in pieces) == wanted.num_rows
    assert all(piece.num_rows <= 7 for piece in pieces)
    assert dataset.count_rows(filter=where) == wanted.num_rows
    assert dataset.head(3, columns=columns, filter=where).num_rows == min(3, wanted.num_rows)


def test_what_is_pushed_down_is_not_read(tmp_path: Path) -> None:
    """A filter of an engine leaves rowsets unopened, and columns that nobody asks for are no scan's."""
    options = {"maintenance": "manual"}
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
    with kc.create_table(tmp_path / "t", schema, "k", options=options) as table:
        for base in range(4):
            keys = list(range(base * 100, base * 100 + 100))
            table.insert({"k": keys, "v": [k * 2 for k in keys], "s": [f"s{k:03}" for k in keys]})
            table.flush()

    def opened(query: Callable[[ds.Dataset], Any]) -> tuple[Any, int]:
        with kc.open_table(tmp_path / "t") as reader:
            answer = query(reader.to_dataset())
            rowsets = rowsets_of(reader)
            return answer, sum(is_opened(rowset.base) for rowset in rowsets)

    def sql(text: str) -> Callable[[ds.Dataset], Any]:
        def run(d: ds.Dataset) -> Any:
            with duckdb.connect() as db:
                return db.register("d", d).sql(text).fetchall()

        return run

    assert opened(sql("select v from d where k = 150")) == ([(300,)], 1)
    assert opened(sql("select k from d where k in (20, 30) order by k")) == ([(20,), (30,)], 1)
    assert opened(sql("select k from d where v between 100 and 104 order by k")) == ([(50,), (51,), (52,)], 1)
    assert opened(sql("select k from d where s = 's399'")) == ([(399,)], 1)
    assert opened(sql("select count(*) from d where k >= 1000")) == ([(0,)], 0)
    assert opened(sql("select count(*) from d")) == ([(400,)], 4)
    found, files = opened(lambda d: pl.scan_pyarrow_dataset(d).filter(P("k") == 150).collect())
    assert (found.rows(), files) == ([(150, 300, "s150")], 1)
    assert opened(lambda d: d.count_rows(filter=F("k") < 5)) == (5, 1)
    assert opened(lambda d: d.filter(F("k") < 5).count_rows(filter=F("v") > 4)) == (2, 1)


@pytest.mark.parametrize("in_form", [F("k").isin([3, 4]), None], ids=["is_in", "as DuckDB writes it"])
def test_lists_of_values_are_conditions(reader: kc.Table, in_form: pc.Expression | None) -> None:
    """Evaluated on what is stored, without pyarrow."""
    if in_form is None:
        in_form = pc.if_else(F("k").is_valid(), F("k").isin([3, 4]), pa.scalar(None, pa.bool_()))
    compiled = plan_of(reader.scan(where=in_form)).filter
    assert compiled is not None and len(compiled.conditions) == 1 and compiled.rest is None


def test_a_dataset_is_one_snapshot(make: Make) -> None:
    table = make(history_retention_s=0)
    table.insert({"k": list(range(100)), "a": [1] * 100})
    before = table.to_dataset()
    pinned = table.snapshot()
    table.update({"k": list(range(100)), "a": [2] * 100})
    table.flush()
    table.delete([0])
    table.flush()
    table.compact(full=True)
    table.gc()
    for dataset in (before, table.to_dataset(at=pinned), table.to_dataset(at=before.timestamp)):
        assert dataset.timestamp == pinned.timestamp
        assert dataset.to_table(columns=["a"])["a"].to_pylist() == [1] * 100
    assert table.to_dataset().count_rows() == 99
    held, timestamp = engine_of(table).pins.oldest, before.timestamp
    assert held == timestamp
    half = before.filter(F("k") < 50)
    del before, dataset
    pinned.close()
    gc.collect()
    assert engine_of(table).pins.oldest == timestamp, "a filtered dataset keeps its snapshot too"
    assert half.count_rows() == 50
    del half
    gc.collect()
    assert engine_of(table).pins.oldest is None
    table.gc()
    with pytest.raises(kc.SnapshotTooOld, match="readable"):
        table.to_dataset(at=timestamp)
    with pytest.raises(kc.SnapshotInFuture, match="readable"):
        table.to_dataset(at=2**63)


def test_a_dataset_keeps_its_columns(make: Make) -> None:
    """Also when one is dropped and everything rewritten, by one dataset or by one that it was made of."""
    table = make(durability="sync", history_retention_s=0)
    table.insert({"k": [1, 2, 3], "a": [10, 20, 30], "s": ["x", "y", "z"]})
    table.flush()
    before = table.to_dataset().filter(F("a") >= 20)
    table.alter(drop=["a"], rename={"s": "text"}, add=[kc.Column("a", pa.string(), default="new")])
    table.update({"k": [1, 2, 3], "text": ["p", "q", "r"]})
    table.flush()
    table.compact(full=True)
    assert before.to_table(columns=["k", "a", "s"]).to_pylist() == [
        {"k": 2, "a": 20, "s": "y"},
        {"k": 3, "a": 30, "s": "z"},
    ]
    after = table.to_dataset()
    assert after.schema.names == ["k", "text", "must", "a"] and before.schema.names == ["k", "a", "s", "must"]
    assert after.to_table(columns=["a", "text"]).to_pydict() == {"a": ["new"] * 3, "text": ["p", "q", "r"]}
    del before
    gc.collect()
    assert all(p.schema is schema_of(table) for p in pinned_schemas_of(table))


def test_after_the_end_of_the_table(make: Make) -> None:
    """Batches stay, a scan that has begun ends well, a new one is refused."""
    table = make(file_grace_s=0, scan_threads=2)
    table.insert({"k": list(range(3_000)), "a": list(range(3_000)), "s": [f"s{i}" for i in range(3_000)]})
    table.flush()
    dataset = table.to_dataset()
    whole = dataset.to_table()
    by_batch, scanner = dataset.to_batches(batch_size=100), dataset.scanner(batch_size=100).to_reader()
    got = [next(by_batch), next(by_batch)]
    first = scanner.read_next_batch()
    table.update({"k": list(range(3_000)), "a": [0] * 3_000})
    table.flush()
    table.compact(full=True)
    table.gc()
    with duckdb.connect() as db:
        db.register("d", dataset)
        assert db.sql("select sum(a) from d").fetchall() == [(sum(range(3_000)),)]
        table.close()
        shutil.rmtree(table.path)
        with pytest.raises(Exception, match="was closed"):
            db.sql("select sum(a) from d").fetchall()
    got += by_batch
    assert pa.Table.from_batches(got).sort_by("k").equals(whole.sort_by("k"))
    rest = pa.Table.from_batches([first, *scanner])
    assert rest.sort_by("k").equals(whole.sort_by("k"))
    uses: list[Callable[[], Any]] = [
        dataset.to_table,
        dataset.count_rows,
        lambda: dataset.head(1),
        lambda: dataset.scanner().to_table(),
        lambda: list(dataset.to_batches()),
        table.to_dataset,
    ]
    for use in uses:
        with pytest.raises(kc.Closed, match="was closed"):
            use()
    assert dataset.schema == whole.schema


def test_what_a_table_is_not(reader: kc.Table, tmp_path: Path) -> None:
    """Whatever would reach the C++ object behind a dataset gets an error: neither a crash nor other rows."""
    dataset = reader.to_dataset()
    assert isinstance(dataset, ds.Dataset) and isinstance(dataset, TableDataset)
    unasked = ds.UnionDataset(dataset.schema, [dataset])
    with pytest.raises(kc.NotSupported, match=r"scanner\(\)"):
        unasked.to_table()
    with pytest.raises(TypeError, match="does not travel"):
        pickle.dumps(dataset)
    bad: list[Callable[[], Any]] = [
        lambda: dataset.to_table(columns="k"),
        lambda: dataset.to_table(columns=["nope"]),
        lambda: dataset.to_table(columns={"x": F("nope") + 1}),
        lambda: dataset.to_table(filter=F("nope") == 1),
        lambda: dataset.filter(F("nope") == 1),
        lambda: dataset.filter("k = 1"),
        lambda: dataset.to_table(batch_size=0),
        lambda: dataset.to_table(threads=3),
        lambda: dataset.to_table(fragment_scan_options=ds.ParquetFragmentScanOptions()),
    ]
    for use in bad:
        with pytest.raises(kc.InvalidArgument):
            use()


def test_what_pyarrow_does_with_a_dataset(reader: kc.Table, tmp_path: Path) -> None:
    dataset = reader.to_dataset()
    whole = reader.scan().to_table().sort_by("k")
    ds.write_dataset(dataset, tmp_path / "out", format="parquet")
    assert ds.dataset(tmp_path / "out").to_table().sort_by("k").cast(whole.schema).equals(whole)
    assert dataset.sort_by([("k", "descending")]).head(2)["k"].to_pylist() == [ROWS - 1, ROWS - 2]
    assert dataset.take([0, 5], columns=["k"]).num_rows == 2
    joined = dataset.join(dataset.filter(F("k") < 10), "k", join_type="inner", right_suffix=" too")
    assert joined.count_rows() == 10
