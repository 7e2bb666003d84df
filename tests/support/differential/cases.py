"""What a differential case is: data, whose ``repr`` is code that makes it again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.support import cells

Cell = Any
Given = Any
"""What a column gets: a cell, ("old", column), ("new", column), or ("first", given, given): the first that is
not NULL."""
Predicate = tuple[Any, ...]
"""("cmp", column, operator, cell), ("in", column, cells), ("null" | "valid" | "nan", column),
("starts" | "contains", column, text), ("flag", column), ("same", column, column), ("const", bool),
("and" | "or", p, q), ("not", p), or filter lists: ("dnf", [[(column, operator, cell), ...], ...])."""


@dataclass(frozen=True)
class Col:
    name: str
    type: str
    nullable: bool = True
    default: Cell = None

    @property
    def arrow(self) -> pa.DataType:
        return cells.arrow_type(self.type)


@dataclass(frozen=True)
class Write:
    """One call; ``rows`` are tuples of cells of ``columns``."""

    op: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    on_error: str = "raise"
    form: str = "table"
    look: int = 0


@dataclass(frozen=True)
class Apply:
    """Mixed operations: ``ops[i]`` is done with ``rows[i]``."""

    ops: list[str]
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    on_error: str = "raise"
    form: str = "table"
    look: int = 0


@dataclass(frozen=True)
class Batch:
    calls: list[Write | Apply]
    on_error: str = "raise"
    broken: bool = False
    """The block raises before its end."""
    look: int = 0


@dataclass(frozen=True)
class DeleteWhere:
    where: Predicate
    look: int = 0


@dataclass(frozen=True)
class UpdateWhere:
    where: Predicate
    set: dict[str, Any]
    """Cells, or ("old", column)."""
    look: int = 0


@dataclass(frozen=True)
class When:
    """One clause.  ``of``: "matched", "not_matched" or "by_source"; ``do``: "update", "delete", "insert"."""

    of: str
    do: str
    set: dict[str, Given] | None = None
    where: Predicate | None = None
    """Over columns named "old.n" and "new.n", or, as filter lists, bare ones."""


@dataclass(frozen=True)
class Merge:
    """``rows`` are tuples of cells of ``columns``, of which ``extra`` are not the table's."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    clauses: list[When]
    extra: tuple[Col, ...] = ()
    sequence: str | None = None
    on_error: str = "raise"
    form: str = "table"
    look: int = 0


@dataclass(frozen=True)
class If:
    """A write by key with a condition, or with values of expressions; ``op`` as of ``Write``."""

    op: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    where: Predicate | None = None
    set: dict[str, Given] | None = None
    on_error: str = "raise"
    form: str = "table"
    look: int = 0


@dataclass(frozen=True)
class ReadingBatch:
    """A batch that reads keys before, between and after its calls."""

    calls: list[Write | Apply]
    keys: list[tuple[Cell, ...]]
    on_error: str = "raise"
    look: int = 0


@dataclass(frozen=True)
class Invalid:
    """A call that must be refused as a whole: see ``INVALID``."""

    kind: str
    look: int = 0


@dataclass(frozen=True)
class Do:
    """One of ``upkeep.UPKEEP``: "flush", "flush rows", "flush deltas", "merge", "minor", "major", "compact",
    "gc", "reopen", "crash", "reader" (open one for reading), "refresh" (one that stays open), "pin"
    (a snapshot and a scan half read), "release" (the pinned one)."""

    what: str
    look: int = 0


Step = Write | Apply | Batch | DeleteWhere | UpdateWhere | Merge | If | ReadingBatch | Invalid | Do


@dataclass(frozen=True)
class Case:
    columns: tuple[Col, ...]
    key: tuple[str, ...]
    hashes: tuple[tuple[tuple[str, ...], int], ...] = ()
    ranges: tuple[tuple[Cell, Cell], ...] = ()
    """Half-open ranges of the first key column, None = open; none: no range dimension."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    check: bool = False
    """Run under the engine's own invariant checks."""
    steps: list[Step] = dataclasses.field(default_factory=list)

    def by_name(self, name: str) -> Col:
        return next(c for c in self.columns if c.name == name)

    @property
    def values(self) -> tuple[Col, ...]:
        return tuple(c for c in self.columns if c.name not in self.key)

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(c.name, c.arrow) for c in self.columns])


class Disagree(AssertionError):
    """The engine and the model have different answers."""


def code_of(case: Case) -> str:
    """A test that runs the case again."""
    fields = [f"    {f.name}={getattr(case, f.name)!r}," for f in dataclasses.fields(case)[:-1]]
    steps = [f"        {step!r}," for step in case.steps]
    return "\n".join(
        (
            "from tests.support.differential import *",
            "",
            "replay(Case(",
            *fields,
            "    steps=[",
            *steps,
            "    ],",
            "))",
        )
    )


def same(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise Disagree(f"{what}: found {short(found)}, wanted {short(wanted)}")


def errors_of(table: pa.Table) -> list[tuple[int, str]]:
    return list(zip(table["row"].to_pylist(), table["code"].to_pylist(), strict=True))


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 600 else f"{text[:600]} ... ({len(text)} characters)"


def needed(column: Col) -> bool:
    return not column.nullable and column.default is None
