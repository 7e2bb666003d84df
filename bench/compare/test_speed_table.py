"""The lines of the speed table, each beside its peers, on the same rows in the same run.

``ci/bench.sh bench/compare`` with ``KUDU_CORE_BENCH_ROWS=5000000`` measures;
``python -m bench.compare.report FILE.json`` prints the table of ``bench/README.md``.
Answers are checked after they were timed.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.compare import data
from bench.compare.engines import DuckDB, Ours, Parquet, PolarsOnParquet, RocksDB, SQLite

BATCH = 1000
BATCHES = 20 if data.ROWS < 1_000_000 else 200
ROUNDS = 1 if data.ROWS < 1_000_000 else 5
KV_ROWS = min(data.ROWS, 1_000_000)
"""SQLite and RocksDB are loaded row by row from Python: a million is enough to be cold in no cache."""

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def measure(
    benchmark: Any,
    work: str,
    engine: str,
    rows: int,
    run: Callable[[], Any],
    *,
    rounds: int = 1,
    warm: int = 0,
    setup: Callable[[], Any] | None = None,
) -> Any:
    benchmark.group = work
    benchmark.extra_info |= {"work": work, "engine": engine, "rows": rows, "table_rows": data.ROWS}
    result = benchmark.pedantic(run, setup=setup, rounds=rounds, iterations=1, warmup_rounds=warm)
    benchmark.extra_info["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def engines(folder: Path) -> Iterator[dict[str, Any]]:
    """Every engine with all rows, checkpointed; built once, by whichever work comes first."""
    built: dict[str, Any] = {}

    class Lazy(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            engine: Any
            if name == "kudu_core":
                engine = Ours(folder / "ours")
            elif name == "DuckDB":
                engine = DuckDB(folder / "duck.db")
            elif name == "SQLite":
                engine = SQLite(folder / "lite.db")
            elif name == "RocksDB":
                engine = RocksDB(folder / "rocks")
            else:
                engine = {"Parquet": Parquet, "Polars on Parquet": PolarsOnParquet}[name](
                    folder / "sorted.parquet"
                )
            rows = data.ordered() if isinstance(engine, Parquet) else data.readings()
            engine.load(rows.slice(0, KV_ROWS) if name in ("SQLite", "RocksDB") else rows)
            if hasattr(engine, "settle"):
                engine.settle()
            built[name] = self[name] = engine
            return engine

    yield Lazy()
    for engine in built.values():
        engine.close()


# ---- writes ----


@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB", "Parquet"])
def test_bulk_load(benchmark: Any, folder: Path, engine: str) -> None:
    rows = data.readings()
    made: list[Any] = []

    def fresh() -> None:
        for old in made:
            old.close()
        made[:] = [
            {
                "kudu_core": lambda: Ours(folder / "bulk"),
                "DuckDB": lambda: DuckDB(folder / "bulk.db"),
                "Parquet": lambda: Parquet(folder / "bulk.parquet"),
            }[engine]()
        ]

    measure(
        benchmark,
        "bulk load",
        engine,
        rows.num_rows,
        lambda: made[0].load(rows),
        rounds=min(3, ROUNDS),
        setup=fresh,
    )
    if engine != "Parquet":
        assert made[0].count() == rows.num_rows
    made[0].close()


def _writes(benchmark: Any, engines: Any, engine: str, work: str, batches: list[pa.Table], call: str) -> None:
    target = engines[engine]
    total = sum(b.num_rows for b in batches)
    before = target.count()
    write = getattr(target, call)

    def run() -> None:
        for batch in batches:
            write(batch)

    measure(benchmark, work, engine, total, run)
    change = {"insert": total, "upsert": 0, "update": 0, "delete": -total}[call]
    assert target.count() == before + change


@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_durable_inserts(benchmark: Any, engines: Any, engine: str) -> None:
    _writes(benchmark, engines, engine, "inserts, durable, 1,000", data.later(BATCHES, BATCH), "insert")


@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_durable_upserts_of_existing_rows(benchmark: Any, engines: Any, engine: str) -> None:
    few = BATCHES if engine == "kudu_core" else max(2, BATCHES // 10)
    _writes(
        benchmark, engines, engine, "upserts of existing, durable, 1,000", data.known(few, BATCH, 2), "upsert"
    )


@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_durable_updates_of_one_column(benchmark: Any, engines: Any, engine: str) -> None:
    few = BATCHES if engine == "kudu_core" else max(2, BATCHES // 10)
    _writes(
        benchmark, engines, engine, "one column updated, durable, 1,000", data.known(few, BATCH, 3), "update"
    )


@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_durable_deletes(benchmark: Any, engines: Any, engine: str) -> None:
    few = BATCHES if engine == "kudu_core" else max(2, BATCHES // 10)
    target = engines[engine]
    rows = data.later(few, BATCH, first=100_000)
    for batch in rows:
        target.insert(batch)
    target.settle()
    _writes(benchmark, engines, engine, "deletes, durable, 1,000", rows, "delete")


@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_rounds_of_upserts(benchmark: Any, folder: Path, engine: str) -> None:
    base = data.readings().slice(0, data.ROWS * 2 // 5)
    target: Any = Ours(folder / "rounds") if engine == "kudu_core" else DuckDB(folder / "rounds.db")
    target.load(base)
    rng = np.random.default_rng(7)
    share = max(1, base.num_rows // 20)
    picks = [base.take(pa.array(rng.choice(base.num_rows, share, replace=False))) for _ in range(20)]
    measure(
        benchmark,
        "upserts of 5% of the rows, 20 rounds",
        engine,
        20 * share,
        lambda: [target.upsert(p) for p in picks],
    )
    assert target.count() == base.num_rows
    target.close()


@pytest.mark.parametrize("durability", ["none", "sync"])
@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_random_integer_keys(benchmark: Any, folder: Path, engine: str, durability: str) -> None:
    if engine == "DuckDB" and durability == "none":
        pytest.skip("DuckDB has no write that is not synced")
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.float64())])
    made = Ours if engine == "kudu_core" else DuckDB
    target: Any = made(folder / f"random-{durability}.{engine}", durability=durability, schema=schema)
    rng = np.random.default_rng(11)
    count = max(5, min(100, data.ROWS // 20_000))
    ids = rng.permutation(count * 10_000 * 4)[: count * 10_000].astype(np.int64)
    batches = [
        pa.table({"id": part, "a": part * 3, "b": part / 4}, schema=schema) for part in np.split(ids, count)
    ]
    measure(
        benchmark,
        f"random int64 keys, 10,000 a batch, {durability}",
        engine,
        len(ids),
        lambda: [target.insert(b) for b in batches],
    )
    assert target.count() == len(ids)
    target.close()


# ---- points ----


CHANGED = ", rows changed since the load"
"""The same table after the writes above, with its delta files not compacted."""


def _points(engines: Any, clean: Any, engine: str) -> Any:
    """Loaded and checkpointed, nothing changed since, where the engine has such a table."""
    return clean[engine] if engine in clean else engines[engine]


def _known_keys(count: int, salt: int) -> list[tuple[str, int]]:
    """Keys that every engine has."""
    last = KV_ROWS // data.HOSTS * data.STEP
    return [key for key in data.keys(10 * count, salt) if key[1] < last][:count]


@pytest.mark.parametrize("changed", [False, True], ids=["clean", "changed"])
@pytest.mark.parametrize("engine", ["kudu_core", "SQLite", "RocksDB", "DuckDB"])
def test_get(benchmark: Any, engines: Any, clean: Any, engine: str, changed: bool) -> None:
    if changed and engine not in clean:
        pytest.skip("this engine's rows are not changed by the works above")
    target = engines[engine] if changed else _points(engines, clean, engine)
    keys = _known_keys(200 if engine == "DuckDB" else 2000, 99)
    work = "get" + CHANGED * changed
    found = measure(
        benchmark, work, engine, len(keys), lambda: [target.get(k) for k in keys], rounds=ROUNDS, warm=1
    )
    assert all(row is not None for row in found)


@pytest.mark.parametrize("changed", [False, True], ids=["clean", "changed"])
@pytest.mark.parametrize("engine", ["kudu_core", "RocksDB", "DuckDB"])
def test_get_many(benchmark: Any, engines: Any, clean: Any, engine: str, changed: bool) -> None:
    if changed and engine not in clean:
        pytest.skip("this engine's rows are not changed by the works above")
    target = engines[engine] if changed else _points(engines, clean, engine)
    keys = _known_keys(1000, 5)
    work = "get_many of 1,000" + CHANGED * changed
    found = measure(benchmark, work, engine, len(keys), lambda: target.get_many(keys), rounds=ROUNDS, warm=1)
    assert found == len(keys)


@pytest.mark.parametrize("engine", ["kudu_core", "RocksDB"])
def test_one_row_inserts(benchmark: Any, folder: Path, engine: str) -> None:
    target: Any = (
        Ours(folder / "one", durability="none") if engine == "kudu_core" else RocksDB(folder / "one-rocks")
    )
    rows = data.later(BATCHES, 100)[0:5]
    dicts = [row for batch in rows for row in batch.to_pylist()]
    measure(
        benchmark,
        "one row inserted from a dict, not synced",
        engine,
        len(dicts),
        lambda: [target.insert_row(r) for r in dicts],
    )
    target.close()


# ---- scans ----

SCANS: dict[str, tuple[list[str] | None, Any]] = {
    "scan of one double column": (["load"], None),
    "scan of all columns": (None, None),
    "status = x, three columns": (["load", "temp", "bytes"], [("status", "=", "warn")]),
    "1% of the time range": (
        ["host", "ts", "load", "temp", "bytes"],
        [("ts", ">=", data.time_range(0.01)[0]), ("ts", "<", data.time_range(0.01)[1])],
    ),
    "one host": (["host", "ts", "load", "temp", "bytes"], [("host", "=", "host-00100")]),
}


@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB", "Parquet", "Polars on Parquet"])
@pytest.mark.parametrize("work", SCANS)
def test_scan(benchmark: Any, folder: Path, engine: str, work: str, clean: dict[str, Any]) -> None:
    columns, where = SCANS[work]
    target = clean[engine]
    got = measure(
        benchmark, work, engine, data.ROWS, lambda: target.scan(columns, where), rounds=3 * ROUNDS, warm=3
    )
    expected = clean["Parquet"].scan(columns, where)
    assert got.num_rows == expected.num_rows
    name = (columns or ["bytes"])[-1]
    assert pc.sum(got[name]).as_py() == pytest.approx(pc.sum(expected[name]).as_py())


@pytest.fixture(scope="module")
def clean(folder: Path) -> Iterator[dict[str, Any]]:
    """Engines as they are after one bulk load, untouched by the writes above."""
    made: dict[str, Any] = {
        "kudu_core": Ours(folder / "clean"),
        "DuckDB": DuckDB(folder / "clean.db"),
        "Parquet": Parquet(folder / "clean.parquet"),
        "Polars on Parquet": PolarsOnParquet(folder / "clean.parquet"),
    }
    for name, engine in made.items():
        if name != "Polars on Parquet":
            engine.load(data.ordered() if name == "Parquet" else data.readings())
        if hasattr(engine, "settle"):
            engine.settle()
    yield made
    for engine in made.values():
        engine.close()


def test_size(benchmark: Any, folder: Path, clean: dict[str, Any]) -> None:
    sizes = {name: clean[name].size() for name in ("kudu_core", "DuckDB", "Parquet")}
    snappy = Parquet(folder / "snappy.parquet", "snappy")
    snappy.load(data.ordered())
    sizes["Parquet snappy"] = snappy.size()
    measure(benchmark, "size on disk", "all", data.ROWS, lambda: clean["kudu_core"].size())
    benchmark.extra_info["bytes"] = sizes
    assert sizes["kudu_core"] < sizes["DuckDB"]
