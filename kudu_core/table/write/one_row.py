"""One row given as a dict, written without Arrow: the row path beside ``log_walk.py``.

The same steps in the same order for the plain case: a row that the rules accept or ignore, values of the
exact Python types of their columns.  Everything else returns None, with nothing done, and the general path
answers: refused rows, conversions, dead entries to be revived, batches that go to files.

It takes the mutex of one tablet, and not ``short_writes``: that keeps calls from handing several locks, and
the interpreter's lock between short kernels, to and fro, and here there is one lock and no such kernel.

The walk itself is compiled (``_ext/few/row_writes.pyx``): in Python it took 6 us of the 8 of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.batch.batch_writes import BatchWrites
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.store_memory import no_memory
from kudu_core.tablet.view.view import KeyBatch, View, locate_newest

if TYPE_CHECKING:
    from kudu_core._ext.batch.given_batch import GivenBatch
    from kudu_core.table.opened.engine import Engine

IGNORING = {
    "insert": (CALL_INSERT, False),
    "insert_ignore": (CALL_INSERT, True),
    "upsert": (CALL_UPSERT, False),
    "update": (CALL_UPDATE, False),
    "update_ignore": (CALL_UPDATE, True),
    "delete": (CALL_DELETE, False),
    "delete_ignore": (CALL_DELETE, True),
}
"""What is asked of a row, and whether a row that is refused is passed over."""


def write_row(engine: Engine, operation: str, row: dict[Any, Any], wait: bool = True) -> WriteResult | None:
    """Apply one operation to one row; None: nothing was done, take the general path."""
    writes = engine.row_writes or writes_of(engine)
    if writes is None:
        return None  # refused
    call, ignores = IGNORING[operation]
    done: WriteResult | None = writes.write(call, ignores, row, wait)
    return done


def _located(
    view: View, batch: GivenBatch, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the keys of some rows of a batch live, in a view with rowsets on disk."""
    keys = KeyBatch(EncodedKeys(batch.data, batch.offsets), batch.hashes)
    homes = locate_newest(view, keys if rows is None else keys.take(rows))
    return homes.store, homes.row, homes.ghost


def writes_of(engine: Engine) -> BatchWrites | None:
    """What writes rows into the table for as long as it is open; None: it is open for reading."""
    if engine.row_writes is None and engine.writer:
        options = engine.options
        engine.row_writes = BatchWrites(
            engine,
            engine.log,
            engine.memory,
            ingest_bytes=options.ingest_threshold_bytes,
            ingest_rows=options.ingest_threshold_rows,
            limit_bytes=engine.memory.limit_bytes,
            result=WriteResult,
            no_memory=no_memory,
            locate=_located,
            checks=engine.tablet_context.check is not None,
        )
    return engine.row_writes


__all__ = ["IGNORING", "write_row", "writes_of"]
