"""A few rows, given as dicts or as a record batch, written as one record: the row path for short calls.

The same steps in the same order as in ``log_walk.py``, for the plain case of ``one_row.py``: rows that the
rules accept or ignore, with values of the exact Python or Arrow types of their columns.  Here, too, all rows
give the same columns, and no key is there twice.  Everything else returns None, with nothing done, and the
general path answers: refused rows, conversions, repeated keys, dead entries to be revived, batches that go to
files.

It is the fixed cost of the general path that a short call is spared: some hundred arrays for ten rows of six
columns, however few the rows are.  The walk is compiled (``_ext/few/few_writes.pyx``), with its loops over
rows, cells and tablets.

As for one row it takes the mutexes of the tablets alone, and not ``short_writes``.
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


Given: TypeAlias = list[dict[Any, Any]] | pa.RecordBatch


def write_few(engine: Engine, operation: str, given: Given, wait: bool = True) -> WriteResult | None:
    """Apply one operation to a few rows, all or nothing; None: nothing was done, take the general path."""
    writes = writes_of(engine)
    if writes is None:
        return None  # refused
    call, ignores = IGNORING[operation]
    done: WriteResult | None = writes.write_few(call, ignores, given, wait)
    return done


__all__ = ["FEW_ROWS", "Given", "write_few"]
