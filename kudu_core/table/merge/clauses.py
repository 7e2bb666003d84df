"""What a merge does with rows: clauses, of which the first that a row meets is applied to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InvalidArgument
from kudu_core.table.merge.assigned import Assigned
from kudu_core.table.merge.sides import NEW, OLD, Sided, condition

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

    @property
    def place(self) -> str:
        """Its method's name, for messages."""
        rows = {"matched": "matched", "not_matched": "not_matched", "by_source": "not_matched_by_source"}
        plain = self.of == "matched" and self.action == "update"
        return f"when_{rows[self.of]}" if plain else f"when_{rows[self.of]}_{self.action}"

    @property
    def bare(self) -> str:
        """The side of columns that are named without one."""
        return NEW if self.of == "not_matched" else OLD

    def checked(self, schema: Schema, number: int) -> CheckedClause:
        """Against a schema.  ``number``: its place among the clauses."""
        where = condition(schema, self.where, self.bare, self.place)
        assigned = None if self.set is None else Assigned.of(schema, self.set, self.bare, self.place)
        made = CheckedClause(self, number, where, assigned)
        for name in sorted(made.old):
            if self.of == "not_matched":
                raise InvalidArgument(f"{self.place}: no row is there of which {name!r} could be old")
            schema.seen(name)
        if self.of == "by_source" and made.new:
            raise InvalidArgument(f"{self.place}: no row is given of which {min(made.new)!r} could be new")
        return made


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
