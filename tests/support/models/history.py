"""Random batches, what of them was acknowledged, and the check that a table holds exactly that.

The promise of the crash tests: every acknowledged batch is there; the one in flight wholly or not at all;
nothing else; and every past state that was acknowledged can still be read.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.inside import oldest_ts_of
from tests.support.models.model import State, TableModel, Timeline, difference, state_of
from tests.support.models.overwriting import overwrite

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
VALUES = ("a", "b", "c")

Batch = list[tuple[str, list[dict[str, Any]]]]
"""Calls in order: operation and rows."""


def random_batch(
    rng: random.Random, model: TableModel, keys: Sequence[int], rows: int, *, whole: bool = False
) -> Batch:
    """Valid operations on random keys, several of them twice in one batch.

    ``whole``: every row has every column, so that the batch can go as one call.
    """
    live = {key[0] for key in model.state()}
    calls: Batch = []
    shape: tuple[Any, ...] = ()
    for _ in range(rows):
        key = rng.choice(keys)
        if key in live:
            op = rng.choice(
                ("update", "update", "update", "upsert", "delete", "update_ignore", "insert_ignore")
            )
        else:
            op = rng.choice(("insert", "insert", "upsert", "insert_ignore", "delete_ignore"))
        row: dict[str, Any] = {"k": key}
        if not op.startswith("delete"):
            names: list[str] = list(VALUES)
            if op.startswith("up") and not whole and rng.random() < 0.7:
                names = sorted(rng.sample(names, rng.choice((1, 1, 2))))
            row |= {name: _value(rng, name) for name in names}
        elif whole:
            row |= dict.fromkeys(VALUES)
        if op == "delete":
            live.remove(key)
        elif op.startswith(("insert", "upsert")):
            live.add(key)
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


def random_rows(rng: random.Random, keys: Sequence[int], rows: int) -> list[dict[str, Any]]:
    """Rows for an insert, each with another key, in no order."""
    return [{"k": key, **{name: _value(rng, name) for name in VALUES}} for key in rng.sample(keys, rows)]


def send(table: kc.Table, batch: Batch, batch_rows: int | None = None) -> kc.WriteResult:
    """The batch as one write: one call where all rows have all columns, and for a single row.

    ``batch_rows``: such a call comes in record batches of so many rows.
    """
    if all(len(row) == len(SCHEMA) for _, rows in batch for row in rows):
        data = pa.Table.from_pylist([row for _, rows in batch for row in rows], schema=SCHEMA)
        ops = pa.array([operation for operation, rows in batch for _ in rows])
        data = data.append_column("_op", ops)
        return table.apply(data if batch_rows is None else iter(data.to_batches(batch_rows)))
    if len(batch) == len(batch[0][1]) == 1:
        return _send_row(table, *batch[0])
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


def _send_row(table: kc.Table, operation: str, rows: list[dict[str, Any]]) -> kc.WriteResult:
    verb, _, ignore = operation.partition("_")
    more = {} if not ignore else {"on_conflict" if verb == "insert" else "on_missing": "ignore"}
    result: kc.WriteResult = getattr(table, verb)(rows, **more)
    return result


@dataclass
class History:
    """The acknowledged batches of one table, and the one that may be under way."""

    model: TableModel = field(default_factory=lambda: TableModel(["k"], dict.fromkeys(VALUES)))
    in_flight: TableModel | None = None
    past: Timeline = field(default_factory=Timeline)

    def copy(self) -> History:
        return copy.deepcopy(self)

    @property
    def writes(self) -> Sequence[int]:
        """Timestamps of the acknowledged batches."""
        return self.past.times[1:]

    def begin(self, batch: Batch) -> None:
        self.in_flight = self.model.copy()
        for operation, rows in batch:
            assert not self.in_flight.call(operation, rows).errors

    def acknowledge(self, timestamp: int) -> None:
        assert self.in_flight is not None
        self.model, self.in_flight = self.in_flight, None
        if timestamp > self.past.times[-1]:  # else the batch changed nothing
            self.past.commit(timestamp, self.model.state())

    def write(self, table: kc.Table, batch: Batch, batch_rows: int | None = None) -> None:
        self.begin(batch)
        self.acknowledge(send(table, batch, batch_rows).timestamp)

    def overwrite(self, table: kc.Table, rows: list[dict[str, Any]], attempts: int = 1) -> None:
        """Rows in the place of all that are there."""
        self.in_flight = TableModel(["k"], dict.fromkeys(VALUES))
        assert not self.in_flight.call("insert", rows).errors
        data = pa.Table.from_pylist(rows, schema=SCHEMA)
        self.acknowledge(overwrite(table, data, attempts).timestamp)

    def settle(self, table: kc.Table) -> None:
        """After a crash: the batch in flight is there wholly, or it is not."""
        found = state_of(self.model, table.scan().to_pylist())
        if self.in_flight is not None and found == self.in_flight.state():
            self.model = self.in_flight
            self._date(table)
        self.in_flight = None
        self._same(found, self.model.state(), "the newest state")

    def _date(self, table: kc.Table) -> None:
        """Learn when a batch was written whose answer nobody has heard."""
        since = max(self.past.times[-1], oldest_ts_of(table))
        times = set(table.changes(since, columns=["k"]).to_table()["_timestamp"].to_pylist())
        assert len(times) <= 1, f"changes at {sorted(times)}, of one batch"
        # Without a time it has changed nothing, or its history is collected.
        if times or since > self.past.times[-1]:
            self.past.commit(max(times, default=since), self.model.state())

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
        self._same(state_of(self.model, many), wanted, "get_many")
        oldest = oldest_ts_of(table)
        gone = [timestamp for timestamp in self.writes if timestamp < oldest]
        if gone:
            with pytest.raises(kc.SnapshotTooOld):
                table.scan(at=rng.choice(gone)).to_table()
        writes = self.writes[len(gone) :]
        if writes:
            for timestamp in (writes[-1], *rng.sample(writes, min(past, len(writes)))):
                found = state_of(self.model, table.scan(at=timestamp).to_pylist())
                self._same(found, self.past.at(timestamp), f"the state at {timestamp}")

    @staticmethod
    def _same(found: State, wanted: State, what: str) -> None:
        assert found == wanted, f"{what}: {difference(found, wanted)}"
