"""A model of a table whose columns and ranges change: every state that it has had, in the columns of today.

Source: Kudu's alter_table-randomized-test, with history.
"""

from __future__ import annotations

import copy
import datetime as dt
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support.models.overwriting import overwrite

KEYS = 60
CUT = 10
TYPES = ("int64", "string", "float64", "int8", "uint16", "float32", "timestamp[s]")
NUMBERS = "int8", "uint16", "int32", "int64"
CELLS = (NUMBERS, ("float32", "float64"), ("timestamp[s]", "timestamp[us]"))
"""Types that may become each other, as far as the values of here go."""
MOST_COLUMNS = 7
NAMES = "abcdefghij"
KINDS = ("drop", "rename", "change", "add", "order", "range", "range")

Row = dict[int, Any]
"""Values by column id; a column that came later has none."""
Rows = dict[int, Row]
State = dict[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Col:
    id: int
    name: str
    type: str
    default: Any = None
    """Of rows that are older."""
    nullable: bool = True
    new: Any = None
    """Of inserts without it."""
    comment: str = ""

    @property
    def declared(self) -> kc.Column:
        return kc.Column(self.name, self.type, self.nullable, self.default)


def arrow_type(name: str) -> pa.DataType:
    return pa.timestamp(name[10:-1]) if name.startswith("timestamp") else pa.type_for_alias(name)


def type_name(type_: pa.DataType) -> str:
    return {"double": "float64", "float": "float32"}.get(str(type_), str(type_))


def shape(field: pa.Field) -> tuple[str, str, bool, str]:
    """What users see of a column."""
    comment = (field.metadata or {}).get(b"comment", b"").decode()
    return field.name, type_name(field.type), field.nullable, comment


@dataclass
class World:
    """What a table is at one moment."""

    columns: list[Col]
    rows: Rows
    ranges: list[tuple[int, int]]

    def state(self, columns: list[Col]) -> State:
        return {k: tuple(row.get(c.id, c.default) for c in columns) for k, row in self.rows.items()}


@dataclass
class Altering:
    """The model, and the table beside it that is told the same."""

    now: World
    next_id: int
    past: list[tuple[int, Rows]] = field(default_factory=list)
    """Rows after each timestamp."""
    in_flight: World | None = None

    @staticmethod
    def begin(path: str, *, hashed: bool, **more: Any) -> tuple[Altering, kc.Table]:
        columns = [Col(2, "a", "int64"), Col(3, "b", "string")]
        ranges = [(0, 20), (20, 40)]
        cut: list[Any] = [kc.RangePartition("k", ranges)]
        if hashed:
            cut.append(kc.HashPartition("k", 2))
        declared = [kc.Column("k", "int64"), *(c.declared for c in columns)]
        table = kc.create_table(path, declared, "k", partition_by=cut, **more)
        model = Altering(World(columns, {}, ranges), 4)
        model.past.append((table.timestamp, {}))
        return model, table

    def copy(self) -> Altering:
        return copy.deepcopy(self)

    # ---- steps ----

    def _done(self, timestamp: int) -> None:
        assert self.in_flight is not None
        self.now, self.in_flight = self.in_flight, None
        assert timestamp >= self.past[-1][0]
        self.past.append((timestamp, copy.deepcopy(self.now.rows)))

    def value(self, rng: random.Random, column: Col) -> Any:
        if column.nullable and rng.random() < 0.2:
            return None
        number = rng.randrange(100)
        if "int" in column.type:
            return number
        if column.type.startswith("timestamp"):
            return dt.datetime(2026, 1, 1) + dt.timedelta(seconds=number)
        return f"s{number}" if column.type == "string" else number / 4

    def write(self, rng: random.Random, table: kc.Table, count: int = 6) -> None:
        """Upserts of some columns, updates by a predicate, deletions."""
        after = World(list(self.now.columns), copy.deepcopy(self.now.rows), list(self.now.ranges))
        self.in_flight = after
        keys = [k for lo, hi in after.ranges for k in range(lo, hi)]
        kind = rng.random()
        if kind < 0.15 and after.rows:
            gone = rng.sample(sorted(after.rows), min(3, len(after.rows)))
            for k in gone:
                del after.rows[k]
            self._done(table.delete({"k": gone}).timestamp)
            return
        if kind < 0.3 and after.columns:
            column = rng.choice(after.columns)
            value, bound = self.value(rng, column), rng.randrange(KEYS)
            for k, row in after.rows.items():
                if k < bound:
                    row[column.id] = value
            set_ = {column.name: pa.scalar(value, arrow_type(column.type))}
            self._done(table.update(where=pc.field("k") < bound, set=set_).timestamp)
            return
        given = rng.sample(after.columns, rng.randint(0, len(after.columns)))
        new = []
        for k in rng.sample(keys, min(count, len(keys))):
            cells = {c.id: self.value(rng, c) for c in given}
            if k not in after.rows:
                after.rows[k] = {c.id: c.new for c in after.columns}
            after.rows[k] |= cells
            new.append({"k": k, **{c.name: cells[c.id] for c in given}})
        types = pa.schema([("k", pa.int64()), *((c.name, arrow_type(c.type)) for c in given)])
        self._done(table.upsert(pa.Table.from_pylist(new, schema=types)).timestamp)

    def alter(self, rng: random.Random, table: kc.Table, most: int = 2) -> None:
        """Some of everything that one call may change."""
        now = self.now
        columns = list(now.columns)
        change: dict[str, Any] = {}
        kinds = set(rng.sample(KINDS, rng.randint(1, most)))
        if "drop" in kinds and columns:
            gone = rng.choice(columns)
            columns.remove(gone)
            change["drop"] = [gone.name]
        if "rename" in kinds and columns:
            some = rng.sample(columns, min(2, len(columns)))
            free = [n for n in NAMES if n not in {c.name for c in columns}]
            swapped = len(some) > 1 and rng.random() < 0.4
            names = [c.name for c in some][::-1] if swapped else rng.sample(free, len(some))
            change["rename"] = {c.name: name for c, name in zip(some, names, strict=True)}
            columns = [replace(c, name=change["rename"].get(c.name, c.name)) for c in columns]
        if "change" in kinds and columns:
            at = rng.randrange(len(columns))
            columns[at], change["change"] = self._changed(rng, columns[at])
        if "add" in kinds and len(columns) < MOST_COLUMNS:
            names = [n for n in NAMES if n not in {c.name for c in columns}]
            name = change["drop"][0] if "drop" in change and rng.random() < 0.5 else rng.choice(names)
            if name in names:
                made = Col(self.next_id, name, rng.choice(TYPES))
                if rng.random() < 0.5:
                    default = self.value(rng, replace(made, nullable=False))
                    made = replace(made, default=default, nullable=rng.random() < 0.5, new=default)
                columns.append(made)
                change["add"] = [made.declared]
        if "order" in kinds and len(columns) > 1:
            before = list(columns)
            rng.shuffle(columns)
            if columns != before:
                change["order"] = ["k", *(c.name for c in columns)][: len(columns) + rng.randint(0, 1)]
        after = World(columns, copy.deepcopy(now.rows), list(now.ranges))
        if "range" in kinds:
            self._ranges(rng, after, change)
        if not change:
            return
        self.next_id += len(change.get("add", ()))
        self.in_flight = after
        self._done(table.alter(**change))

    def _changed(self, rng: random.Random, column: Col) -> tuple[Col, dict[str, dict[str, Any]]]:
        """A column and what becomes of it: its type, its default, whether it takes NULL, and always its
        comment."""
        column = replace(column, comment=f"{rng.random()}")
        wanted: dict[str, Any] = {"comment": column.comment}
        others = [name for names in CELLS if column.type in names for name in names if name != column.type]
        if others and rng.random() < 0.6:
            column = replace(column, type=rng.choice(others))
            wanted["type"] = column.type
        states = [self.now.rows, *(rows for _, rows in self.past)]
        has_null = any(row.get(column.id, column.default) is None for rows in states for row in rows.values())
        if rng.random() < 0.6 and not (column.nullable and has_null):
            column = replace(column, nullable=not column.nullable)
            wanted["nullable"] = column.nullable
        if rng.random() < 0.6 or (not column.nullable and column.new is None):
            column = replace(column, new=self.value(rng, replace(column, nullable=False)))
            wanted["default"] = column.new
        return column, {column.name: wanted}

    def overwrite(self, rng: random.Random, table: kc.Table, count: int = 6) -> None:
        """Rows with some of the columns in the place of all that are there."""
        after = World(list(self.now.columns), {}, list(self.now.ranges))
        self.in_flight = after
        keys = [k for lo, hi in after.ranges for k in range(lo, hi)]
        given = rng.sample(after.columns, rng.randint(0, len(after.columns)))
        new = []
        for k in rng.sample(keys, min(rng.randint(0, count), len(keys))):
            cells = {c.id: self.value(rng, c) for c in given}
            after.rows[k] = {c.id: c.new for c in after.columns} | cells
            new.append({"k": k, **{c.name: cells[c.id] for c in given}})
        types = pa.schema([("k", pa.int64()), *((c.name, arrow_type(c.type)) for c in given)])
        data = pa.Table.from_pylist(new, schema=types)
        self._done(overwrite(table, data, rng.randint(1, 3)).timestamp)

    @staticmethod
    def _ranges(rng: random.Random, after: World, change: dict[str, Any]) -> None:
        if rng.random() < 0.6:
            gone = rng.choice(after.ranges)
            after.ranges.remove(gone)
            after.rows = {k: row for k, row in after.rows.items() if not gone[0] <= k < gone[1]}
            change["drop_range"] = gone
        covered = {k for lo, hi in after.ranges for k in range(lo, hi)}
        free = [lo for lo in range(0, KEYS, CUT) if lo not in covered]
        if free and (rng.random() < 0.6 or not after.ranges):
            lo = rng.choice(free)
            hi = lo + CUT
            while rng.random() < 0.4 and hi < KEYS and hi not in covered:
                hi += CUT
            after.ranges.append((lo, hi))
            change["add_range"] = (lo, hi)
        elif not after.ranges:
            after.ranges.append((0, KEYS))
            change["add_range"] = (0, KEYS)

    # ---- checks ----

    @staticmethod
    def found(scan: Any, columns: list[Col]) -> State:
        made = scan.to_table()
        assert made.schema.names == ["k", *(c.name for c in columns)]
        assert [type_name(f.type) for f in made.schema][1:] == [c.type for c in columns]
        rows = list(zip(*(column.to_pylist() for column in made.columns), strict=True))
        assert len({row[0] for row in rows}) == len(rows)
        return {row[0]: row[1:] for row in rows}

    def settle(self, table: kc.Table) -> None:
        """After a crash: what was under way happened wholly, or not at all."""
        after = self.in_flight
        if after is None:
            return
        there = [shape(field) for field in table.schema][1:]
        for world in (self.now, after):
            same = there == [(c.name, c.type, c.nullable, c.comment) for c in world.columns]
            if same and self.found(table.scan(), world.columns) == world.state(world.columns):
                self.now, self.in_flight = world, None
                self.past.append((table.timestamp, copy.deepcopy(world.rows)))
                return
        raise AssertionError(f"columns {there} are neither those before nor after")

    def rows_at(self, timestamp: int) -> Rows:
        return next(rows for ts, rows in reversed(self.past) if ts <= timestamp)

    def check(self, rng: random.Random, table: kc.Table, looks: int = 4) -> None:
        columns = self.now.columns
        assert table.schema.names == ["k", *(c.name for c in columns)]
        wanted = self.now.state(columns)
        assert self.found(table.scan(), columns) == wanted
        assert list(self.found(table.scan(order="key"), columns)) == sorted(wanted)
        assert table.count() == len(wanted)
        times = rng.sample(self.past, min(looks, len(self.past)))
        for ts, rows in times:
            state = World(columns, rows, []).state(columns)
            assert self.found(table.scan(at=ts), columns) == state, ts
            keys = rng.sample(range(KEYS), 6)
            for k in keys[:2]:
                row = table.get(k, at=ts)
                assert (row and tuple(row.values())[1:]) == state.get(k), (k, ts)
            many = table.get_many(keys, at=ts).to_pylist()
            assert [row["_found"] for row in many] == [k in state for k in keys]
            if columns:
                self._filtered(rng, table, ts, state, columns)
        (a, first), (b, last) = sorted(rng.choices(self.past, k=2), key=lambda entry: entry[0])
        for net in (False, True):
            self._followed(table, a, b, first, last, net)

    def _filtered(
        self, rng: random.Random, table: kc.Table, ts: int, state: State, columns: list[Col]
    ) -> None:
        place = rng.randrange(len(columns))
        column = columns[place]
        value = self.value(rng, replace(column, nullable=False))
        where = pc.field(column.name) <= pa.scalar(value, arrow_type(column.type))
        below = {k for k, row in state.items() if row[place] is not None and row[place] <= value}
        assert set(table.scan(["k"], where, at=ts).to_table()["k"].to_pylist()) == below, (column, ts)
        empty = {k for k, row in state.items() if row[place] is None}
        assert table.count(pc.field(column.name).is_null(), at=ts) == len(empty), (column, ts)

    def check_tokens(self, rng: random.Random, table: kc.Table) -> None:
        """Shares of the changes, in order of time, are the changes."""
        columns = self.now.columns
        (a, first), (b, last) = sorted(rng.choices(self.past, k=2), key=lambda entry: entry[0])
        start, end = (World(columns, rows, []).state(columns) for rows in (first, last))
        for net in (False, True):
            now = dict(start)
            tokens = table.change_tokens(a, b, net=net, target_rows=rng.choice((1, 5, 1000)))
            told = [table.change_token(token).to_table().to_pylist() for token in tokens]
            if net:
                assert len({row["k"] for some in told for row in some}) == sum(map(len, told))
            changed = [(row["k"], row["_timestamp"]) for some in told for row in some]
            assert len(set(changed)) == len(changed), "a key has one change at one time"
            for row in sorted((row for some in told for row in some), key=lambda row: row["_timestamp"]):
                if row["_op"] == "delete":
                    del now[row["k"]]
                else:
                    assert (row["_op"] == "update") == (row["k"] in now), row
                    now[row["k"]] = tuple(row[c.name] for c in columns)
            assert now == end, (a, b, net)

    def _followed(self, table: kc.Table, a: int, b: int, first: Rows, last: Rows, net: bool) -> None:
        """Protocol N14: a state and the changes since are the later state."""
        columns = self.now.columns
        now = World(columns, first, []).state(columns)
        names = [c.name for c in columns]
        for row in table.changes(a, b, net=net).to_table().to_pylist():
            key = row["k"]
            if row["_op"] == "delete":
                del now[key]
            else:
                assert (row["_op"] == "update") == (key in now), row
                now[key] = tuple(row[name] for name in names)
        assert now == World(columns, last, []).state(columns), (a, b, net)
