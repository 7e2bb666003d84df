"""Point reads: keys in, rows out, at one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core.common.rows.keys import EncodedKeys, decode_keys, encode_key
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.rows.shown import Seen, damage_in, picked
from kudu_core.common.run.locks import NOTHING
from kudu_core.common.run.measure.call_times import now_s
from kudu_core.common.schema.nested_rows import RowsSeen
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import Closed, SnapshotTooOld
from kudu_core.fs.missing import FileMissing
from kudu_core.table.opened.tablets import NEWEST
from kudu_core.table.read.expiry.expired import (
    are_expired,
    expiry_clock,
    hidden,
    row_alive,
    time_column,
    timed_shape,
    with_time,
)
from kudu_core.table.read.few_keys import FOUND, Answer, PartitionKeys, are_few, looked_up
from kudu_core.table.read.looked.key_blocks import key_block
from kudu_core.table.read.looked.row_values import cell_value, shown_row
from kudu_core.table.read.looked.view_types import Retyped, await_types, check_types
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.read.plan import kept
from kudu_core.tablet.view.view import KeyBatch, Look, locate_at, looks_at

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.opened.tablets import Tablets
    from kudu_core.tablet.store.tablet import Tablet
    from kudu_core.tablet.view.view import View

I64 = npt.NDArray[np.int64]


def get(handle: Handle, key: Any, columns: Any, at: Any) -> dict[str, Any] | None:
    """One row as a dict of Python values, None when the key is not there.  ``columns``: names; None: all."""
    engine = handle.engine
    if columns is not None:
        columns = kept(columns)
    elif at is None and engine.refusal is None and engine.schema.ttl is None:
        # As ``_get``, whose comments it follows, of the newest whole row in a table of one tablet: the calls
        # that it goes without took as long as finding the row.
        schema = engine.schema
        codec = schema.row_codec
        encoded = codec.keys.encode(key)
        snapshot = engine.end.visible_ts
        tablet = engine.tablets.only
        if encoded is not None and tablet is not None:
            view = tablet.view
            points, is_typed = view.points, view.types_version == schema.cells
            if is_typed and (snapshot >= engine.pins.floor or not engine.writer):
                try:
                    row = points.get(encoded, snapshot, codec.all)
                    return _rows_seen(engine, None).row(row) if schema.nested and row is not None else row
                except (NeedsGeneralPath, PageError, FileMissing):
                    pass
    try:
        # Without ``Handle.retrying``, whose call costs a tenth of a row that is found in memory.
        engine.check_open()
        return _get(engine, key, columns, at)
    except (Closed, FileMissing):
        pass
    return handle.retrying(_get, key, columns, at)


def get_timed(handle: Handle, key: Any, columns: Any, at: Any, times: int) -> dict[str, Any] | None:
    """``get``, and how long it took, which stands for so many."""
    began_s = now_s()
    row = get(handle, key, columns, at)
    handle.engine.call_times.got(began_s, times)
    return row


def _get(engine: Engine, key: Any, columns: Any, at: Any) -> dict[str, Any] | None:
    schema = engine.schema
    codec, nested, now_us = schema.row_codec, None, None
    if schema.ttl is not None:
        if schema.nested:
            return _get_nested(engine, key, columns, at)
        now_us = expiry_clock(engine, at)
        chosen: Sequence[StoredColumn] = with_time(schema, schema.project(columns))
        shape = timed_shape(schema, chosen)
    elif schema.nested:
        nested = _rows_seen(engine, columns)
        chosen, shape = nested.stored, nested.shape
    elif columns is None:
        chosen, shape = schema.columns, codec.all
    else:
        chosen = schema.project(columns)
        shape = codec.shape(chosen)
    encoded = codec.keys.encode(key)
    while True:
        snapshot = engine.visible_ts if at is None else snapshot_timestamp(engine, at)
        if encoded is not None:
            try:
                tablet = tablet_of_key(engine.tablets, encoded, snapshot)
                view = None if tablet is None else tablet.view  # and with it its rowsets' files (protocol E4)
                if view is not None and view.types_version != schema.cells:
                    return _retyped(engine, key, columns, at)
                # The view has the history since the floor of before it was captured: an operation that drops
                # more raises the floor first (protocol H2).  So this look stands for a pin.
                if snapshot >= engine.pins.floor or not engine.writer:
                    row = None if view is None else view.points.get(encoded, snapshot, shape)
                    if row is None:
                        return None
                    if nested is not None:
                        return nested.row(row)
                    return row if now_us is None else row_alive(schema, row, now_us)
            except (NeedsGeneralPath, PageError, SnapshotTooOld):
                pass
        if nested is not None:
            return _get_nested(engine, key, columns, at)
        try:
            row = _get_general(engine, schema, key, chosen, snapshot)
            return row if now_us is None or row is None else row_alive(schema, row, now_us)
        except Retyped:
            return _retyped(engine, key, columns, at)
        except SnapshotTooOld:
            if at is not None or engine.visible_ts <= snapshot:
                raise
            # The newest snapshot of a moment ago; it fell behind while this thread slept.


def _rows_seen(engine: Engine, columns: Sequence[str] | None) -> RowsSeen:
    """What makes rows with nested columns, by their names, which is kept."""
    plans = engine.plans_of(engine.schema)
    asked = "row", *(("",) if columns is None else columns)
    made: RowsSeen | None = plans.get(asked)
    if made is None:
        made = RowsSeen(*picked(engine.schema, columns))
        plans.put(asked, made)
    return made


def _get_nested(engine: Engine, key: Any, columns: Any, at: Any) -> dict[str, Any] | None:
    """By the way of ``get_many``, which knows how nested columns are put together."""
    encoded = EncodedKeys.from_list([encode_key(engine.schema, key)])
    found = _get_many(engine, decode_keys(engine.schema, encoded), encoded, columns, at)
    if not found[FOUND][0].as_py():
        return None
    return shown_row(found, 0)


def tablet_of_key(tablets: Tablets, key: bytes, snapshot: int = NEWEST) -> Tablet | None:
    """The tablet of an encoded key at a snapshot, None where no range takes it; ``NeedsGeneralPath``: too
    many columns."""
    if tablets.only is not None:
        return tablets.only
    router = tablets.partitions_at(snapshot).router
    if router is None:
        raise NeedsGeneralPath
    ordinal = router.route(key)
    return None if ordinal < 0 else tablets.of_ordinal(ordinal, snapshot)


def _pinned(engine: Engine, snapshot: int) -> AbstractContextManager[object]:
    """``with`` it: history at the snapshot stays while views are captured; what they hold, they keep.

    A reader's views never lose history: nobody drops any in its process.
    """
    return engine.pins.pin(snapshot) if engine.writer else NOTHING


def _get_general(
    engine: Engine, schema: Schema, key: Any, columns: Sequence[StoredColumn], snapshot: int
) -> dict[str, Any] | None:
    keys = EncodedKeys.from_list([encode_key(schema, key)])
    with _pinned(engine, snapshot):
        tablets = engine.tablets
        ordinal = int(tablets.partitions_at(snapshot).route(decode_keys(schema, keys))[0])
        if ordinal < 0:
            return None
        view = tablets.of_ordinal(ordinal, snapshot).view
    check_types(schema, (view,))
    homes, seen = locate_at(view, KeyBatch(keys), snapshot)
    store = int(homes.store[0])
    if store < 0:
        return None
    row = {}
    for column in columns:
        cell = seen[store].cells(column, homes.row)
        row[column.name] = cell_value(column, cell)
    return row


def _retyped(engine: Engine, key: Any, columns: Any, at: Any) -> dict[str, Any] | None:
    """``_get`` anew, of the types of now."""
    await_types(engine)
    return _get(engine, key, columns, at)


def get_many(handle: Handle, keys: Any, columns: Any, at: Any) -> pa.Table:
    """Rows in the order of the keys; ``_found`` says which are there, the others are NULL.  ``columns``:
    names; None: all."""
    # The keys may be a stream, which is read once; columns of the key are the same in every state.
    block, encoded = key_block(handle.opened().schema, keys)
    return handle.retrying(_get_many, block, encoded, kept(columns), at)


def _get_many(engine: Engine, block: RowBlock, encoded: EncodedKeys, columns: Any, at: Any) -> pa.Table:
    now_us = expiry_clock(engine, at) if engine.schema.ttl else None
    batch = KeyBatch(encoded)
    while True:
        schema = engine.schema
        chosen, seen = picked(schema, columns)
        snapshot = engine.visible_ts if at is None else snapshot_timestamp(engine, at)
        try:
            with _pinned(engine, snapshot):
                tablets = engine.tablets
                every = batch.order if batch.order is not None else np.arange(len(batch))
                only = tablets.only
                if only is not None and len(batch) and snapshot >= only.created_ts:  # no key is routed
                    shares = PartitionKeys([only.partition.ordinal], every, np.array([len(batch)]))
                    views = [only.view]
                else:
                    shares = PartitionKeys.of(tablets.partitions_at(snapshot).route(block), every)
                    views = [tablets.of_ordinal(ordinal, snapshot).view for ordinal in shares.ordinals]
            check_types(schema, views)
            break
        except Retyped:
            await_types(engine)
        except SnapshotTooOld:
            if at is not None or engine.visible_ts <= snapshot:
                raise
    answer = _answer(engine, schema, chosen, seen)
    rows = _rows_of(engine, views, shares, batch, block, answer, chosen, snapshot)
    if now_us is not None:
        time = time_column(schema)
        times = rows
        if time not in chosen:
            only_time = _answer(engine, schema, [time], [time], stored=True)
            times = _rows_of(engine, views, shares, batch, block, only_time, [time], snapshot)
        mask = are_expired(times.column(time.name), schema, now_us)
        rows = hidden(rows, mask, frozenset(schema.key_names))
    with damage_in(engine.path):
        return answer.shown(rows)


def newest_rows(
    engine: Engine, batch: KeyBatch, block: RowBlock, columns: Sequence[StoredColumn]
) -> pa.RecordBatch:
    """Stored columns of the rows of keys as the newest state that is applied has them, NULLs where there is
    no row, and ``_found``.  Under the mutexes of the keys' tablets.  ``block``: the columns of the keys."""
    tablets = engine.tablets
    every = batch.order if batch.order is not None else np.arange(len(batch))
    shares = PartitionKeys.of(tablets.partitions.route(block), every)
    views = [tablets.of_ordinal(ordinal).view for ordinal in shares.ordinals]
    answer = _answer(engine, engine.schema, columns, columns, stored=True)
    return _rows_of(engine, views, shares, batch, block, answer, columns, NEWEST)


