"""The walk of a write by predicate through the log (protocol W3, W5 to W7).

mutexes of all tablets -> find the rows -> reserve -> log record -> apply -> release -> wait.

Each row was found where it lives, under the mutexes that are still held: it is there, it is there once, and
its tablet and store are known.  So no key is encoded, looked up, grouped or routed, and no rule decides: the
rows are net changes as they stand.  What follows is as in ``log_walk.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from kudu_core._ext.rules import decide as rules
from kudu_core.common.idempotence.writers import Txn
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.locks import HeldLocks
from kudu_core.errors import ColumnTooLarge
from kudu_core.table.calls.call import Call, oversized_rows
from kudu_core.table.calls.refused import none_refused
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.record import recorded
from kudu_core.table.write.log_walk import fits_log
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying, Moved, values_only
from kudu_core.tablet.store.tablet import Tablet, newest_of
from kudu_core.wal import RECORD_KIND_WRITE

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of one store that a predicate selects, and what becomes of them."""

    tablet: Tablet
    store: int
    """Counts in ``tablet.view.stores``."""
    rows: np.ndarray
    """(n,) int64: ordinals or rowids in that store."""
    block: RowBlock
    """The key columns, and those that get new values."""


def write_found(
    engine: Engine,
    op: int,
    collect: Callable[[], Sequence[FoundRows]],
    *,
    on_error: str,
    txn: Txn | None,
    wait: bool = True,
) -> WriteResult | None:
    """Apply ``op``, an update or a delete of a record, to the rows that ``collect`` finds in the newest state
    under the mutexes of every tablet.

    None: they do not fit into the log, and nothing happened.  The token's lock is the caller's.  ``wait``:
    until the answer's timestamp is visible.
    """
    while True:
        tablets = engine.tablets
        with HeldLocks([tablet.mutex for tablet in tablets]):
            if engine.tablets is not tablets:
                continue  # ALTER was faster, or an overwrite
            found = collect()
            nbytes = sum(some.block.nbytes for some in found)
            if not fits_log(engine, sum(some.block.rows for some in found), nbytes):
                return None
            if any(oversized_rows(some.block) is not None for some in found):
                return None  # who writes files refuses these rows
            try:
                result, ts = _write_locked(engine, tablets, op, found, txn)
            except Moved:
                engine.memory.wake_flushes()  # once more: the rows have other homes
                continue
        if wait:
            engine.wait_visible(ts)
        if on_error == "raise":
            return result
        return replace(result, errors=none_refused(engine.schema, on_error))


def as_calls(op: int, found: Sequence[FoundRows]) -> Sequence[Call]:
    """What was found as calls, for a write into files."""
    call = rules.CALL_DELETE if op == records.RECORD_DELETE else rules.CALL_UPDATE
    blocks = [some.block for some in found]
    if not blocks:
        return ()
    try:
        return (Call(call, RowBlock.concat(blocks)),)
    except ColumnTooLarge:  # files take it in pieces
        return [Call(call, block, continues=at > 0) for at, block in enumerate(blocks)]


def _write_locked(
    engine: Engine, tablets: Sequence[Tablet], op: int, found: Sequence[FoundRows], txn: Txn | None
) -> tuple[WriteResult, int]:
    """Under the mutexes of the tablets: reserve, log, apply.  Returns the timestamp to wait for."""
    engine.check_writable()
    if not found and txn is None:
        # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
        ts = newest_of(tablets)
        return WriteResult(max(ts, engine.visible_ts)), ts
    rows = sum(some.block.rows for some in found)
    counts = (0, 0, rows, 0) if op == records.RECORD_DELETE else (0, rows, 0, 0)
    layings: list[Laying] = []
    touched: list[int] = []
    positions: list[np.ndarray] = []
    for tablet, mine in groupby(found, lambda some: some.tablet):
        laying = Laying(tablet)
        for some in mine:
            laying.change_one_store(op, some.store, some.rows, values_only(engine.schema, some.block))
            positions.append(np.full(some.block.rows, len(touched), np.int32))
        layings.append(laying)
        touched.append(tablet.id)
    sections = []
    if found:
        block = RowBlock.concat([some.block for some in found])
        sections.append(records.Section(op, block, np.concatenate(positions)))
    payload = records.Payload(tuple(touched), sections, {})
    if txn is not None:
        payload.extra = {"txn": txn.to_json(), "counts": list(counts)}
    parts = records.encode(payload)
    engine.memory.reserve(layings, sum(memoryview(part).nbytes for part in parts))
    version = engine.schema.version
    with recorded(engine, RECORD_KIND_WRITE, version, parts, txn=txn, counts=counts) as ts:
        for laying in layings:
            laying.lay(ts)
    return WriteResult(ts, *counts), ts


__all__ = ["FoundRows", "as_calls", "write_found"]
