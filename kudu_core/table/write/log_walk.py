"""The walk of a write through the log (protocol W1 to W7).

encode and route -> mutexes in tablet order -> decide -> reserve -> log record -> apply -> release -> wait.

``Prepared`` encodes the keys, groups equal ones, routes them to tablets, and marks rows that are refused
whatever the table holds.  Under the mutexes of these tablets ``locate_newest`` finds the one store in which
each key lives, the row rules run in the order of the call, and one net change for each key is left.  Room
for it is made in the very stores that will take it; only then is the record written, and the changes are
put into the room, which allocates nothing and cannot be refused.  Without room ``MemoryLimit`` is raised,
and nothing has happened.

A store that would come to hold more than 2 GiB of one column is closed first.  A MemRowSet is frozen, and
the keys are looked up again (``Moved``); a DeltaMemStore, and the changes of a frozen MemRowSet, get a
successor.

Not known here: what becomes of calls that do not fit (``fits``), which is the door's to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kudu_core._ext.columns.growing import data_limit
from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE
from kudu_core.common.idempotence.writers import Txn
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.locks import NOTHING, HeldLocks
from kudu_core.common.run.ordering import distinct
from kudu_core.errors import Conflict, RowErrors
from kudu_core.table.calls.call import Call, default_bytes, fitted, joined, numbers_of_calls, starts_of
from kudu_core.table.calls.decide import Decided, Net, decide_net
from kudu_core.table.calls.prepared import Prepared
from kudu_core.table.calls.refused import Refused, returned
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.record import recorded
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying, Moved, values_only
from kudu_core.tablet.store.tablet import Tablet, newest_of
from kudu_core.tablet.view.view import ABSENT, Homes, KeyBatch, locate_newest
from kudu_core.wal import RECORD_KIND_WRITE

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.tablets import Tablets

SHORT_ROWS = 8192
"""Calls of up to so many rows are made one after the other (``Engine.short_writes``)."""


@dataclass(slots=True)
class TabletKeys:
    """The keys of a batch that belong to one tablet, and where they live."""

    tablet: Tablet
    groups: np.ndarray
    """(n,) int64: which of the batch's distinct keys they are."""
    batch: KeyBatch
    homes: Homes


def fits(engine: Engine, calls: Sequence[Call]) -> bool:
    """Whether calls go through the log: those of few rows and bytes, which by themselves fill no column in
    memory."""
    nbytes = sum(call.block.nbytes for call in calls) + default_bytes(engine.schema, calls)
    return fits_log(engine, sum(call.rows for call in calls), nbytes)


