"""What changes a table as a whole, in random order, one after another on one table: types, columns, indexes,
partitions, the lifetime of rows, truncations, returns to past times, tags, compactions, reopens.  Each has
tests of its own; here each meets what the others have left.

A dict of rows by the time of each change is the oracle, of now and of all past times.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc

SHORT, LONG = (6, 30), (300, 80)
KEYS = 40
OLD, NEW = datetime(2000, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
TYPES = ["int16", "int32", "int64"]
PARTITIONS: list[Any] = [
    (), [kc.HashPartition("k", 3)], [kc.RangePartition("k", [(None, 15), (15, None)])],
    [kc.HashPartition("k", 2), kc.RangePartition("k", [(None, 30), (30, None)])],
]  # fmt: skip

Rows = dict[int, tuple[int | None, datetime]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        cases, steps = LONG if metafunc.config.getoption("--long") else SHORT
        metafunc.parametrize("case_seed", range(first, first + cases))
        metafunc.parametrize("steps", [steps], ids=str)


class World:
    """A table, and what it must show."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        schema = pa.schema([("k", pa.int64()), ("n", pa.int16()), ("at", pa.timestamp("s", "UTC"))])
        options: dict[str, Any] = {"history_retention_s": None, "maintenance": "manual"}
        options["ingest_threshold_rows"] = self.rng.choice([5, 100_000])
        self.table = kc.create_table(path, schema, "k", options=options)
        self.reader = kc.open_table(path)
        self.rows: Rows = {}
        self.past: list[tuple[int, Rows]] = [(self.table.timestamp, {})]
        self.type = 0
        self.cut: Any = ()
        self.has_ttl = False
        self.indexes = 0
        self.said: list[str] = []

    def alive(self, rows: Rows) -> Rows:
        return {k: row for k, row in rows.items() if not (self.has_ttl and row[1] == OLD)}

    def written(self, timestamp: int) -> None:
        self.past.append((timestamp, dict(self.rows)))

    # ---- steps

    def write(self) -> None:
        rng = self.rng
        keys = rng.sample(range(KEYS), rng.randrange(1, 12))
        rows = {k: (rng.choice([None, rng.randrange(100)]), rng.choice([OLD, NEW, NEW])) for k in keys}
        done = self.table.upsert(told(rows))
        self.rows = {**self.alive(self.rows), **rows}
        self.written(done.timestamp)

    def insert(self) -> None:
        self.rows = self.alive(self.rows)
        keys = [k for k in range(KEYS) if k not in self.rows]
        rows = {k: (k, NEW) for k in self.rng.sample(keys, min(len(keys), 5))}
        if rows:
            done = self.table.insert(told(rows))
            assert done.inserted == len(rows)
            self.rows |= rows
            self.written(done.timestamp)

    def delete(self) -> None:
        self.rows = self.alive(self.rows)
        keys = self.rng.sample(sorted(self.rows), min(len(self.rows), 4))
        if keys:
            done = self.table.delete(keys)
            assert done.deleted == len(keys)
            for key in keys:
                del self.rows[key]
            self.written(done.timestamp)

    def update(self) -> None:
        self.rows = self.alive(self.rows)
        least = self.rng.randrange(100)
        done = self.table.update(where=pc.field("n") >= least, set={"n": 7})
        hit = [k for k, (n, _) in self.rows.items() if n is not None and n >= least]
        assert done.updated == len(hit)
        self.rows |= {k: (7, self.rows[k][1]) for k in hit}
        self.written(done.timestamp)

    def merge(self) -> None:
        self.rows = self.alive(self.rows)
        keys = self.rng.sample(range(KEYS), 8)
        merge = self.table.merge(told(dict.fromkeys(keys, (1, NEW))))
        done = merge.when_matched({"n": kc.old("n") + kc.new("n")}, where=kc.old("n") < 50)
        done = done.when_not_matched_insert().execute()
        for k in keys:
            n = self.rows[k][0] if k in self.rows else None
            if k not in self.rows:
                self.rows[k] = (1, NEW)
            elif n is not None and n < 50:
                self.rows[k] = (n + 1, self.rows[k][1])
        self.written(done.timestamp)

    def flush(self) -> None:
        self.table.flush()

    def compact(self) -> None:
        self.table.compact(full=self.rng.random() < 0.5)

    def change_type(self) -> None:
        """Wider, or narrower, which all values allow."""
        self.type = self.rng.choice([at for at in range(len(TYPES)) if at != self.type])
        self.table.alter(change={"n": {"type": TYPES[self.type]}})

    def change_unit(self) -> None:
        now = self.table.schema.field("at").type.unit
        unit = self.rng.choice([unit for unit in ("s", "ms", "us") if unit != now])
        self.table.alter(change={"at": {"type": pa.timestamp(unit, "UTC")}})

    def add_and_drop(self) -> None:
        name = f"more{len(self.said)}"
        self.table.alter(add=[kc.Column(name, "string", default="x")])
        if self.rng.random() < 0.5:
            self.table.alter(drop=name)

    def index(self) -> None:
        if self.table.indexes and self.rng.random() < 0.4:
            self.table.drop_index(next(iter(self.table.indexes)))
        else:
            self.indexes += 1
            self.table.create_index(f"i{self.indexes}", self.rng.choice([["n"], ["at", "n"], ["n", "at"]]))

    def repartition(self) -> None:
        self.cut = self.rng.choice([one for one in PARTITIONS if one is not self.cut])
        self.table.repartition(self.cut)

    def expire(self) -> None:
        if not self.has_ttl:
            self.table.alter(ttl=("at", timedelta(days=365)))
            self.has_ttl = True

    def truncate(self) -> None:
        timestamp = self.table.truncate()
        self.rows = {}
        self.written(timestamp)

    def return_to(self) -> None:
        at, rows = self.rng.choice(self.past)
        done = self.table.restore_to(at)
        self.rows = self.alive(rows)
        self.written(max(done.timestamp, self.past[-1][0] + 1))
        self.past[-1] = (self.table.timestamp, dict(self.rows))

    def tag(self) -> None:
        self.table.tag(f"t{len(self.said)}")

    def reopen(self) -> None:
        path = self.table.path
        self.table.close()
        self.table = kc.open_table(path, "rw")

    # ---- looks

    def look(self) -> None:
        rows = self.alive(self.rows)
        shown(self.table, rows, None)
        some = self.rng.randrange(100)
        where = self.rng.choice([pc.field("n") == some, pc.field("n") < some, pc.field("n") == 7])
        found = self.table.scan(["k"], where=where, order="key").to_pylist()
        hit = {
            k for k, (n, _) in rows.items()
            if n is not None and pc.scalar(n) is not None and passes(where, n, some)
        }  # fmt: skip
        assert [row["k"] for row in found] == sorted(hit)
        key = self.rng.randrange(KEYS)
        got = self.table.get(key, ["n"])
        assert got == ({"n": rows[key][0]} if key in rows else None)
        at, then = self.rng.choice(self.past)
        shown(self.table, self.alive(then), at)
        self.reader.refresh()
        shown(self.reader, self.alive(then), at)

    def changes(self) -> None:
        """A copy that follows the changes since some time is the table as it is stored."""
        at, then = self.rng.choice(self.past)
        copy = dict(then)
        for change in self.table.changes(at, columns=["k", "n", "at"]).to_table().to_pylist():
            if change["_op"] == "delete":
                copy.pop(change["k"], None)  # what has expired is told when it is removed
            else:
                copy[change["k"]] = (change["n"], change["at"])
        assert self.alive(copy) == self.alive(self.rows), f"since {at}"


