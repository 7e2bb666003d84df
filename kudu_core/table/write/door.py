"""The door of all writes: it alone chooses whether they go through the log, into files, or to disk first.

* A list with a single dict, or with a few, and a few rows of Arrow go by the row path (``one_row.py``,
  ``few_rows.py``), if that can answer them.
* Calls of few rows go through the log (``log_walk.py``), and so do few rows that a predicate selects
  (``found_walk.py``).
* Calls of many rows become files that one record names (``table/ingest/ingest.py``).
* Calls that come to more than a quarter of ``memory_limit_bytes`` while they arrive are sorted and spilled,
  and then ingested (``table/ingest/spill.py``).  So the memory that a call needs does not grow with its rows.

If the caller passes an Arrow table that already has the table's types, in batches that are not small, it is
sorted where it lies.  Spilling it would not free memory, because the caller still holds it.

The rows of a ``where=`` write are known only under the mutexes.  If they are too many for the log, its walk
gives that back as its answer, with nothing done, and the door takes the other way.

None of the ways knows another, nor the door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.idempotence.writers import CHECK, Txn, check_txn
from kudu_core.common.rows.pandas_frames import is_pandas_frame, of_pandas
from kudu_core.common.run.measure.call_times import FAST_S, now_s
from kudu_core.common.run.measure.work import under_way
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import TYPE_BOOL
from kudu_core.errors import InvalidArgument
from kudu_core.table.calls.call import Call
from kudu_core.table.calls.conform import apply_calls, conform_calls, with_policy
from kudu_core.table.calls.fingerprints import named
from kudu_core.table.calls.refused import check_on_error, none_refused
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest.ingest import ingest_calls, ingest_collected
from kudu_core.table.ingest.spill import ingest_collected_spilled, ingest_spilled
from kudu_core.table.opened.record import once
from kudu_core.table.runs import sorted as sorted_runs
from kudu_core.table.write import found_walk, log_walk
from kudu_core.table.write.expired_rows import are_clear, clear_keys, sweep
from kudu_core.table.write.few_rows import (
    BATCH_ROWS,
    FEW_OF_A_BATCH,
    FEW_ROWS,
    Given,
    write_batch,
    write_few,
)
from kudu_core.table.write.one_row import write_row
from kudu_core.table.write.where import where_rows
from kudu_core.tablet.store.records import RECORD_DELETE, RECORD_UPDATE

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet

TxnLike = tuple[str, int] | tuple[str, int, str]
"""As ``txn`` of every write: (app_id, version), or with the id of what the rows come from."""
KEPT_DIVISOR = 4
"""The memory limit divided by this: what a call may keep in memory before it is spilled."""


# ---- what the methods of a table were given ----


def write_rows(
    engine: Engine,
    operation: str,
    data: Any,
    on_error: str,
    txn: Any = None,
    on_repeat: str = CHECK,
    wait: bool = True,
) -> WriteResult:
    """Rows, or keys, with one operation."""
    call_times = engine.call_times
    stands_for = next(call_times.writes_due)
    began_s = now_s() if stands_for or call_times.times_all else 0.0
    few = None
    if txn is None:
        few = _few(data)
        if few is None and is_pandas_frame(data) and 0 < len(data) <= FEW_ROWS:
            _checked(engine, on_error, None, on_repeat)
            data = of_pandas(data, engine.schema)
            few = _few(data)
    if few is not None and engine.schema.ttl is not None and not are_clear(engine, few):
        few = None
    if few is not None:
        if on_error != "raise" or on_repeat != CHECK:
            check_on_error(on_error)
            check_txn(None, on_repeat)
        done = _written(engine, operation, few, wait)
        if done is not None and on_error == "return":
            done = replace(done, errors=none_refused(engine.schema, on_error))
        if done is not None:
            if began_s and (stands_for or now_s() - began_s > FAST_S):
                call_times.wrote(began_s, done, stands_for, sampled=not call_times.times_all)
            return done
    began_s = began_s or now_s()
    token = _checked(engine, on_error, txn, on_repeat)
    parts = conform_calls(engine.schema, operation, data)
    done = write_parts(engine, parts, given=data, on_error=on_error, txn=token, wait=wait)
    call_times.wrote(began_s, done, stands_for)
    return done


def _written(engine: Engine, operation: str, few: Given, wait: bool) -> WriteResult | None:
    """By the compiled path that is the faster of those that can answer; None: none can."""
    if type(few) is list:
        if len(few) == 1:
            return write_row(engine, operation, few[0], wait)
        return write_few(engine, operation, few, wait)
    assert isinstance(few, pa.RecordBatch)
    done = write_batch(engine, operation, few, wait) if len(few) > FEW_OF_A_BATCH else None
    return write_few(engine, operation, few, wait) if done is None and len(few) <= FEW_ROWS else done


def _few(data: Any) -> Given | None:
    """Rows in a form, and so few of them, that the row path may take them; None: the general path does."""
    kind = type(data)
    if kind is list:
        return data if 0 < len(data) <= FEW_ROWS and type(data[0]) is dict else None
    if kind is pa.Table:
        if 0 < data.num_rows <= BATCH_ROWS:
            batches = data.to_batches()
            return batches[0] if len(batches) == 1 else None
        return None
    return data if kind is pa.RecordBatch and 0 < data.num_rows <= BATCH_ROWS else None


def write_mixed(
    engine: Engine,
    data: Any,
    op_column: str,
    on_error: str,
    txn: Any = None,
    on_repeat: str = CHECK,
    wait: bool = True,
) -> WriteResult:
    """Rows whose operations the column ``op_column`` names."""
    began_s = now_s()
    token = _checked(engine, on_error, txn, on_repeat)
    parts = apply_calls(engine.schema, data, op_column)
    done = write_parts(engine, parts, given=data, on_error=on_error, txn=token, wait=wait)
    engine.call_times.wrote(began_s, done)
    return done


def write_where(
    engine: Engine,
    where: Any,
    set_: dict[str, Any] | None,
    on_error: str,
    txn: Any = None,
    on_repeat: str = CHECK,
    wait: bool = True,
) -> WriteResult:
    """An update by ``set_``, or without it a deletion, of the rows that a predicate selects."""
    began_s = now_s()
    token = _checked(engine, on_error, txn, on_repeat)
    collect, says = where_rows(engine, where, set_)
    op = RECORD_DELETE if set_ is None else RECORD_UPDATE
    named_token = None if token is None else token.of(says())

    def write() -> WriteResult:
        engine.memory.admit()
        done = found_walk.write_found(engine, op, collect, on_error=on_error, txn=named_token, wait=wait)
        if done is not None:
            return done

        def calls() -> Sequence[Call]:
            return found_walk.as_calls(op, collect())

        return ingest_collected(engine, calls, on_error=on_error, txn=named_token)

    answer = once(engine, named_token, write, wait=wait)
    engine.call_times.wrote(began_s, answer)
    return answer


def write_collected(
    engine: Engine,
    touched: Callable[[], Sequence[Tablet]],
    collect: Callable[[], Sequence[Call]],
    *,
    on_error: str,
    txn: Txn | None = None,
    wait: bool = True,
) -> WriteResult:
    """Calls that are made of the newest state: ``collect`` makes them under the mutexes of the tablets that
    ``touched`` names, and may be asked more than once.  ``txn`` has its fingerprint."""

    def write() -> WriteResult:
        engine.memory.admit()
        done = log_walk.write_collected(engine, touched, collect, on_error=on_error, txn=txn, wait=wait)
        return ingest_collected(engine, collect, on_error=on_error, txn=txn) if done is None else done

    return once(engine, txn, write, wait=wait)


def write_made(
    engine: Engine, made: Callable[[], Iterator[Call]], *, on_error: str, txn: Txn | None
) -> WriteResult:
    """The same of calls that memory does not hold all at once, as parts of one call: through files."""

    def write() -> WriteResult:
        engine.memory.admit()
        return ingest_collected_spilled(engine, made, on_error=on_error, txn=txn)

    return once(engine, txn, write)


def update(
    engine: Engine,
    data: Any,
    where: Any,
    set_: Mapping[str, Any] | None,
    on_missing: str,
    on_error: str,
    txn: TxnLike | None,
    on_repeat: str,
    wait: bool,
) -> WriteResult:
    """Either rows with their keys, or what a predicate selects with ``set_``."""
    operation = with_policy("on_missing", on_missing, "update")
    if data is None:
        if where is None or not set_:
            raise InvalidArgument("update takes rows with keys, or where= together with set={...}")
        return write_where(engine, where, dict(set_), on_error, txn, on_repeat, wait)
    if where is not None or set_ is not None:
        raise InvalidArgument("update takes either rows with keys, or where= and set=, not both")
    return write_rows(engine, operation, data, on_error, txn, on_repeat, wait)


def delete(
    engine: Engine,
    keys: Any,
    where: Any,
    on_missing: str,
    on_error: str,
    txn: TxnLike | None,
    on_repeat: str,
    wait: bool,
) -> WriteResult:
    """Either keys, or what a predicate selects."""
    operation = with_policy("on_missing", on_missing, "delete")
    if (keys is None) == (where is None):
        raise InvalidArgument("delete takes either rows with the key columns, or where=")
    if where is not None:
        return write_where(engine, where, None, on_error, txn, on_repeat, wait)
    return write_rows(engine, operation, keys, on_error, txn, on_repeat, wait)


def _checked(engine: Engine, on_error: str, txn: Any, on_repeat: str) -> Txn | None:
    """The write's token, the table and the arguments checked."""
    engine.check_writable()
    check_on_error(on_error)
    return check_txn(txn, on_repeat)


