"""Reads of one state, compared with the model."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import kudu_core as kc
from tests.support import cells
from tests.support.differential.cases import Col, Disagree, Predicate, same, short
from tests.support.differential.predicates import argument, random_predicate
from tests.support.models.model import Key, State, difference, order_of

if TYPE_CHECKING:
    from tests.support.differential.pair import Pair

Cell = Any


def check_state(pair: Pair, table: pa.Table, wanted: State, what: str) -> None:
    width, found = len(pair.case.key), {}
    for row in cells.rows_of(table):
        if row[:width] in found:
            raise Disagree(f"{what}: key {row[:width]!r} came twice")
        found[row[:width]] = row[width:]
    if found != wanted:
        raise Disagree(f"{what}: {difference(found, wanted)}")


class Look:
    """Reads of one state, compared with the model."""

    def __init__(self, pair: Pair, table: kc.Table, rng: random.Random, state: State, at: Any) -> None:
        self.pair, self.table, self.rng, self.state, self.at = pair, table, rng, state, at
        self.case = pair.case

    def everything(self) -> None:
        for check in (self.whole, self.ordered, self.points, self.many, self.tokens, self.counted):
            check()
        for _ in range(6):
            self.filtered()
            self.ranged()

    def something(self) -> None:
        self.whole()
        for check in self.rng.sample(
            (self.ordered, self.points, self.many, self.tokens, self.counted, self.filtered, self.filtered,
             self.filtered, self.ranged, self.ranged), 2
        ):  # fmt: skip
            check()

    def whole(self) -> None:
        scan = self.table.scan(self.pair.names, at=self.at, batch_rows=self._batch_rows())
        check_state(self.pair, scan.to_table(), self.state, "scan")

    def ordered(self) -> None:
        self._compare(None, ordered=True)

    def filtered(self) -> None:
        self._compare(random_predicate(self.rng, self.case), ordered=self.rng.random() < 0.4)

    def ranged(self) -> None:
        where = random_predicate(self.rng, self.case) if self.rng.random() < 0.3 else None
        bounds = (self._bound(), self._bound())
        self._compare(where, ordered=self.rng.random() < 0.6, bounds=bounds)

    def _bound(self) -> tuple[Cell, ...] | None:
        """A key, near a key or a prefix of one; None for an open end."""
        if self.rng.random() < 0.2:
            return None
        if self.state and self.rng.random() < 0.5:
            key = self.rng.choice(list(self.state))
        else:
            key = tuple(self.rng.choice(cells.ugly(self.case.by_name(n).arrow)) for n in self.case.key)
        return key[: self.rng.randint(1, len(key))]

    def _batch_rows(self) -> int:
        return self.rng.choice((1, 2, 7, 65_536, 65_536, 65_536, 65_536, 65_536))

    def _compare(
        self,
        where: Predicate | None,
        *,
        ordered: bool,
        bounds: tuple[tuple[Cell, ...] | None, tuple[Cell, ...] | None] = (None, None),
    ) -> None:
        rng = self.rng
        names = rng.sample(self.pair.names, rng.randint(0, len(self.pair.names)))
        limit = rng.choice((None, None, None, 0, 1, 5, 10**6))
        wanted = [row for row in self.pair.matching(self.state, where) if _inside(row, bounds)]
        scan = self.table.scan(
            names,
            None if where is None else argument(self.case, where),
            at=self.at,
            key_range=tuple(None if b is None else self._python_key(b) for b in bounds),
            order="key" if ordered else "any",
            limit=limit,
            batch_rows=self._batch_rows(),
        )
        what = (
            f"scan({names}, where={where!r}, key_range={bounds!r}, order={'key' if ordered else 'any'}, "
            f"limit={limit}, at={self.at!r})"
        )
        table = scan.to_table()
        same(table.schema, self.pair.projected(names), f"{what}: schema")
        found = cells.rows_of(table)
        at = [self.pair.names.index(n) for n in names]
        expected = [tuple(row[i] for i in at) for row in wanted]
        count = len(expected) if limit is None else min(limit, len(expected))
        same(len(found), count, f"{what}: rows")
        same(scan.count(), count, f"{what}: count()")
        if ordered:
            same(found, expected[:count], what)
        elif count == len(expected):
            same(sorted(map(repr, found)), sorted(map(repr, expected)), what)
        elif not set(map(repr, found)) <= set(map(repr, expected)):
            raise Disagree(f"{what}: rows that do not match, {short(found)}")

    def counted(self) -> None:
        same(self.table.count(at=self.at), len(self.state), "count()")

    def _python_key(self, key: tuple[Cell, ...]) -> tuple[Any, ...]:
        return tuple(
            cells.scalar(cell, self.case.by_name(name).arrow)
            for cell, name in zip(key, self.case.key, strict=False)
        )

    def _some_keys(self, count: int) -> list[Key]:
        there = list(self.state)
        keys = [self.rng.choice(there) for _ in range(count) if there]
        keys += [
            tuple(self.rng.choice(cells.ugly(self.case.by_name(n).arrow)) for n in self.case.key)
            for _ in range(2)
        ]
        self.rng.shuffle(keys)
        return keys

    def points(self) -> None:
        for key in self._some_keys(3):
            names = self.rng.sample(self.pair.names, self.rng.randint(0, len(self.pair.names)))
            row = self.state.get(key)
            wanted: Any = None
            if row is not None:
                whole = dict(zip(self.pair.names, (*key, *row), strict=True))
                wanted = {n: _as_float(self.case.by_name(n), whole[n]) for n in names}
            given: Any = self._python_key(key)
            if len(given) == 1 and self.rng.random() < 0.5:
                given = given[0]
            elif self.rng.random() < 0.5:
                given = dict(zip(self.case.key, given, strict=True))
            try:
                found = self.table.get(given, names, self.at)
            except kc.InvalidArgument:
                # A date that Python cannot hold.
                if wanted is None or not any(_beyond(self.case.by_name(n), c) for n, c in wanted.items()):
                    raise
                continue
            if found is not None:
                found = {n: _cell_of(self.case.by_name(n), v) for n, v in found.items()}
            same(found, wanted, f"get({key!r}, {names}, at={self.at!r})")

    def many(self) -> None:
        keys = self._some_keys(self.rng.choice((0, 5, 30)))
        arrays = [
            cells.to_arrow((k[i] for k in keys), self.case.by_name(n).arrow)
            for i, n in enumerate(self.case.key)
        ]
        given = pa.table(arrays, names=list(self.case.key))
        table = self.table.get_many(given, self.pair.names, self.at)
        nothing = (None,) * len(self.model_values)
        wanted = [(*key, *self.state.get(key, nothing), key in self.state) for key in keys]
        same(cells.rows_of(table), wanted, f"get_many({keys!r}, at={self.at!r})")

    @property
    def model_values(self) -> tuple[str, ...]:
        return self.pair.model.values

    def tokens(self) -> None:
        where = random_predicate(self.rng, self.case) if self.rng.random() < 0.5 else None
        names = self.rng.sample(self.pair.names, self.rng.randint(1, len(self.pair.names)))
        # A token holds no history; in a store each edit is a commit, behind which a short one may be dropped.
        with self.table.snapshot() if self.at is None else nullcontext():
            tokens = self.table.scan_tokens(
                names,
                None if where is None else argument(self.case, where),
                at=self.at,
                target_rows=self.rng.choice((1, 4, 50, 10**6)),
            )
            tokens = pickle.loads(pickle.dumps(tokens))
            scans = map(self.table.scan_token, tokens)
            found = [row for scan in scans for row in cells.rows_of(scan.to_table())]
        at = [self.pair.names.index(n) for n in names]
        wanted = [tuple(row[i] for i in at) for row in self.pair.matching(self.state, where)]
        same(sorted(map(repr, found)), sorted(map(repr, wanted)), f"tokens of {names}, where={where!r}")


def _inside(row: tuple[Cell, ...], bounds: tuple[tuple[Cell, ...] | None, tuple[Cell, ...] | None]) -> bool:
    lower, upper = (None if b is None else order_of(b) for b in bounds)
    key = order_of(row)
    return (lower is None or key[: len(lower)] >= lower) and (upper is None or key[: len(upper)] < upper)


def _beyond(column: Col, cell: Cell) -> bool:
    if cell is None or not pa.types.is_temporal(column.arrow):
        return False
    if column.type == "time64[ns]":
        return bool(cell % 1000)
    if cell == -(2**63) and column.arrow.unit == "ns":
        return True  # pandas' NaT
    try:
        cells.scalar(cell, column.arrow).as_py()
    except (OverflowError, ValueError):
        return True
    return False


def _cell_of(column: Col, value: Any) -> Cell:
    """A value of ``get`` as a cell."""
    if value is None:
        return None
    if column.type == "float16":
        return int(np.float16(value).view(np.int16))
    if column.type == "float32":
        return cells.bits32(value)
    if column.type == "float64":
        return cells.bits64(value)
    return cells.from_arrow(pa.array([value], column.arrow))[0]


def _as_float(column: Col, cell: Cell) -> Cell:
    """A float32 becomes a Python float and back: a signalling NaN is quiet then."""
    if cell is None or column.type != "float32":
        return cell
    return cells.bits32(cells.scalar(cell, column.arrow).as_py())


def check_refused(pair: Pair, at: Any) -> None:
    """Every way of reading says that a moment before the floor is gone."""
    table, names = pair.table, pair.names
    key = tuple(
        cells.scalar(cells.ugly(c)[0], c) for c in (pair.case.by_name(n).arrow for n in pair.case.key)
    )
    ways: dict[str, Callable[[], object]] = {
        "scan": lambda: table.scan(names, at=at).to_table(),
        "ordered scan": lambda: table.scan(names, at=at, order="key").to_table(),
        "count": lambda: table.count(at=at),
        "get": lambda: table.get(key, at=at),
        "get_many": lambda: table.get_many(
            pa.table([pa.array([k], k.type) for k in key], names=list(pair.case.key)), at=at
        ),
        "scan_tokens": lambda: table.scan_tokens(names, at=at),
        "snapshot": lambda: table.snapshot(at),
        "changes": lambda: table.changes(at),
    }
    for what, read in ways.items():
        try:
            read()
        except kc.SnapshotTooOld as error:
            if what == "changes" and not isinstance(error, kc.ChangesLost):
                raise Disagree(f"changes({at!r}) raised {error!r}, not ChangesLost") from error
        else:
            raise Disagree(f"{what} read {at!r}, before history begins")
