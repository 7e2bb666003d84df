"""Writes the table that is kept here: ``python -m tests.compat.whole1.make FOLDER``.

It has what TABLE says of a table as a whole: a tag, a column of other cells than before, a lifetime of rows,
other partitions than it was made with, an index.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc

OLD, NEW = datetime(2000, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int16()), ("at", pa.timestamp("s", "UTC"))])
OPTIONS = {"history_retention_s": None, "maintenance": "manual"}
KEYS = 30

Rows = dict[int, dict[str, Any]]


def row(k: int, n: int, at: datetime = NEW) -> dict[str, Any]:
    return {"k": k, "n": n, "at": at}


def states() -> list[Rows]:
    """What is to be read at the time after each step: never what has expired."""
    first = {k: row(k, k) for k in range(KEYS) if k % 5}
    second = {**first, 1: row(1, 70_000)}
    third = {**second, 2: row(2, 5), 100: row(100, 1)}
    last = {k: one for k, one in third.items() if k != 3} | {200: row(200, -70_000)}
    return [first, second, third, last]


def make(folder: Path) -> None:
    times = []
    with kc.create_table(folder / "table", SCHEMA, "k", options=OPTIONS) as table:
        table.insert([row(k, k, NEW if k % 5 else OLD) for k in range(KEYS)])
        table.flush()
        times.append(table.timestamp)
        table.tag("first")
        table.alter(change={"n": {"type": pa.int32()}})
        table.update([{"k": 1, "n": 70_000}])
        table.flush()
        times.append(table.timestamp)
        table.alter(ttl=("at", timedelta(days=365)))
        table.repartition(kc.HashPartition("k", 2))
        table.upsert([row(2, 5), row(100, 1)])
        table.flush()
        times.append(table.timestamp)
        table.create_index("by_n", ["n", "at"])
        table.alter(change={"at": {"type": pa.timestamp("ms", "UTC")}})
        table.delete([3])
        table.upsert([row(200, -70_000)])
        times.append(table.timestamp)
    (folder / "kept.json").write_text(json.dumps({"times": times}) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
