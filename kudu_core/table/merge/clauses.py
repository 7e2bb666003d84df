"""What a merge does with rows: clauses, of which the first that a row meets is applied to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InvalidArgument
from kudu_core.table.merge.assigned import Assigned
from kudu_core.table.merge.clause_text import ClauseText, has_text
from kudu_core.table.merge.sides import NEW, OLD, Sided, condition, new

Of: TypeAlias = Literal["matched", "not_matched", "by_source"]
Action: TypeAlias = Literal["update", "delete", "insert"]


@dataclass(frozen=True, slots=True)
class Clause:
    """As it was given."""

    of: Of
    action: Action
    set: Mapping[str, Any] | None
    """Columns and what they get; None: those of the row that is given, or of a deletion none."""
    where: Any
    called: str | None = None
    """By the call of which it is; None: by its own method's name."""

    @property
    def place(self) -> str:
        """What messages begin with."""
        if self.called is not None:
            return self.called
        rows = {"matched": "matched", "not_matched": "not_matched", "by_source": "not_matched_by_source"}
        plain = self.of == "matched" and self.action == "update"
        return f"when_{rows[self.of]}" if plain else f"when_{rows[self.of]}_{self.action}"

    @property
    def bare(self) -> str:
        """The side of columns that are named without one."""
        return NEW if self.of == "not_matched" else OLD

    @property
    def sides(self) -> tuple[str, ...]:
        """The rows that there are."""
        return {"matched": (OLD, NEW), "not_matched": (NEW,), "by_source": (OLD,)}[self.of]

    @property
    def has_text(self) -> bool:
        """Whether some of it is SQL text."""
        return has_text(self.where, self.set)

    def checked(self, schema: Schema, number: int, given: pa.Schema | None = None) -> CheckedClause:
        """Against a schema.  ``number``: its place among the clauses.  ``given``: of the rows that are given;
        None: nobody knows yet, and SQL text is taken on trust."""
        where_, set_ = self.where, self.set
        if self.has_text:
            if given is None:
                return CheckedClause(self, number, None, None)
            text = ClauseText(schema, given, self.sides, self.place)
            where_, set_ = text.condition(where_), None if set_ is None else text.values(set_)
        where = condition(schema, where_, self.bare, self.place)
        assigned = None
        if set_ is not None:
            set_ = _beside_the_key(schema, set_) if self.action == "insert" else set_
            assigned = Assigned.of(schema, set_, self.bare, self.place)
        made = CheckedClause(self, number, where, assigned)
        for name in sorted(made.old):
            if self.of == "not_matched":
                raise InvalidArgument(f"{self.place}: no row is there of which {name!r} could be old")
            schema.seen(name)
        if self.of == "by_source" and made.new:
            raise InvalidArgument(f"{self.place}: no row is given of which {min(made.new)!r} could be new")
        return made


def _beside_the_key(schema: Schema, values: Any) -> Any:
    """Values of a new row without its key, where that is said to be what is given, as SQL does."""
    if not isinstance(values, Mapping):
        return values

    def is_own(name: str, value: Any) -> bool:
        return name in schema.key_names and isinstance(value, pc.Expression) and value.equals(new(name))

    return {name: value for name, value in values.items() if not is_own(name, value)}


@dataclass(frozen=True, slots=True)
class CheckedClause:
    """A clause, checked against one schema."""

    clause: Clause
    number: int
    where: Sided | None
    assigned: Assigned | None

    @property
    def old(self) -> frozenset[str]:
        """Columns of the row that is there which it reads."""
        return frozenset[str]().union(*(made.old for made in self._expressions))

    @property
    def new(self) -> frozenset[str]:
        """Columns of the row that is given, likewise."""
        return frozenset[str]().union(*(made.new for made in self._expressions))

    @property
    def _expressions(self) -> list[Sided]:
        found = [] if self.assigned is None else [*self.assigned.expressions.values()]
        return found if self.where is None else [*found, self.where]

    def said(self) -> dict[str, Any]:
        """What it says, as expressions, for a fingerprint."""
        said = {} if self.assigned is None else self.assigned.said()
        if self.where is not None:
            said["where"] = self.where.expression
        return {f"{self.number} {self.clause.place} {name}": made for name, made in said.items()}


__all__ = ["Action", "CheckedClause", "Clause", "Of"]
