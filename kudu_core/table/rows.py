"""One row given as a dict, written without Arrow: the row path beside ``write.py``.

The same steps in the same order for the plain case: one tablet, one row that the rules accept or ignore,
values of the exact Python types of their columns.  Everything else returns None, with nothing done, and
the general path answers: refused rows, conversions, several tablets, dead entries to be revived,
batches that go to files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from kudu_core._ext.hashing import murmur3_one
from kudu_core._ext.pointcolumn import Elsewhere
from kudu_core._ext.rowcodec import MISSING
from kudu_core._ext.status import PageError
from kudu_core.rowset.diskrowset import DiskRowSet
from kudu_core.rowset.memrowset import MemRowSet
from kudu_core.table.result import WriteResult
from kudu_core.tablet import records
from kudu_core.wal import KIND_WRITE

if TYPE_CHECKING:
    from kudu_core._ext.rowcodec import Cell
    from kudu_core.common.schema import Schema
    from kudu_core.table.engine import Engine
    from kudu_core.tablet.tablet import Tablet
    from kudu_core.tablet.view import View

_ONLY_INSERTS = frozenset(("insert", "insert_ignore"))
_INSERTS = frozenset(("insert", "insert_ignore", "upsert"))
_UPDATES = frozenset(("update", "update_ignore", "upsert"))
_DELETES = frozenset(("delete", "delete_ignore"))


def write_row(engine: Engine, operation: str, row: dict[Any, Any]) -> WriteResult | None:
    """Apply one operation to one row; None: nothing was done, take the general path."""
    schema = engine.schema
    if len(engine.tablets) != 1:
        return None
    codec = schema.row_codec
    options = engine.options
    cells = codec.writer.cells(row, options.ingest_threshold_bytes)
    if cells is None or options.ingest_threshold_rows <= 1:
        return None
    names = schema.key_names
    try:
        key = codec.keys.encode(tuple([row[name] for name in names]))
    except KeyError:
        return None
    if key is None:
        return None
    if (len(row) == len(names)) != (operation in _DELETES) and operation not in _ONLY_INSERTS:
        return None  # a delete with values is an error, an update without them too
    if operation in _ONLY_INSERTS:
        cells = _complete(cells, codec.writer.defaults)
        if MISSING in cells:
            return None  # an error even where the row is there
    engine.admit(0)
    tablet = engine.tablets[0]
    with tablet.mutex:
        result, ts = _write_locked(engine, schema, tablet, operation, key, cells)
    if result is not None:
        engine.wait_visible(ts)
    return result


def _complete(cells: list[Cell], defaults: Sequence[Cell]) -> list[Cell]:
    """The cells of an insert: those that the row does not give are the columns' defaults."""
    return [default if cell is MISSING else cell for cell, default in zip(cells, defaults, strict=True)]


def _write_locked(
    engine: Engine, schema: Schema, tablet: Tablet, operation: str, key: bytes, cells: list[Cell]
) -> tuple[WriteResult | None, int]:
    """Under the tablet's mutex: decide, log, apply.  Returns the timestamp to wait for."""
    engine.check_writable()
    view = tablet.view
    if engine.schema is not schema or view.active.schema.version != schema.version:
        return None, 0
    key_hash = murmur3_one(key)
    try:
        found = _locate(view, key, key_hash)
    except (Elsewhere, PageError):
        return None, 0
    if found is None:
        return None, 0
    home, rowid = found
    writer = schema.row_codec.writer
    if home is None and operation in _INSERTS:
        op = records.INSERT
        if operation == "upsert":
            cells = _complete(cells, writer.defaults)
            if MISSING in cells:
                return None, 0
    elif home is not None and operation in _UPDATES:
        op = records.UPDATE
    elif home is not None and operation in _DELETES:
        op = records.DELETE
    elif operation.endswith("_ignore"):
        # W4: nothing to log; the answer may rest on records that are not visible yet.
        ts = tablet.newest_applied
        return WriteResult(max(ts, engine.visible_ts), ignored=1), ts
    else:
        return None, 0  # refused
    payload = writer.payload(op, tablet.id, cells)
    engine.reserve(len(payload))
    try:
        ts = engine.log.append(KIND_WRITE, schema.version, (payload,))
        if home is None:
            view.active.insert_one(ts, key, key_hash, cast("list[bytes | None]", cells))
        else:
            _change(tablet, schema, home, ts, op, rowid, cells)
        tablet.newest_applied = ts
        engine.log.applied(ts)
    except BaseException as exc:
        engine.poison_if_owing(exc)
        raise
    return (
        WriteResult(ts, int(op == records.INSERT), int(op == records.UPDATE), int(op == records.DELETE)),
        ts,
    )


def _locate(view: View, key: bytes, key_hash: int) -> tuple[MemRowSet | DiskRowSet | None, int] | None:
    """The store that holds the key live in its newest state, and its row there; (None, -1): no store.

    None: a dead entry of the active MemRowSet has to be revived.
    """
    ghost = False
    for memory in (view.active, *view.frozen):
        ordinal = memory.find_newest(key, key_hash)
        if ordinal >= 0:
            if memory.lives(ordinal):
                return memory, ordinal
            ghost = ghost or memory is view.active
    for rowset in view.rowsets_of(key):
        row = rowset.base.open().points.find(key, key_hash)
        if row >= 0 and rowset.lives(row):
            return rowset, row
    return None if ghost else (None, -1)


def _change(
    tablet: Tablet,
    schema: Schema,
    home: MemRowSet | DiskRowSet,
    ts: int,
    op: int,
    rowid: int,
    cells: list[Cell],
) -> None:
    keys = schema.key_ids
    columns = {
        column.id: (column.type.width, cell)
        for column, cell in zip(schema.columns, cells, strict=True)
        if cell is not MISSING and column.id not in keys
    }
    if isinstance(home, DiskRowSet) and home.active is None:
        home = home.with_active()
        tablet.view = tablet.view.with_rowset(home)
    home.change_one(ts, op, rowid, columns)
