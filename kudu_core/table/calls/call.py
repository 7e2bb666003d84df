"""Rows of a write call, and how large they are.

A ``Call`` is what one method of a table was given: an operation, or one for each row, and rows in the
table's types.  It knows no keys and no tablets; ``prepared.py`` finds those.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from kudu_core._ext.rules import decide as rules
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.values import raw_bytes
from kudu_core.table.calls.refit import Refit

MAX_ROW_BYTES = 64 << 20
INSERTING = (rules.CALL_INSERT, rules.CALL_INSERT_IGNORE, rules.CALL_UPSERT)


@dataclass(slots=True)
class Call:
    """Rows of one write call, already cast to the table's types."""

    ops: int | np.ndarray
    """One of the codes of ``_ext.rules.decide`` for all rows, or (n,) uint8."""
    block: RowBlock
    """The key columns and those that the call gives."""
    status: np.ndarray | None = None
    """(n,) uint8: 0, or the code with which a row is refused."""
    _: KW_ONLY
    unique: bool = False
    """Rows that repeat a key of the call are refused (``on_duplicate="error"``)."""
    alone: bool = False
    """Rows whose key any other row of such calls of the batch has are refused."""
    ignore_null: bool = False
    """A NULL says nothing of its column, as if it were not given for that row.  With ``unique`` only."""
    continues: bool = False
    """The rows follow those of the ``Call`` before as rows of the same call."""
    numbers: np.ndarray | None = None
    """(n,) int64: the number of each row in its call, where the rows do not lie in the order in which they
    were given; None: they follow those of the ``Call`` before."""
    schema: Schema | None = None
    """Into whose form the rows were brought; None: into that of the newest."""

    @property
    def rows(self) -> int:
        return self.block.rows

    def take(self, rows: np.ndarray) -> Call:
        """Some of the rows, (n,) int64."""
        ops = self.ops if isinstance(self.ops, int) else self.ops[rows]
        status = None if self.status is None else self.status[rows]
        numbers = None if self.numbers is None else self.numbers[rows]
        return replace(self, ops=ops, block=self.block.take(rows), status=status, numbers=numbers)


def no_rows(schema: Schema) -> Call:
    """A call of no rows: of a batch without calls, or a predicate that matches nothing."""
    key = {c.id: ColumnBuffers.nulls(c.type, 0) for c in schema.key_columns}
    return Call(rules.CALL_DELETE, RowBlock(key, 0))


def fitted(schema: Schema, calls: Sequence[Call]) -> Sequence[Call]:
    """Calls that were put into the form of an older schema, in that of this one (``refit.py``)."""
    if all(call.schema is None or call.schema is schema for call in calls):
        return calls
    return [_refitted(schema, call) for call in calls]


def _refitted(schema: Schema, call: Call) -> Call:
    if call.schema is None or call.schema is schema:
        return call
    refit = Refit(call.schema, schema)
    block = refit.block(call.block)
    status = refit.status(block.columns, block.rows, call.status)
    return replace(call, block=block, status=status, schema=schema)


def joined(parts: Sequence[Call]) -> list[Call]:
    """Each call as one: rows are numbered through.  Where its parts have different columns, or other
    operations, there is one for each run of parts with the same; those behind the first continue it."""
    runs: list[tuple[int, list[Call]]] = []
    rows = 0
    for part in parts:
        if not part.continues:
            rows = 0
        if part.continues and same_form(runs[-1][1][-1], part):
            runs[-1][1].append(part)
        else:
            runs.append((rows, [part]))
        rows += part.rows
    return [join(run, first) for first, run in runs]


def same_form(one: Call, other: Call) -> bool:
    """Whether rows of both may be in one call: the same columns, and one operation, or one of each row."""
    plain = isinstance(one.ops, int), isinstance(other.ops, int)
    same_ops = one.ops == other.ops if all(plain) else not any(plain)
    if not same_ops or one.schema is not other.schema:
        return False
    return one.block.columns.keys() == other.block.columns.keys()


def join(parts: list[Call], first: int = 0) -> Call:
    """Parts of one call that give the same columns.  ``first``: rows of the call before them."""
    if len(parts) == 1:
        return parts[0]
    numbers = None
    if any(part.numbers is not None for part in parts):
        numbers = np.concatenate(numbers_of(parts, first))
    status = None
    if any(p.status is not None for p in parts):
        status = np.concatenate([np.zeros(p.rows, np.uint8) if p.status is None else p.status for p in parts])
    ops: int | np.ndarray = parts[0].ops
    if isinstance(ops, np.ndarray):
        ops = np.concatenate([np.asarray(p.ops) for p in parts])
    block = RowBlock.concat([p.block for p in parts])
    return replace(parts[0], ops=ops, block=block, status=status, numbers=numbers)


def numbers_of(parts: Sequence[Call], first: int = 0) -> list[np.ndarray]:
    """(n,) int64 of each part of one call: the numbers of its rows.  ``first``: rows of the call before."""
    numbers = []
    for part in parts:
        numbers.append(np.arange(first, first + part.rows) if part.numbers is None else part.numbers)
        first += part.rows
    return numbers


def numbers_of_calls(calls: Sequence[Call]) -> np.ndarray | None:
    """(rows,) int64: numbers of the rows over all calls; None where they are numbered as they lie."""
    if all(call.numbers is None for call in calls):
        return None
    numbers, first, start = [], 0, 0
    for call in calls:
        if not call.continues:
            start = first
        numbers.append(start + numbers_of([call], first - start)[0])
        first += call.rows
    return np.concatenate(numbers)


def starts_of(calls: Sequence[Call]) -> np.ndarray:
    """Number of the first row of each call, (calls,) int64."""
    ends = np.cumsum([0, *(call.rows for call in calls)], dtype=np.int64)[:-1]
    starts: np.ndarray = ends[[not call.continues for call in calls]]
    return starts


def oversized_rows(block: RowBlock) -> np.ndarray | None:
    """(n,) bool: rows of more than 64 MiB; None when there are none."""
    if block.nbytes <= MAX_ROW_BYTES:
        return None
    total = np.zeros(block.rows, np.int64)
    for column in block.columns.values():
        if column.offsets is None:
            total += column.width
        else:
            total += np.diff(column.offsets)
    large = total > MAX_ROW_BYTES
    return large if large.any() else None


def default_bytes(schema: Schema, calls: Sequence[Call]) -> int:
    """At most so many bytes of defaults come to the rows of calls: of strings that are not given."""
    total = 0
    for call in calls:
        op = call.ops if isinstance(call.ops, int) else None
        total += call.rows * row_default_bytes(schema, call.block.columns, op)
    return total


def row_default_bytes(schema: Schema, given: Container[int], op: int | None) -> int:
    """What defaults of strings take in a row that is inserted with the columns given, and no others.

    ``op``: the operation of the rows, None for several.
    """
    if op is not None and op not in INSERTING:
        return 0
    return sum(
        len(raw_bytes(column.type, column.write_default))
        for column in schema.value_columns
        if not column.type.width and column.write_default and column.id not in given
    )


__all__ = [
    "INSERTING",
    "MAX_ROW_BYTES",
    "Call",
    "default_bytes",
    "fitted",
    "join",
    "joined",
    "no_rows",
    "numbers_of_calls",
    "oversized_rows",
    "row_default_bytes",
    "same_form",
    "starts_of",
]
