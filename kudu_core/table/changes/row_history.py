"""The versions of one row: what ``changes`` tells of its key, each from when until when.

An insert or an update begins a version, and whatever follows it ends it.  A deletion begins none: between the
end of a version and the beginning of the next one the row is not there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.keys import EncodedKeys, encode_key
from kudu_core.common.rows.shown import damage_in
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InvalidArgument, SnapshotTooOld
from kudu_core.rowset.history.window import EVENT_DELETED
from kudu_core.table.changes.change_batches import OP_NAMES
from kudu_core.table.changes.changes import Changes
from kudu_core.table.changes.changes_plan import ChangesPlan, ChangesRequest, readable_since
from kudu_core.table.read.expiry.expired import are_expired, expiry_clock, time_column
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.tablet.view.view import KeyBatch

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

FROM_NAME, TO_NAME = "_valid_from", "_valid_to"
_HEAD = (
    pa.field(FROM_NAME, pa.uint64()),
    pa.field(TO_NAME, pa.uint64()),
    pa.field(OP_COLUMN, pa.string()),
)


def history_of(handle: Handle, key: Any, columns: Any, since: Any, until: Any) -> pa.Table:
    """What ``Table.history_of`` and ``Snapshot.history_of`` return, without what has expired by now."""
    schema = handle.opened().schema
    if schema.ttl is None:
        return _all_versions(handle, key, columns, since, until)
    now_us, time = expiry_clock(handle.engine, until), time_column(schema).name
    if columns is not None and not isinstance(columns, str):
        columns = list(columns)
    asked = columns is None or isinstance(columns, str) or time in columns
    wanted = columns if asked else [*columns, time]
    found = _all_versions(handle, key, wanted, since, until)
    mask = are_expired(found[time], schema, now_us)
    found = found.filter(pa.array(~mask)) if mask.any() else found
    return found if asked else found.drop_columns([time])


def _all_versions(handle: Handle, key: Any, columns: Any, since: Any, until: Any) -> pa.Table:
    request = ChangesRequest(columns)

    def begun(engine: Engine) -> tuple[_Versions, int | None]:
        first = engine.oldest_ts  # before the others: it is pinned only if no more is dropped meanwhile
        plan = _planned(engine.schema, request, key)
        last = snapshot_timestamp(engine, until)
        start = None if since is None else readable_since(engine, since)
        if start is not None and start > last and until is not None:
            raise InvalidArgument(f"since, {start}, lies after until, {last}")
        return _Versions(handle, plan, first, last, first=True), start

    while True:
        oldest = handle.opened().oldest_ts
        try:
            versions, start = handle.steady(begun)
            return versions.read(start)
        except SnapshotTooOld:
            if handle.opened().oldest_ts <= oldest:
                raise


def _planned(schema: Schema, request: ChangesRequest, key: Any) -> ChangesPlan:
    keys = KeyBatch(EncodedKeys.from_list([encode_key(schema, key)]))
    plan = replace(request.planned(schema), keys=keys)
    for field in _HEAD:
        if field.name in plan.shown.arrow.names:
            raise InvalidArgument(
                f"column {field.name!r} is called as what a history says of its versions; "
                "rename it, or name the other columns"
            )
    return plan


class _Versions(Changes):
    """The changes of one key as versions."""

    def read(self, start: int | None) -> pa.Table:
        """Those that are there at ``start`` or later; None: all."""
        plan = self._plan
        times, ops = [np.empty(0, np.uint64)], [np.empty(0, np.uint8)]
        rows: list[pa.RecordBatch] = []
        for block in self._blocks():
            times.append(block.timestamps)
            ops.append(block.ops)
            kept = block.take(np.flatnonzero(block.ops != EVENT_DELETED))
            with damage_in(self._handle.path):
                arrays = [kept.after[column.id].to_arrow(column.type) for column in plan.columns]
                rows.append(pa.record_batch(plan.shown.arrays(arrays), schema=plan.shown.arrow))
        every, told = np.concatenate(times), np.concatenate(ops)
        at = np.flatnonzero(told != EVENT_DELETED)
        ends = np.append(every[1:], np.uint64(0))[at]  # of the newest there is none
        lasts = at == len(every) - 1
        first = int(np.searchsorted(ends[~lasts], np.uint64(start or 0), side="right"))
        before = every[at] == np.uint64(self.since)  # what was there when history begins
        codes = pa.array(told[at], mask=before)
        head = [
            pa.array(every[at], mask=before),
            pa.array(ends, mask=lasts),
            pa.array(OP_NAMES, pa.string()).take(codes),
        ]
        body = pa.Table.from_batches(rows, plan.shown.arrow).columns
        return pa.table([*head, *body], schema=pa.schema([*_HEAD, *plan.shown.arrow])).slice(first)


__all__ = ["FROM_NAME", "TO_NAME", "history_of"]
