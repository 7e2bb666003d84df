"""Calls of every kind, on a table whose rows all hold one number: so whether one was applied is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support import interrupts
from tests.support.interrupts import assert_at_rest, poisoned

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
ROWS = 40
INGEST_ROWS = 200
MOST_LAYERS = 10
HANG_S = 120.0
"""How long an answer may be waited for."""


@dataclass
class World:
    """A table whose rows 0..ROWS-1 all hold one number, and calls that give them the next one."""

    path: Path
    options: dict[str, Any]
    table: kc.Table = field(init=False)
    number: int = 0
    reader: kc.Table | None = None
    other: int = 0
    """How many other folders were made."""
    made: list[Any] = field(default_factory=list)
    has_backup: bool = False
    layered: int = 0
    """How often there were rows and changes added in layers."""

    def __post_init__(self) -> None:
        self.table = self.create(
            "t",
            partition_by=kc.HashPartition("k", 3),
            options={"maintenance": "manual", "ingest_threshold_rows": INGEST_ROWS, **self.options},
        )
        self.table.insert(self.rows(0))
        self.table.flush()

    def create(self, name: str, **more: Any) -> kc.Table:
        return kc.create_table(self.path / name, SCHEMA, "k", **more)

    def opened(self, mode: str = "r") -> kc.Table:
        return kc.open_table(self.path / "t", mode)

    def backup(self, name: str) -> object:
        return self.table.backup(self.path / name)

    def restored(self, name: str) -> kc.Table:
        """Of the backup "kept"."""
        return kc.restore(self.path / "kept", self.path / name)

    def rows(self, number: int, count: int = ROWS) -> pa.Table:
        keys = pa.array(range(count), pa.int64())
        values = pa.array([number] * count, pa.int64())
        return pa.table({"k": keys, "v": values, "s": values.cast(pa.string())}, schema=SCHEMA)

    def next(self) -> int:
        self.number += 1
        return self.number

    def another(self, name: str) -> str:
        self.other += 1
        return f"{name}{self.other}"

    def reopen(self) -> None:
        self.table.close()
        self.table = self.opened("rw")

    def settle(self) -> None:
        """What an interrupted call has put into the log is visible after it."""
        interrupts.settle(self.table)

    def staging_left(self) -> list[str]:
        return interrupts.staging_left(self.table)

    def seen(self) -> set[int]:
        """The numbers that rows hold."""
        found = self.table.scan(["k", "v"], [("k", "<", ROWS)], order="key").to_table()
        # Look-ups of rows go other ways through memory than scans; both must have survived the interrupt.
        assert self.table.get_many(found["k"], ["v"])["v"] == found["v"]
        assert self.table.get(0, ["v"]) == {"v": found["v"][0].as_py()}
        return set(found["v"].to_pylist())

    def layers(self) -> None:
        """Rows and changes in several files and in memory; in the long run not in ever more of them."""
        self.layered += 1
        if self.layered % MOST_LAYERS == 0:
            self.table.compact(full=True)
        for _ in range(2):
            number = self.next()
            self.table.upsert(self.rows(number, ROWS // 2))
            self.table.flush()
        self.table.upsert(self.rows(self.next()))


Call = Callable[[World], object]


def _insert(w: World) -> object:
    return w.table.upsert(w.rows(w.next()))


def _batch(w: World) -> object:
    with w.table.batch() as batch:
        batch.delete({"k": [0, 1]})
        batch.upsert(w.rows(w.next()))
    return batch.result


def _where(w: World) -> object:
    return w.table.update(where=pc.field("k") < ROWS, set={"v": w.next()})


def _apply(w: World) -> object:
    number = w.next()
    rows = w.rows(number).append_column("_op", pa.array(["upsert"] * ROWS))
    return w.table.apply(rows)


def _bulk(w: World) -> object:
    return w.table.upsert(w.rows(w.next(), 2 * INGEST_ROWS))


def _spilled(w: World) -> object:
    number = w.next()
    wide = "x" * 40_000
    batches = (
        pa.record_batch([pa.array([k]), pa.array([number]), pa.array([wide])], schema=SCHEMA)
        for k in range(INGEST_ROWS + 20)
    )
    return w.table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, batches))


def _txn(w: World) -> object:
    number = w.next()
    return w.table.upsert(w.rows(number), txn=("app", number))


def _merge(w: World) -> object:
    """By every kind of clause; what is beside the rows comes and goes."""
    number = w.next()
    some = w.rows(number, ROWS // 2).append_column("more", pa.array([number] * (ROWS // 2), pa.int64()))
    merge = w.table.merge(some).when_matched({"v": kc.new("more"), "s": kc.old("s")})
    merge.when_not_matched_by_source_delete(where=kc.old("k") >= ROWS)
    return merge.when_not_matched_by_source_update({"v": number}).execute()


def _bulk_merge(w: World) -> object:
    number = w.next()
    merge = w.table.merge(w.rows(number, 2 * INGEST_ROWS)).when_matched().when_not_matched_insert()
    return merge.execute()


def _update_if(w: World) -> object:
    number = w.next()
    return w.table.update(w.rows(number), if_=kc.old("v") < kc.new("v"))


def _reading_batch(w: World) -> object:
    number = w.next()
    with w.table.batch() as batch:
        found = batch.get_many(list(range(ROWS)), ["k"])
        batch.update(found.drop_columns(["_found"]).append_column("v", pa.array([number] * ROWS)))
        assert batch.get(0, ["v"]) == {"v": number}
    return batch.result


def _modify(w: World) -> object:
    number = w.next()
    return w.table.modify(list(range(ROWS)), lambda row: {"v": number})


def _row(w: World) -> object:
    return w.table.upsert([{"k": 9 * ROWS, "v": 1, "s": "row"}])


def _few_rows(w: World) -> object:
    """All rows, as dicts, and some that are new."""
    number = w.next()
    return w.table.upsert([{"k": k, "v": number, "s": "row"} for k in range(ROWS + 8)])


def _alter(w: World) -> object:
    names = w.table.schema.names
    if "more" in names:
        return w.table.alter(drop=["more"])
    return w.table.alter(add=[kc.Column("more", "int32", default=7)])


def _create(w: World) -> object:
    with w.create(w.another("made")) as made:
        return made.path


def _backup(w: World) -> object:
    return w.backup(w.another("backup"))


def _restore(w: World) -> object:
    with w.restored(w.another("restored")) as restored:
        return restored.count()


def _iterate(w: World) -> object:
    return [batch.num_rows for batch in w.table.scan(batch_rows=7)]


def _snapshot(w: World) -> object:
    with w.table.snapshot() as snapshot:
        return snapshot.get(1), snapshot.scan().to_table()


def _tokens(w: World) -> object:
    return [w.table.scan_token(t).to_table() for t in w.table.scan_tokens(target_rows=10)]


def _read(w: World) -> object:
    with w.opened() as table:
        return table.count()


def _refresh(w: World) -> object:
    assert w.reader is not None
    w.reader.refresh()
    return w.reader.count()


CALLS: dict[str, Call] = {
    "upsert": _insert,
    "row": _row,
    "ticket": lambda w: w.table.upsert(w.rows(w.next()), wait=False).result(HANG_S),
    "few rows": _few_rows,
    "batch": _batch,
    "apply": _apply,
    "merge": _merge,
    "bulk merge": _bulk_merge,
    "update if": _update_if,
    "reading batch": _reading_batch,
    "modify": _modify,
    "where": _where,
    "delete where": lambda w: w.table.delete(where=pc.field("k") > ROWS),
    "bulk": _bulk,
    "spilled": _spilled,
    "txn": _txn,
    "alter": _alter,
    "scan": lambda w: w.table.scan(order="key").to_table(),
    "first rows": lambda w: w.table.scan(order="key", limit=30).to_table(),
    "iterate": _iterate,
    "count": lambda w: w.table.count(pc.field("v") > 0),
    "get": lambda w: w.table.get(3),
    "get_many": lambda w: w.table.get_many([1, 2, 999]),
    "changes": lambda w: [b.num_rows for b in w.table.changes()],
    "net changes": lambda w: [b.num_rows for b in w.table.changes(net=True)],
    "snapshot": _snapshot,
    "tokens": _tokens,
    "dataset": lambda w: w.table.to_dataset().to_table(),
    "stats": lambda w: w.table.stats("column"),
    "flush": lambda w: w.table.flush(),
    "compact": lambda w: w.table.compact(),
    "full compact": lambda w: w.table.compact(full=True),
    "maintain": lambda w: w.table.maintain(),
    "gc": lambda w: w.table.gc(),
    "backup": _backup,
    "restore": _restore,
    "verify": lambda w: w.table.verify(),
    "create": _create,
    "read": _read,
    "refresh": _refresh,
    "close": lambda w: w.table.close(),
    "open": lambda w: w.made.append(w.opened("rw")),
}


def prepare(w: World, name: str) -> None:
    """Before a call: something for it to do."""
    layered = ("flush", "compact", "full compact", "maintain", "changes", "net changes", "open")
    if name in (*layered, "scan", "first rows"):
        w.layers()
    if name == "gc":
        w.layers()
        w.table.compact(full=True)
    if name == "refresh":
        if w.reader is None:
            w.reader = w.opened()
        _insert(w)
    if name == "restore" and not w.has_backup:
        w.backup("kept")
        w.has_backup = True
    if name == "delete where":
        w.table.upsert(w.rows(w.number, 2 * ROWS))
    if name == "open":
        w.table.close()


def go_on(w: World, before: int, name: str, where: str) -> None:
    """After an interrupt: the call was applied wholly or not at all, and everything works."""
    if name == "open":
        w.table = w.made.pop() if w.made else w.opened("rw")
        w.made.clear()
    if name == "close":
        w.table.close()
        w.table = w.opened("rw")
    assert_at_rest(w.table)
    if name not in ("close", "open"):
        assert not w.staging_left(), where
    if poisoned(w.table):
        w.reopen()
    w.settle()
    seen = w.seen()
    assert seen <= {before, w.number} and len(seen) == 1, f"{seen} after {where}; {before} before it"
    w.number = max(seen)
    w.table.upsert(w.rows(w.next()))
    assert w.seen() == {w.number}, where


__all__ = ["CALLS", "ROWS", "SCHEMA", "World", "go_on", "prepare"]
