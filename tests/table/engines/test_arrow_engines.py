"""Engines that take a table's dataset: each gives the rows, and reads no more pages than the query needs.

The table's two rowsets have 40 pages of each column (``conftest.py``)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyarrow import acero

import kudu_core as kc
from kudu_core.engines.arrow import share_files
from tests.table.engines.conftest import PAGE, ROWS, SCHEMA

F = pc.field
Query = Callable[[kc.Table], Any]
Read = Callable[[Query], tuple[Any, int]]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """For C++, each tablet is some files."""
    monkeypatch.setattr(share_files, "FILE_ROWS", 4 * PAGE)


# ---- DuckDB ----


def duck(text: str) -> Query:
    def run(table: kc.Table) -> list[Any]:
        with duckdb.connect() as db:
            return db.register("t", table.to_dataset()).sql(text).fetchall()

    return run


def test_duckdb_stops_at_its_limit(read_by: Read) -> None:
    """Arrow's scanner would read on to the end behind it."""
    found, pages = read_by(duck("select * from t limit 5"))
    assert len(found) == 5 and pages <= 3 * len(SCHEMA)
    found, pages = read_by(duck("select k from t where v >= 2000 limit 5"))
    assert len(found) == 5 and pages <= 6
    assert read_by(duck("select count(*), sum(v) from t"))[0] == [(ROWS, ROWS * (ROWS - 1))]


def test_duckdb_joins_few_keys_by_point_reads(reader: kc.Table, read_by: Read) -> None:
    """What docs/engines.md says to write: the keys out of DuckDB, the rows back in."""

    def joined(table: kc.Table) -> list[Any]:
        with duckdb.connect() as db:
            db.sql("create table wanted as select 7919 * i % 100000 as k, i from range(10) r(i)")
            # Looked up by name in the query below.
            rows = table.get_many(db.sql("select distinct k from wanted"), ["k", "v"])
            assert rows.num_rows == 10
            return db.sql("select i, v from wanted join rows using (k) where _found order by i").fetchall()

    found, pages = read_by(joined)
    assert found == [(i, 2 * (7919 * i % 100_000)) for i in range(10)] and pages <= 2 * 10


# ---- DataFusion ----


@pytest.fixture
def fusion() -> Callable[[str], Query]:
    datafusion = pytest.importorskip("datafusion", reason="datafusion is not installed: not tested with it")

    def query(text: str) -> Query:
        def run(table: kc.Table) -> list[Any]:
            context = datafusion.SessionContext()
            context.register_dataset("t", table.to_dataset())
            return [row for batch in context.sql(text).collect() for row in batch.to_pylist()]

        return run

    return query


def test_datafusion(fusion: Callable[[str], Query], read_by: Read) -> None:
    found, _ = read_by(fusion("select count(*) as n, sum(v) as v from t"))
    assert found == [{"n": ROWS, "v": ROWS * (ROWS - 1)}]
    found, pages = read_by(fusion("select v from t where k = 70000"))
    assert found == [{"v": 140_000}] and pages <= 2
    found, pages = read_by(fusion("select k from t where s = 'row 0070000' and v > 5"))
    assert found == [{"k": 70_000}] and pages <= 3
    found, pages = read_by(fusion("select k from t where k between 5 and 7 or k in (9, 12) order by k"))
    assert [row["k"] for row in found] == [5, 6, 7, 9, 12] and pages <= 2
    assert read_by(fusion("select k from t where k < -1 limit 5")) == ([], 0)
    found, pages = read_by(fusion("select * from t limit 5"))
    assert len(found) == 5 and pages <= 2 * 3 * len(SCHEMA)  # it begins with all fragments at once
    text = "select a.v from t a join t b on a.k = b.v where b.k = 8"
    assert read_by(fusion(text))[0] == [{"v": 32}]


# ---- Dask and Ray ----


def first_of(fragment: Any) -> Any:
    return fragment.to_table(columns=["k", "v"], filter=F("v") < 200).to_pandas()


def test_dask(read_by: Read) -> None:
    frames = pytest.importorskip("dask.dataframe", reason="dask is not installed: not tested with it")

    def run(scheduler: str, where: pc.Expression | None) -> Query:
        def total(table: kc.Table) -> Any:
            fragments = list(table.to_dataset().get_fragments(where))
            frame = frames.from_map(first_of, fragments, meta={"k": "int64", "v": "int64"})
            return frame.v.sum().compute(scheduler=scheduler)

        return total

    found, pages = read_by(run("threads", F("v") < 200))
    assert found == sum(range(0, 200, 2)) and pages <= 2
    assert read_by(run("processes", None)) == (found, 0)  # others have read them


