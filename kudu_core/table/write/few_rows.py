"""A few rows given as dicts, written without Arrow as one record: the row path for short lists.

The same steps in the same order as in ``log_walk.py``, for the plain case of ``one_row.py``: rows that the
rules accept or ignore, with values of the exact Python types of their columns.  Here, too, all rows give the
same columns, and no key is there twice.  Everything else returns None, with nothing done, and the general
path answers: refused rows, conversions, repeated keys, dead entries to be revived, batches that go to files.

It is the fixed cost of the general path that a short list is spared: some hundred arrays for ten rows of six
columns, however few the rows are.  The loops over rows and cells are compiled (``_ext/few/few_rows.pyx``).

As for one row it takes the mutexes of the tablets alone, and not ``short_writes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.few.few_rows import grouped, locate, picked
from kudu_core._ext.few.payload import payload_of_rows
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


@dataclass(slots=True)
class _Share:
    """The rows of a call that belong to one tablet: places in the call, None for all of them."""

    tablet: Tablet
    places: list[int] | None
    absent: list[int]
    """Rows whose keys live nowhere."""
    present: dict[int, list[int]]
    """The others, by place of their store in the view."""


@dataclass(slots=True)
class _Rows:
    """The rows of one call, as far as they are known: each list has an entry for each row."""

    op: int
    """``CALL_`` of the call."""
    keys: list[bytes]
    cells: list[list[Cell]]
    rowids: list[int]
    """Where the row lives in its store; 0 if it lives nowhere."""
    shares: list[_Share]

    @property
    def absent(self) -> list[int]:
        """In the order of the call, like ``present``."""
        if len(self.shares) == 1:
            return self.shares[0].absent
        return sorted(place for share in self.shares for place in share.absent)

    @property
    def present(self) -> list[int]:
        places = [mine for share in self.shares for mine in share.present.values()]
        return places[0] if len(places) == 1 else sorted(place for mine in places for place in mine)


def write_few(engine: Engine, operation: str, given: list[dict[Any, Any]]) -> WriteResult | None:
    """Apply one operation to a few rows, all or nothing; None: nothing was done, take the general path."""
    engine.check_open()  # in the child of a fork a mutex may be held by nobody
    if not engine.writer:
        return None  # refused
    schema, tablets, options = engine.schema, engine.tablets, engine.options
    if len(given) >= options.ingest_threshold_rows:
        return None
    writer = schema.row_codec.writer
    op = CALLS[operation]
    prepared = writer.prepare_rows(given, op, options.ingest_threshold_bytes)
    if prepared is None:
        return None
    keys, cells = prepared
    shares = _shares(tablets, keys)
    if shares is None:
        return None
    rows = _Rows(op, keys, cells, [0] * len(keys), shares)
    engine.memory.admit()
    touched = [share.tablet for share in shares]
    with HeldLocks([tablet.mutex for tablet in touched]):
        engine.check_writable()
        if engine.schema is not schema or engine.tablets is not tablets:
            return None
        if not _located(schema.version, rows):
            return None
        absent, present = rows.absent, rows.present
        ignored = absent if op > CALL_UPSERT else present if op == CALL_INSERT else []
        if ignored and not operation.endswith("_ignore"):
            return None  # refused
        if op == CALL_UPSERT and not all(map(writer.complete, picked(cells, absent))):
            return None
        inserts = absent if op <= CALL_UPSERT else []
        changes = present if op >= CALL_UPSERT else []
        if inserts or changes:
            ts = _log_and_apply(engine, writer, rows, inserts, changes)
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


def _shares(tablets: Tablets, keys: list[bytes]) -> list[_Share] | None:
    """The tablets of the keys, in the order in which the general path takes them.

    None: a key has no tablet, so its row is refused, or there are too many columns to route by.
    """
    if len(tablets) == 1 and not tablets.partitions.range_ids:
        return [_Share(tablets[0], None, [], {})]
    router = tablets.partitions.router
    if router is None:
        return None
    places = grouped(router.route_many(keys))
    ordinals = sorted(places)
    if ordinals[0] < 0:
        return None
    if len(ordinals) == 1:
        return [_Share(tablets.of_ordinal(ordinals[0]), None, [], {})]
    return [_Share(tablets.of_ordinal(ordinal), places[ordinal], [], {}) for ordinal in ordinals]


def _located(version: int, rows: _Rows) -> bool:
    """Under the mutexes: where the keys live goes into the shares; False: take the general path."""
    for share in rows.shares:
        view = share.tablet.view
        if view.active.schema.version != version:
            return False
        try:
            found = locate(view.points, view.stores, rows.keys, share.places, rows.rowids)
        except (NeedsGeneralPath, PageError):
            return False
        if found is None:
            return False
        share.absent, share.present = found
    return True


def _log_and_apply(
    engine: Engine, writer: RowWriter, rows: _Rows, inserts: list[int], changes: list[int]
) -> int | None:
    """Under the mutexes: room, one record, and what it says in the stores.  Returns its timestamp, or None:
    nothing was done, take the general path."""
    op = records.RECORD_DELETE if rows.op == CALL_DELETE else records.RECORD_UPDATE
    position = _positions(rows)
    sections = []
    for section_op, places in ((op, changes), (records.RECORD_INSERT, inserts)):
        if places:
            sections.append((section_op, picked(rows.cells, places), picked(position, places)))
    tablet_ids = tuple(share.tablet.id for share in rows.shares)
    payload = payload_of_rows(writer.ids, writer.widths, tablet_ids, sections)
    if len(payload) >= engine.options.ingest_threshold_bytes:
        return None  # the rows may have to go to files
    engine.memory.check_batch(len(payload))
    try:
        new, changed = _reserved(writer, rows, op, bool(inserts), bool(changes))
    except OverflowError:
        return None  # a column fills up: the general path counts exactly
    except MemoryError:
        raise no_memory(len(payload)) from None
    engine.memory.note(len(payload))
    check = rows.shares[0].tablet.context.check is not None
    stores = [*(store for store, *_ in new), *(store for store, *_ in changed)] if check else []
    allocated = [store.allocated for store in stores]
    ids = writer.value_ids
    with recorded(engine, RECORD_KIND_WRITE, engine.schema.version, (payload,)) as ts:
        for memory, keys, cells in new:
            memory.insert_few(ts, keys, cells)
        for store, rowids, cells in changed:
            store.change_few(ts, op, rowids, ids, cells)
        assert [store.allocated for store in stores] == allocated, "rows took more than was reserved for them"
        for share in rows.shares:
            share.tablet.newest_applied = ts
    return ts


def _positions(rows: _Rows) -> list[int]:
    """Of each row's tablet, in the record's list of tablets."""
    position = [0] * len(rows.keys)
    for number, share in enumerate(rows.shares):
        for place in share.places or ():
            position[place] = number
    return position


_New = tuple[MemRowSet, list[bytes], "list[list[Cell]]"]
_Changed = tuple[MemRowSet | DiskRowSet, list[int], "list[list[Cell]]"]


def _reserved(
    writer: RowWriter, rows: _Rows, op: int, inserts: bool, changes: bool
) -> tuple[Sequence[_New], Sequence[_Changed]]:
    """Make room in the stores that take the rows: what each will take, new rows and changes."""
    new: list[_New] = []
    changed: list[_Changed] = []
    for share in rows.shares:
        tablet = share.tablet
        if inserts and share.absent:
            keys, cells = picked(rows.keys, share.absent), picked(rows.cells, share.absent)
            tablet.view.active.reserve_insert_few(keys, cells)
            new.append((tablet.view.active, keys, cells))
        for index, places in share.present.items() if changes else ():
            home: MemRowSet | DiskRowSet = tablet.view.stores[index]
            if isinstance(home, DiskRowSet) and home.active is None:
                home = home.with_active()
                tablet.view = tablet.view.with_rowset(home)
            cells = picked(rows.cells, places)
            home.reserve_change_few(op, writer.value_ids, writer.widths, cells)
            changed.append((home, picked(rows.rowids, places), cells))
    return new, changed
