"""Random batches, what of them was acknowledged, and the check that a table holds exactly that.

The promise of the crash tests: every acknowledged batch is there; the one in flight wholly or not at all;
nothing else; and every past state that was acknowledged can still be read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support.model import State, TableModel, difference, state_of

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
COLUMNS = {"a": None, "b": None, "c": None}

Batch = list[tuple[str, list[dict[str, Any]]]]
"""Calls in order: operation and rows."""


def random_batch(rng: random.Random, model: TableModel, keys: range, rows: int) -> Batch:
    """Valid operations on random keys, several of them twice in one batch."""
    scratch = model.copy()
    calls: Batch = []
    shape: tuple[Any, ...] = ()
    for _ in range(rows):
        key = rng.choice(keys)
        if (key,) in scratch:
            op = rng.choice(("update", "update", "update", "upsert", "delete", "update_ignore", "insert_ignore"))
        else:
            op = rng.choice(("insert", "insert", "upsert", "insert_ignore", "delete_ignore"))
        row: dict[str, Any] = {"k": key}
        if not op.startswith("delete"):
            names = list(COLUMNS)
            if op.startswith("up") and rng.random() < 0.7:
                names = sorted(rng.sample(names, rng.choice((1, 1, 2))))
            row |= {name: _value(rng, name) for name in names}
        scratch.apply(op, row)
        if shape != (op, *row):  # rows of one operation and the same columns make one call
            shape = (op, *row)
            calls.append((op, []))
        calls[-1][1].append(row)
    return calls


def _value(rng: random.Random, name: str) -> Any:
    if rng.random() < 0.15:
        return None
    if name == "a":
        return rng.randrange(-(10**6), 10**6)
    if name == "b":
        return "x" * rng.randrange(4) + str(rng.randrange(1000))
    return rng.randrange(1000) / 8


def send(table: kc.Table, batch: Batch) -> kc.WriteResult:
    """The batch as one write."""
    with table.batch() as b:
        for operation, rows in batch:
            verb, _, ignore = operation.partition("_")
            data = pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field(name) for name in rows[0]]))
            if not ignore:
                getattr(b, verb)(data)
            elif verb == "insert":
                b.insert(data, on_conflict="ignore")
            else:
                getattr(b, verb)(data, on_missing="ignore")
    assert b.result is not None
    return b.result


@dataclass
class History:
    """The acknowledged batches of one table, and the one that may be under way."""

    model: TableModel = field(default_factory=lambda: TableModel(["k"], COLUMNS))
    in_flight: TableModel | None = None
    states: list[tuple[int, State]] = field(default_factory=list)
    """Past states by the timestamp of their write."""

    def copy(self) -> History:
        return History(self.model, self.in_flight, list(self.states))

    def begin(self, batch: Batch) -> None:
        after = self.model.copy()
        for operation, rows in batch:
            after.call(operation, rows)
        self.in_flight = after

    def acknowledge(self, timestamp: int) -> None:
        assert self.in_flight is not None
        self.model, self.in_flight = self.in_flight, None
        self.states.append((timestamp, self.model.state()))

    def write(self, table: kc.Table, batch: Batch) -> None:
        self.begin(batch)
        self.acknowledge(send(table, batch).timestamp)

    def settle(self, table: kc.Table) -> None:
        """After a crash: the batch in flight is there wholly, or it is not."""
        found = state_of(self.model, table.scan().to_pylist())
        if self.in_flight is not None and found == self.in_flight.state():
            self.model = self.in_flight
        self.in_flight = None
        assert found == self.model.state(), difference(found, self.model.state())

    def check(self, table: kc.Table, rng: random.Random, *, past: int = 3) -> None:
        """All ways to read give the acknowledged state, and past states are as they were."""
        wanted = self.model.state()
        ordered = [row["k"] for row in table.scan(["k"], order="key").to_pylist()]
        assert ordered == sorted(key[0] for key in wanted)
        assert table.count() == len(wanted)
        bound = rng.randrange(-(10**6), 10**6)
        some = {row["k"] for row in table.scan(["k"], where=pc.field("a") > bound).to_pylist()}
        assert some == {key[0] for key, row in wanted.items() if row[0] is not None and row[0] > bound}
        keys = sorted({key[0] for key in wanted} | {rng.randrange(100) for _ in range(5)})
        many = [row for row in table.get_many(keys).to_pylist() if row.pop("_found")]
        found = state_of(self.model, many)
        assert found == wanted, difference(found, wanted)
        if self.states:
            for timestamp, state in (self.states[-1], *rng.sample(self.states, min(past, len(self.states)))):
                found = state_of(self.model, table.scan(at=timestamp).to_pylist())
                assert found == state, f"at {timestamp}: {difference(found, state)}"
