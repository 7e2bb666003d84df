"""Whether a write that names itself was applied before, and the fingerprint by which that is known
(protocol K1).

A fingerprint is the number of a write's rows and sums of a hash of each row.  Sums add up over batches,
spilled runs and tasks, so it does not matter how the rows came.  The fingerprint of a call is made before
anything is locked, that of a spilled call while its runs are sorted, that of a distributed job by the tasks
that stage.  It goes into the record and into TABLE with the write's token.

Under the token's lock the write is compared with what is known: an equal one is a repetition, a new version
is applied, and everything else is refused.  A table drops tokens by age and number when it writes TABLE, and
only those of records that TABLE covers; replay takes no token of such a record, so none comes back.  TABLE
names no write that the log may still lose.  A write that touches no tablet holds the mutex of one all the
same: an ALTER, which writes the tokens down, then either has its token or comes before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.idempotence.fingerprint import (
    IGNORING_NULL,
    Fingerprint,
    U64Array,
    of_hashes,
    row_hashes,
    total,
)
from kudu_core.common.idempotence.writers import CHECK, AppliedWrite, Txn
from kudu_core.common.run.pool import Pool
from kudu_core.errors import TokenMismatch
from kudu_core.table.calls.decision import Call
from kudu_core.table.calls.result import WriteResult

if TYPE_CHECKING:
    from kudu_core.common.rows.rowblock import ColumnBuffers
    from kudu_core.table.opened.engine import Engine

HASHED_ROWS = 1 << 17
"""Rows that one task of a thread hashes."""


def already_applied(engine: Engine, txn: Txn) -> WriteResult | None:
    """Under the token's lock: the answer to a write that was applied before; None: it was not.

    Raises
    ------
    TokenMismatch
        Its version was applied, by another write.
    InvalidArgument
        It is of a new writer, and the table knows too many that are too young to be forgotten.
    """
    known = engine.writers.applied_writes.get(txn.app_id)
    if known is None:
        engine.writers.make_room()
        return None
    return answered(engine, txn, known)


def answered(engine: Engine, txn: Txn, known: AppliedWrite) -> WriteResult | None:
    """``already_applied`` of a writer that was known when it was asked."""
    try:
        counts = txn.repeats(known, engine.path)
    except TokenMismatch:
        engine.wait_visible(known.ts)  # as every answer, it may rest on a record that is not durable yet
        raise
    if counts is None:
        return None
    engine.wait_visible(known.ts)
    return WriteResult(known.ts, *counts, deduplicated=True)


def known_before(engine: Engine, txn: Txn) -> AppliedWrite | None:
    """Under the token's lock: what is known of the writer, where the rows say if a write is a repetition.

    They are read for that and for nothing else: the answer is to be made with this token, which may be out
    of date, and gone, when they have been.
    """
    known = engine.writers.applied_writes.get(txn.app_id)
    if txn.on_repeat != CHECK or txn.rows is not None or known is None or txn.version > known.version:
        return None
    answered(engine, txn, known)  # what no rows can mend is told before they are read
    return known


def call_hashes(call: Call, added: int = 0, sequence: tuple[int, ColumnBuffers] | None = None) -> U64Array:
    """A hash of each row of a call.

    ``added``: to each operation, ``fingerprint.OVERWRITING``.  ``sequence``: id and cells of a column beside
    the table's.
    """
    if call.ignore_null:
        added |= IGNORING_NULL
    ops = call.ops
    if isinstance(ops, np.ndarray):
        ops = ops.astype(np.int64) + added
    else:
        ops += added
    columns = call.block.columns if sequence is None else {**call.block.columns, sequence[0]: sequence[1]}
    return row_hashes(ops, columns, call.rows)


def fingerprint_of(calls: Iterable[Call], pool: Pool) -> Fingerprint:
    """Of all rows of the calls, on all cores."""
    parts = [(call, lower) for call in calls for lower in range(0, call.rows, HASHED_ROWS)]
    if len(parts) <= 1:
        return total(_fingerprint(part) for part in parts)
    return total(pool.map(_fingerprint, parts))


def fingerprint_of_rows(call: Call, lower: int, upper: int) -> Fingerprint:
    """Of some rows of a call that follow each other; ``lower`` is a multiple of 8."""
    if (lower, upper) == (0, call.rows):
        return of_hashes(call_hashes(call))
    ops = call.ops[lower:upper] if isinstance(call.ops, np.ndarray) else call.ops
    part = Call(ops, call.block.slice(lower, upper), ignore_null=call.ignore_null)
    return of_hashes(call_hashes(part))


def _fingerprint(part: tuple[Call, int]) -> Fingerprint:
    call, lower = part
    return fingerprint_of_rows(call, lower, min(lower + HASHED_ROWS, call.rows))


def named(txn: Txn | None, calls: Sequence[Call], pool: Pool) -> Txn | None:
    """A write with the fingerprint of its rows, which these calls give, unless it has one."""
    if txn is None or txn.rows is not None:
        return txn
    return txn.of(fingerprint_of(calls, pool))


__all__ = [
    "already_applied",
    "answered",
    "call_hashes",
    "fingerprint_of",
    "fingerprint_of_rows",
    "known_before",
    "named",
]
