"""Merges, conditional writes and batches that read: what a case has of them, and what the model says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support import cells
from tests.support.cases.constants import of_stored_types
from tests.support.differential.calls import data_of, send_call
from tests.support.differential.cases import (
    Case,
    Col,
    Disagree,
    Given,
    If,
    Merge,
    Predicate,
    ReadingBatch,
    When,
    Write,
    errors_of,
    same,
)
from tests.support.differential.predicates import argument, expression
from tests.support.models.model import Key, Outcome, TableModel, order_of

if TYPE_CHECKING:
    from tests.support.differential.pair import Pair

Cell = Any
DUPLICATE, FAILED = "duplicate_in_batch", "condition_failed"


# ---- what the model says ----

class Sided:
    """Rows of both sides of some keys, and what expressions are over them, as pyarrow says."""

    def __init__(self, pair: Pair, step: Merge | If, old: Sequence[Any], new: Sequence[Any]) -> None:
        """``old``, ``new``: for each key a dict of cells, or None."""
        extra = step.extra if isinstance(step, Merge) else ()
        self.case = sided_case(pair.case, step.columns, extra)
        arrays = {}
        for side, rows in (("old", old), ("new", new)):
            for column in self.case.columns:
                if column.name.startswith(f"{side}."):
                    name = column.name.removeprefix(f"{side}.")
                    found = [None if row is None else row[name] for row in rows]
                    arrays[column.name] = cells.as_seen(cells.to_arrow(found, column.arrow))
        self.count = len(old)
        self.table = pa.table({**arrays, "#": pa.array(range(len(old)), pa.int64())})

    def passing(self, where: Predicate | None, bare: str) -> list[bool]:
        if where is None:
            return [True] * self.count
        where = with_side(where, bare)
        found = self.table.filter(of_stored_types(expression(self.case, where)))["#"].to_pylist()
        taken = set(found)
        return [place in taken for place in range(self.count)]


def with_side(where: Predicate, side: str) -> Predicate:
    """Filter lists name columns without their side."""
    if where[0] != "dnf":
        return where
    return ("dnf", [[(f"{side}.{name}", op, given) for name, op, given in group] for group in where[1]])


def sided_case(case: Case, given: Sequence[str], extra: Sequence[Col] = ()) -> Case:
    """A case whose columns are those of both rows of a key."""
    old = [dataclasses.replace(c, name=f"old.{c.name}") for c in case.columns]
    new = [dataclasses.replace(c, name=f"new.{c.name}") for c in (*case.columns, *extra) if c.name in given]
    return dataclasses.replace(case, columns=(*old, *new), key=(), hashes=(), ranges=(), steps=[])


def _value(given: Given, old: Any, new: Any) -> Cell:
    if not isinstance(given, tuple):
        return given
    if given[0] == "first":
        first = _value(given[1], old, new)
        return _value(given[2], old, new) if first is None else first
    row = old if given[0] == "old" else new
    return row[given[1]]


class NotAllowed(Exception):
    """The call is refused as a whole."""


class Decided:
    """What a merge comes to, by the rules of its page and no others."""

    def __init__(self, pair: Pair, step: Merge | If) -> None:
        self.pair, self.step = pair, step
        self.key = pair.case.key
        self.after = pair.model.copy()
        self.outcome = Outcome()
        self.there: dict[int, Any] = {}
        rows = [dict(zip(step.columns, row, strict=True)) for row in step.rows]
        self.numbered = list(enumerate(rows))

    def key_of(self, row: Any) -> Key | None:
        key = tuple(row[name] for name in self.key)
        return None if None in key else key

    def old_of(self, key: Key | None) -> Any:
        if key is None or key not in self.pair.model:
            return None
        values = self.pair.model[key]
        return dict(zip(self.pair.names, (*key, *values), strict=True))

    def only_last(self, column: str) -> None:
        """Of several rows of a key those that no other comes after."""
        best: dict[Key, tuple[Any, ...]] = {}

        def place(row: Any) -> tuple[Any, ...]:
            cell = row[column]
            return (0,) if cell is None else (1, *order_of((cell,)))

        for _, row in self.numbered:
            key = self.key_of(row)
            if key is not None:
                best[key] = max(best.get(key, (0,)), place(row))
        kept = [(self.key_of(row), number, row) for number, row in self.numbered]
        self.numbered = [(n, row) for key, n, row in kept if key is None or place(row) == best[key]]

    def given_rows(self, clauses: Sequence[When], rests: tuple[str | None, str | None]) -> list[int]:
        """Rows by the clauses; what is told of others, of keys that are there and that are not.  How many
        rows each clause took."""
        news = [row for _, row in self.numbered]
        keys = [self.key_of(row) for row in news]
        olds = [self.old_of(key) for key in keys]
        sided = Sided(self.pair, self.step, olds, news)
        holds = [sided.passing(c.where, "new" if c.of == "not_matched" else "old") for c in clauses]
        taken = [0] * len(clauses)
        hits: list[tuple[int, Key | None, str, Any, str | None]] = []
        for place, (number, row) in enumerate(self.numbered):
            of = "not_matched" if olds[place] is None else "matched"
            mine = [c for c, clause in enumerate(clauses) if clause.of == of and holds[c][place]]
            if mine:
                clause = clauses[mine[0]]
                taken[mine[0]] += 1
                hits.append((number, keys[place], clause.do, self._made(clause, olds[place], row), None))
                continue
            rest = rests[0 if of == "matched" else 1]
            if rest is None:
                self.outcome.ignored += 1
                continue
            if of == "matched":
                self.there[number] = olds[place]
            if rest == FAILED:
                hits.append((number, keys[place], "update", row, FAILED))
            else:
                hits.append((number, keys[place], rest, row, None))
        self._apply(hits)
        return taken

    def _made(self, clause: When, old: Any, new: Any) -> Any:
        if clause.do == "delete":
            return {name: new[name] for name in self.key}
        if clause.set is None:
            return {name: new[name] for name in self.step.columns if name in self.pair.names}
        made = {name: _value(given, old, new) for name, given in clause.set.items()}
        return {**{name: new[name] for name in self.key}, **made}

    def _apply(self, hits: Sequence[tuple[int, Key | None, str, Any, str | None]]) -> None:
        often: dict[Key, int] = {}
        for _, key, *_ in hits:
            if key is not None:
                often[key] = often.get(key, 0) + 1
        for number, key, op, row, code in sorted(hits, key=lambda hit: hit[0]):
            if key is not None and often[key] > 1:
                code = DUPLICATE
            refused = code or self.after.apply(op, row, self.outcome)
            if refused is not None:
                self.outcome.errors.append((number, refused))

    def rows_of_none(self, clauses: Sequence[When], taken: list[int]) -> None:
        """Rows of the table for which none is given."""
        given = {self.key_of(row) for _, row in self.numbered}
        state = self.pair.model.state()
        olds = [self.old_of(key) for key in state if key not in given]
        sided = Sided(self.pair, self.step, olds, [None] * len(olds))
        left = list(range(len(olds)))
        for number, clause in enumerate(clauses):
            if clause.of != "by_source":
                continue
            holds = sided.passing(clause.where, "old")
            for place in [p for p in left if holds[p]]:
                taken[number] += 1
                old = olds[place]
                row = {name: old[name] for name in self.key}
                for name, value in (clause.set or {}).items():
                    row[name] = _value(value, old, None)
                if self.after.apply(clause.do, row, self.outcome) is not None:
                    raise NotAllowed
            left = [p for p in left if not holds[p]]


# ---- what is done ----


def python_value(case: Case, column: Col, given: Given) -> Any:
    """What ``set=`` is given."""
    if not isinstance(given, tuple):
        return pa.scalar(None, column.arrow) if given is None else cells.scalar(given, column.arrow)
    if given[0] == "first":
        return pc.coalesce(*(_expression(part, column) for part in given[1:]))
    return (kc.old if given[0] == "old" else kc.new)(given[1])


def _expression(given: Given, column: Col) -> pc.Expression:
    if isinstance(given, tuple):
        return (kc.old if given[0] == "old" else kc.new)(given[1])
    seen = cells.as_seen(cells.to_arrow([given], column.arrow))
    return pc.scalar(seen[0])


def assigned(case: Case, given: dict[str, Given] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    return {name: python_value(case, case.by_name(name), value) for name, value in given.items()}


def _field(name: str) -> pc.Expression:
    side, _, column = name.partition(".")
    return (kc.old if side == "old" else kc.new)(column)


def _where(case: Case, columns: Sequence[str], extra: Sequence[Col], where: Predicate | None) -> Any:
    if where is None:
        return None
    if where[0] == "dnf":
        return argument(case, where)
    return expression(sided_case(case, columns, extra), where, _field)


def merge(pair: Pair, step: Merge) -> None:
    case, decided, wrong = pair.case, Decided(pair, step), False
    if step.sequence is not None:
        decided.only_last(step.sequence)
    taken = decided.given_rows(step.clauses, (None, None))
    try:
        decided.rows_of_none(step.clauses, taken)
    except NotAllowed:
        wrong = True
    how = {"on_duplicate": "last", "sequence_by": step.sequence}
    types = dataclasses.replace(case, columns=(*case.columns, *step.extra))

    def send() -> kc.MergeResult:
        made = pair.table.merge(data_of(types, step), **({} if step.sequence is None else how))
        for clause in step.clauses:
            where = _where(case, step.columns, step.extra, clause.where)
            given = assigned(case, clause.set)
            if clause.of == "matched":
                made = made.when_matched(given, where=where) if clause.do == "update" else (
                    made.when_matched_delete(where=where)
                )  # fmt: skip
            elif clause.of == "not_matched":
                made = made.when_not_matched_insert(given, where=where)
            elif clause.do == "update":
                assert given is not None
                made = made.when_not_matched_by_source_update(given, where=where)
            else:
                made = made.when_not_matched_by_source_delete(where=where)
        return made.execute(on_error=step.on_error)

    result = _sent(pair, step, decided, send, wrong=wrong)
    if result is not None:
        same(result.clauses, tuple(taken), "rows of each clause")


def write_if(pair: Pair, step: If) -> None:
    case, kind = pair.case, step.op.partition("_")[0]
    decided = Decided(pair, step)
    if kind == "insert":
        clauses, rests = [When("not_matched", "insert", None, step.where)], (step.op, FAILED)
    elif kind == "upsert":
        update = When("matched", "update", step.set, step.where)
        clauses, rests = [update, When("not_matched", "insert")], (FAILED, None)
    else:
        clauses, rests = [When("matched", kind, step.set, step.where)], (FAILED, step.op)
    decided.given_rows(clauses, rests)
    more: dict[str, Any] = {"on_error": step.on_error}
    if step.op.endswith("_ignore"):
        more["on_conflict" if kind == "insert" else "on_missing"] = "ignore"
    if step.set is not None:
        more["set"] = assigned(case, step.set)
    if step.where is not None:
        more["if_"] = _where(case, step.columns, (), step.where)
    data = data_of(case, step)
    _sent(pair, step, decided, lambda: getattr(pair.table, kind)(data, **more), there=True)


def _sent(
    pair: Pair,
    step: Merge | If,
    decided: Decided,
    send: Callable[[], Any],
    *,
    wrong: bool = False,
    there: bool = False,
) -> Any:
    """The answer, compared; None where it is an exception."""
    refused = decided.outcome.errors
    try:
        result = send()
    except kc.RowErrors as error:
        if wrong or step.on_error != "raise":
            raise
        same(errors_of(error.errors), refused, "errors raised")
        if there:
            _same_there(pair, error.errors, decided)
        return None
    except kc.InvalidArgument:
        if not wrong:
            raise
        return None
    if wrong:
        raise Disagree("a NULL where none is allowed was not refused")
    if refused and step.on_error == "raise":
        raise Disagree(f"RowErrors was not raised: {refused}")
    same(result.counts, decided.outcome.counts, "counts")
    same([] if result.errors is None else errors_of(result.errors), refused, "errors returned")
    if there and result.errors is not None:
        _same_there(pair, result.errors, decided)
    pair.committed(result, decided.after)
    return result


def _same_there(pair: Pair, errors: pa.Table, decided: Decided) -> None:
    """Beside each row that is refused: the row that is there, or NULL."""
    errors.validate(full=True)
    told = errors["there"].combine_chunks()
    wanted = [decided.there.get(number) for number in errors["row"].to_pylist()]
    same(told.is_null().to_pylist(), [row is None for row in wanted], "whether a row is there")
    names = [field.name for field in told.type]
    for name, column in zip(names, told.flatten(), strict=True):
        expected = [None if row is None else row[name] for row in wanted]
        same(cells.from_arrow(column), expected, f"there.{name}")


def reading_batch(pair: Pair, step: ReadingBatch) -> None:
    case = pair.case
    cut = zip(*step.keys, strict=True) if step.keys else [[] for _ in case.key]
    types = [case.by_name(name).arrow for name in case.key]
    arrays = [cells.to_arrow(column, type_) for column, type_ in zip(cut, types, strict=True)]
    keys = pa.table(arrays, names=list(case.key))

    def look(batch: kc.Batch, model: TableModel, when: str) -> None:
        found = batch.get_many(keys, pair.names)
        same(found["_found"].to_pylist(), [key in model for key in step.keys], f"{when}: which are there")
        rows = cells.rows_of(found.select(pair.names))
        for key, row in zip(step.keys, rows, strict=True):
            if key in model:
                same(row, (*key, *model[key]), f"{when}: {key!r}")

    def send() -> kc.WriteResult:
        seen = pair.model.copy()
        with pair.table.batch(on_error=step.on_error) as batch:
            look(batch, seen, "before any call")
            for number, call in enumerate(step.calls):
                send_call(batch, case, call, None)
                rows = [dict(zip(call.columns, row, strict=True)) for row in call.rows]
                seen.call(call.op if isinstance(call, Write) else call.ops, rows)
                look(batch, seen, f"after call {number}")
        return batch.result

    pair.write(step.calls, step.on_error, send)


DOING: dict[type, Callable[[Any, Any], None]] = {Merge: merge, If: write_if, ReadingBatch: reading_batch}

__all__ = ["DOING", "DUPLICATE", "FAILED", "sided_case", "with_side"]