# ---- calls ----


def write_parts(
    engine: Engine,
    parts: Iterator[Call],
    *,
    given: Any = None,
    on_error: str = "raise",
    txn: Txn | None = None,
    job: str | None = None,
    wait: bool = True,
    clears: bool = True,
) -> WriteResult:
    """Apply the rows of one call, given batch by batch, as one record, all or nothing.

    ``given``: what the caller gave, of which the parts are made; a call that ``is_resident`` is not spilled.
    ``wait``: until the answer is visible; what goes to files is in any case, and so is a refusal.
    ``clears``: what has expired of the keys is as if it were not there; not so where rows are copied.
    An exception out of ``parts`` passes through, and nothing was applied.
    """
    limit = engine.options.memory_bytes // KEPT_DIVISOR
    work = under_way()
    if work is not None and work.is_load:
        work.begin("reading", work.total)
        parts = work.over(parts, lambda part: part.rows)
    kept: list[Call] = []
    nbytes = 0
    for part in parts:
        nbytes += part.block.nbytes
        if nbytes > limit and kept and not is_resident(engine.schema, given):
            whole = chain(_drained(kept), (part,), parts)
            if clears and engine.schema.ttl is not None:
                sweep(engine)
            return ingest_spilled(engine, whole, on_error=on_error, txn=txn, job=job)
        kept.append(part)
    return write_calls(engine, kept, on_error=on_error, txn=txn, job=job, wait=wait, clears=clears)


