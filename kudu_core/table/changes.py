"""What changed between two times: all changes in order of time, or one net change per key.

snapshots -> tablets -> rowsets that say something of the window -> events -> images -> Arrow.
The cost follows the changes: a rowset whose manifest entry rules the window out is not opened.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core._ext import keys as keys_kernel
from kudu_core.cfile.container import FileMissing
from kudu_core.common.keys import EncodedKeys
from kudu_core.common.predicates import Filter
from kudu_core.common.rowblock import ColumnBuffers
from kudu_core.common.schema import Schema, StoredColumn, arrow_schema
from kudu_core.errors import ChangesLost, InvalidArgument
from kudu_core.rowset.diskrowset import DiskRowSet
from kudu_core.rowset.history import DELETED, INSERTED, UPDATED, Events, RowSetHistory, concerned
from kudu_core.rowset.memrowset import MemRowSet
from kudu_core.table.arrow_out import ArrowResult
from kudu_core.table.scan import REFRESH_TRIES
from kudu_core.table.snapshots import resolve
from kudu_core.tablet.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.table.engine import Engine

OP_NAME = "_op"
TIMESTAMP_NAME = "_timestamp"
BEFORE_NAME = "_before"
OP_NAMES = ("insert", "update", "delete")
SLICE_EVENTS = 1 << 20
"""Changes that are put together at a time; a window with more is read in slices of time."""
BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class ChangesPlan:
    """What is asked for, checked against the schema."""

    schema: Schema
    columns: tuple[StoredColumn, ...]
    filter: Filter | None
    both: bool
    net: bool

    @property
    def needed(self) -> tuple[StoredColumn, ...]:
        """The projected columns and those of the predicate."""
        if self.filter is None:
            return self.columns
        have = {c.id for c in self.columns}
        more = (self.schema.by_name[name] for name in sorted(self.filter.columns))
        return (*self.columns, *(c for c in more if c.id not in have))


@dataclass(slots=True)
class _Slice:
    """Changes of one store, or of several put together, not yet in order."""

    timestamps: np.ndarray
    ops: np.ndarray
    after: dict[int, ColumnBuffers]
    before: dict[int, ColumnBuffers]
    """Empty where nobody asked."""

    def __len__(self) -> int:
        return len(self.ops)

    def take(self, rows: np.ndarray) -> _Slice:
        return _Slice(
            self.timestamps[rows],
            self.ops[rows],
            {i: c.take(rows) for i, c in self.after.items()},
            {i: c.take(rows) for i, c in self.before.items()},
        )

    @staticmethod
    def concat(parts: Sequence[_Slice]) -> _Slice:
        if len(parts) == 1:
            return parts[0]
        return _Slice(
            np.concatenate([p.timestamps for p in parts]),
            np.concatenate([p.ops for p in parts]),
            {i: ColumnBuffers.concat([p.after[i] for p in parts]) for i in parts[0].after},
            {i: ColumnBuffers.concat([p.before[i] for p in parts]) for i in parts[0].before},
        )


class Changes(ArrowResult):
    """The changes of a table in ``(since, until]``.  Lazy, and the same at every iteration.

    Both ends stay readable while this object lives.
    """

    def __init__(
        self, engine: Callable[[], Engine], plan: ChangesPlan, since: int, until: int, owner: Any
    ) -> None:
        self._engine = engine
        self._plan = plan
        self.since = since
        """Changes at this timestamp and before are left out."""
        self.until = until
        """Changes at this timestamp are in; pass it as the next ``since``."""
        self._owner = owner
        pins = engine().pins
        pins.pin(since)
        self._release = weakref.finalize(self, pins.unpin, since)

    @property
    def schema(self) -> pa.Schema:
        """``_op``, ``_timestamp``, the projected columns, and ``_before`` with ``images="both"``."""
        keys = set(self._plan.schema.key_ids)
        fields = [pa.field(OP_NAME, pa.string(), False), pa.field(TIMESTAMP_NAME, pa.int64(), False)]
        fields += [pa.field(c.name, c.type.arrow, c.id not in keys) for c in self._plan.columns]
        if self._plan.both:
            fields.append(pa.field(BEFORE_NAME, pa.struct(arrow_schema(self._plan.columns)), True))
        return pa.schema(fields)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for piece in self._net() if self._plan.net else self._in_time():
            kept = self._filtered(piece)
            for lower in range(0, len(kept), BATCH_ROWS):
                upper = min(lower + BATCH_ROWS, len(kept))
                yield self._batch(kept, lower, upper, schema)

    # ---- in order of time ----

    def _in_time(self) -> Iterator[_Slice]:
        stores = [store for _, store in self._stores()]
        whole = [self._history(store, self.since, self.until) for store in stores]
        stamps = [stamp for history in whole for stamp in history.timestamps()]
        if sum(len(times) * weight for times, weight in stamps) <= SLICE_EVENTS:
            yield from self._pieces(whole)
            return
        del whole
        for since, until in self._windows(stamps):
            mine = [s for s in stores if concerned(s, since, until)]
            yield from self._pieces([self._history(store, since, until) for store in mine])

    def _history(self, store: MemRowSet | DiskRowSet, since: int, until: int) -> RowSetHistory:
        return RowSetHistory(self._plan.schema, store, since, until)

    def _pieces(self, histories: list[RowSetHistory]) -> Iterator[_Slice]:
        """The changes of one slice of time."""
        parts = [(history, events) for history in histories if len(events := history.events())]
        if sum(len(events) for _, events in parts) <= 2 * SLICE_EVENTS:
            if parts:
                yield _by_time(_Slice.concat([self._images(*part) for part in parts]))
            return
        # One timestamp with very many changes: their order is nobody's.
        for history, events in parts:
            for lower, upper in events.cuts(SLICE_EVENTS // 4):
                yield self._images(history, events.part(lower, upper))

    def _windows(self, stamps: list[tuple[np.ndarray, int]]) -> Iterator[tuple[int, int]]:
        """The window cut so that each piece has about ``SLICE_EVENTS`` changes, or one timestamp."""
        times = [stamp for stamp, _ in stamps]
        weights = [np.full(len(stamp), weight, np.int64) for stamp, weight in stamps]
        distinct, back = np.unique(np.concatenate(times), return_inverse=True)
        counts = np.bincount(back.reshape(-1), np.concatenate(weights)).astype(np.int64)
        since, events = self.since, 0
        for at, (stamp, count) in enumerate(zip(distinct.tolist(), counts.tolist(), strict=True)):
            if events and events + count > SLICE_EVENTS:
                yield since, int(distinct[at - 1])
                since, events = int(distinct[at - 1]), 0
            if count > SLICE_EVENTS:
                if stamp - 1 > since:
                    yield since, stamp - 1
                yield stamp - 1, stamp
                since = stamp
            else:
                events += count
        if since < self.until:
            yield since, self.until

    def _images(self, history: RowSetHistory, events: Events) -> _Slice:
        needed = self._plan.needed
        before = needed if self._plan.both or self._plan.filter is not None else ()
        return _Slice(
            events.timestamps,
            events.ops,
            {c.id: history.after(events, c) for c in needed},
            {c.id: history.before(events, c) for c in before},
        )

    # ---- net ----

    def _net(self) -> Iterator[_Slice]:
        """One change per key, tablet by tablet, in order of the keys."""
        by_tablet: dict[int, list[MemRowSet | DiskRowSet]] = {}
        for tablet, store in self._stores():
            by_tablet.setdefault(tablet.id, []).append(store)
        for stores in by_tablet.values():
            piece = self._net_of_tablet(stores)
            if len(piece):
                yield piece

    def _net_of_tablet(self, stores: list[MemRowSet | DiskRowSet]) -> _Slice:
        columns = self._plan.schema.columns
        keys: list[EncodedKeys] = []
        last: list[np.ndarray] = []
        was: list[np.ndarray] = []
        is_: list[np.ndarray] = []
        old: list[dict[int, ColumnBuffers]] = []
        new: list[dict[int, ColumnBuffers]] = []
        for store in stores:
            history = self._history(store, self.since, self.until)
            events = history.events()
            if not len(events):
                continue
            ends = np.flatnonzero(np.append(events.rows[1:] != events.rows[:-1], True))
            rows = events.rows[ends]
            before, after = history.states(rows)
            keys.append(history.keys(rows))
            last.append(events.timestamps[ends])
            was.append(before)
            is_.append(after)
            old.append({c.id: history.at_start(c, rows[before]) for c in columns})
            new.append({c.id: history.at_end(c, rows[after]) for c in columns})
        return self._joined(keys, last, was, is_, old, new)

    def _joined(
        self,
        keys: list[EncodedKeys],
        last: list[np.ndarray],
        was: list[np.ndarray],
        is_: list[np.ndarray],
        old: list[dict[int, ColumnBuffers]],
        new: list[dict[int, ColumnBuffers]],
    ) -> _Slice:
        """Rows of several stores by key: at each end of the window at most one of them is present."""
        columns = self._plan.schema.columns
        if not keys:
            none = {c.id: ColumnBuffers.nulls(c.type, 0) for c in columns}
            return _Slice(np.empty(0, np.uint64), np.empty(0, np.uint8), none, dict(none))
        all_keys = EncodedKeys.concat(keys)
        order = keys_kernel.sort(all_keys.data, all_keys.offsets)
        ordered = all_keys.take(order)
        gid, first = keys_kernel.group(ordered.data, ordered.offsets, ordered.hashes())
        groups = len(first)
        stamps = np.zeros(groups, np.uint64)
        np.maximum.at(stamps, gid, np.concatenate(last)[order])
        old_row = _row_of(gid, order, np.concatenate(was), groups)
        new_row = _row_of(gid, order, np.concatenate(is_), groups)
        changed = (old_row >= 0) != (new_row >= 0)
        both = np.flatnonzero((old_row >= 0) & (new_row >= 0))
        old_all = {c.id: ColumnBuffers.concat([o[c.id] for o in old]) for c in columns}
        new_all = {c.id: ColumnBuffers.concat([n[c.id] for n in new]) for c in columns}
        differs = np.zeros(len(both), bool)
        for column in columns:
            differs |= ~_same(
                old_all[column.id].take(old_row[both]), new_all[column.id].take(new_row[both]), column
            )
        changed[both] = differs
        kept = np.flatnonzero(changed)
        ops = np.full(len(kept), UPDATED, np.uint8)
        ops[old_row[kept] < 0] = INSERTED
        ops[new_row[kept] < 0] = DELETED
        # Of a deletion the image after has the key, and of an insert the image before means nothing.
        after, before = {}, {}
        for column in columns:
            pool = ColumnBuffers.concat([old_all[column.id], new_all[column.id]])
            shift = old_all[column.id].length
            o, n = old_row[kept], np.where(new_row[kept] >= 0, new_row[kept] + shift, -1)
            after[column.id] = pool.take(np.where(n >= 0, n, o))
            before[column.id] = pool.take(np.where(o >= 0, o, n))
        return _Slice(stamps[kept], ops, after, before)

    # ---- out ----

    def _filtered(self, piece: _Slice) -> _Slice:
        """The changes whose row passes the predicate: the row after, or of a deletion the row before."""
        where = self._plan.filter
        if where is None or not len(piece):
            return piece
        names = sorted(where.columns)
        columns = [self._plan.schema.by_name[name] for name in names]
        deleted = piece.ops == DELETED
        masks = []
        for images in (piece.after, piece.before):
            arrays = [images[c.id].to_arrow(c.type) for c in columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=names) if names else _rows_only(len(piece))
            masks.append(np.asarray(where.mask(batch)))
        return piece.take(np.flatnonzero(np.where(deleted, masks[1], masks[0])))

    def _batch(self, piece: _Slice, lower: int, upper: int, schema: pa.Schema) -> pa.RecordBatch:
        ops = piece.ops[lower:upper]
        names = pa.DictionaryArray.from_arrays(pa.array(ops, pa.uint8()), pa.array(OP_NAMES))
        arrays: list[pa.Array] = [
            names.cast(pa.string()),
            pa.array(piece.timestamps[lower:upper].astype(np.int64)),
        ]
        keys = set(self._plan.schema.key_ids)
        gone = ops == DELETED
        for column in self._plan.columns:
            values = piece.after[column.id].slice(lower, upper)
            if column.id not in keys and gone.any():
                values = _with_nulls(values, gone)
            arrays.append(values.to_arrow(column.type))
        if self._plan.both:
            new = ops == INSERTED
            images = [piece.before[c.id].slice(lower, upper).to_arrow(c.type) for c in self._plan.columns]
            fields = list(arrow_schema(self._plan.columns))
            if images:
                arrays.append(pa.StructArray.from_arrays(images, fields=fields, mask=pa.array(new)))
            else:
                arrays.append(pa.nulls(upper - lower, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    # ---- reading ----

    def _stores(self) -> list[tuple[Tablet, MemRowSet | DiskRowSet]]:
        """The stores that say something of the window, every file of them open (PROTOCOL R4)."""
        for attempt in range(REFRESH_TRIES):
            engine = self._engine()
            engine.check_open()
            try:
                return self._capture(engine)
            except FileMissing:
                if engine.writer or attempt + 1 == REFRESH_TRIES:
                    raise
                self._owner.refresh()
                check_window(self._engine(), self.since)
        raise AssertionError("unreachable")

    def _capture(self, engine: Engine) -> list[tuple[Tablet, MemRowSet | DiskRowSet]]:
        found: list[tuple[Tablet, MemRowSet | DiskRowSet]] = []
        for tablet in engine.tablets:
            for store in tablet.view.stores:
                if concerned(store, self.since, self.until):
                    if isinstance(store, DiskRowSet):
                        store.open_all(self.since)
                        store.open_all(self.until)
                        store = store.held()
                    found.append((tablet, store))
        return found


def window(engine: Engine, since: Any, until: Any) -> tuple[int, int]:
    """The timestamps of a window, checked to be readable.

    Changes are told up to the committed watermark: what a crash may take back is not told.
    """
    end = engine.committed_ts if until is None else resolve(engine, until)
    if until is not None and engine.writer:
        engine.log.wait_durable(end)
    start = engine.oldest_ts if since is None else _start(engine, since)
    if start > end:
        if until is not None:
            raise InvalidArgument(f"since, {start}, lies after until, {end}")
        end = start  # nothing is committed after it yet
    check_window(engine, start)
    return start, end


def _start(engine: Engine, since: Any) -> int:
    if isinstance(since, int) and not isinstance(since, bool) and 0 <= since < engine.oldest_ts:
        check_window(engine, since)
    return resolve(engine, since)


def check_window(engine: Engine, since: int) -> None:
    if since < engine.oldest_ts:
        raise ChangesLost(
            f"changes since {since} are gone: history reaches back to {engine.oldest_ts}; "
            "start again with since=None, or keep history for longer (history_retention_s)"
        )


def _by_time(piece: _Slice) -> _Slice:
    stamps = piece.timestamps
    if len(stamps) < 2 or bool((stamps[1:] >= stamps[:-1]).all()):
        return piece
    return piece.take(np.argsort(stamps, kind="stable"))


def _row_of(gid: np.ndarray, order: np.ndarray, present: np.ndarray, groups: int) -> np.ndarray:
    """By group: the position among the present rows of the one that is present, -1 where none is."""
    position = np.cumsum(present) - 1
    out = np.full(groups, -1, np.int64)
    mine = present[order]
    out[gid[mine]] = position[order[mine]]
    return out


def _same(old: ColumnBuffers, new: ColumnBuffers, column: StoredColumn) -> np.ndarray:
    """Whether cells are equal, NULL to NULL and bit by bit, (n,) bool."""
    left, right = old.valid_mask(), new.valid_mask()
    if old.width:
        a = old.values[: old.length * old.width].reshape(old.length, old.width)
        b = new.values[: new.length * new.width].reshape(new.length, new.width)
        equal = (a == b).all(axis=1)
    else:
        import pyarrow.compute as pc

        filled = pc.equal(old.to_arrow(column.type), new.to_arrow(column.type)).fill_null(False)
        equal = filled.to_numpy(zero_copy_only=False)
    same: np.ndarray = (left == right) & (equal | ~left)
    return same


def _with_nulls(values: ColumnBuffers, gone: np.ndarray) -> ColumnBuffers:
    bits = np.packbits(~gone, bitorder="little")
    if values.validity is not None:
        bits = bits & values.validity[: len(bits)]
    return ColumnBuffers(values.width, values.length, values.values, values.offsets, bits)


def _rows_only(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])


__all__ = ["BEFORE_NAME", "OP_NAME", "TIMESTAMP_NAME", "Changes", "ChangesPlan", "window"]
