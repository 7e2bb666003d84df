"""A few rows, given as dicts or as a record batch, written as one record: the row path for short calls.

The same steps in the same order as in ``log_walk.py``, for the plain case of ``one_row.py``: rows that the
rules accept or ignore, with values of the exact Python or Arrow types of their columns.  Here, too, all rows
give the same columns, and no key is there twice.  Everything else returns None, with nothing done, and the
general path answers: refused rows, conversions, repeated keys, dead entries to be revived, batches that go to
files.

It is the fixed cost of the general path that a short call is spared: some hundred arrays for ten rows of six
columns, however few the rows are.  The loops over rows, cells and tablets are compiled (``_ext/few``).

As for one row it takes the mutexes of the tablets alone, and not ``short_writes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.few.call_rows import FewRows
from kudu_core._ext.few.few_rows import grouped, picked
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPSERT
from kudu_core.common.run.locks import HeldLocks
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.record import recorded
from kudu_core.table.opened.store_memory import no_memory
from kudu_core.table.write.one_row import CALLS
from kudu_core.tablet.store import records
from kudu_core.tablet.store.tablet import newest_of
from kudu_core.wal import RECORD_KIND_WRITE

if TYPE_CHECKING:
    from kudu_core._ext.row.row_writer import RowWriter
    from kudu_core._ext.row.shape import Cell
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.tablets import Tablets
    from kudu_core.tablet.store.tablet import Tablet

FEW_ROWS = 256
"""So many rows at most go this way.  Of more, the general path's fixed cost is the smaller part, and the
interpreter's lock would be held for long."""


Given: TypeAlias = list[dict[Any, Any]] | pa.RecordBatch


def write_few(engine: Engine, operation: str, given: Given) -> WriteResult | None:
    """Apply one operation to a few rows, all or nothing; None: nothing was done, take the general path."""
    engine.check_open()  # in the child of a fork a mutex may be held by nobody
    if not engine.writer:
        return None  # refused
    schema, tablets, options = engine.schema, engine.tablets, engine.options
    if len(given) >= options.ingest_threshold_rows:
        return None
    writer = schema.row_codec.writer
    op = CALLS[operation]
    if type(given) is list:
        prepared = writer.prepare_rows(given, op, options.ingest_threshold_bytes)
    else:
        prepared = schema.row_codec.prepare_batch(given, op, options.ingest_threshold_bytes)
    if prepared is None:
        return None
    rows = _by_tablet(tablets, *prepared)
    if rows is None:
        return None
    engine.memory.admit()
    touched = rows.tablets
    with HeldLocks([tablet.mutex for tablet in touched]):
        engine.check_writable()
        if engine.schema is not schema or engine.tablets is not tablets:
            return None
        try:
            if not rows.locate(schema.version):
                return None
        except (NeedsGeneralPath, PageError):
            return None
        absent, present = rows.absent, rows.present
        ignored = absent if op > CALL_UPSERT else present if op == CALL_INSERT else ()
        if ignored and not operation.endswith("_ignore"):
            return None  # refused
        if op == CALL_UPSERT and not all(map(writer.complete, picked(rows.cells, absent))):
            return None
        inserts = absent if op <= CALL_UPSERT else []
        changes = present if op >= CALL_UPSERT else []
        if inserts or changes:
            ts = _log_and_apply(engine, writer, rows, op, inserts, changes)
            if ts is None:
                return None
            updates = 0 if op == CALL_DELETE else len(changes)
            result = WriteResult(ts, len(inserts), updates, len(changes) - updates, len(ignored))
        else:
            # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
            ts = newest_of(touched)
            result = WriteResult(max(ts, engine.visible_ts), ignored=len(ignored))
    engine.wait_visible(ts)
    return result


def _by_tablet(tablets: Tablets, keys: list[bytes], cells: list[list[Cell]]) -> FewRows | None:
    """The rows by their tablets, in the order in which the general path takes these.

    None: a key has no tablet, so its row is refused, or there are too many columns to route by.
    """
    if len(tablets) == 1 and not tablets.partitions.range_ids:
        return FewRows(keys, cells, [tablets[0]], None)
    router = tablets.partitions.router
    if router is None:
        return None
    places = grouped(router.route_many(keys))
    ordinals = sorted(places)
    if ordinals[0] < 0:
        return None
    found = [tablets.of_ordinal(ordinal) for ordinal in ordinals]
    return FewRows(keys, cells, found, [places[i] for i in ordinals] if len(ordinals) > 1 else None)


def _log_and_apply(
    engine: Engine, writer: RowWriter, rows: FewRows, call: int, inserts: list[int], changes: list[int]
) -> int | None:
    """Under the mutexes: room, one record, and what it says in the stores.  Returns its timestamp, or None:
    nothing was done, take the general path."""
    op = records.RECORD_DELETE if call == CALL_DELETE else records.RECORD_UPDATE
    sections = [(op, changes), (records.RECORD_INSERT, inserts)]
    payload = rows.payload(writer.ids, writer.widths, sections)
    if len(payload) >= engine.options.ingest_threshold_bytes:
        return None  # the rows may have to go to files
    engine.memory.check_batch(len(payload))
    ids = writer.value_ids
    try:
        rows.reserve(op, ids, writer.widths, bool(inserts), bool(changes), _home_of)
    except OverflowError:
        return None  # a column fills up: the general path counts exactly
    except MemoryError:
        raise no_memory(len(payload)) from None
    engine.memory.note(len(payload))
    check = rows.tablets[0].context.check is not None
    allocated = [store.allocated for store in rows.stores] if check else None
    with recorded(engine, RECORD_KIND_WRITE, engine.schema.version, (payload,)) as ts:
        rows.put(ts, op, ids)
        if check:
            took = [store.allocated for store in rows.stores]
            assert took == allocated, "rows took more than was reserved for them"
    return ts


def _home_of(tablet: Tablet, index: int) -> MemRowSet | DiskRowSet:
    """The store that takes changes of rows of a tablet's store."""
    home = tablet.view.stores[index]
    if isinstance(home, DiskRowSet) and home.active is None:
        home = home.with_active()
        tablet.view = tablet.view.with_rowset(home)
    return home