def fits_log(engine: Engine, rows: int, nbytes: int) -> bool:
    """The same of so many rows and bytes."""
    options = engine.options
    if rows >= options.ingest_threshold_rows:
        return False
    return nbytes < min(options.ingest_threshold_bytes, data_limit() // 2)


def write_calls(
    engine: Engine,
    calls: Sequence[Call],
    *,
    on_error: str,
    txn: Txn | None,
    job: str | None,
    wait: bool = True,
) -> WriteResult:
    """Apply calls that fit, in order, as one record, all or nothing.  The token's lock is the caller's.

    ``job``: the id of the distributed write that they are.  ``wait``: until the answer's timestamp is
    visible; a refusal is waited for in any case.
    """
    calls = joined(calls)
    short = sum(call.block.rows for call in calls) <= SHORT_ROWS
    while True:
        tablets: Sequence[Tablet] = ()
        try:
            with engine.short_writes if short else NOTHING:
                schema, all_tablets = engine.schema, engine.tablets
                prepared = Prepared(schema, all_tablets.partitions, fitted(schema, calls), engine.pool)
                tablets = _touched(all_tablets, prepared)
                if txn is not None and not tablets:
                    tablets = all_tablets[:1]  # its token comes before or after an ALTER (protocol K2)
                with HeldLocks([tablet.mutex for tablet in tablets]):
                    if engine.schema is not schema or engine.partitions is not prepared.partitions:
                        continue  # ALTER was faster: encode and route the rows anew (protocol W2)
                    result, ts = _write_locked(engine, prepared, tablets, on_error, txn, job)
        except RowErrors:
            # Protocol W4: a refusal, too, may rest on records that are not durable yet.
            engine.wait_visible(newest_of(tablets))
            raise
        if wait:
            engine.wait_visible(ts)
        return result


def write_collected(
    engine: Engine,
    touched: Callable[[], Sequence[Tablet]],
    collect: Callable[[], Sequence[Call]],
    *,
    on_error: str,
    txn: Txn | None,
    wait: bool = True,
) -> WriteResult | None:
    """Apply the calls that ``collect`` makes under the mutexes of the tablets that ``touched`` names.

    None: they do not fit into the log, and nothing happened.  ``collect`` may be asked again.  The token's
    lock is the caller's.  ``wait``: as of ``write_calls``.
    """
    while True:
        schema, all_tablets = engine.schema, engine.tablets
        tablets = touched()
        try:
            with HeldLocks([tablet.mutex for tablet in tablets]):
                if engine.schema is not schema or engine.tablets is not all_tablets:
                    continue  # ALTER was faster, or an overwrite
                calls = collect()
                if not fits(engine, calls):
                    return None
                prepared = Prepared(schema, all_tablets.partitions, joined(calls), engine.pool)
                result, ts = _write_locked(engine, prepared, tablets, on_error, txn, None)
        except (RowErrors, Conflict):
            engine.wait_visible(newest_of(tablets))
            raise
        if wait:
            engine.wait_visible(ts)
        return result


def _write_locked(
    engine: Engine,
    prepared: Prepared,
    tablets: Sequence[Tablet],
    on_error: str,
    txn: Txn | None,
    job: str | None,
) -> tuple[WriteResult, int]:
    """Under the mutexes of the tablets: decide, reserve, log, apply.  Returns the timestamp to wait for.

    ``StoreFull``: no store in memory can take the rows; nothing happened.
    """
    while True:
        try:
            return _write_once(engine, prepared, tablets, on_error, txn, job)
        except Moved:
            engine.memory.wake_flushes()  # once more: the keys' homes have moved


def _write_once(
    engine: Engine,
    prepared: Prepared,
    tablets: Sequence[Tablet],
    on_error: str,
    txn: Txn | None,
    job: str | None,
) -> tuple[WriteResult, int]:
    engine.check_writable()
    located = _located(engine, prepared)
    decided, net = decide_net(prepared, _live(prepared, located))
    refused = decided.refused(prepared)
    numbers = None if refused is None else numbers_of_calls(prepared.calls)
    if refused is not None and numbers is not None:
        refused = Refused.concat([replace(refused, rows=numbers[refused.rows])])
    errors = returned(prepared.schema, refused, starts_of(prepared.calls), on_error)
    if net.empty and txn is None:
        # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
        ts = newest_of(tablets)
        return _result(decided, errors, max(ts, engine.visible_ts)), ts
    payload = _payload(prepared, located, net)
    if txn is not None:
        payload.extra = {"txn": txn.to_json(), "counts": list(decided.counts)}
    if job is not None:
        payload.extra |= {"job": job, "counts": list(decided.counts)}
    parts = records.encode(payload)
    layings = [_laying(prepared, net, keys) for keys in located]
    engine.memory.reserve(layings, sum(len(memoryview(p).cast("B")) for p in parts))
    version = prepared.schema.version
    with recorded(engine, RECORD_KIND_WRITE, version, parts, txn=txn, job=job, counts=decided.counts) as ts:
        for laying in layings:
            laying.lay(ts)
    return _result(decided, errors, ts), ts


def _touched(tablets: Tablets, prepared: Prepared) -> Sequence[Tablet]:
    """Tablets that a batch may change, in their order."""
    if len(tablets) == 1:
        return tablets if (prepared.route >= 0).any() else []
    ordinals = distinct(prepared.route)
    return [tablets.of_ordinal(o) for o in ordinals[ordinals >= 0].tolist()]


def _located(engine: Engine, prepared: Prepared) -> list[TabletKeys]:
    """Under the mutexes: the keys of every tablet that the batch touches, and where they live."""
    touched = _touched(engine.tablets, prepared)
    if len(touched) == 1 and (prepared.route >= 0).all():
        [tablet] = touched
        batch = prepared.batch
        return [TabletKeys(tablet, np.arange(prepared.groups), batch, locate_newest(tablet.view, batch))]
    located = []
    for tablet in touched:
        groups = np.flatnonzero(prepared.route == tablet.partition.ordinal)
        batch = prepared.batch.take(groups)
        located.append(TabletKeys(tablet, groups, batch, locate_newest(tablet.view, batch)))
    return located


def _live(prepared: Prepared, located: Sequence[TabletKeys]) -> np.ndarray:
    """(groups,) bool: which keys are present before the batch."""
    live = np.zeros(prepared.groups, bool)
    for keys in located:
        live[keys.groups] = keys.homes.store != ABSENT
    return live


def _laying(prepared: Prepared, net: Net, keys: TabletKeys) -> Laying:
    """The net changes as they go into the stores of one tablet (protocol W5)."""
    laying = Laying(keys.tablet)
    homes = keys.homes
    place = np.full(prepared.groups, -1, np.int64)
    place[keys.groups] = np.arange(len(keys.groups))
    mine, at = _of_tablet(net.insert_groups, place)
    if len(at):
        block = net.inserts if len(mine) == net.inserts.rows else net.inserts.take(mine)
        batch = keys.batch if len(at) == len(keys.batch) else keys.batch.take(at)
        laying.insert(block, batch, homes.ghost[at])
    for op, block, groups in (
        *((REDO_UPDATE, b, g) for b, g in net.updates),
        (REDO_DELETE, net.deletes, net.delete_groups),
    ):
        mine, at = _of_tablet(groups, place)
        if len(at):
            some = block if len(mine) == block.rows else block.take(mine)
            laying.change(op, homes.store[at], homes.row[at], values_only(prepared.schema, some))
    return laying


def _of_tablet(groups: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(positions in ``groups`` of this tablet's keys, their places in the tablet's batch)."""
    at = place[groups]
    mine = np.flatnonzero(at >= 0)
    return mine, at[mine]


def _payload(prepared: Prepared, located: Sequence[TabletKeys], net: Net) -> records.Payload:
    """The record: which tablets, and the net changes with their rows' tablets."""
    touched = [keys.tablet for keys in located]
    first = prepared.partitions.first
    position = np.full(max((t.partition.ordinal - first for t in touched), default=0) + 1, -1, np.int32)
    for i, tablet in enumerate(touched):
        position[tablet.partition.ordinal - first] = i

    def section(op: int, block: RowBlock, groups: np.ndarray) -> records.Section:
        return records.Section(op, block, position[prepared.route[groups] - first])

    sections = [section(records.RECORD_UPDATE, block, groups) for block, groups in net.updates]
    if net.inserts.rows:
        sections.append(section(records.RECORD_INSERT, net.inserts, net.insert_groups))
    if net.deletes.rows:
        sections.append(section(records.RECORD_DELETE, net.deletes, net.delete_groups))
    return records.Payload(tuple(t.id for t in touched), sections, {})


def _result(decided: Decided, errors: pa.Table | None, ts: int) -> WriteResult:
    refused = 0 if errors is None else errors.num_rows
    return WriteResult(ts, *decided.counts, errors=errors, refused=refused)


__all__ = ["fits", "fits_log", "write_calls", "write_collected"]
