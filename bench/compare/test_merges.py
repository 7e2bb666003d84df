"""A merge of 1% of a table's rows beside DuckDB's and Delta Lake's, and writes of one row that look first.

``KUDU_CORE_BENCH_ROWS`` rows as in ``bench/compare``.  One source row in a hundred is new; of the others nine
in ten meet the condition and change two of three values.  All engines keep what they write in files, and wait
for the disk as they do by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from bench.compare import data

ROUNDS = 5
GIVEN = max(10, data.ROWS // 100)
SETS = {"n": kc.new("n") + kc.old("n"), "a": kc.new("a")}
CONDITION = kc.new("n") >= 100

Merge = Callable[[pa.Table], None]
Answer = Callable[[], list[tuple[int, int]]]


def rows() -> pa.Table:
    random = np.random.default_rng(1)
    number = np.arange(data.ROWS)
    return pa.table(
        {
            "k": number,
            "n": random.integers(0, 1000, data.ROWS),
            "a": random.random(data.ROWS),
            "s": pc.binary_join_element_wise("s", pc.cast(pa.array(number % 1000), pa.string()), "-"),
        }
    )


def given(seed: int) -> pa.Table:
    random = np.random.default_rng(100 + seed)
    keys = random.choice(data.ROWS + data.ROWS // 100, GIVEN, replace=False)
    values = {"n": random.integers(0, 1000, GIVEN), "a": random.random(GIVEN)}
    return pa.table({"k": keys, **values, "s": pa.array(["new"] * GIVEN)})


def in_kudu_core(path: Path) -> tuple[Merge, Answer]:
    table = kc.create_table(path, rows().schema, "k")
    table.insert(rows())
    table.flush()

    def merge(source: pa.Table) -> None:
        table.merge(source).when_matched(SETS, where=CONDITION).when_not_matched_insert().execute()

    def answer() -> list[tuple[int, int]]:
        found = table.scan(["n"]).to_table()["n"]
        return [(len(found), pc.sum(found).as_py())]

    return merge, answer


def in_duckdb(path: Path) -> tuple[Merge, Answer]:
    connection = duckdb.connect(str(path))
    connection.execute("SET threads = 2")
    connection.register("base", rows())
    connection.execute("CREATE TABLE t AS SELECT * FROM base")
    connection.execute("CHECKPOINT")

    def merge(source: pa.Table) -> None:
        connection.register("source", source)
        connection.execute(
            "MERGE INTO t USING source ON t.k = source.k "
            "WHEN MATCHED AND source.n >= 100 THEN UPDATE SET n = t.n + source.n, a = source.a "
            "WHEN NOT MATCHED THEN INSERT (k, n, a, s) VALUES (source.k, source.n, source.a, source.s)"
        )

    return merge, lambda: connection.execute("SELECT count(*), sum(n)::BIGINT FROM t").fetchall()


def in_delta_lake(path: Path) -> tuple[Merge, Answer]:
    delta = pytest.importorskip("deltalake")
    delta.write_deltalake(str(path), rows())

    def merge(source: pa.Table) -> None:
        table = delta.DeltaTable(str(path))
        merger = table.merge(source, "t.k = s.k", source_alias="s", target_alias="t")
        merger = merger.when_matched_update({"n": "t.n + s.n", "a": "s.a"}, predicate="s.n >= 100")
        merger.when_not_matched_insert_all().execute()

    def answer() -> list[tuple[int, int]]:
        found = delta.DeltaTable(str(path)).to_pyarrow_table(columns=["n"])["n"]
        return [(len(found), pc.sum(found).as_py())]

    return merge, answer


ENGINES = {"kudu_core": in_kudu_core, "duckdb": in_duckdb, "deltalake": in_delta_lake}


@pytest.mark.parametrize("engine", ENGINES)
def test_merge_of_one_percent(benchmark: Any, tmp_path: Path, engine: str) -> None:
    merge, answer = ENGINES[engine](tmp_path / engine)
    benchmark.group = "merge of 1%"
    sources = iter([given(seed) for seed in range(ROUNDS + 1)])
    benchmark.pedantic(
        merge, setup=lambda: ((next(sources),), {}), rounds=ROUNDS if benchmark.enabled else 1, iterations=1
    )
    expected = dict(zip(rows()["k"].to_pylist(), rows()["n"].to_pylist(), strict=True))
    for seed in range(ROUNDS if benchmark.enabled else 1):
        source = given(seed)
        for key, number in zip(source["k"].to_pylist(), source["n"].to_pylist(), strict=True):
            if key not in expected:
                expected[key] = number
            elif number >= 100:
                expected[key] += number
    assert answer() == [(len(expected), sum(expected.values()))]


def counted(table: kc.Table, how: str) -> Callable[[], Any]:
    """A call that adds one to a number."""

    def batch() -> None:
        with table.batch() as b:
            b.upsert([{"k": 1, "n": b.get(1)["n"] + 1}])

    def by_hand() -> None:
        table.upsert([{"k": 1, "n": table.get(1)["n"] + 1}])

    return {
        "set": lambda: table.update({"k": [1]}, set={"n": kc.old("n") + 1}),
        "modify": lambda: table.modify(1, lambda row: {"n": row["n"] + 1}),
        "batch": batch,
        "get, then upsert": by_hand,
    }[how]


@pytest.mark.parametrize("how", ["set", "modify", "batch", "get, then upsert"])
def test_add_one(benchmark: Any, tmp_path: Path, how: str) -> None:
    """The last of them loses increments where others write too."""
    table = kc.create_table(tmp_path / "t", rows().schema, "k", options={"durability": "none"})
    with table:
        table.insert([{"k": k, "n": 0} for k in range(100)])
        benchmark.group = "add one to a number"
        run, calls = counted(table, how), 0

        def once() -> None:
            nonlocal calls
            calls += 1
            run()

        benchmark(once)
        assert table.get(1, ["n"]) == {"n": calls}