def _rows_of(
    engine: Engine,
    views: Sequence[View],
    shares: PartitionKeys,
    batch: KeyBatch,
    block: RowBlock,
    answer: Answer,
    chosen: Sequence[StoredColumn],
    snapshot: int,
) -> pa.RecordBatch:
    """A row for each key as it is stored, NULLs where there is none, and ``_found``."""
    if are_few(len(batch)) and not engine.in_store:  # there it is the wait for pages that counts
        found = looked_up(views, shares, batch, block, answer, snapshot)
        if found is not None:
            return found
    looks = []
    for (_, rows), view in zip(shares.pairs(), views, strict=True):
        whole = len(rows) == len(batch)
        for look in looks_at(view, batch if whole else batch.take(rows), snapshot):
            if not whole:
                look.places = rows if look.places is None else rows[look.places]
            looks.append(look)
    pieces = [_look_up(look, answer.read) for look in looks]
    pieces = [piece for piece in pieces if len(piece.places)]
    return _assembled(engine, chosen, answer.arrow, block, pieces)


def _answer(
    engine: Engine,
    schema: Schema,
    columns: Sequence[StoredColumn],
    seen: Sequence[Seen],
    *,
    stored: bool = False,
) -> Answer:
    """Of answers with these columns, which is kept.  ``stored``: they are not shown to users."""
    plans = engine.plans_of(schema)
    nested = schema.nested and not stored
    asked = "answer", *([one.name for one in seen] if nested else [c.id for c in columns])
    made = plans.get(asked)
    if made is None:
        made = Answer(columns, schema.key_ids, seen if nested else None)
        plans.put(asked, made)
    return made


