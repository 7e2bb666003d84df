"""A table of a shape of the benchmarks beside the rows that must be in it, step by step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import kudu_core as kc
from bench.shapes.shapes import HEAD, PLAIN, SPREAD, Shape, rows_of

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

Rows = dict[int, dict[str, Any]]
Step = Callable[[kc.Table], object]
_BY_NAME = {shape.name: shape for shape in (*PLAIN, *SPREAD)}
ODD = {
    "few rows": _BY_NAME["few rows"].small(),
    "fat cells": _BY_NAME["cells of 100 KB"].small(),
    "2,000 columns": _BY_NAME["2,000 columns"].small(),
    "64 tablets": _BY_NAME["64 tablets"].small().scaled(0.2),
}
"""Small ones of the shapes in which other things break than in narrow tables."""


class Shaped:
    """The rows of a shape, and what steps have made of them.  A step is applied to ``rows`` before the table
    has it: who wants the state before copies it."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.schema = rows_of(shape).schema
        self.all: Rows = {row["k"]: row for row in rows_of(shape).to_pylist()}
        self.rows: Rows = {}
        self.rng = random.Random(seed)

    def create(self, make: Callable[..., kc.Table], **given: Any) -> kc.Table:
        """``make`` takes a schema, a key, partitions and options, as the fixture of this name does."""
        parts = kc.HashPartition(["k"], self.shape.tablets) if self.shape.tablets > 1 else ()
        options = {"file_grace_s": 0, "ingest_threshold_rows": 1 << 30, **given}
        return make(self.schema, ["k"], partition_by=parts, **options)

    def wanted(self) -> pa.Table:
        """All rows in the order of keys."""
        return pa.Table.from_pylist([self.rows[k] for k in sorted(self.rows)], self.schema)

    # ---- steps

    def insert(self, keys: Iterable[int]) -> Step:
        new = {k: self._row(k) for k in keys if k not in self.rows}
        self.rows |= new
        data = pa.Table.from_pylist(list(new.values()), self.schema)
        return lambda table: table.insert(data)

    def update(self, keys: Iterable[int]) -> Step:
        """One number and, where there is one, one of the cells that make the shape."""
        chosen = [k for k in keys if k in self.rows]
        names = ["k", "f", *self.shape.names[len(HEAD) :][-1:]]
        changed = [{name: self._row(k)[name] for name in names} | {"k": k} for k in chosen]
        for row in changed:
            self.rows[row["k"]] = self.rows[row["k"]] | row
        data = pa.Table.from_pylist(changed, pa.schema([self.schema.field(name) for name in names]))
        return lambda table: table.update(data)

    def upsert_one(self, key: int) -> Step:
        row = self._row(key)
        self.rows[key] = row
        return lambda table: table.upsert([row])

    def delete(self, keys: Iterable[int]) -> Step:
        chosen = [k for k in keys if self.rows.pop(k, None) is not None]
        return lambda table: table.delete(chosen)

    def _row(self, key: int) -> dict[str, Any]:
        """With cells of any row."""
        return self.all[self.rng.choice(list(self.all))] | {"k": key}

    def some(self, share: float) -> list[int]:
        keys = list(self.all)
        return self.rng.sample(keys, max(1, int(len(keys) * share)))


def load(kept: Shaped, table: kc.Table) -> None:
    """Every row as the shape has it, in as many rowsets as it has."""
    keys = list(kept.all)
    kept.rng.shuffle(keys)
    for part in range(kept.shape.rowsets):
        chosen = keys[part :: kept.shape.rowsets]
        kept.rows |= {k: kept.all[k] for k in chosen}
        table.insert(pa.Table.from_pylist([kept.all[k] for k in chosen], kept.schema))
        if kept.shape.rowsets > 1:
            table.flush()


def churn(kept: Shaped, table: kc.Table) -> None:
    """Updated, deleted and inserted again, some of it in files and some in memory."""
    table.flush()
    kept.update(kept.some(0.5))(table)
    kept.delete(kept.some(0.2))(table)
    table.flush()
    kept.insert(kept.some(0.15))(table)
    kept.update(kept.some(0.2))(table)
    table.flush()
    kept.delete(kept.some(0.1))(table)
    kept.insert(kept.some(0.1))(table)
    kept.upsert_one(next(iter(kept.all)))(table)
    kept.update(kept.some(0.1))(table)


def _compacted(kept: Shaped, table: kc.Table) -> None:
    churn(kept, table)
    table.flush()
    table.compact(full=True)


STATES: dict[str, Callable[[Shaped, kc.Table], object]] = {
    "memory": lambda kept, table: None,
    "flushed": lambda kept, table: table.flush(),
    "churned": churn,
    "compacted": _compacted,
}


def in_memory(fs: FileSystem, root: str) -> Callable[..., kc.Table]:
    """``make`` for a table on a file system of the tests."""

    def make(schema: Any, key: Any, *, partition_by: Any, **options: Any) -> kc.Table:
        given = {"maintenance": "manual", **options}
        return kc.create_table(root, schema, key, partition_by=partition_by, options=given, _fs=fs)

    return make
