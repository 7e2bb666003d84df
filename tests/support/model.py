"""A table as a dict of key -> row: what the engine is compared with.

Knows the row rules (``reference``: Kudu's ApplyRowOperation) and nothing about stores, files or
Arrow.  Cells are whatever the caller uses for them, compared with ``==``: use a form in which NaN
equals itself (``tests.support.cells``).  A cell of None is NULL.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = Any
Key = tuple[Cell, ...]
Row = Mapping[str, Cell]
Rows = dict[Key, Row]

ALREADY_PRESENT = "already_present"
NOT_FOUND = "not_found"
NULL_IN_REQUIRED = "null_in_required"


@dataclass(slots=True)
class Outcome:
    """What a write comes to.  ``errors``: (row within its call, code), in call order."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.inserted, self.updated, self.deleted, self.ignored


class Refused(Exception):
    """Rows were refused and the caller wants all or nothing."""

    def __init__(self, errors: list[tuple[int, str]]) -> None:
        super().__init__(errors)
        self.errors = errors


@dataclass(slots=True)
class Call:
    """Rows of one write call.  ``ops``: one operation for all, or one for each row.

    All rows have the same ``columns``; operations are those of ``Table.apply``.
    """

    ops: str | Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Row]

    def op(self, row: int) -> str:
        return self.ops if isinstance(self.ops, str) else self.ops[row]


class Model:
    """The newest rows, and every state that was committed, by timestamp.

    Parameters
    ----------
    columns, key
        Names of all columns, and of the key's, in key order.
    required
        NOT NULL columns beside the key.
    defaults
        What an insert stores for a column that it does not give; without one, NULL.
    accepts
        Code for which a key cannot be stored at all (``no_partition``, ``too_large``), or None.
    """

    def __init__(
        self,
        columns: Sequence[str],
        key: Sequence[str],
        *,
        required: Iterable[str] = (),
        defaults: Mapping[str, Cell] | None = None,
        accepts: Callable[[Key], str | None] = lambda key: None,
    ) -> None:
        self.columns = tuple(columns)
        self.key = tuple(key)
        self.values = tuple(c for c in columns if c not in key)
        self.required = frozenset(required)
        self.defaults = dict(defaults or {})
        self.accepts = accepts
        self.rows: Rows = {}
        self._times: list[int] = [0]
        self._states: list[Rows] = [{}]

    def write(self, calls: Sequence[Call], on_error: str = "raise") -> Outcome:
        """Apply calls in order, as one batch.  ``Refused`` when rows are and ``on_error`` is "raise"."""
        rows, outcome = self.decided(calls)
        if outcome.errors and on_error == "raise":
            raise Refused(outcome.errors)
        self.rows = rows
        return outcome

    def decided(self, calls: Sequence[Call]) -> tuple[Rows, Outcome]:
        """The rows after the calls, and the counts; changes nothing."""
        rows, outcome = dict(self.rows), Outcome()
        for call in calls:
            for number, row in enumerate(call.rows):
                code = self._one(rows, call.op(number), call.columns, row, outcome)
                if code is not None:
                    outcome.errors.append((number, code))
        return rows, outcome

    def _one(
        self, rows: Rows, op: str, columns: Sequence[str], row: Row, outcome: Outcome
    ) -> str | None:
        """One row by the rules; the code of its error, or None."""
        kind, _, ignore = op.partition("_")
        given = [c for c in self.values if c in columns] if kind != "delete" else []
        if any(row[c] is None for c in self.key) or any(row[c] is None for c in given if c in self.required):
            return NULL_IN_REQUIRED
        key = tuple(row[c] for c in self.key)
        code = self.accepts(key)
        if code is not None:
            return code
        live = key in rows
        if kind in ("insert", "upsert") and not live:
            if any(c not in given and self.defaults.get(c) is None for c in self.required):
                return NULL_IN_REQUIRED
            rows[key] = {c: row[c] if c in given else self.defaults.get(c) for c in self.values}
            outcome.inserted += 1
        elif kind == "insert":
            if not ignore:
                return ALREADY_PRESENT
            outcome.ignored += 1
        elif not live:
            if not ignore:
                return NOT_FOUND
            outcome.ignored += 1
        elif kind == "delete":
            del rows[key]
            outcome.deleted += 1
        else:
            rows[key] = {**rows[key], **{c: row[c] for c in given}}
            outcome.updated += 1
        return None

    # ---- time ----

    def commit(self, timestamp: int) -> None:
        """The newest rows are what every snapshot from ``timestamp`` on sees."""
        assert timestamp >= self._times[-1], "time went back"
        if timestamp == self._times[-1]:
            self._states[-1] = dict(self.rows)
            return
        self._times.append(timestamp)
        self._states.append(dict(self.rows))

    def at(self, timestamp: int) -> Rows:
        """The rows that a snapshot sees."""
        return self._states[bisect.bisect_right(self._times, timestamp) - 1]

    @property
    def times(self) -> Sequence[int]:
        """Timestamps of commits, ascending, after the 0 of the empty table."""
        return self._times

    # ---- rows as lists ----

    def full(self, rows: Rows | None = None) -> list[dict[str, Cell]]:
        """Rows with their key columns, in key order."""
        rows = self.rows if rows is None else rows
        return [
            {**dict(zip(self.key, key, strict=True)), **rows[key]} for key in sorted(rows, key=order_of)
        ]


def order_of(key: Key) -> tuple[Any, ...]:
    """A sort key in the order of encoded keys: text goes by its bytes."""
    return tuple(cell.encode() if isinstance(cell, str) else cell for cell in key)
