"""Some rows, given as dicts or as a record batch, written as one record: the compiled paths for short calls.

The same steps in the same order as in ``log_walk.py``, for the plain case of ``one_row.py``: rows that the
rules accept or ignore, with values of the exact Python or Arrow types of their columns.  Here, too, all rows
give the same columns, and no key is there twice.  Everything else returns None, with nothing done, and the
general path answers: refused rows, conversions, repeated keys, dead entries to be revived, batches that go to
files.

It is the fixed cost of the general path that a short call is spared: some hundred arrays for ten rows of six
columns, however few the rows are.  The walk is compiled (``_ext/few/few_writes.pyx``), with its loops over
rows, cells and tablets.

As for one row it takes the mutexes of the tablets alone, and not ``short_writes``.

More rows of a record batch are never made Python's: ``write_batch`` (``_ext/batch/batch_writes.pyx``) takes
the batch as columns of C, whose keys are encoded, looked up, logged and laid a column at a time.  It holds
``short_writes`` like the general path, and leaves to that the same cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from kudu_core.table.write.one_row import IGNORING, writes_of

if TYPE_CHECKING:
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.opened.engine import Engine

FEW_ROWS = 256
"""So many rows at most go this way.  Of more, the general path's fixed cost is the smaller part, and the
interpreter's lock would be held for long."""
BATCH_ROWS = 8192
"""So many rows of a record batch at most go by ``write_batch``.  Of more, fixed costs are a small part."""
FEW_OF_A_BATCH = 20
"""Up to so many rows of a record batch are written as a few rows are, which costs less."""


Given: TypeAlias = list[dict[Any, Any]] | pa.RecordBatch


def write_few(engine: Engine, operation: str, given: Given, wait: bool = True) -> WriteResult | None:
    """Apply one operation to a few rows, all or nothing; None: nothing was done, take the general path."""
    writes = writes_of(engine)
    if writes is None:
        return None  # refused
    call, ignores = IGNORING[operation]
    done: WriteResult | None = writes.write_few(call, ignores, given, wait)
    return done


def write_batch(
    engine: Engine, operation: str, given: pa.RecordBatch, wait: bool = True
) -> WriteResult | None:
    """Apply one operation to the rows of a record batch, all or nothing; None: nothing was done, take the
    general path."""
    writes = writes_of(engine)
    if writes is None:
        return None  # refused
    call, ignores = IGNORING[operation]
    done: WriteResult | None = writes.write_batch(call, ignores, given, wait)
    return done


__all__ = ["BATCH_ROWS", "FEW_OF_A_BATCH", "FEW_ROWS", "Given", "write_batch", "write_few"]
