"""Tables of 500 and 2,000 columns, and lists of values: what a call of few columns costs in a wide table.

    ci/bench.sh bench/shapes/test_wide.py

Beside them DuckDB with the same rows, in the same run and with as many threads.  As a test it runs smaller,
for the answers, and without DuckDB where that is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc

THREADS = 2
OPTIONS = {"durability": "none", "maintenance": "manual", "scan_threads": THREADS}
CHANGED = 5
"""Calls that change one column of half of the rows."""


@dataclass
class Size:
    columns: tuple[int, ...]
    rows: int
    listed_rows: int


def timed(config: pytest.Config) -> bool:
    return bool(config.getoption("benchmark_enable"))


@pytest.fixture(scope="module")
def size(request: pytest.FixtureRequest) -> Size:
    return Size((500, 2000), 8_000, 1_000_000) if timed(request.config) else Size((8, 40), 200, 2_000)


def connected(rows: pa.Table) -> Any:
    """DuckDB with the rows as its table ``t``."""
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute(f"SET threads = {THREADS}")
    connection.register("given", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    connection.unregister("given")
    return connection


# ---- many columns


@dataclass
class Wide:
    path: Path
    rows: pa.Table
    table: kc.Table
    since: int
    until: int
    """Around the calls that change one column; what is scanned lies before them."""


@pytest.fixture(scope="module", params=[0, 1], ids=["fewer", "more"])
def wide(
    request: pytest.FixtureRequest, size: Size, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Wide]:
    count, rng = size.columns[request.param], np.random.default_rng(0)
    values = {f"v{i}": rng.integers(0, 1000, size.rows) for i in range(count - 1)}
    rows = pa.table({"k": np.arange(size.rows) * 2, **values})
    path = tmp_path_factory.mktemp("wide") / "t"
    with kc.create_table(path, rows.schema, "k", options=OPTIONS) as table:
        table.insert(rows)
        table.flush()
        since = until = table.timestamp
        for call in range(CHANGED):
            keys = rng.permutation(size.rows)[: size.rows // 2] * 2
            until = table.update({"k": keys, "v1": np.full(len(keys), call)}).timestamp
        table.flush()
        yield Wide(path, rows, table, since, until)


def projected(wide: Wide, part: str) -> list[str]:
    names = [name for name in wide.rows.column_names if name != "v1"]
    return {"one": ["v3"], "a tenth": list(dict.fromkeys(["v3", *names[::10]])), "all": names}[part]


@pytest.mark.benchmark(group="scan of some columns")
@pytest.mark.parametrize("part", ["one", "a tenth", "all"])
@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_scan(benchmark: Any, wide: Wide, part: str, engine: str) -> None:
    names = projected(wide, part)
    if engine == "DuckDB":
        query = f"SELECT {', '.join(names)} FROM t"
        connection = connected(wide.rows)
        found = benchmark(lambda: connection.sql(query).to_arrow_table())
    else:
        found = benchmark(lambda: wide.table.scan(names, at=wide.since).to_table())
    assert found.select(names).sort_by(names[0]).num_rows == len(wide.rows)
    assert pc.sum(found["v3"]).as_py() == pc.sum(wide.rows["v3"]).as_py()


@pytest.mark.benchmark(group="open for reading, and the first row")
def test_open(benchmark: Any, wide: Wide) -> None:
    def first() -> Any:
        with kc.open_table(wide.path, options=OPTIONS) as reader:
            return next(iter(reader.scan(["v3"], limit=1)))

    assert benchmark(first).num_rows == 1


@pytest.mark.benchmark(group="changes of one column")
@pytest.mark.parametrize("net", [False, True], ids=["all", "net"])
def test_changes(benchmark: Any, wide: Wide, net: bool) -> None:
    found = benchmark(lambda: wide.table.changes(wide.since, wide.until, net=net).to_table())
    benchmark.extra_info["rows"] = len(found)
    most = CHANGED * (len(wide.rows) // 2)
    assert len(found) == most if not net else 0 < len(found) <= len(wide.rows)


@pytest.mark.benchmark(group="update where, 1% of the rows, one column")
@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_update_where(benchmark: Any, wide: Wide, engine: str) -> None:
    least = len(wide.rows) * 2 * 99 // 100
    rows = pc.sum(pc.greater_equal(wide.rows["k"], least)).as_py()
    if engine == "DuckDB":
        connection = connected(wide.rows)
        query = f"UPDATE t SET v2 = v2 + 1 WHERE k >= {least}"
        assert benchmark(lambda: connection.execute(query).fetchall()) == [(rows,)]
        return
    where, new = pc.field("k") >= least, {"v2": pc.field("v2") + 1}
    assert benchmark(lambda: wide.table.update(where=where, set=new)).updated == rows


# ---- lists of values


@pytest.fixture(scope="module")
def listed(size: Size, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[kc.Table, pa.Table]]:
    rng, count = np.random.default_rng(1), size.listed_rows
    rows = pa.table(
        {
            "k": np.arange(count) * 3,
            "number": rng.integers(0, 1 << 40, count),
            "word": np.char.add("word", rng.integers(0, 3000, count).astype(str)),
        }
    )
    path = tmp_path_factory.mktemp("listed") / "t"
    with kc.create_table(path, rows.schema, "k", options=OPTIONS) as table:
        table.insert(rows)
        table.flush()
        yield table, rows


@pytest.mark.benchmark(group="IN a list")
@pytest.mark.parametrize("count", [1, 100, 10_000])
@pytest.mark.parametrize("name", ["k", "number", "word"])
@pytest.mark.parametrize("engine", ["kudu_core", "DuckDB"])
def test_in(benchmark: Any, listed: tuple[kc.Table, pa.Table], name: str, count: int, engine: str) -> None:
    table, rows = listed
    at = np.random.default_rng(2).integers(0, len(rows), min(count, len(rows)))
    values = rows[name].take(pa.array(at)).combine_chunks()
    act: Callable[[], Any]
    if engine == "DuckDB":
        connection = connected(rows)
        query = f"SELECT k FROM t WHERE {name} IN ({', '.join(map(repr, values.to_pylist()))})"
        act = lambda: connection.sql(query).to_arrow_table()  # noqa: E731
    else:
        act = lambda: table.scan(["k"], where=pc.field(name).isin(values)).to_table()  # noqa: E731
    found = benchmark(act)
    assert len(found) == pc.sum(pc.is_in(rows[name], values)).as_py()