@dataclass(slots=True)
class _Piece:
    """Rows that one store gave."""

    places: np.ndarray
    """Which keys are theirs."""
    rows: np.ndarray | None
    """The row of each of these keys among the cells; None: as they come."""
    cells: dict[int, ColumnBuffers]


def _look_up(look: Look, read: Sequence[StoredColumn]) -> _Piece:
    places, rows = look.live()
    back = None
    if len(rows) and look.source.views:
        rows, back = np.unique(rows, return_inverse=True)
        back = back.reshape(-1)
    return _Piece(places, back, look.source.cells_of(read, rows) if len(rows) else {})


def _assembled(
    engine: Engine,
    columns: Sequence[StoredColumn],
    schema: pa.Schema,
    block: RowBlock,
    pieces: Sequence[_Piece],
) -> pa.RecordBatch:
    """The rows of the pieces as a batch, in the order of the keys; NULLs where there is no row."""
    keys = block.rows
    source = np.full(keys, len(pieces), np.int32)
    position = np.zeros(keys, np.int64)  # of absent rows: in a piece of one NULL, the last
    for number, piece in enumerate(pieces):
        source[piece.places] = number
        position[piece.places] = np.arange(len(piece.places)) if piece.rows is None else piece.rows
    found = source < len(pieces)
    missing = not bool(found.all())
    arrays = []
    for column in columns:
        if column.id in engine.schema.key_ids:
            values_ = block.columns[column.id]  # as asked, also where the row is absent
        else:
            parts = [piece.cells[column.id] for piece in pieces]
            if missing or not pieces:
                parts.append(ColumnBuffers.nulls(column.type, 1))
            values_ = ColumnBuffers.interleave(parts, source, position)
        arrays.append(values_.to_arrow(column.type))
    return pa.RecordBatch.from_arrays([*arrays, pa.array(found)], schema=schema)
