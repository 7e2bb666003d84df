"""One row given as a dict, written without Arrow: the row path beside ``log_walk.py``.

The same steps in the same order for the plain case: a row that the rules accept or ignore, values of the
exact Python types of their columns.  Everything else returns None, with nothing done, and the general
path answers: refused rows, conversions, dead entries to be revived, batches that go to files.

It takes the mutex of one tablet, and not ``short_writes``: that keeps calls from handing several locks, and
the interpreter's lock between short kernels, to and fro, and here there is one lock and no such kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.keys.hashing import murmur3_one
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.store_memory import no_memory
from kudu_core.table.read.points import tablet_of_key
from kudu_core.tablet.store import records
from kudu_core.wal import RECORD_KIND_WRITE

if TYPE_CHECKING:
    from kudu_core._ext.row.shape import Cell
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet
    from kudu_core.tablet.view.view import View

CALLS = {
    "insert": CALL_INSERT,
    "insert_ignore": CALL_INSERT,
    "upsert": CALL_UPSERT,
    "update": CALL_UPDATE,
    "update_ignore": CALL_UPDATE,
    "delete": CALL_DELETE,
    "delete_ignore": CALL_DELETE,
}
"""Without what a row does that the rules refuse."""
_COUNTED = {
    records.RECORD_INSERT: "inserted",
    records.RECORD_UPDATE: "updated",
    records.RECORD_DELETE: "deleted",
}


def write_row(engine: Engine, operation: str, row: dict[Any, Any]) -> WriteResult | None:
    """Apply one operation to one row; None: nothing was done, take the general path."""
    engine.check_open()  # in the child of a fork a mutex may be held by nobody
    if not engine.writer:
        return None  # refused
    schema, tablets = engine.schema, engine.tablets
    options = engine.options
    writer = schema.row_codec.writer
    call = CALLS[operation]
    prepared = writer.prepare(row, call, options.ingest_threshold_bytes)
    if prepared is None or options.ingest_threshold_rows <= 1:
        return None
    key, cells = prepared
    try:
        tablet = tablet_of_key(tablets, key)
    except NeedsGeneralPath:
        return None
    if tablet is None:
        return None  # refused
    engine.memory.admit()
    with tablet.mutex:
        engine.check_writable()
        view = tablet.view
        if engine.schema is not schema or engine.tablets is not tablets:
            return None
        if view.active.schema.version != schema.version:
            return None
        key_hash = murmur3_one(key)
        try:
            found = _locate(view, key, key_hash)
        except (NeedsGeneralPath, PageError):
            return None
        if found is None:
            return None
        home, rowid = found
        if home is None and call <= CALL_UPSERT:
            op = records.RECORD_INSERT
            if call == CALL_UPSERT and not writer.complete(cells):
                return None
        elif home is not None and call >= CALL_UPSERT:
            op = records.RECORD_DELETE if call == CALL_DELETE else records.RECORD_UPDATE
        elif operation.endswith("_ignore"):
            op = 0
        else:
            return None  # refused
        if op:
            done = _log_and_apply(engine, schema, tablet, home, rowid, op, key, key_hash, cells)
            if done is None:
                return None
            ts = done
            result = WriteResult.of_one_row(ts, _COUNTED[op])
        else:
            # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
            ts = tablet.newest_applied
            result = WriteResult(max(ts, engine.visible_ts), ignored=1)
    if engine.log.visible_ts < ts:
        engine.wait_visible(ts)
    return result


def _log_and_apply(
    engine: Engine,
    schema: Schema,
    tablet: Tablet,
    home: MemRowSet | DiskRowSet | None,
    rowid: int,
    op: int,
    key: bytes,
    key_hash: int,
    cells: list[Cell],
) -> int | None:
    """Under the tablet's mutex: room, one record, and what it says in the store.  Returns its timestamp, or
    None: nothing was done, take the general path."""
    writer = schema.row_codec.writer
    payload = writer.payload(op, tablet.id, cells)
    engine.memory.check_batch(len(payload))
    active = tablet.view.active
    try:
        if home is None:
            active.reserve_insert_one(key, cells)
        elif isinstance(home, MemRowSet):
            home.reserve_change_one(writer.value_ids, writer.widths, cells)
        else:
            if home.active is None:
                home = home.with_active()
                tablet.view = tablet.view.with_rowset(home)
            home.reserve_change_one(op, writer.value_ids, writer.widths, cells)
    except OverflowError:
        return None  # a column fills up: the general path counts exactly
    except MemoryError:
        raise no_memory(len(payload)) from None
    engine.memory.note(len(payload))
    check = tablet.context.check is not None
    allocated = (active if home is None else home).allocated if check else 0
    log = engine.log
    # What ``recorded`` does (``table/opened/record.py``), written out: to enter and leave it would cost this
    # path 3 % (0.5 us of 14).  An interrupt at any place after the append ends in the ``except``.
    try:
        ts = log.append(RECORD_KIND_WRITE, schema.version, (payload,))
        if home is None:
            active.insert_one(ts, key, key_hash, cells)
        else:
            home.change_one(ts, op, rowid, writer.value_ids, cells)
        if check:
            took = (active if home is None else home).allocated
            assert took == allocated, "a row took more than was reserved for it"
        tablet.newest_applied = ts
        log.applied(ts)
    except BaseException as exc:
        log.poison_if_owed(exc)  # compiled, so that no signal comes before it
        raise
    return ts


def _locate(view: View, key: bytes, key_hash: int) -> tuple[MemRowSet | DiskRowSet | None, int] | None:
    """The store that holds the key live in its newest state, and its row there; (None, -1): no store.

    None: a dead entry of the active MemRowSet has to be revived.
    """
    ghost = False
    for index, row in view.points.find(key, key_hash):
        store = view.stores[index]
        if store.lives(row):
            return store, row
        ghost = ghost or index == 0
    return None if ghost else (None, -1)
