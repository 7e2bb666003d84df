"""Tables in a folder and in a store, with random rows, and what each time of them must show."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc
from tests.support.objects.memory import MemoryObjectStore

URL = "s3://bucket/folder/t"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
MANUAL = {"maintenance": "manual", "history_retention_s": None}
Rows = dict[int, tuple[int | None, str | None]]
PLACES = ("folder", "store")


class World:
    """A table, its rows, and the rows of every time that was noted."""

    def __init__(self, place: str, tmp_path: Path, tablets: int = 2, **options: Any) -> None:
        self.path = URL if place == "store" else str(tmp_path / "t")
        self.store = MemoryObjectStore() if place == "store" else None
        self.how: dict[str, Any] = {} if self.store is None else {"_requests": self.store}
        parts = [] if tablets == 1 else [kc.HashPartition("k", tablets)]
        self.table = kc.create_table(
            self.path, SCHEMA, "k", partition_by=parts, options={**MANUAL, **options}, **self.how
        )
        self.rows: Rows = {}
        self.then: dict[int, Rows] = {}

    def write(self, rng: random.Random, keys: range = range(30), rows: int = 12) -> None:
        """Upserts and deletions, of some keys."""
        chosen = rng.sample(keys, min(rows, len(keys)))
        gone = chosen[: len(chosen) // 4]
        kept = chosen[len(gone) :]
        put: Rows = {k: (rng.choice((None, rng.randrange(99))), rng.choice("xyz")) for k in kept}
        self.table.upsert(
            {"k": list(put), "v": [v for v, _ in put.values()], "s": [s for _, s in put.values()]}
        )
        self.table.delete(gone, on_missing="ignore")
        self.rows = {k: v for k, v in (self.rows | put).items() if k not in gone}

    def note(self) -> int:
        """The rows of now are those of this time for ever."""
        at = self.table.timestamp
        self.then[at] = self.rows
        return at

    def churn(self, rng: random.Random, steps: int = 8) -> None:
        """Writes, flushes and merges in some order; each time is noted."""
        acts: list[Callable[[], object]] = [
            lambda: self.write(rng),
            lambda: self.write(rng, range(30), 30),
            lambda: self.table.flush(),
            lambda: self.table.compact(full=rng.random() < 0.5),
        ]
        for _ in range(steps):
            rng.choices(acts, (4, 1, 2, 1))[0]()
            self.note()

    def reopen(self, **options: Any) -> kc.Table:
        self.table.close()
        self.table = kc.open_table(self.path, "rw", options=options or None, **self.how)
        return self.table

    def check(self, since: int = 0) -> None:
        """Now and all times from ``since`` on, by this handle and by a reader beside it; and changes."""
        with kc.open_table(self.path, **self.how) as reader:
            for table in (self.table, reader):
                assert found(table) == self.rows
                for at, rows in self.then.items():
                    if at >= since:
                        assert found(table, at) == rows, at
            times = [at for at in self.then if at >= since]
            for a, b in pairwise(times):
                self.check_changes(reader, a, b)

    def check_changes(self, table: kc.Table, a: int, b: int) -> None:
        rows = dict(self.then[a])
        for change in table.changes(a, b, net=True).to_table().to_pylist():
            if change["_op"] == "delete":
                del rows[change["k"]]
            else:
                assert (change["_op"] == "update") == (change["k"] in rows)
                rows[change["k"]] = change["v"], change["s"]
        assert rows == self.then[b]


def found(table: kc.Table, at: Any = None) -> Rows:
    columns = table.scan(["k", "v", "s"], at=at).to_table().to_pydict()
    return dict(zip(columns["k"], zip(columns["v"], columns["s"], strict=True), strict=True))
