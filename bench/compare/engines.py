"""The engines that are compared, each behind the few calls that the works need.

Every engine holds the same rows; what an engine cannot do at all it leaves out, and the work has no
figure for it.  Durable means that a power cut after the call loses nothing, in each engine's own words.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import kudu_core as kc
from bench.compare import data


class Ours:
    name = "kudu_core"

    def __init__(
        self,
        path: Path,
        *,
        durability: str = "sync",
        schema: pa.Schema | None = None,
        partition_by: Any = (),
        **options: Any,
    ) -> None:
        self.path = path
        shutil.rmtree(path, ignore_errors=True)
        self.table = kc.create_table(
            path,
            schema or data.readings().schema,
            data.KEY if schema is None else [schema.names[0]],
            partition_by=partition_by,
            # Files that a merge has replaced go at once, so that sizes are those of the table.
            options={"durability": durability, "file_grace_s": 0, **options},
        )

    def load(self, rows: pa.Table) -> None:
        self.table.insert(rows)

    insert = load

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows)

    def update(self, rows: pa.Table) -> None:
        self.table.update(rows.select([*data.KEY, "load"]))

    def delete(self, rows: pa.Table) -> None:
        self.table.delete(rows.select(data.KEY))

    def insert_row(self, row: dict[str, Any]) -> None:
        self.table.insert([row])

    def get(self, key: tuple[str, int]) -> Any:
        return self.table.get(key)

    def get_many(self, keys: Sequence[tuple[str, int]]) -> int:
        return int(self.table.get_many(list(keys)).num_rows)

    def scan(self, columns: list[str] | None, where: Any = None) -> pa.Table:
        return self.table.scan(columns, where).to_table()

    def count(self) -> int:
        return self.table.count()

    def settle(self) -> None:
        self.table.flush()
        self.table.maintain()

    def size(self) -> int:
        return sum(f.stat().st_size for f in (self.path / "tablets").rglob("*") if f.is_file())

    def close(self) -> None:
        self.table.close()


class DuckDB:
    name = "DuckDB"

    def __init__(
        self, path: Path, *, durability: str = "sync", schema: pa.Schema | None = None, **config: Any
    ) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        self.con = duckdb.connect(str(path), config={"threads": 2, **config})
        self.key = data.KEY if schema is None else [schema.names[0]]
        example = (schema or data.readings().schema).empty_table()
        self.con.register("example", example)
        columns = ", ".join(
            f"{r[0]} {r[1]}" for r in self.con.execute("describe select * from example").fetchall()
        )
        self._run(f"create table t ({columns}, primary key ({', '.join(self.key)}))")
        self.columns = example.column_names
        self.durable = durability == "sync"

    def _run(self, sql: str) -> None:
        self.con.execute(sql).fetchall()  # a result that is not fetched holds the connection

    def _with(self, rows: pa.Table, sql: str) -> None:
        self.con.register("batch", rows)
        self._run(sql)
        self.con.unregister("batch")

    def load(self, rows: pa.Table) -> None:
        self._with(rows, "insert into t select * from batch")

    insert = load

    def upsert(self, rows: pa.Table) -> None:
        self._with(rows, "insert or replace into t select * from batch")

    def update(self, rows: pa.Table) -> None:
        on = " and ".join(f"t.{k} = batch.{k}" for k in self.key)
        self._with(rows, f"update t set load = batch.load from batch where {on}")

    def delete(self, rows: pa.Table) -> None:
        on = " and ".join(f"t.{k} = batch.{k}" for k in self.key)
        self._with(rows, f"delete from t using batch where {on}")

    def get(self, key: tuple[Any, ...]) -> Any:
        wanted = " and ".join(f"{name} = ?" for name in self.key)
        return self.con.execute(f"select * from t where {wanted}", key).fetchall()[0]

    def rows_of(self, keys: Sequence[tuple[Any, ...]]) -> pa.Table:
        """The rows of these keys, in any order."""
        self.con.register("probe", pa.table(dict(zip(self.key, zip(*keys, strict=True), strict=True))))
        return self.con.sql(f"select t.* from probe join t using ({', '.join(self.key)})").to_arrow_table()

    def get_many(self, keys: Sequence[tuple[Any, ...]]) -> int:
        return int(self.rows_of(keys).num_rows)

    def scan(self, columns: list[str] | None, where: Any = None) -> pa.Table:
        names = ", ".join(columns or self.columns)
        return self.con.sql(f"select {names} from t{_sql(where)}").to_arrow_table()

    def count(self) -> int:
        return int(self.con.execute("select count(*) from t").fetchall()[0][0])

    def settle(self) -> None:
        self._run("checkpoint")

    def size(self) -> int:
        return self.path.stat().st_size

    def close(self) -> None:
        self.con.close()


def _sql(where: Any) -> str:
    """Filter lists, or a condition that is SQL already."""
    if not where:
        return ""
    if isinstance(where, str):
        return f" where {where}"
    return " where " + " and ".join(
        f"{name} {op} {value!r}" if not isinstance(value, str) else f"{name} {op} '{value}'"
        for name, op, value in where
    )


class Parquet:
    """A file in key order: what a scan is compared with.  Takes no row-level writes."""

    name = "Parquet"

    def __init__(self, path: Path, compression: str = "zstd") -> None:
        self.path = path
        self.compression = compression

    def load(self, rows: pa.Table) -> None:
        pq.write_table(rows, self.path, compression=self.compression)

    def scan(self, columns: list[str] | None, where: Any = None) -> pa.Table:
        return pq.read_table(self.path, columns=columns, filters=where)

    def size(self) -> int:
        return self.path.stat().st_size

    def close(self) -> None:
        return None


class PolarsOnParquet(Parquet):
    name = "Polars on Parquet"

    def scan(self, columns: list[str] | None, where: Any = None) -> pa.Table:
        frame = pl.scan_parquet(self.path)
        for name, op, value in where or ():
            column = pl.col(name)
            frame = frame.filter({"=": column == value, ">=": column >= value, "<": column < value}[op])
        return frame.select(columns or pl.all()).collect().to_arrow()


class SQLite:
    name = "SQLite"

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.con = sqlite3.connect(path)
        self.con.execute("pragma journal_mode=wal")
        names = data.readings().column_names
        self.con.execute(f"create table t ({', '.join(names)}, primary key (host, ts)) without rowid")
        self.marks = ", ".join("?" * len(names))

    def load(self, rows: pa.Table) -> None:
        cells = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        with self.con:
            self.con.executemany(f"insert into t values ({self.marks})", cells)

    def settle(self) -> None:
        self.con.execute("pragma wal_checkpoint(truncate)")

    def get(self, key: tuple[str, int]) -> Any:
        return self.con.execute("select * from t where host = ? and ts = ?", key).fetchone()

    def scan(self, columns: list[str] | None, where: Any = None) -> list[Any]:
        names = ", ".join(columns or data.readings().column_names)
        return self.con.execute(f"select {names} from t{_sql(where)}").fetchall()

    def close(self) -> None:
        self.con.close()


def _of_reading(key: tuple[str, int]) -> bytes:
    return key[0].encode() + b"\0" + key[1].to_bytes(8, "big")


def _as_json(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


class RocksDB:
    """Rows as JSON under an encoded key: the usual way to keep records in it from Python.

    Another key, or another form of the rows, is given as functions: ``encode`` of a key, ``dumps`` of a row
    (a dict) and ``loads``.
    """

    name = "RocksDB"

    def __init__(
        self,
        path: Path,
        *,
        key: Sequence[str] = data.KEY,
        encode: Callable[[Any], bytes] = _of_reading,
        dumps: Callable[[dict[str, Any]], bytes] = _as_json,
        loads: Callable[[bytes], Any] = json.loads,
        cache_bytes: int | None = None,
    ) -> None:
        from rocksdict import BlockBasedOptions, Cache, Options, Rdict

        shutil.rmtree(path, ignore_errors=True)
        self.path = path
        self.key = key
        self.encode, self.dumps, self.loads = encode, dumps, loads
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        if cache_bytes is not None:
            blocks = BlockBasedOptions()
            blocks.set_block_cache(Cache(cache_bytes))
            options.set_block_based_table_factory(blocks)
        self.db = Rdict(str(path), options)

    def load(self, rows: pa.Table) -> None:
        for batch in rows.to_batches(max_chunksize=50_000):
            for row in batch.to_pylist():
                self.insert_row(row)

    def insert_row(self, row: dict[str, Any]) -> None:
        self.db[self.encode(tuple(row[name] for name in self.key))] = self.dumps(row)

    def get(self, key: Any) -> Any:
        return self.loads(self.db[self.encode(key)])

    def rows_of(self, keys: Sequence[Any]) -> list[Any]:
        """In the order of the keys."""
        return [self.loads(value) for value in self.db[[self.encode(key) for key in keys]]]

    def get_many(self, keys: Sequence[Any]) -> int:
        return len(self.rows_of(keys))

    def close(self) -> None:
        self.db.close()
