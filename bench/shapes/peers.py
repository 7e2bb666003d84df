"""The engines that a shape is kept in, each behind the calls that ``operations`` has.

Ours, RocksDB (through rocksdict: rows as pickled tuples under their key, one tree, blocks cached like our
pages), DuckDB (a file with a primary key) and Parquet (zstd, its rows sorted alike).  They are those of
``bench.compare.engines`` with the key of shapes; what one cannot do it does not have.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from bench.compare import engines
from bench.shapes.shapes import Shape, parts_of, rows_of

THREADS = 2
LEAST_DUCKDB_BYTES = 256 << 20
"""With less it fails on cells of 1 MB."""


@dataclass(frozen=True)
class Condition:
    """A predicate in the words of each engine.  ``listed`` are the values of a list, which DuckDB joins."""

    expression: pc.Expression
    sql: str
    listed: pa.Array | None = None


class Ours(engines.Ours):
    def __init__(self, path: Path, shape: Shape, **options: Any) -> None:
        self.shape = shape
        super().__init__(
            path,
            schema=rows_of(shape).schema,
            durability="none",
            partition_by=kc.HashPartition(["k"], shape.tablets) if shape.tablets > 1 else (),
            **{
                "maintenance": "manual",
                "scan_threads": THREADS,
                "page_cache_bytes": shape.cache_bytes,
                "memory_limit_bytes": max(4 * shape.cache_bytes, 128 << 20),
            }
            | options,
        )

    def fill(self) -> None:
        """All rows, in as many rowsets as the shape has."""
        for part in parts_of(self.shape):
            self.load(part)
            self.table.flush()
        if self.shape.rowsets == 1:
            self.settle()

    def warm(self) -> None:
        """What lies in the cache lies in it now."""
        for _ in range(2):
            for batch in self.table.scan():
                del batch

    def rows_of(self, keys: Sequence[int]) -> pa.Table:
        return self.table.get_many(keys).drop_columns("_found")

    def first_rows(self, key: int, limit: int) -> pa.Table:
        return self.table.scan(order="key", limit=limit, key_range=(key, None)).to_table()

    def where(self, names: list[str] | None, condition: Condition) -> pa.Table:
        return self.table.scan(names, condition.expression).to_table()

    def update_where(self, condition: Condition, value: float) -> int:
        return self.table.update(where=condition.expression, set={"f": value}).updated

    def insert_rows(self, rows: list[dict[str, Any]]) -> None:
        self.table.insert(rows)


class DuckDB(engines.DuckDB):
    def __init__(self, path: Path, shape: Shape) -> None:
        self.shape = shape
        config = {}
        if shape.cache_part:
            config["memory_limit"] = f"{max(shape.cache_bytes, LEAST_DUCKDB_BYTES) >> 20}MiB"
        super().__init__(path, schema=rows_of(shape).schema, **config)

    def fill(self) -> None:
        for part in parts_of(self.shape):
            self.load(part)
        self.settle()

    def warm(self) -> None:
        self.scan(None)

    def get(self, key: int) -> Any:
        return super().get((key,))

    def rows_of(self, keys: Sequence[int]) -> pa.Table:
        return super().rows_of([(key,) for key in keys])

    def where(self, names: list[str] | None, condition: Condition) -> pa.Table:
        return self.scan(names, self._ready(condition))

    def update_where(self, condition: Condition, value: float) -> int:
        query = f"update t set f = {value!r} where {self._ready(condition)}"
        return int(self.con.execute(query).fetchall()[0][0])

    def _ready(self, condition: Condition) -> str:
        if condition.listed is not None:
            self.con.register("listed", pa.table({"value": condition.listed}))
        return condition.sql


def _as_tuple(row: dict[str, Any]) -> bytes:
    return pickle.dumps(tuple(row.values()), pickle.HIGHEST_PROTOCOL)


def _key(key: Any) -> bytes:
    number: int = key[0] if isinstance(key, tuple) else key
    return number.to_bytes(8, "big")


class RocksDB(engines.RocksDB):
    def __init__(self, path: Path, shape: Shape) -> None:
        self.shape = shape
        super().__init__(
            path, key=["k"], encode=_key, dumps=_as_tuple, loads=pickle.loads, cache_bytes=shape.cache_bytes
        )

    def fill(self) -> None:
        for part in parts_of(self.shape):
            for batch in part.to_batches(max_chunksize=max(1, (64 << 20) // (self.shape.columns * 16 + 64))):
                for row in batch.to_pylist():
                    self.insert_row(row)
        self.db.flush()
        self.db.compact_range(None, None)

    def warm(self) -> None:
        for value in self.db.values():
            del value

    def first_rows(self, key: int, limit: int) -> list[Any]:
        values = self.db.values(from_key=_key(key))
        return [self.loads(value) for value in itertools.islice(values, limit)]

    def insert_rows(self, rows: list[dict[str, Any]]) -> None:
        from rocksdict import WriteBatch

        if len(rows) == 1:
            self.insert_row(rows[0])
            return
        batch = WriteBatch(raw_mode=True)
        for row in rows:
            batch.put(_key(row["k"]), self.dumps(row))
        self.db.write(batch)


class Parquet(engines.Parquet):
    """A file in the order of keys, loaded from rows in any order."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.shape = shape
        super().__init__(path)

    def load(self, rows: pa.Table) -> None:
        super().load(rows.sort_by("k"))


ENGINES = {engine.name: engine for engine in (Ours, DuckDB, RocksDB, Parquet)}


def files_of(engine: Any) -> Iterable[Path]:
    """The files of an engine."""
    return [p for p in engine.path.rglob("*") if p.is_file()] if engine.path.is_dir() else [engine.path]


def drop_from_memory(engine: Any) -> None:
    """The operating system forgets what it keeps of an engine's files, which are on disk before."""
    for path in files_of(engine):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
