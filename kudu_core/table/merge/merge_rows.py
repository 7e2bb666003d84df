"""``table.merge``: rows given, and clauses that say what becomes of them and of the rows that are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.idempotence.fingerprint import Fingerprint, of_predicate
from kudu_core.common.idempotence.writers import Txn, check_txn
from kudu_core.common.rows.arrow_in import GivenRows, given_rows
from kudu_core.common.rows.shown import Shown
from kudu_core.errors import RowErrors
from kudu_core.table.calls.refused import check_on_error
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest.ingest import staging_of
from kudu_core.table.merge.clauses import Clause
from kudu_core.table.merge.decision import Decision, Outcome, Rest
from kudu_core.table.merge.merge_source import MergeSource, key_names
from kudu_core.table.merge.put_together import MergeClauses, check_duplicates
from kudu_core.table.merge.spooled import SpooledRows
from kudu_core.table.opened.handle import Handle
from kudu_core.table.write.door import KEPT_DIVISOR, write_collected, write_made
from kudu_core.table.write.expired_rows import clear_keys, sweep

if TYPE_CHECKING:
    from kudu_core.table.calls.arguments import OnDuplicate, OnError, OnRepeat
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.write.door import TxnLike


THERE = "there"
"""The column of refused rows that has the row that is there."""


@dataclass(frozen=True)
class MergeResult(WriteResult):
    """Counts of a merge; also to how many rows each clause was applied.

    ``ignored`` counts rows that were given and to which no clause was.

    >>> done = stock.merge([{"id": 1, "price": 2.0}, {"id": 9}]).when_matched({"price": 3.0}).execute()
    >>> done.clauses, done.updated, done.ignored
    ((1,), 1, 1)
    """

    clauses: tuple[int, ...] = ()
    """In the order in which the clauses were added, rows that were refused among them.  Of a repetition
    neither they nor ``ignored`` are known: () and 0."""


class Merge(MergeClauses):
    """A merge that is put together, clause by clause, and then executed.

    There are clauses for keys of which a row is there and one is given (matched), for those of which only one
    is given, and for those of which only one is there.  The first whose condition holds is applied; to a row
    for which none holds nothing happens.  Conditions and values are ``pyarrow.compute`` expressions over
    ``kc.old("n")``, a column of the row that is there, and ``kc.new("n")``, one of the row that is given.

    >>> merge = stock.merge([{"id": 1, "price": 9.0}, {"id": 7, "price": 5.0}])
    >>> merge = merge.when_matched({"price": kc.new("price")}, where=kc.new("price") > kc.old("price"))
    >>> merge.when_not_matched_insert().execute().clauses
    (1, 1)
    """

    def __init__(
        self,
        handle: Handle,
        source: Any,
        on: Any = None,
        *,
        on_duplicate: OnDuplicate = "error",
        sequence_by: str | None = None,
    ) -> None:
        check_duplicates(on_duplicate, sequence_by)
        super().__init__(handle.for_writing().schema)
        self._handle, self._data = handle, source
        self._on = key_names(handle.for_writing().schema, on)
        self._last_by = sequence_by

    def execute(
        self,
        *,
        on_error: OnError = "raise",
        txn: TxnLike | None = None,
        on_repeat: OnRepeat = "check",
    ) -> MergeResult:
        """Decide and apply it as one write, all or nothing, at one timestamp.

        >>> stock.merge([{"id": 1, "price": 9.0}]).when_matched().execute(txn=("prices", 1)).updated
        1

        Parameters are those of every write (``Table.insert``).  A source that can be read once is gone after.

        Raises
        ------
        RowErrors
            Rows were refused: several are given for one key and count ("duplicate_in_batch"), a value is NULL
            that may not be, or no partition takes the key.  Nothing was applied.
        SchemaMismatch, InvalidArgument
            A column is unknown or does not fit, or an expression fails on a row; nothing was applied.
        TokenMismatch
            As of every write.
        """
        asked = Asked(self._data, self._on, self.clauses, last_by=self._last_by)
        return executed(self._handle.for_writing(), asked, on_error, txn, on_repeat)


@dataclass(frozen=True)
class Asked:
    """What a merge is asked for."""

    data: Any
    on: Mapping[str, str]
    clauses: Sequence[Clause]
    matched_rest: Rest | None = None
    absent_rest: Rest | None = None
    last_by: str | None = None


def executed(engine: Engine, asked: Asked, on_error: str, txn: Any, on_repeat: str) -> MergeResult:
    """A merge, and what it answers."""
    check_on_error(on_error)
    done, outcome = merged(engine, asked, on_error, check_txn(txn, on_repeat))
    return result_of(done, outcome.applied, outcome.without)


def result_of(done: WriteResult, applied: np.ndarray, without: int) -> MergeResult:
    """The answer of a merge.  ``applied``: (clauses,) int64, rows of each; ``without``: rows of none."""
    counted = {one.name: getattr(done, one.name) for one in fields(WriteResult)}
    clauses = () if done.deduplicated else tuple(applied.tolist())
    ignored = done.ignored if done.deduplicated else without
    return MergeResult(**{**counted, "ignored": ignored}, clauses=clauses)


def merged(
    engine: Engine, asked: Asked, on_error: str, txn: Txn | None, wait: bool = True
) -> tuple[WriteResult, Outcome]:
    """Decide and apply it.

    Rows that come to more than a quarter of the memory limit, and are not tables in memory anyway, wait in a
    file until they are decided."""
    limit = engine.options.memory_bytes // KEPT_DIVISOR
    parts = given_rows(asked.data, engine.schema)
    kept: list[GivenRows] = []
    nbytes = 0
    for part in parts:
        kept.append(part)
        nbytes += part.batch.nbytes
        if nbytes > limit and not isinstance(asked.data, pa.Table | pa.RecordBatch):
            with staging_of(engine) as folder, SpooledRows(engine.fs.local, f"{folder}/given") as spooled:
                for one in chain(_drained(kept), parts):
                    spooled.add(one)
                return _executed(engine, asked, spooled, True, on_error, txn, wait)
    return _executed(engine, asked, kept, nbytes > limit, on_error, txn, wait)


def _drained(parts: list[GivenRows]) -> Iterator[GivenRows]:
    """The parts, let go of one by one."""
    parts.reverse()
    while parts:
        yield parts.pop()


def _executed(
    engine: Engine,
    asked: Asked,
    given: Iterable[GivenRows],
    is_large: bool,
    on_error: str,
    txn: Txn | None,
    wait: bool,
) -> tuple[WriteResult, Outcome]:
    source = MergeSource(given, asked.on, asked.last_by, is_large)
    decision = Decision(
        engine, source, asked.clauses, matched_rest=asked.matched_rest, absent_rest=asked.absent_rest
    )
    named = None if txn is None else txn.of(fingerprint_of(decision))
    if engine.schema.ttl is not None:
        if is_large or decision.checked.of("by_source"):
            sweep(engine)
        else:
            clear_keys(engine, (part.key_block for part in decision.checked.parts))
    try:
        if is_large:
            done = write_made(engine, decision.made, on_error=on_error, txn=named)
        else:
            done = write_collected(
                engine, decision.touched, decision.calls, on_error=on_error, txn=named, wait=wait
            )
    except RowErrors as error:
        if asked.matched_rest is None:
            raise
        raise RowErrors(str(error), with_there(error.errors, decision.outcome)) from None
    if asked.matched_rest is not None and done.errors is not None:
        done = replace(done, errors=with_there(done.errors, decision.outcome))
    return done, decision.outcome


def with_there(errors: pa.Table, outcome: Outcome) -> pa.Table:
    """Refused rows, each with the row that is there; NULL where there is none."""
    schema = outcome.schema
    shown = Shown(schema.columns, schema.declared if schema.nested else None)
    fields = [field.with_nullable(True).remove_metadata() for field in shown.arrow]
    if not outcome.there:
        return errors.append_column(THERE, pa.nulls(errors.num_rows, pa.struct(fields)))
    numbers = np.concatenate([numbers for numbers, _ in outcome.there])
    order = np.argsort(numbers)
    rows = errors["row"].to_numpy()
    place = np.minimum(np.searchsorted(numbers, rows, sorter=order), len(order) - 1)
    absent = numbers[order[place]] != rows
    stored = pa.Table.from_batches([batch for _, batch in outcome.there])
    some = stored.take(pa.array(order[place], mask=absent))
    arrays = shown.arrays([column.combine_chunks() for column in some.columns[:-1]], absent)
    cells = pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent))
    return errors.append_column(THERE, cells)


def fingerprint_of(decision: Decision) -> Fingerprint:
    """Of the rows that are given and of what is said of them.  It counts no rows: how many of these are
    refused nobody can tell from the counts."""
    return replace(decision.source_fingerprint() + said_by(decision), rows=0)


def said_by(decision: Decision) -> Fingerprint:
    """Of what the clauses say."""
    checked = decision.checked
    said: dict[str, Any] = {name: made for clause in checked.clauses for name, made in clause.said().items()}
    order = [f"{clause.number} {clause.clause.place}" for clause in checked.clauses]
    return of_predicate(pc.scalar(", ".join(order)), said)


__all__ = ["THERE", "Asked", "Merge", "MergeResult", "executed", "merged", "result_of", "said_by"]
