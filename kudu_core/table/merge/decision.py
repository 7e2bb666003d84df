"""What a merge makes of the rows that it is given, decided under the mutexes (protocol W3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.rules import decide as rules
from kudu_core.common.idempotence.fingerprint import Fingerprint, total
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.rows.shown import Shown, stored_of
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.where.seen import seen
from kudu_core.errors import InvalidArgument, SchemaMismatch
from kudu_core.table.calls.call import Call
from kudu_core.table.calls.refused import CONDITION_FAILED, OK
from kudu_core.table.merge.clauses import CheckedClause, Clause
from kudu_core.table.merge.merge_source import MergeSource, SourcePart
from kudu_core.table.merge.sides import OLD, Column, Rows, passing
from kudu_core.table.merge.unmatched import unmatched_calls
from kudu_core.table.read.points import newest_rows
from kudu_core.table.write.batch_reads import touched_by

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet

_DELETING = (rules.CALL_DELETE, rules.CALL_DELETE_IGNORE)
_OPS = {"update": rules.CALL_UPDATE, "delete": rules.CALL_DELETE, "insert": rules.CALL_INSERT}


@dataclass(frozen=True, slots=True)
class Rest:
    """What is told of rows to which no clause applies."""

    op: int
    """Of which call they are; the row rules say what they come to."""
    failed: bool = False
    """They are refused, since their condition does not hold."""


@dataclass
class Outcome:
    """What one try has come to, beside its calls."""

    schema: Schema
    applied: npt.NDArray[np.int64]
    """(clauses,) rows to which each was applied."""
    without: int = 0
    """Rows that were given and to which none was."""
    there: list[tuple[npt.NDArray[np.int64], pa.RecordBatch]] = field(default_factory=list)
    """Numbers of rows that are refused, and the rows that are there, as of ``newest_rows``."""


@dataclass(frozen=True)
class _Checked:
    """All that one schema says of a merge."""

    schema: Schema
    parts: Iterable[SourcePart]
    clauses: Sequence[CheckedClause]
    columns: Sequence[StoredColumn]
    """What is read of the rows that are there."""

    def of(self, kind: str) -> list[CheckedClause]:
        return [clause for clause in self.clauses if clause.clause.of == kind]


class Decision:
    """A merge on its way: rows, clauses, and what becomes of rows without one."""

    def __init__(
        self,
        engine: Engine,
        source: MergeSource,
        clauses: Sequence[Clause],
        *,
        matched_rest: Rest | None = None,
        absent_rest: Rest | None = None,
    ) -> None:
        """Checks all that can be checked before anything is locked."""
        self._engine = engine
        self._source, self._clauses = source, clauses
        self._matched_rest, self._absent_rest = matched_rest, absent_rest
        self._checked = self._check(engine.schema)
        self.outcome = Outcome(self._checked.schema, np.zeros(len(clauses), np.int64))

    @property
    def checked(self) -> _Checked:
        """By the schema of now."""
        if self._checked.schema is not self._engine.schema:
            self._checked = self._check(self._engine.schema)
        return self._checked

    def _check(self, schema: Schema) -> _Checked:
        parts = self._source.parts(schema)
        seen = list(islice(parts, 1)) if self._source.is_large else list(parts)
        given = _given_schema(seen) if any(clause.has_text for clause in self._clauses) else pa.schema([])
        clauses = [clause.checked(schema, number, given) for number, clause in enumerate(self._clauses)]
        for part in seen:
            _check_part(schema, part, clauses)
        names = sorted({name for clause in clauses for name in clause.old if clause.clause.of == "matched"})
        return _Checked(schema, parts, clauses, stored_of(schema, map(schema.seen, names)))

    def source_fingerprint(self) -> Fingerprint:
        return total(part.fingerprint() for part in self.checked.parts)

    def touched(self) -> Sequence[Tablet]:
        """The tablets whose rows are read or changed, in their order."""
        tablets = self._engine.tablets
        checked = self.checked
        if checked.of("by_source") or self._source.is_large:
            return tablets
        return touched_by(tablets, [part.key_block for part in checked.parts])

    def calls(self) -> Sequence[Call]:
        """The calls that the merge comes to, by the newest state.  Under the mutexes of ``touched``.

        Also sets ``outcome``.
        """
        return list(self.made())

    def made(self) -> Iterator[Call]:
        """The same, one after the other, as parts of one call."""
        checked = self.checked
        self.outcome = Outcome(checked.schema, np.zeros(len(self._clauses), np.int64))
        begun = False
        for part in checked.parts:
            _check_part(checked.schema, part, checked.clauses)
            for hit in self._part_hits(checked, part):
                if len(hit.numbers):
                    yield hit.call(continues=begun)
                    begun = True
        by_source = checked.of("by_source")
        if by_source:
            for clause, blocks in unmatched_calls(self._engine, by_source, checked.parts):
                self.outcome.applied[clause.number] += sum(block.rows for block in blocks)
                for block in blocks:
                    yield Call(_OPS[clause.clause.action], block, continues=begun)
                    begun = True

    def _part_hits(self, checked: _Checked, part: SourcePart) -> Iterator[_Hit]:
        """What becomes of the rows of one part."""
        there = newest_rows(self._engine, part.keys, part.key_block, checked.columns)
        found = there.columns[-1].to_numpy(zero_copy_only=False) & part.keyed
        sides = _Sides(checked, part, there)
        rest = np.flatnonzero(found)
        for clause in checked.of("matched"):
            hit, rest = _taken(clause, sides, rest)
            yield from self._hit(clause, sides, hit)
        if self._matched_rest is not None:
            yield _told(self._matched_rest, part, rest)
            self._note_there(checked, part, rest)
        else:
            self.outcome.without += len(rest)
        rest = np.flatnonzero(~found)
        for clause in checked.of("not_matched"):
            hit, rest = _taken(clause, sides, rest)
            yield from self._hit(clause, sides, hit)
        if self._absent_rest is not None:
            yield _told(self._absent_rest, part, rest)
        else:
            self.outcome.without += len(rest)

    def _hit(self, clause: CheckedClause, sides: _Sides, rows: Rows) -> Iterator[_Hit]:
        if not len(rows):
            return
        self.outcome.applied[clause.number] += len(rows)
        part, schema = sides.part, sides.checked.schema
        key = part.key_block.take(rows)
        status = part.refused(rows, keys_alone=clause.clause.action == "delete")
        if clause.clause.action == "delete":
            block = key
        elif clause.assigned is None:
            block = part.block.take(rows)
        else:
            made, refused = clause.assigned.block(sides.of(rows), len(rows))
            columns = {**key.columns, **made.columns}
            block = RowBlock({c.id: columns[c.id] for c in schema.columns if c.id in columns}, len(rows))
            status = part.refused(rows, keys_alone=True)
            if refused is not None:
                status = refused if status is None else np.where(status == OK, refused, status)
        yield _Hit(_OPS[clause.clause.action], block, part.numbers[rows], status)

    def _note_there(self, checked: _Checked, part: SourcePart, rows: Rows) -> None:
        """Keep the rows that are there where a row that is given will be refused."""
        if not len(rows):
            return
        keys, block = part.keys.take(rows), part.key_block.take(rows)
        batch = newest_rows(self._engine, keys, block, checked.schema.columns)
        self.outcome.there.append((part.numbers[rows], batch))


@dataclass(slots=True)
class _Hit:
    """Rows of one part and what is done with them."""

    op: int
    block: RowBlock
    numbers: Rows
    status: npt.NDArray[np.uint8] | None

    def call(self, *, continues: bool) -> Call:
        return Call(self.op, self.block, self.status, alone=True, continues=continues, numbers=self.numbers)


def _told(rest: Rest, part: SourcePart, rows: Rows) -> _Hit:
    """Rows to which no clause applies."""
    if rest.failed:
        status: npt.NDArray[np.uint8] | None = np.full(len(rows), CONDITION_FAILED, np.uint8)
    else:
        status = part.refused(rows, keys_alone=rest.op in _DELETING)
    return _Hit(rest.op, part.block.take(rows), part.numbers[rows], status)


class _Sides:
    """Columns of both rows of each key of a part, as expressions see them."""

    def __init__(self, checked: _Checked, part: SourcePart, there: pa.RecordBatch) -> None:
        self.checked, self.part = checked, part
        self._there = there
        self._known: dict[tuple[str, str], pa.Array] = {}

    def of(self, rows: Rows) -> Column:
        """Of some rows, (n,) int64."""
        return lambda side, name: self._column(side, name, rows)

    def _column(self, side: str, name: str, rows: Rows) -> pa.Array:
        known = self._known.get((side, name))
        if known is None:
            known = self._old(name) if side == OLD else self.part.column(name)
            self._known[side, name] = known
        return known if len(rows) == len(known) else known.take(pa.array(rows))

    def _old(self, name: str) -> pa.Array:
        columns, arrays = self.checked.columns, self._there.columns[:-1]
        one = self.checked.schema.seen(name)
        if isinstance(one, NestedColumn):
            absent = ~self._there.columns[-1].to_numpy(zero_copy_only=False)
            return Shown(columns, [one]).arrays(arrays, absent)[0]
        place = next(at for at, column in enumerate(columns) if column.id == one.id)
        return seen(arrays[place], one.type)


def _given_schema(parts: Sequence[SourcePart]) -> pa.Schema:
    """Of all columns that rows of some parts have."""
    try:
        return pa.unify_schemas([part.arrow for part in parts] or [pa.schema([])])
    except pa.ArrowException as error:
        raise SchemaMismatch(f"SQL text needs one type of a column in all rows: {error}") from None


def _check_part(schema: Schema, part: SourcePart, clauses: Sequence[CheckedClause]) -> None:
    """That rows have what is asked of them, and that nothing of them is lost unseen."""
    named = frozenset[str]().union(*(clause.new for clause in clauses))
    for name in sorted(named):
        part.column(name)
    for clause in clauses:
        if clause.assigned is not None or clause.clause.action == "delete":
            continue
        lost = [name for name in part.extra if name not in named]
        if lost:
            raise SchemaMismatch(
                f"{clause.clause.place}: column {lost[0]!r} of the rows is unknown; the table has "
                f"{', '.join(schema.declared_names)}; leave it out, or say which columns get which values"
            )
        if clause.clause.action == "update" and len(part.block.columns) == len(schema.key_ids):
            raise InvalidArgument(f"{clause.clause.place}: the rows have no column to set beside the key")


def _taken(clause: CheckedClause, sides: _Sides, rows: Rows) -> tuple[Rows, Rows]:
    """(rows that a clause takes, those that it leaves), of some."""
    if clause.where is None or not len(rows):
        return rows, rows[:0]
    mask = passing(clause.where, sides.of(rows), len(rows), clause.clause.place)
    return rows[mask], rows[~mask]


__all__ = ["Decision", "Outcome", "Rest"]
