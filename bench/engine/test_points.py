"""One row by its key, and one-row writes, in every layout of a table, beside SQLite and RocksDB.

``KUDU_CORE_BENCH_ROWS`` rows as in ``bench/compare``.  "untouched": the rowset has delta files, the row no
entry in them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from bench.compare import data

OPTIONS = {"durability": "none", "maintenance": "manual"}
PEER_ROWS = min(data.ROWS, 200_000)
LAYOUTS = ("clean", "hash", "overlapping", "memory", "untouched", "touched", "before the changes")
Key = tuple[str, int]


def created(path: Path, layout: str) -> kc.Table:
    by = [kc.HashPartition("host", 4)] if layout == "hash" else []
    options: dict[str, Any] = dict(OPTIONS)
    if layout == "memory":
        options |= {"ingest_threshold_rows": 1 << 30, "ingest_threshold_bytes": 1 << 30}
    return kc.create_table(path, data.readings().schema, data.KEY, partition_by=by, options=options)


def filled(path: Path, layout: str) -> tuple[kc.Table, list[Key], int]:
    """A table, keys to read and the time to read them at."""
    table, rows = created(path, layout), data.readings()
    if layout == "memory":
        rows = rows.slice(0, PEER_ROWS)
        table.insert(rows)
        return table, keys_of(rows.slice(0, 2000)), table.timestamp
    pieces = 10 if layout == "overlapping" else 1
    for i in range(pieces):
        size = rows.num_rows // pieces
        table.insert(rows.slice(i * size, size))
        table.flush()
    at = table.timestamp
    keys = data.keys(2000)
    if layout in ("untouched", "touched", "before the changes"):
        changed = data.known(5, max(1, data.ROWS // 100), 7)
        for batch in changed:
            table.update(batch.select([*data.KEY, "load"]))
            table.flush()
        touched = {key for batch in changed for key in keys_of(batch)}
        if layout == "untouched":
            keys = [key for key in keys if key not in touched]
        elif layout == "touched":
            keys = sorted(touched, key=hash)[:2000]
    return table, keys, at if layout == "before the changes" else table.timestamp


def keys_of(rows: pa.Table) -> list[Key]:
    return list(zip(rows["host"].to_pylist(), rows["ts"].to_pylist(), strict=True))


def measured(benchmark: Any, group: str, count: int, run: Callable[[], Any]) -> Any:
    benchmark.group = group
    benchmark.extra_info |= {"rows": count, "table_rows": data.ROWS}
    return benchmark.pedantic(run, rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_get(benchmark: Any, tmp_path: Path, layout: str) -> None:
    table, keys, at = filled(tmp_path / "t", layout)
    with table:
        found = measured(benchmark, "get", len(keys), lambda: [table.get(key, at=at) for key in keys])
        assert [(row["host"], row["ts"]) for row in found] == keys


@pytest.mark.parametrize("layout", LAYOUTS)
def test_get_many(benchmark: Any, tmp_path: Path, layout: str) -> None:
    table, keys, at = filled(tmp_path / "t", layout)
    keys = keys[:1000]
    with table:
        found = measured(benchmark, "get_many of 1,000", len(keys), lambda: table.get_many(keys, at=at))
        assert found["_found"].to_pylist() == [True] * len(keys)


WORKS = ("insert", "update", "upsert", "delete")


@pytest.mark.parametrize("home", ["memory", "disk"])
@pytest.mark.parametrize("layout", ["one", "hash"])
@pytest.mark.parametrize("work", WORKS)
def test_one_row_writes(benchmark: Any, tmp_path: Path, work: str, layout: str, home: str) -> None:
    if work == "insert" and home == "disk":
        pytest.skip("an insert goes to memory")
    rows = [row for batch in data.later(2, 1000) for row in batch.to_pylist()]
    given = {
        "insert": rows,
        "upsert": rows,
        "update": [{"host": r["host"], "ts": r["ts"], "load": 1.5} for r in rows],
        "delete": [{"host": r["host"], "ts": r["ts"]} for r in rows],
    }[work]
    made: list[kc.Table] = []

    def fresh() -> None:
        table = created(tmp_path / str(len(made)), layout)
        made.append(table)
        if work != "insert":
            table.insert(rows)
            if home == "disk":
                table.flush()

    def run() -> int:
        write = getattr(made[-1], work)
        return sum(sum(write([row]).counts) for row in given)

    benchmark.group = f"one row, {work}"
    benchmark.extra_info |= {"rows": len(given)}
    done = benchmark.pedantic(run, setup=fresh, rounds=3)
    assert done == len(given)
    for table in made:
        table.close()


# ---- peers, with rows that fit into what they keep in memory ----


@pytest.fixture(scope="module")
def peer_rows() -> list[dict[str, Any]]:
    return data.readings().slice(0, PEER_ROWS).to_pylist()


@pytest.fixture
def sqlite(tmp_path: Path, peer_rows: list[dict[str, Any]]) -> Iterator[sqlite3.Connection]:
    con = sqlite3.connect(tmp_path / "lite.db", isolation_level=None)
    con.execute(
        "create table t (host text, ts int, load real, temp real, bytes int, status text, note text,"
        " primary key (host, ts)) without rowid"
    )
    con.execute("begin")
    con.executemany("insert into t values (?, ?, ?, ?, ?, ?, ?)", [tuple(r.values()) for r in peer_rows])
    con.execute("commit")
    yield con
    con.close()


def test_get_from_sqlite(benchmark: Any, sqlite: sqlite3.Connection) -> None:
    keys = keys_of(data.readings().slice(0, 2000))
    sql = "select * from t where host = ? and ts = ?"
    found = measured(
        benchmark, "get", len(keys), lambda: [sqlite.execute(sql, key).fetchone() for key in keys]
    )
    assert [row[:2] for row in found] == keys


def test_get_from_rocksdb(benchmark: Any, tmp_path: Path, peer_rows: list[dict[str, Any]]) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    store = rocksdict.Rdict(str(tmp_path / "rocks"))
    for row in peer_rows:
        store[f"{row['host']}{row['ts']:020d}"] = json.dumps(row)
    keys = [f"{host}{ts:020d}" for host, ts in keys_of(data.readings().slice(0, 2000))]
    found = measured(benchmark, "get", len(keys), lambda: [json.loads(store[key]) for key in keys])
    assert [(row["host"], row["ts"]) for row in found] == keys_of(data.readings().slice(0, 2000))
    store.close()
