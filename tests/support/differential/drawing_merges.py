"""The random case of a seed, with many merges, conditional writes and batches that read."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pyarrow as pa

from tests.support import cells
from tests.support.differential.cases import (
    Case,
    Col,
    Given,
    If,
    Merge,
    Predicate,
    ReadingBatch,
    Step,
    When,
)
from tests.support.differential.drawing import FORMS, OPS, VALUE_TYPES, Maker
from tests.support.differential.merges import sided_case
from tests.support.differential.predicates import random_predicate

MERGES, CONDITIONS, READS = 0.25, 0.15, 0.08
"""Of the steps, those that are of this kind."""
EXTRA_TYPES = tuple(name for name in VALUE_TYPES if name != "float16")


def merging_case(seed: int, steps: int) -> Case:
    """The case of a seed."""
    return MergeMaker(random.Random(f"merges {seed}")).case(steps)


class MergeMaker(Maker):
    def _step(self) -> Step:
        x, look = self.rng.random(), self.rng.getrandbits(32)
        if x < MERGES:
            return dataclasses.replace(self._merge(), look=look)
        if x < MERGES + CONDITIONS:
            return dataclasses.replace(self._if(), look=look)
        if x < MERGES + CONDITIONS + READS:
            calls = [self._write() if self.rng.random() < 0.8 else self._apply() for _ in range(3)]
            keys = [self._row(self.made.key) for _ in range(self.rng.choice((0, 1, 3, 20)))]
            whole = [key for key in keys if None not in key]
            return ReadingBatch(calls[: self.rng.randint(0, 3)], whole, self._on_error(), look=look)
        return super()._step()

    # ---- merges

    def _merge(self) -> Merge:
        rng = self.rng
        extra = tuple(
            Col(f"x{number}", rng.choice((*EXTRA_TYPES, *(c.type for c in self.made.columns))))
            for number in range(rng.choice((0, 0, 1, 2)))
        )
        own = tuple(c.name for c in self.made.values if rng.random() < 0.7)
        columns = (*self.made.key, *own)
        rows = [
            (*(self._cell(name) for name in columns), *(rng.choice(cells.ugly(c.arrow)) for c in extra))
            for _ in range(self._count())
        ]
        columns = (*columns, *(c.name for c in extra))
        if rng.random() < 0.8:
            rows = self._distinct(rows)
        sequence = self._sequence(columns, extra) if rng.random() < 0.3 else None
        seen = sided_case(self.made, columns, extra)
        clauses = [self._clause(own, extra, seen) for _ in range(rng.choice((1, 1, 2, 2, 3, 5)))]
        form = rng.choice(FORMS) if sequence is None else "table"
        return Merge(columns, rows, clauses, extra, sequence, self._on_error(), form)

    def _distinct(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Each key once."""
        return list({row[: len(self.made.key)]: row for row in rows}.values())

    def _sequence(self, columns: tuple[str, ...], extra: tuple[Col, ...]) -> str | None:
        """A column whose order is that of its cells."""
        known = {c.name: c for c in (*self.made.columns, *extra)}
        fit = [name for name in columns if _is_ordered(known[name].arrow)]
        return self.rng.choice(fit) if fit else None

    def _clause(self, own: tuple[str, ...], extra: tuple[Col, ...], seen: Case) -> When:
        rng = self.rng
        of = rng.choice(("matched", "matched", "not_matched", "not_matched", "by_source"))
        do = "insert" if of == "not_matched" else rng.choice(("update", "update", "delete"))
        set_ = None
        # Columns that the table does not have are lost unless it is said what becomes of them.
        if do == "update" and (of == "by_source" or extra or not own or rng.random() < 0.6):
            set_ = self._set(of, seen)
        if do == "insert" and (extra or rng.random() < 0.5):
            set_ = self._set(of, seen)
        if set_ == {}:
            return When("matched", "delete", None, self._condition(("matched",), seen))
        where = self._condition((of,), seen) if rng.random() < 0.6 else None
        return When(of, do, set_, where)

    def _set(self, of: str, seen: Case) -> dict[str, Given]:
        rng = self.rng
        values = list(self.made.values)
        if not values:
            return {}
        some = rng.sample(values, rng.randint(1, min(3, len(values))))
        return {column.name: self._what(column, of, seen) for column in some}

    def _what(self, column: Col, of: str, seen: Case) -> Given:
        rng = self.rng
        sides = {"matched": ("old", "new"), "not_matched": ("new",), "by_source": ("old",)}[of]
        alike = [
            c.name.partition(".")[::2]
            for c in seen.columns
            if c.type == column.type and c.name.partition(".")[0] in sides
        ]
        x = rng.random()
        if not alike or x < 0.4:
            return self._cell(column.name)
        if x < 0.8 or _is_wrapped(column.arrow):
            return tuple(rng.choice(alike))
        other = self._cell(column.name)
        return ("first", tuple(rng.choice(alike)), tuple(rng.choice(alike)) if other is None else other)

    def _condition(self, of: tuple[str, ...], seen: Case) -> Predicate:
        """Over the sides that rows of a kind have; rarely as filter lists, of one side."""
        rng = self.rng
        sides = {"matched": ("old", "new"), "not_matched": ("new",), "by_source": ("old",)}[of[0]]
        bare = "new" if of[0] == "not_matched" else "old"
        while True:
            columns = tuple(c for c in seen.columns if c.name.partition(".")[0] in sides)
            found = random_predicate(rng, dataclasses.replace(seen, columns=columns))
            if found[0] != "dnf":
                return found
            groups = [[(n.partition("."), op, v) for n, op, v in group] for group in found[1]]
            if all(side == bare and n[0] != "x" for group in groups for (side, _, n), _, _ in group):
                return ("dnf", [[(n, op, v) for (_, _, n), op, v in group] for group in groups])

    # ---- conditional writes

    def _if(self) -> If:
        rng = self.rng
        op = rng.choice((*OPS, "upsert", "update", "upsert"))
        kind = op.partition("_")[0]
        own = () if kind == "delete" else tuple(c.name for c in self.made.values if rng.random() < 0.7)
        columns = (*self.made.key, *own)
        rows = [self._row(columns) for _ in range(self._count())]
        if rng.random() < 0.8:
            rows = self._distinct(rows)
        seen = sided_case(self.made, columns)
        of = "not_matched" if kind == "insert" else "matched"
        set_ = None
        if kind in ("update", "upsert") and (not own or rng.random() < 0.5):
            set_ = self._set("matched", seen) or None
        where = self._condition((of,), seen) if set_ is None or rng.random() < 0.6 else None
        if kind in ("update", "upsert") and not own and set_ is None:
            op, kind = "delete", "delete"
        return If(op, columns, rows, where, set_, self._on_error(), rng.choice(FORMS))


def _is_ordered(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_string(type_))


def _is_wrapped(type_: pa.DataType) -> bool:
    """Arrow joins no cells of these in expressions, or as those of another type."""
    return bool(pa.types.is_float16(type_) or pa.types.is_dictionary(type_))


__all__ = ["MergeMaker", "merging_case"]