def passes(where: pc.Expression, n: int, some: int) -> bool:
    text = str(where)
    return n < some if "<" in text else n == (7 if text == str(pc.field("n") == 7) and some != 7 else some)


def told(rows: Rows) -> list[dict[str, Any]]:
    return [{"k": k, "n": n, "at": at} for k, (n, at) in rows.items()]


def shown(table: kc.Table, rows: Rows, at: int | None) -> None:
    found = table.scan(["k", "n", "at"], order="key", at=at).to_pylist()
    assert found == [{"k": k, "n": rows[k][0], "at": rows[k][1]} for k in sorted(rows)]
    assert table.count(at=at) == len(rows)


STEPS: dict[str, int] = {
    "write": 6, "insert": 3, "delete": 3, "update": 2, "merge": 2, "flush": 4, "compact": 2, "change_type": 2,
    "change_unit": 1, "add_and_drop": 1, "index": 2, "repartition": 2, "expire": 1, "truncate": 1,
    "return_to": 1, "tag": 1, "reopen": 2,
}  # fmt: skip


@pytest.mark.timeout(900)
def test_each_meets_what_others_have_left(tmp_path: Path, case_seed: int, steps: int) -> None:
    world = World(tmp_path / "t", case_seed)
    for _ in range(steps):
        [name] = world.rng.choices(list(STEPS), list(STEPS.values()))
        world.said.append(name)
        step: Callable[[], None] = getattr(world, name)
        try:
            step()
            world.look()
            if world.rng.random() < 0.3:
                world.changes()
        except Exception as error:
            past = [at for at, _ in world.past]
            error.add_note(f"seed {case_seed}, after {', '.join(world.said)}; {past}")
            raise
    world.table.verify()
    world.table.close()
    world.reader.close()