def write_calls(
    engine: Engine,
    calls: Sequence[Call],
    *,
    on_error: str = "raise",
    txn: Txn | None = None,
    job: str | None = None,
    wait: bool = True,
    clears: bool = True,
) -> WriteResult:
    """Apply calls that are in memory, in order, as one record, all or nothing.

    ``job``: the id of the distributed write that they are.  ``wait``, ``clears``: as of ``write_parts``.
    """
    if not calls and txn is None:
        return WriteResult(engine.visible_ts, errors=none_refused(engine.schema, on_error))
    token = named(txn, calls, engine.pool)

    def write() -> WriteResult:
        engine.memory.admit()
        if log_walk.fits(engine, calls):
            if clears:
                clear_keys(engine, (call.block for call in calls))
            return log_walk.write_calls(engine, calls, on_error=on_error, txn=token, job=job, wait=wait)
        if clears and engine.schema.ttl is not None:
            sweep(engine)
        return ingest_calls(engine, calls, on_error=on_error, txn=token, job=job)

    return once(engine, token, write, wait=wait)


def is_resident(schema: Schema, data: Any) -> bool:
    """Whether the rows can be sorted where they lie: then to spill them would free nothing.

    They lie in memory, in the table's types, and not in many small batches.
    """
    if isinstance(data, pa.Table):
        chunks = max((column.num_chunks for column in data.columns), default=0)
        if data.num_rows < chunks * (sorted_runs.RUN_ROWS // sorted_runs.WHOLE_DIVISOR):
            return False
    elif not isinstance(data, pa.RecordBatch):
        return False
    for field in data.schema:
        column = schema.by_name.get(field.name)
        if column is None or column.type.arrow != field.type or column.type.kind == TYPE_BOOL:
            return False
    return True


def _drained(calls: list[Call]) -> Iterator[Call]:
    """The calls, let go of one by one."""
    calls.reverse()
    while calls:
        yield calls.pop()


__all__ = [
    "is_resident",
    "write_calls",
    "write_collected",
    "write_made",
    "write_mixed",
    "write_parts",
    "write_rows",
    "write_where",
]