@pytest.mark.filterwarnings("ignore")  # Ray's own, of itself
def test_ray(reader: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it leaves a file in the home directory
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = pytest.importorskip("ray", reason="ray is not installed: not tested with it")
    data = pytest.importorskip("ray.data")
    fragments = list(reader.to_dataset().get_fragments(F("k") < PAGE, target_rows=PAGE // 4))
    assert len(fragments) > 1
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        rows = data.from_items([{"share": pickle.dumps(fragment)} for fragment in fragments])
        assert rows.map_batches(of_shares).sum("v") == sum(range(0, 200, 2))
    finally:
        ray.shutdown()


def of_shares(batch: dict[str, Any]) -> pa.Table:
    shares = [pickle.loads(share) for share in batch["share"]]
    return pa.concat_tables([s.to_table(columns=["v"], filter=F("v") < 200) for s in shares])


# ---- what reads datasets in C++ ----


def test_acero(read_by: Read) -> None:
    def run(dataset: ds.Dataset, **options: Any) -> pa.Table:
        scan = acero.Declaration("scan", acero.ScanNodeOptions(dataset, use_threads=True, **options))
        where = acero.Declaration("filter", acero.FilterNodeOptions(F("v") == 200))
        return acero.Declaration.from_sequence([scan, where]).to_table()

    _, every = read_by(lambda t: t.scan().to_table())
    # A filter on the key leaves out files, whole: here all but one of ten.
    found, pages = read_by(lambda t: run(t.to_dataset(), filter=F("k") == 100)["k"].to_pylist())
    assert found == [100] and pages <= every / 9
    found, pages = read_by(lambda t: run(t.to_dataset(), filter=F("k") == ROWS - 1))
    assert found.num_rows == 0 and pages <= every / 9
    # Those that the dataset knows itself prune pages and columns.
    narrow = pa.schema([SCHEMA.field("v")])
    chosen = F("v") == 200
    found, pages = read_by(lambda t: run(t.to_dataset().filter(chosen).replace_schema(narrow)))
    assert found["v"].to_pylist() == [200] and pages <= 1


def test_unions(reader: kc.Table, read_by: Read) -> None:
    def union(table: kc.Table) -> ds.Dataset:
        return ds.dataset([table.to_dataset(), table.to_dataset().filter(F("w") == 5)])

    whole = reader.scan().to_table()
    wanted = pa.concat_tables([whole, whole.filter(F("w") == 5)])
    both = union(reader)
    assert both.to_table().sort_by([("k", "ascending")]) == wanted.sort_by("k")
    assert both.count_rows() == wanted.num_rows
    _, every = read_by(lambda t: t.scan().to_table())
    found, pages = read_by(lambda t: union(t).to_table(["k", "v"], filter=F("k") == 5).to_pylist())
    assert found == [{"k": 5, "v": 10}] * 2 and pages <= every / 9
    with duckdb.connect() as db:
        assert db.register("u", both).sql("select count(*) from u where k < 10").fetchall() == [(11,)]


def test_a_union_with_what_is_no_table(reader: kc.Table) -> None:
    """Columns that one of them lacks are NULL in its rows."""
    other = ds.InMemoryDataset(pa.table({"k": [-1], "new": ["x"]}))
    rows = ds.dataset([reader.to_dataset().filter(F("k") < 2), other]).to_table().sort_by("k").to_pylist()
    assert [(row["k"], row["v"], row["new"]) for row in rows] == [(-1, None, "x"), (0, 0, None), (1, 2, None)]


def test_schemas_of_datasets(reader: kc.Table) -> None:
    dataset = reader.to_dataset().filter(F("k") < 3)
    assert dataset.replace_schema(dataset.schema) is dataset
    other = pa.schema([("s", pa.large_string()), ("k", pa.int32()), ("none", pa.float64())])
    last = dataset.replace_schema(other).to_table().to_pylist()[2]
    assert last == {"s": "row 0000002", "k": 2, "none": None}
    assert dataset.children[0].to_table().num_rows == 3
    joined = ds.InMemoryDataset(pa.table({"k": [1, 2, 9]})).join(dataset, "k", join_type="inner").to_table()
    assert sorted(joined["v"].to_pylist()) == [2, 4]
    scanner = ds.Scanner.from_dataset(dataset, columns=["v"], filter=F("k") > 0)
    assert scanner.to_table()["v"].to_pylist() == [2, 4]


def test_nothing_to_read(make: Any) -> None:
    dataset = make().to_dataset()
    assert list(dataset.get_fragments()) == []
    assert ds.dataset([dataset, dataset]).to_table().num_rows == 0
    assert ds.Scanner.from_dataset(dataset).to_table() == dataset.to_table()


def test_errors_come_out_of_cpp(make: Any) -> None:
    table = make()
    table.insert({"k": [1, 2]})
    dataset = table.to_dataset()
    union = ds.dataset([dataset, dataset])
    table.close()
    with pytest.raises(kc.Closed, match="was closed"):
        union.to_table()
    with pytest.raises(kc.Closed, match="was closed"):
        dataset.get_fragments()
