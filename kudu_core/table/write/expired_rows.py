"""Rows that have outlived the table's ``ttl``, removed: before a write that could meet them, and by
maintenance (docs/ttl.md).

To users such a row is not there from the moment on in which it expires; in the stores it lives until it is
deleted here, by a record like any other deletion.  So the rules of writes, replay, changes and history know
nothing of expiry: before a write is decided, what has expired of its keys is deleted.  Nobody sees the
difference between the two, but who reads changes.

A deletion looks at the time once more under the mutexes, so what has got a new time meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.rules import decide as rules
from kudu_core.common.rows.keys import encode_keys
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.locks import HeldLocks
from kudu_core.common.schema.schema import Schema
from kudu_core.common.where.predicates import compile_where
from kudu_core.errors import KuduError
from kudu_core.rowset.scan.scan import ScanSpec, scan_rowset
from kudu_core.rowset.scan.scan_counts import ScanCounts
from kudu_core.table.calls.call import Call
from kudu_core.table.ingest.ingest import ingest_collected
from kudu_core.table.opened.tablets import NEWEST
from kudu_core.table.read.expiry.expired import (
    are_expired,
    expired,
    time_column,
    timed_shape,
    with_time,
)
from kudu_core.table.read.looked.key_blocks import key_block
from kudu_core.table.read.plan import prune_tablets
from kudu_core.table.read.points import newest_rows, tablet_of_key
from kudu_core.table.write.batch_reads import touched_by
from kudu_core.table.write.log_walk import write_collected
from kudu_core.tablet.store.tablet import newest_of
from kudu_core.tablet.view.view import KeyBatch

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.tablet.store.tablet import Tablet

SLICE_ROWS = 1 << 16
"""Rows that one record of a sweep deletes at most, while which writers of their tablets wait."""
_SHARE_OF_LIFETIME = 50
_LEAST_PAUSE_S, _MOST_PAUSE_S = 1.0, 600.0
"""Between two looks of background maintenance for what has expired: a share of the lifetime, within these."""
_ROWS_OF_A_LOOK = 16 * SLICE_ROWS
"""That one look deletes at most, so that a table that is closed need not wait long."""


def clear_keys(engine: Engine, blocks: Iterable[RowBlock]) -> None:
    """Before a write of keys: delete what has expired of them.  ``blocks``: with the key columns.

    Without a mutex held.
    """
    if engine.schema.ttl is None:
        return
    now_us = engine.clock.now_us()
    for block in blocks:
        schema = engine.schema
        keys = _keyed(schema, block)
        if keys.rows:
            _delete_expired(engine, keys, now_us)


def are_clear(engine: Engine, few: list[dict[Any, Any]] | pa.RecordBatch) -> bool:
    """Whether nothing that has expired is in the way of a few rows; False also where the general path must
    look, which clears their keys."""
    try:
        if isinstance(few, pa.RecordBatch):
            clear_keys(engine, [key_block(engine.schema, few)[0]])
            return True
        return _meet_none(engine, few)
    except (KuduError, KeyError, TypeError, NeedsGeneralPath, PageError):
        return False  # whoever takes the rows says what is wrong with them, or with a file


def _meet_none(engine: Engine, rows: list[dict[Any, Any]]) -> bool:
    schema, tablets = engine.schema, engine.tablets
    assert schema.ttl is not None
    last = schema.ttl.last_expired(time_column(schema).type, engine.clock.now_us())
    columns = with_time(schema, ())
    shape, encode, names = timed_shape(schema, columns), schema.row_codec.keys.encode, schema.key_names
    for row in rows:
        encoded = encode(row[names[0]] if len(names) == 1 else tuple([row[name] for name in names]))
        if encoded is None or (tablet := tablet_of_key(tablets, encoded)) is None:
            return False
        with tablet.mutex:
            found = tablet.view.points.get(encoded, NEWEST, shape)
        cell = None if found is None else found[columns[0].name]
        if cell is not None and last is not None and cell <= last:
            return False
    return True


def sweep(engine: Engine, most_rows: int | None = None) -> int:
    """Delete all rows that have expired, some at a time, each time as one record; how many they were.

    ``most_rows``: after so many it ends.  Pages whose zone maps say that nothing has expired are not read.
    """
    engine.check_writable()
    now_us, deleted = engine.clock.now_us(), 0
    for keys in _expired_keys(engine, now_us):
        deleted += _delete_expired(engine, keys, now_us)
        if most_rows is not None and deleted >= most_rows:
            break
    if deleted:
        engine.wait_visible(newest_of(engine.tablets))
    return deleted


class Sweeper:
    """Sweeps a table now and then; called often, by any thread.  Two that sweep at once do no harm."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._due_s = 0.0

    def __call__(self) -> None:
        ttl, clock = self._engine.schema.ttl, self._engine.clock
        if ttl is None:
            return
        now_s = clock.monotonic_s()
        if now_s < self._due_s:
            return
        pause_s = ttl.lifetime_us / 1e6 / _SHARE_OF_LIFETIME
        self._due_s = now_s + min(max(pause_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)
        if sweep(self._engine, _ROWS_OF_A_LOOK) >= _ROWS_OF_A_LOOK:
            self._due_s = now_s


def swept(handle: Handle) -> Handle:
    """The handle; while it has the table open for writing, background maintenance sweeps."""
    if handle.writes and handle.engine.compactions is not None:
        handle.engine.compactions.beside = Sweeper(handle.engine)
    return handle


def _keyed(schema: Schema, block: RowBlock) -> RowBlock:
    """The key columns of the rows that have a whole key."""
    keys = block.select(schema.key_ids)
    whole = np.ones(keys.rows, np.bool_)
    for column in keys.columns.values():
        if column.validity is not None:
            whole &= column.valid_mask()
    return keys if whole.all() else keys.take(np.flatnonzero(whole))


def _delete_expired(engine: Engine, keys: RowBlock, now_us: int) -> int:
    """Delete those of some keys whose rows have expired; how many."""
    batch = KeyBatch(encode_keys(engine.schema, keys))

    def found() -> RowBlock:
        schema = engine.schema
        if schema.ttl is None:  # ALTER was faster
            return keys.take(np.empty(0, np.int64))
        rows = newest_rows(engine, batch, keys, [time_column(schema)])
        there = rows.columns[-1].to_numpy(zero_copy_only=False)
        return keys.take(np.flatnonzero(there & are_expired(rows.columns[0], schema, now_us)))

    while True:
        schema, all_tablets = engine.schema, engine.tablets
        with HeldLocks([tablet.mutex for tablet in touched_by(all_tablets, [keys])]):
            if engine.schema is not schema or engine.tablets is not all_tablets:
                continue
            if not found().rows:
                return 0
        break

    def touched() -> Sequence[Tablet]:
        return touched_by(engine.tablets, [keys])

    def calls() -> Sequence[Call]:
        return [Call(rules.CALL_DELETE_IGNORE, found())]

    engine.memory.admit()
    done = write_collected(engine, touched, calls, on_error="raise", txn=None, wait=False)
    if done is None:
        done = ingest_collected(engine, calls, on_error="raise", txn=None)
    return done.deleted


def _expired_keys(engine: Engine, now_us: int) -> Iterator[RowBlock]:
    """The keys of the rows that have expired, in blocks of at most ``SLICE_ROWS``."""
    schema = engine.schema
    where = expired(schema, now_us)
    if where is None:
        return
    engine.wait_visible(newest_of(engine.tablets))
    snapshot, filter_ = engine.visible_ts, compile_where(where, schema)
    spec = ScanSpec(
        schema, schema.key_columns, filter_, None, None, False, SLICE_ROWS, implied=(True, True)
    )
    with engine.pins.pin(snapshot):
        for tablet in prune_tablets(engine, filter_, None, None, snapshot):
            for source in tablet.view.at(snapshot):
                for some in scan_rowset(source, spec, ScanCounts()):
                    if some.rows:
                        yield RowBlock(some.columns, some.rows)


__all__ = ["SLICE_ROWS", "Sweeper", "are_clear", "clear_keys", "sweep", "swept"]
