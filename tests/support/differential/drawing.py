"""The random case of a seed."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.support import cells
from tests.support.differential.calls import INVALID
from tests.support.differential.cases import (
    Apply,
    Batch,
    Case,
    Col,
    DeleteWhere,
    Do,
    Invalid,
    Predicate,
    Step,
    UpdateWhere,
    Write,
    needed,
)
from tests.support.differential.predicates import random_predicate
from tests.support.models.model import order_of

Cell = Any
Hashes = tuple[tuple[tuple[str, ...], int], ...]
Ranges = tuple[tuple[Cell, Cell], ...]


KEY_TYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "binary", "date32",
    "timestamp[us]", "timestamp[us,UTC]", "decimal128(38,10)", "decimal128(9,2)", "decimal128(18,18)",
    "timestamp[s]", "timestamp[ms,Europe/Berlin]", "timestamp[ns]", "date64", "time32[s]", "time64[ns]",
    "duration[ms]", "duration[ns]", "large_string", "string_view", "large_binary", "fixed_size_binary[3]",
)  # fmt: skip
VALUE_TYPES = (*KEY_TYPES, "bool", "float16", "float32", "float64", "dictionary[string]", "decimal256(60,3)")
FORMS = ("table", "table", "batches", "reader", "dict", "kin", "pieces", "python", "python")
DRAWN = (
    "flush", "flush", "flush", "flush rows", "flush deltas", "flush deltas", "merge", "merge", "minor",
    "minor", "major",
    "major", "major", "compact", "gc", "gc", "reopen", "crash", "reader", "refresh", "pin", "release",
)  # fmt: skip
"""What happens beside reads and writes, some of it more often."""
OPS = ("insert", "upsert", "update", "delete", "insert_ignore", "update_ignore", "delete_ignore")


def random_case(seed: int, steps: int) -> Case:
    """The case of a seed."""
    return Maker(random.Random(seed)).case(steps)


class Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def case(self, steps: int) -> Case:
        rng = self.rng
        key = self._key_columns()
        values = self._value_columns()
        columns = [*key, *values]
        if rng.random() < 0.3:
            rng.shuffle(columns)
        names = tuple(c.name for c in key)
        pools = {c.name: list(cells.ugly(c.arrow)) for c in columns}
        share = 6 if len(key) > 1 else 40
        self.pools = {n: rng.sample(p, min(len(p), share)) if n in names else p for n, p in pools.items()}
        hashes, ranges = self._partitions(names)
        background = rng.random() < 0.3
        options = {
            "maintenance": "background" if background else "manual",
            "durability": rng.choice(("none", "none", "group", "sync")),
            "ingest_threshold_rows": rng.choice((1, 8, 40, 100_000)),
            "rowset_target_bytes": 65_536,
            "scan_threads": rng.choice((1, 1, 2)),
            "history_retention_s": rng.choice((None, 86_400, 86_400, 0, 0.0005, 0.01)),
        }
        if background:
            options |= {"flush_age_s": rng.choice((0.0, 0.01, 120.0)), "flush_threshold_bytes": 65_536}
        else:
            # In the background a reader of another process would lose the files under its hands.
            options["file_grace_s"] = rng.choice((0, 0, 60))
        self.made = Case(tuple(columns), names, hashes, ranges, options, check=rng.random() < 0.3)
        taken = [self._step() for _ in range(steps)]
        return dataclasses.replace(self.made, steps=taken)

    def _key_columns(self) -> tuple[Col, ...]:
        rng = self.rng
        return tuple(
            Col(f"k{i}", rng.choice(KEY_TYPES), nullable=rng.random() < 0.5)
            for i in range(rng.choice((1, 1, 2, 2, 3)))
        )

    def _value_columns(self) -> tuple[Col, ...]:
        return tuple(self._value_column(i) for i in range(self.rng.choice((0, 1, 3, 5, 8))))

    def _partitions(self, names: tuple[str, ...]) -> tuple[Hashes, Ranges]:
        rng, hashes, ranges = self.rng, (), ()
        if rng.random() < 0.4:
            hashes = ((names[: rng.randint(1, len(names))], rng.choice((2, 3, 5))),)
        if rng.random() < 0.35:
            ranges = self._ranges(self.pools[names[0]])
        return hashes, ranges

    def _value_column(self, number: int) -> Col:
        rng = self.rng
        name = rng.choice(VALUE_TYPES)
        nullable = rng.random() < 0.75
        default = rng.choice(_defaults(name)) if rng.random() < 0.3 else None
        return Col(f"v{number}", name, nullable, default)

    def _ranges(self, pool: Sequence[Cell]) -> tuple[tuple[Cell, Cell], ...]:
        cuts = sorted(self.rng.sample(pool, min(len(pool), 5)), key=lambda c: order_of((c,)))
        cuts = [c for c in cuts if c not in ("", b"")]
        edges = [None, *cuts, None]
        pieces = list(itertools.pairwise(edges))
        kept = [p for p in pieces if self.rng.random() < 0.8]
        return tuple(kept or pieces[:1])

    # ---- steps

    def _step(self) -> Step:
        rng, look = self.rng, self.rng.getrandbits(32)
        x = rng.random()
        if x < 0.42:
            return dataclasses.replace(self._write(), look=look)
        if x < 0.50:
            return dataclasses.replace(self._apply(), look=look)
        if x < 0.57:
            calls = [self._write() if rng.random() < 0.8 else self._apply() for _ in range(rng.randint(0, 4))]
            return Batch(calls, self._on_error(), broken=rng.random() < 0.1, look=look)
        if x < 0.61:
            return DeleteWhere(self.predicate(), look)
        if x < 0.65 and self.made.values:
            return self._update_where(look)
        if x < 0.67:
            return Invalid(rng.choice(sorted(INVALID)), look)
        return Do(rng.choice(DRAWN), look)

    def _on_error(self) -> str:
        return self.rng.choice(("raise", "return"))

    def _write(self) -> Write:
        rng = self.rng
        op = rng.choice((*OPS, "upsert", "insert_ignore", "upsert"))
        columns = self._given(op)
        rows = [self._row(columns) for _ in range(self._count())]
        return Write(op, columns, rows, self._on_error(), rng.choice(FORMS))

    def _apply(self) -> Apply:
        columns = self._given("update")
        count = self._count() if len(columns) > len(self.made.key) else 0
        rows = [self._row(columns) for _ in range(count)]
        return Apply(
            [self.rng.choice(OPS) for _ in rows], columns, rows, self._on_error(), self.rng.choice(FORMS)
        )

    def _count(self) -> int:
        return self.rng.choice((0, 1, 1, 1, 2, 3, 5, 12, 40, 90))

    def _given(self, op: str) -> tuple[str, ...]:
        """Columns of a call, in any order; mostly such that the call as a whole is allowed."""
        rng, kind = self.rng, op.split("_", maxsplit=1)[0]
        names = [c.name for c in self.made.values if rng.random() < 0.7]
        if kind == "delete":
            names = []
        elif kind == "insert":
            names += [c.name for c in self.made.values if needed(c) and c.name not in names]
        elif kind == "update" and not names:
            names = [c.name for c in self.made.values[:1]]
        given = [*self.made.key, *names]
        if rng.random() < 0.2:
            rng.shuffle(given)
        return tuple(given)

    def _row(self, columns: tuple[str, ...]) -> tuple[Cell, ...]:
        return tuple(self._cell(name) for name in columns)

    def _cell(self, name: str) -> Cell:
        rng, column = self.rng, self.made.by_name(name)
        if name in self.made.key or not column.nullable:
            if rng.random() < 0.01:
                return None
        elif rng.random() < 0.2:
            return None
        if name in self.made.key and rng.random() < 0.003 and column.type in ("string", "binary"):
            return "k" * 20_000 if column.type == "string" else b"k" * 20_000
        return rng.choice(self.pools[name])

    def _update_where(self, look: int) -> UpdateWhere:
        rng, new = self.rng, {}
        for column in rng.sample(self.made.values, rng.randint(1, min(3, len(self.made.values)))):
            same = [c.name for c in self.made.columns if c.type == column.type]
            new[column.name] = ("old", rng.choice(same)) if rng.random() < 0.3 else self._cell(column.name)
        return UpdateWhere(self.predicate(), new, look)

    def predicate(self) -> Predicate:
        return random_predicate(self.rng, self.made)


def _defaults(type_name: str) -> list[Cell]:
    """Cells that Python can hold, NaN excepted."""
    type_ = cells.arrow_type(type_name)
    if pa.types.is_float16(type_):
        return [0, -0x8000, 0x3C00]
    if pa.types.is_floating(type_):
        bits = cells.bits64 if pa.types.is_float64(type_) else cells.bits32
        return [bits(0.0), bits(-0.0), bits(2.5), bits(float("inf"))]
    if pa.types.is_time(type_):
        return [0, 1000]
    if pa.types.is_date64(type_):
        return [0, 86_400_000]
    if pa.types.is_temporal(type_):
        return [0, 1, -1]
    return [c for c in cells.ugly(type_) if not (isinstance(c, str) and c == "")] or [None]
