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
successor.  A call that would take half of that by itself becomes a bulk ingest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE
from kudu_core.common.idempotence.writers import AppliedWrite, Txn
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.locks import NOTHING, Held
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import RowErrors
from kudu_core.table.calls.decision import (
    Call,
    Decided,
    Net,
    Prepared,
    Refused,
    decide_net,
    error_table,
    fitted,
    joined,
    row_errors,
    starts_of,
)
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest import ingest
from kudu_core.table.write.repetition import already_applied, named
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying, Moved, values_only
from kudu_core.tablet.store.tablet import Tablet, newest_of
from kudu_core.tablet.view.view import ABSENT, Homes, KeyBatch, locate_newest
from kudu_core.wal import RECORD_KIND_WRITE

if TYPE_CHECKING:
    from kudu_core.table.ingest.commit import Committing
    from kudu_core.table.opened.engine import Engine

SHORT_ROWS = 8192
"""Calls of up to so many rows are made one after the other (``Engine.short_writes``)."""


def write_calls(
    engine: Engine,
    calls: Sequence[Call],
    *,
    on_error: str = "raise",
    txn: Txn | None = None,
    collect: Callable[[], Sequence[Call]] | None = None,
    job: Committing | None = None,
) -> WriteResult:
    """Apply calls in order, as one record, all or nothing.  ``job``: the distributed write that they are.

    ``collect`` makes further calls from the newest state, under the mutexes of every tablet: the
    rows of a ``where=`` write.
    """
    txn = named(txn, calls, engine.pool)
    with NOTHING if txn is None else engine.writers.lock_of(txn.app_id):
        repeated = None if txn is None else already_applied(engine, txn)
        if repeated is not None:
            return repeated
        engine.memory.admit()
        if collect is None and engine.wants_ingest(calls):
            return ingest.ingest_calls(engine, calls, on_error=on_error, txn=txn, job=job)
        calls = joined(calls)
        short = collect is None and sum(call.block.rows for call in calls) <= SHORT_ROWS
        while True:
            tablets: Sequence[Tablet] = ()
            try:
                with engine.short_writes if short else NOTHING:
                    schema = engine.schema
                    prepared = Prepared(schema, engine.partitions, fitted(schema, calls), engine.pool)
                    tablets = engine.tablets if collect is not None else _touched(engine, prepared)
                    if txn is not None and not tablets:
                        tablets = engine.tablets[:1]  # its token comes before or after an ALTER (protocol K2)
                    with Held([tablet.mutex for tablet in tablets]):
                        if engine.schema is not schema or engine.partitions is not prepared.partitions:
                            continue  # ALTER was faster: encode and route the rows anew (protocol W2)
                        if collect is not None:
                            collected = collect()
                            if engine.wants_ingest(collected):
                                break  # too much for the log: once more, with the flush lanes
                            prepared = Prepared(engine.schema, engine.partitions, collected)
                        result, ts = _write_locked(engine, prepared, tablets, on_error, txn, job)
            except RowErrors:
                # Protocol W4: a refusal, too, may rest on records that are not durable yet.
                engine.wait_visible(newest_of(tablets))
                raise
            engine.wait_visible(ts)
            return result
        assert collect is not None
        return ingest.ingest_collected(engine, collect, on_error=on_error, txn=txn)


def _write_locked(
    engine: Engine,
    prepared: Prepared,
    tablets: Sequence[Tablet],
    on_error: str,
    txn: Txn | None,
    job: Committing | None,
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
    job: Committing | None,
) -> tuple[WriteResult, int]:
    engine.check_writable()
    homes = {t.id: (rows, locate_newest(t.view, b)) for t, rows, b in _split(engine, prepared)}
    decided, net = decide_net(prepared, live_of(prepared, homes))
    errors = refused(prepared.schema, Refused.of(prepared, decided), starts_of(prepared.calls), on_error)
    if net.empty and txn is None:
        # Protocol W4: nothing to log; the answer may rest on records that are not visible yet.
        ts = newest_of(tablets)
        return result_of(decided, errors, max(ts, engine.visible_ts)), ts
    payload = _payload(engine, prepared, net)
    if txn is not None:
        payload.extra = {"txn": txn.to_json(), "counts": list(counts_of(decided))}
    if job is not None:
        payload.extra |= {"job": job.id, "counts": list(counts_of(decided))}
    parts = records.encode(payload)
    layings = lay_net(engine, prepared, net, homes)
    engine.memory.reserve(layings, sum(len(memoryview(p).cast("B")) for p in parts))
    try:
        ts = engine.log.append(RECORD_KIND_WRITE, prepared.schema.version, parts)
        for laying in layings:
            laying.lay(ts)
        if txn is not None:
            engine.writers.note(txn, ts, counts_of(decided))
        if job is not None:
            engine.writers.applied_jobs[job.id] = AppliedWrite(0, ts, counts_of(decided))
        engine.log.applied(ts)
    except BaseException as exc:
        engine.poison_if_owing(exc)
        raise
    return result_of(decided, errors, ts), ts


