"""What changed between two times: all changes in order of time, or one net change per key.

snapshots -> tablets -> rowsets that say something of the window -> events -> images -> Arrow.
The cost follows the changes: a rowset whose manifest entry rules the window out is not opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.shown import damage_in
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import ChangesLost, ColumnTooLarge, SnapshotTooOld
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.window import EVENT_DELETED, Events
from kudu_core.table.changes.bounded import budget_bytes, most_images
from kudu_core.table.changes.change_batches import BATCH_ROWS, batch_of, rows_only
from kudu_core.table.changes.change_blocks import ChangeBlock, Store, WindowStore
from kudu_core.table.changes.changes_plan import (
    ChangesPlan,
    ChangesRequest,
    check_window,
    counted,
    summed,
    window,
    windows,
)
from kudu_core.table.changes.keyed import asked, holders, rows_in
from kudu_core.table.changes.lineage import in_window, sharing_keys, switches_of
from kudu_core.table.changes.net import from_nothing, net_changes
from kudu_core.table.changes.states import dropped_rows, first_rows
from kudu_core.table.changes.stretch import Teller, in_order
from kudu_core.table.read.arrow_out import ArrowResult
from kudu_core.table.read.plan import check_columns
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

TIMESTAMP_NAME, BEFORE_NAME = "_timestamp", "_before"
STRETCH_EVENTS = 1 << 20
"""Changes that are put together at a time; a window with more is read in stretches of time."""
FEW_ROWS = 256
"""Rows of a store, at most, for which each file is asked whether it has something of them."""
FIRST_ROWS = 1 << 18
"""Rows of the first state that are read at a time."""


def open_changes(
    handle: Handle, request: ChangesRequest, since: Any, until: Any, schema: Schema | None = None
) -> Changes:
    """What ``Table.changes`` returns.

    ``schema``: the columns of an earlier moment, which the caller has pinned; None: those of today.
    """
    request.check()

    def made(engine: Engine) -> Changes:
        plan = request.planned(schema or engine.schema)
        first, last = window(engine, since, until)
        return Changes(handle, plan, first, last, first=since is None)

    while True:
        try:
            return handle.steady(made) if schema is None else made(handle.opened())
        except ChangesLost:
            if since is not None:
                raise
            # Where history begins has moved meanwhile.


class Changes(ArrowResult):
    """The changes of a table in ``(since, until]``.  Lazy, and the same at every iteration.

    Both ends stay readable while this object lives.

    >>> stock.changes(key=1).to_table()["_op"].to_pylist()
    ['insert']
    """

    def __init__(self, handle: Handle, plan: ChangesPlan, since: int, until: int, *, first: bool) -> None:
        """``first``: what is there at ``since`` is told too, as inserts."""
        self._handle = handle  # also keeps the table open
        self._plan = plan
        self._first = first
        self.since = since
        """Changes at this timestamp and before are left out; or, with ``since=None``, are told as the
        state that they left."""
        self.until = until
        """Changes at this timestamp are in; pass it as the next ``since``."""
        engine = handle.engine
        try:
            self._pins = engine.pins.pin(since), engine.schema_pins.pin(plan.schema)
        except SnapshotTooOld:
            check_window(handle.engine, since)  # collected since it was looked at
            raise

    def __reduce__(self) -> Any:
        raise TypeError(
            "Changes do not travel to another process: in a function for Spark write "
            f"kudu_core.spark.table({self._handle.path!r}, at={self.until})"
            f".changes({self.since}, {self.until}), "
            "or have kudu_core.spark.changes share them out"
        )

    @property
    def plan(self) -> ChangesPlan:
        """What is asked for."""
        return self._plan

    @property
    def schema(self) -> pa.Schema:
        """``_op``, ``_timestamp``, the projected columns, and ``_before`` with ``images="both"``."""
        shown, keys = self._plan.shown, set(self._plan.schema.key_names)
        fields = [pa.field(OP_COLUMN, pa.string(), False), pa.field(TIMESTAMP_NAME, pa.uint64(), False)]
        if shown.is_plain:
            fields += [pa.field(c.name, c.type.arrow, c.name not in keys) for c in self._plan.columns]
        else:
            fields += [f.remove_metadata().with_nullable(f.name not in keys) for f in shown.arrow]
        if self._plan.both:
            fields.append(pa.field(BEFORE_NAME, pa.struct(shown.arrow), True))
        return pa.schema(fields)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for kept in self._blocks():
            for lower in range(0, len(kept), BATCH_ROWS):
                upper = min(lower + BATCH_ROWS, len(kept))
                with damage_in(self._handle.path):
                    told = batch_of(self._plan, kept, lower, upper, schema)
                yield told

    def _blocks(self) -> Iterator[ChangeBlock]:
        """What is told, before it is Arrow: pieces of any size, also of none."""
        read = self._net if self._plan.net else self._in_time
        return map(self._filtered, self._handle.begun_again_where_lost(read))

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """How many changes there are at which time, without the predicate: (times, (n,) uint64 ascending
        strictly; numbers, (n,) int64).

        Only times are read.  A change of which two files tell, each of some columns, may count twice, and a
        key that was there before and after an overwrite does.

        >>> since = stock.delete([1, 2]).timestamp - 1
        >>> stock.changes(since).counts()[1].tolist()
        [2]
        """
        return self._handle.again_where_lost(self._counts)

    def _counts(self) -> tuple[np.ndarray, np.ndarray]:
        stamps: list[tuple[np.ndarray, np.ndarray]] = []
        for _, part in self._stores():
            drop = part.dropped_ts
            if drop is not None:
                stamps.append((np.array([drop], np.uint64), np.array([part.length], np.int64)))
            if part.concerns(self.since, self.until):
                history = self._history(part, self.since, self.until)
                stamps += [counted(*told) for told in history.timestamps()]
        return summed(stamps)

    # ---- in order of time ----

    def _in_time(self) -> Iterator[ChangeBlock]:
        stores = self._stores()
        if self._first:
            for tablet, part in stores:
                if tablet.created_ts <= self.since:
                    yield from first_rows(part, self.since, self._plan.needed, self._most_rows(part.store))
        drops = {part.dropped_ts for _, part in stores if part.dropped_ts is not None}
        since = self.since
        for drop in sorted(drops | switches_of((part for _, part in stores), since, self.until)):
            yield from self._of_window(stores, since, drop - 1)
            if drop in drops:
                yield from self._of_end(stores, drop)
            since = drop
        yield from self._of_window(stores, since, self.until)

    def _of_window(
        self, found: Sequence[tuple[Tablet, WindowStore]], since: int, until: int
    ) -> Iterator[ChangeBlock]:
        """The changes of a window in which no tablet ended."""
        stores = [
            part
            for tablet, part in found
            if (tablet.dropped_ts is None or tablet.dropped_ts > since)
            and part.concerns(since, until)
        ]
        whole: list[RowSetHistory] = []
        stamps: list[tuple[np.ndarray, np.ndarray]] = []
        counts: list[int] = []
        for store in stores:
            history = self._history(store, since, until)
            counts.append(sum(len(times) * weight for times, weight in history.timestamps()))
            whole.append(history)
            if sum(counts) > STRETCH_EVENTS:  # of so many, one store's at a time is in memory
                stamps += [counted(*some) for told in whole for some in told.timestamps()]
                whole.clear()
        most = self._most_events(zip((part.store for part in stores), counts, strict=True))
        if sum(counts) <= most:
            yield from self._of_stretch(stores, since, until, most, whole)
            return
        stamps += [counted(*some) for told in whole for some in told.timestamps()]
        whole.clear()
        for first, last in windows(*summed(stamps), since, until, most):
            yield from self._of_stretch(stores, first, last, most)

    def _most_events(self, stores: Iterable[tuple[Store, int]]) -> int:
        """How many changes are put together at a time, of stores with so many each."""
        columns = self._plan.needed * 2 if self._plan.both else self._plan.needed
        return most_images(stores, columns, self._budget_bytes, STRETCH_EVENTS)

    def _most_rows(self, store: Store) -> int:
        """How many rows of a store's state are read at a time."""
        return most_images([(store, FIRST_ROWS)], self._plan.needed, self._budget_bytes, FIRST_ROWS)

    @property
    def _budget_bytes(self) -> int:
        return budget_bytes(self._handle.engine.options.memory_bytes)

    def _of_stretch(
        self,
        stores: Sequence[WindowStore],
        since: int,
        until: int,
        most: int,
        histories: list[RowSetHistory] | None = None,
    ) -> Iterator[ChangeBlock]:
        """The changes of one stretch of time, about ``most`` or of one timestamp; of shorter ones where a
        column is too large."""
        if histories is None:
            concerns = [part for part in stores if part.concerns(since, until)]
            histories = [self._history(part, since, until) for part in concerns]
        try:
            yield from self._pieces(histories, most)
            return
        except ColumnTooLarge:
            stamps = [counted(*some) for history in histories for some in history.timestamps()]
            times = summed(stamps)[0]
            if len(times) < 2:
                raise
        middle = int(times[(len(times) - 1) // 2])
        yield from self._of_stretch(stores, since, middle, most)
        yield from self._of_stretch(stores, middle, until, most)

    def _of_end(self, found: Sequence[tuple[Tablet, WindowStore]], drop: int) -> Iterator[ChangeBlock]:
        """What tablets had that ended at a time, as deleted.  Where the table was overwritten, one change for
        each key of the old rows and the new ones, as of every record."""
        ends: dict[int, list[WindowStore]] = {}
        for tablet, part in found:
            if drop in (tablet.dropped_ts, tablet.created_ts):
                part = replace(part, dropped_ts=drop if tablet.dropped_ts == drop else None)
                ends.setdefault(tablet.partition.ordinal, []).append(part)
        schema, needed = self._plan.schema, self._plan.needed
        columns = {c.id: c for c in (*schema.key_columns, *needed)}
        read = replace(schema, columns=tuple(columns.values()), nested=())
        for parts in ends.values():
            if any(part.dropped_ts is None for part in parts):
                yield from net_changes(read, parts, drop - 1, drop, self._budget_bytes, unchanged=True)
                continue
            for part in parts:
                yield from dropped_rows(part, drop, needed, self._most_rows(part.store))

    def _history(self, part: WindowStore, since: int, until: int) -> RowSetHistory:
        return part.history(self._plan.schema, since, until)

    def _pieces(self, histories: list[RowSetHistory], most: int) -> Iterator[ChangeBlock]:
        """The changes of one stretch of time."""
        tellers = [teller for history in histories if len(teller := Teller(history))]
        if not tellers:
            return
        needed = self._plan.needed
        count = (most + 3) // 4
        if sum(map(len, tellers)) <= 2 * most:
            gone = self._plan.filter is not None and any(teller.deletes for teller in tellers)
            try:
                told = in_order(tellers, needed, needed if self._plan.both or gone else ())
            except ColumnTooLarge:
                first = tellers[0].spans[0].first
                if any(span.first < span.last or span.first != first for t in tellers for span in t.spans):
                    raise
                count = max(map(len, tellers)) // 2
            else:
                yield from told
                return
        # One timestamp with very many changes, or large ones: their order is nobody's.
        for history, events in (teller.events() for teller in tellers):
            for lower, upper in events.cuts(max(1, count)):
                yield from self._images_of(history, events.part(lower, upper))

    def _images_of(self, history: RowSetHistory, events: Events) -> Iterator[ChangeBlock]:
        """Changes of one timestamp; in pieces where a column is too large."""
        needed = self._plan.needed
        before = needed if self._plan.both or self._plan.filter is not None else ()
        try:
            yield ChangeBlock(
                events.timestamps,
                events.ops,
                history.after(events, needed),
                history.before(events, before),
            )
            return
        except ColumnTooLarge:
            if len(events) < 2:
                raise
        for lower, upper in events.cuts(len(events) // 2):
            yield from self._images_of(history, events.part(lower, upper))

    # ---- net ----

    def _net(self) -> Iterator[ChangeBlock]:
        """One change per key, tablet by tablet, in order of the keys."""
        stores = self._stores()
        parts: dict[int, list[WindowStore]] = {}
        for tablet, part in stores:
            parts.setdefault(tablet.id, []).append(part)
        walk = from_nothing if self._first else net_changes
        switches = switches_of((part for _, part in stores), self.since, self.until)
        for group in sharing_keys([tablet for tablet, _ in stores], self.since, self.until, switches):
            mine = [part for tablet in group for part in parts[tablet.id]]
            yield from walk(self._plan.schema, mine, self.since, self.until, self._budget_bytes)

    # ---- out ----

    def _filtered(self, piece: ChangeBlock) -> ChangeBlock:
        """The changes whose row passes the predicate: the row after, or of a deletion the row before."""
        where = self._plan.filter
        if where is None or not len(piece):
            return piece
        names = sorted(where.columns)
        columns = [self._plan.schema.by_name[name] for name in names]
        deleted = piece.ops == EVENT_DELETED
        masks = []
        both = [(piece.after, ~deleted), (piece.before, deleted)]
        for images, live in both if deleted.any() else [(piece.after, None)]:
            arrays = [images[c.id].to_arrow(c.type) for c in columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=names) if names else rows_only(len(piece))
            masks.append(np.asarray(where.mask(batch, live)))
        return piece.take(np.flatnonzero(np.where(deleted, masks[-1], masks[0])))

    # ---- reading ----

    @property
    def _needed(self) -> tuple[StoredColumn, ...]:
        return self._plan.schema.columns if self._plan.net else self._plan.needed

    def _stores(self) -> list[tuple[Tablet, WindowStore]]:
        """The stores that say something of the window, every file of them open (protocol R4)."""
        return self._handle.retrying(self._capture)

    def _capture(self, engine: Engine) -> list[tuple[Tablet, WindowStore]]:
        check_window(engine, self.since)  # a reader may have been refreshed since
        check_columns(engine, self._plan.schema, self._needed)
        needed = {column.id for column in self._needed}
        found: list[tuple[Tablet, WindowStore]] = []
        chosen, keys = self._plan.tablet_ids, self._plan.keys
        ordinals = None if keys is None else holders(engine.partitions, keys)
        tablets = engine.tablets
        for tablet in tablets:
            ended = tablet.dropped_ts is not None and tablet.dropped_ts <= self.since
            if ended or tablet.created_ts > self.until:
                continue
            if chosen is not None and tablet.id not in chosen:
                continue
            if ordinals is not None and tablet.partition.ordinal not in ordinals:
                continue
            stores = asked(tablet.view_of(self._plan.schema), keys)
            for part, mine in in_window(tablet, stores, self.since, self.until, tablets.switches):
                store, every = part.store, self._first or part.dropped_ts is not None
                if (every and part.every) or part.concerns(self.since, self.until):
                    rows = None if mine is None else rows_in(store, mine, self.until)
                    if rows is not None and not len(rows):
                        continue
                    if isinstance(store, DiskRowSet):
                        first, last = part.within(self.since, self.until)
                        if rows is not None and len(rows) <= FEW_ROWS:
                            store = store.of_rows(rows, first, last, needed)
                        store.open_for(first, needed)
                        store.open_for(last, needed)
                        store.open_window(first, last)
                        store = store.held()
                    found.append((tablet, replace(part, store=store, rows=rows)))
        return found


__all__ = ["BEFORE_NAME", "TIMESTAMP_NAME", "Changes", "open_changes"]
