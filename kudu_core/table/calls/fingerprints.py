"""The fingerprint of a call's rows, by which a repetition of a write with a token is known (protocol K1).

A fingerprint is the number of a write's rows and sums of a hash of each row.  Sums add up over batches,
spilled runs and tasks, so it does not matter how the rows came.  The fingerprint of a call is made before
anything is locked, that of a spilled call while its runs are sorted, that of a distributed job by the tasks
that stage.  It goes into the record and into TABLE with the write's token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kudu_core.common.idempotence.fingerprint import (
    IGNORING_NULL,
    Fingerprint,
    U64Array,
    of_hashes,
    row_hashes,
    total,
)
from kudu_core.common.idempotence.writers import Txn
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.pool import Pool
from kudu_core.common.schema.older_types import forms_of
from kudu_core.table.calls.call import Call

HASHED_ROWS = 1 << 17
"""Rows that one task of a thread hashes."""


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
    forms = {} if call.schema is None else forms_of(call.schema.columns)
    return row_hashes(ops, columns, call.rows, forms)


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
    part = Call(ops, call.block.slice(lower, upper), ignore_null=call.ignore_null, schema=call.schema)
    return of_hashes(call_hashes(part))


def _fingerprint(part: tuple[Call, int]) -> Fingerprint:
    call, lower = part
    return fingerprint_of_rows(call, lower, min(lower + HASHED_ROWS, call.rows))


def named(txn: Txn | None, calls: Sequence[Call], pool: Pool) -> Txn | None:
    """A write with the fingerprint of its rows, which these calls give, unless it has one."""
    if txn is None or txn.rows is not None:
        return txn
    return txn.of(fingerprint_of(calls, pool))


__all__ = ["call_hashes", "fingerprint_of", "fingerprint_of_rows", "named"]
