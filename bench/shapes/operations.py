"""What is done with every shape: each operation in the words of the engines, with the answer that is right.

An operation is told the number of its call, by which it chooses keys: every engine is asked the same.  The
right answer is taken from the rows of the shape by pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.shapes.peers import Condition
from bench.shapes.shapes import HEAD, STEP, Shape, rows_of

POINTS = 2000
LISTS = 5
"""Of keys that are asked for together."""
LIMITS = (10, 100)
SHARES = {"0.001%": 0.00001, "1%": 0.01, "50%": 0.5}
LIST_SIZES = (1, 100, 10_000)


class Asked:
    """What a shape is asked: keys, conditions, columns.  ``rows`` is the model, in the order of keys."""

    def __init__(self, shape: Shape, rows: pa.Table | None = None) -> None:
        self.shape = shape
        self.rows = rows_of(shape) if rows is None else rows
        self.keys: np.ndarray = self.rows["k"].to_numpy()

    @cached_property
    def points(self) -> list[int]:
        rng = np.random.default_rng(1)
        return rng.choice(self.keys, POINTS).tolist()

    @cached_property
    def lists(self) -> list[list[int]]:
        rng = np.random.default_rng(2)
        count = min(1000, len(self.keys))
        return [rng.choice(self.keys, count, replace=False).tolist() for _ in range(LISTS)]

    @cached_property
    def starts(self) -> list[int]:
        """From where on rows are asked for: between keys as well as on them."""
        rng = np.random.default_rng(3)
        last = max(1, len(self.keys) - max(LIMITS)) * STEP
        return rng.integers(0, last, POINTS).tolist()

    def columns(self, part: str) -> list[str] | None:
        names = self.rows.column_names
        own = names[len(HEAD) :] or ["f"]
        return {"one": own[:1], "a tenth": own[:: max(1, 10 * len(own) // len(names))], "all": None}[part]

    def least(self, share: float) -> int:
        """Of so many rows at least one."""
        return max(1, int(len(self.keys) * share))

    def of_keys(self, share: float) -> Condition:
        first = int(self.keys[-self.least(share)])
        return Condition(pc.field("k") >= first, f"k >= {first}")

    def of_values(self, share: float) -> Condition:
        numbers = np.sort(self.rows["n"].drop_null().to_numpy())
        bound = int(numbers[min(self.least(share), len(numbers) - 1)])
        return Condition(pc.field("n") < bound, f"n < {bound}")

    def listed(self, name: str, count: int) -> Condition:
        """A list of values that are there and, if there are not so many, of others."""
        known = np.unique(self.rows[name].drop_null().to_numpy())
        values = np.random.default_rng(4).permutation(known)[:count]
        if len(values) < count:
            values = np.concatenate([values, known.max() + 1 + np.arange(count - len(values))])
        listed = pa.array(values, pa.int64())
        if count == 1:
            return Condition(pc.field(name).isin(listed), f"{name} = {values[0]}")
        return Condition(pc.field(name).isin(listed), f"{name} in (select value from listed)", listed)


Act = Callable[[Any, Asked, int], Any]


@dataclass(frozen=True)
class Operation:
    """``line`` is where it stands in the table of goals; ``goal`` the ratio to the best of ``peers``."""

    name: str
    line: str
    peers: tuple[str, ...]
    act: Act
    wanted: Callable[[Asked, int], pa.Table]
    goal: float | None = None
    ordered: bool = False


def _range(asked: Asked, start: int, limit: int) -> pa.Table:
    first = int(np.searchsorted(asked.keys, start))
    return asked.rows.slice(first, limit)


def _of(asked: Asked, keys: list[int]) -> pa.Table:
    return asked.rows.take(pa.array(np.searchsorted(asked.keys, keys)))


def _point(asked: Asked, call: int) -> int:
    return asked.points[call % POINTS]


def _get() -> Operation:
    return Operation(
        "get",
        "get",
        ("RocksDB",),
        lambda engine, asked, call: engine.get(_point(asked, call)),
        lambda asked, call: _of(asked, [_point(asked, call)]),
    )


def _get_many() -> Operation:
    return Operation(
        "get_many of 1,000",
        "get_many",
        ("DuckDB", "RocksDB"),
        lambda engine, asked, call: engine.rows_of(asked.lists[call % LISTS]),
        lambda asked, call: _of(asked, asked.lists[call % LISTS]),
        0.5,
    )


def _first_rows(limit: int) -> Operation:
    return Operation(
        f"{limit} rows in key order",
        "rows in key order",
        ("RocksDB",),
        lambda engine, asked, call: engine.first_rows(asked.starts[call % POINTS], limit),
        lambda asked, call: _range(asked, asked.starts[call % POINTS], limit),
        3.0,
        ordered=True,
    )


def _scan(part: str) -> Operation:
    def wanted(asked: Asked, call: int) -> pa.Table:
        names = asked.columns(part)
        return asked.rows if names is None else asked.rows.select(names)

    return Operation(
        f"scan of {part}",
        "scan",
        ("DuckDB",),
        lambda engine, asked, call: engine.scan(asked.columns(part)),
        wanted,
        0.8,
    )


def _where(name: str, condition: Callable[[Asked], Condition]) -> Operation:
    known: dict[int, tuple[Asked, Condition]] = {}

    def of(asked: Asked) -> Condition:
        if id(asked) not in known:
            known.clear()
            known[id(asked)] = (asked, condition(asked))
        return known[id(asked)][1]

    return Operation(
        name,
        "predicates",
        ("DuckDB",),
        lambda engine, asked, call: engine.where(None, of(asked)),
        lambda asked, call: asked.rows.filter(of(asked).expression),
        1.0,
    )


def _conditions() -> list[Operation]:
    made = [_where(f"key, {name}", lambda a, s=share: a.of_keys(s)) for name, share in SHARES.items()]
    made += [_where(f"value, {name}", lambda a, s=share: a.of_values(s)) for name, share in SHARES.items()]
    for column, word in (("k", "key"), ("n", "value")):
        made += [_where(f"{word} in {n:,}", lambda a, c=column, n=n: a.listed(c, n)) for n in LIST_SIZES]
    prefix = Condition(pc.starts_with(pc.field("w"), "w00"), "starts_with(w, 'w00')")
    null = Condition(pc.field("n").is_null(), "n is null")
    return [*made, _where("prefix", lambda a: prefix), _where("is null", lambda a: null)]


READS = {
    operation.name: operation
    for operation in (
        _get(),
        _get_many(),
        *map(_first_rows, LIMITS),
        *map(_scan, ("one", "a tenth", "all")),
        *_conditions(),
    )
}
UPDATES = {f"update where, {name}": SHARES[name] for name in ("0.001%", "1%")}
GOAL_OF_UPDATES = 0.5
_OF_TABLETS = {16: 4.0, 64: 10.0, 256: 25.0}
_OF_ROWSETS = {20: 3.0, 200: 8.0}
_OF_GETS = {"narrow": 0.5, "10 x 100 B": 1.0, "cells of 10 KB": 1.5, "cells of 100 KB": 1.5}


def reads_of(shape: Shape) -> list[Operation]:
    """What a shape is measured by: what it was made for, or everything."""
    if shape.cache_part:
        lines: tuple[str, ...] = ("get", "get_many")
    elif shape.tablets > 1 or shape.rowsets > 1:
        lines = ("rows in key order", "get_many")
    else:
        lines = ("get", "get_many", "rows in key order", "scan", "predicates")
    return [operation for operation in READS.values() if operation.line in lines]


def goal_of(operation: Operation, shape: Shape) -> float | None:
    """The ratio that is to be reached; None where there is no goal."""
    if operation.line == "get":
        if shape.cache_part:
            return 3.0 if shape.name.startswith("10 x 100 B") else 1.5
        return _OF_GETS.get(shape.name)
    if operation.line == "get_many" and shape.cache_part:
        return 1.5
    if operation.line == "rows in key order":
        if shape.tablets > 1:
            return _OF_TABLETS[shape.tablets]
        if shape.rowsets > 1:
            return _OF_ROWSETS[shape.rowsets]
    return operation.goal


# ---- answers


def as_table(answer: Any, schema: pa.Schema) -> pa.Table:
    """The answer of any engine: a dict, a tuple, tuples or a table."""
    if isinstance(answer, pa.Table):
        if answer.column_names != schema.names:
            answer = answer.select(schema.names)
        return answer if answer.schema.types == schema.types else answer.cast(schema)
    if isinstance(answer, dict):
        return pa.Table.from_pylist([answer], schema)
    rows = [answer] if isinstance(answer, tuple) else answer
    cells = zip(*rows, strict=True) if rows else ([] for _ in schema.names)
    columns = [pa.array(column, field.type) for column, field in zip(cells, schema, strict=True)]
    return pa.table(columns, schema)


def check(answer: Any, wanted: pa.Table, *, ordered: bool) -> None:
    """Whether an answer is right; in any order, unless it has to have one."""
    found = as_table(answer, wanted.schema)
    assert found.num_rows == wanted.num_rows, f"{found.num_rows:,} rows, not {wanted.num_rows:,}"
    keyed = "k" in wanted.column_names
    if not ordered and keyed:
        found, wanted = in_order(found), in_order(wanted)
    for name, one, other in zip(wanted.column_names, found.columns, wanted.columns, strict=True):
        if not ordered and not keyed:
            one, other = (column.take(pc.sort_indices(column)) for column in (one, other))
        assert one.equals(other), f"column {name} has other cells"


def in_order(rows: pa.Table) -> pa.Table:
    """Of the keys; most often they are."""
    keys = rows["k"].to_numpy()
    return rows if (keys[1:] >= keys[:-1]).all() else rows.take(pc.sort_indices(rows["k"]))