def lay_net(
    engine: Engine, prepared: Prepared, net: Net, homes: dict[int, tuple[np.ndarray, Homes]]
) -> list[Laying]:
    """The net changes as they go into the stores of every tablet (protocol W5)."""
    layings = []
    for tablet, groups, batch in _split(engine, prepared):
        laying = Laying(tablet)
        layings.append(laying)
        home = homes[tablet.id][1]
        place = np.full(prepared.groups, -1, np.int64)
        place[groups] = np.arange(len(groups))
        mine, at = _of_tablet(net.insert_groups, place)
        if len(at):
            block = net.inserts if len(mine) == net.inserts.rows else net.inserts.take(mine)
            keys = batch if len(at) == len(batch) else batch.take(at)
            laying.insert(block, keys, home.ghost[at])
        for op, block, block_groups in (
            *((REDO_UPDATE, b, g) for b, g in net.updates),
            (REDO_DELETE, net.deletes, net.delete_groups),
        ):
            mine, at = _of_tablet(block_groups, place)
            if len(at):
                some = block if len(mine) == block.rows else block.take(mine)
                laying.change(op, home.store[at], home.row[at], values_only(prepared.schema, some))
    return layings


def _of_tablet(groups: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(positions in ``groups`` of this tablet's keys, their places in the tablet's batch)."""
    at = place[groups]
    mine = np.flatnonzero(at >= 0)
    return mine, at[mine]


def _touched(engine: Engine, prepared: Prepared) -> Sequence[Tablet]:
    """Tablets that a batch may change, in their order."""
    tablets = engine.tablets
    if len(tablets) == 1:
        return tablets if (prepared.route >= 0).any() else []
    ordinals = np.unique(prepared.route)
    return [engine.tablets.of_ordinal(o) for o in ordinals[ordinals >= 0].tolist()]


def _split(engine: Engine, prepared: Prepared) -> list[tuple[Tablet, np.ndarray, KeyBatch]]:
    """(tablet, key groups, their keys) of every tablet that the batch touches."""
    cached = prepared.__dict__.get("_split")
    if cached is not None:
        return cached  # type: ignore[no-any-return]
    touched = _touched(engine, prepared)
    if len(touched) == 1 and (prepared.route >= 0).all():
        out = [(touched[0], np.arange(prepared.groups), prepared.batch)]
    else:
        out = []
        for tablet in touched:
            groups = np.flatnonzero(prepared.route == tablet.partition.ordinal)
            out.append((tablet, groups, prepared.batch.take(groups)))
    prepared.__dict__["_split"] = out
    return out


def live_of(prepared: Prepared, homes: dict[int, tuple[np.ndarray, Homes]]) -> np.ndarray:
    """(groups,) bool: which keys are present before the batch."""
    live = np.zeros(prepared.groups, bool)
    for groups, home in homes.values():
        live[groups] = home.store != ABSENT
    return live


def refused(schema: Schema, rows: Refused | None, starts: np.ndarray, on_error: str) -> pa.Table | None:
    """The refused rows; raises them when that is the policy."""
    if rows is None:
        return None
    table = error_table(schema, rows, starts)
    if on_error == "raise":
        raise row_errors(table)
    return table


def counts_of(decided: Decided) -> tuple[int, int, int, int]:
    return decided.inserted, decided.updated, decided.deleted, decided.ignored


def result_of(decided: Decided, errors: pa.Table | None, ts: int) -> WriteResult:
    return WriteResult(ts, *counts_of(decided), errors=errors)


def _payload(engine: Engine, prepared: Prepared, net: Net) -> records.Payload:
    """The record: which tablets, and the net changes with their rows' tablets."""
    touched = _touched(engine, prepared)
    position = np.full(max((t.partition.ordinal for t in touched), default=0) + 1, -1, np.int32)
    for i, tablet in enumerate(touched):
        position[tablet.partition.ordinal] = i

    def section(op: int, block: RowBlock, groups: np.ndarray) -> records.Section:
        return records.Section(op, block, position[prepared.route[groups]])

    sections = [section(records.RECORD_UPDATE, block, groups) for block, groups in net.updates]
    if net.inserts.rows:
        sections.append(section(records.RECORD_INSERT, net.inserts, net.insert_groups))
    if net.deletes.rows:
        sections.append(section(records.RECORD_DELETE, net.deletes, net.delete_groups))
    return records.Payload(tuple(t.id for t in touched), sections, {})
