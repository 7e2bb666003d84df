"""The walk of a bulk ingest (PROTOCOL G): files first, then one record that names them.

A batch above the threshold is decided like any other, but against views at a cut and without the
mutexes; what it inserts becomes DiskRowSets and what it changes becomes delta files.  The critical
section rechecks what was written meanwhile, links the files and appends the record.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core.errors import Closed, Fenced, Poisoned, RowErrors
from kudu_core.events import IngestEnd
from kudu_core.table.decision import Call, Prepared, decide_net
from kudu_core.table.result import WriteResult
from kudu_core.table.state import Token
from kudu_core.table.write import Txn, counts_of, live_of, newest_of, refused, result_of, split_by_tablet
from kudu_core.tablet import ingest, records
from kudu_core.tablet.apply import apply_changes, values_only
from kudu_core.tablet.tablet import Tablet
from kudu_core.tablet.view import Homes, KeyBatch, View, locate_at, locate_newest
from kudu_core.wal import KIND_INGEST

if TYPE_CHECKING:
    from kudu_core.table.engine import Engine

OPTIMISTIC_TRIES = 2
"""Builds that may lose to a concurrent write of the same keys; the next one holds the mutexes."""


@dataclass(slots=True)
class _Built:
    """Everything an ingest needs for its critical section."""

    parts: list[ingest.Part]
    result: WriteResult
    counts: tuple[int, int, int, int]
    committed: bool = False


def ingest_calls(
    engine: Engine, prepared: Prepared, *, on_error: str = "raise", txn: Txn | None = None
) -> WriteResult:
    """Apply prepared rows by bulk ingest.  The token's lock, if any, is held by the caller."""
    job = f"ingest-{uuid.uuid4().hex}"
    staging = f"{engine.path}/staging/{job}"
    fs = engine.fs
    tablets = [tablet for tablet, _, _ in split_by_tablet(engine, prepared)]
    started = engine.clock.monotonic_s()
    try:
        with ExitStack() as lanes:
            # Flushes wait: the set of rowsets stays what the resolution saw.
            for tablet in tablets:
                lanes.enter_context(tablet.flush_lane)
            engine.check_writable()
            fs.mkdir(staging)
            try:
                for _ in range(OPTIMISTIC_TRIES):
                    done = _attempt(engine, prepared, tablets, staging, on_error, txn, locked=False)
                    if done is not None:
                        break
                else:
                    done = _attempt(engine, prepared, tablets, staging, on_error, txn, locked=True)
                assert done is not None
            finally:
                _sweep(engine, staging)
    except RowErrors:
        engine.wait_visible(newest_of(tablets))  # as every answer (W4)
        raise
    engine.wait_visible(done.result.timestamp)
    return _told(engine, done, started)


def ingest_collected(
    engine: Engine,
    collect: Callable[[], Sequence[Call]],
    *,
    on_error: str = "raise",
    txn: Txn | None = None,
) -> WriteResult:
    """A ``where=`` write of many rows: collected and applied under every lane and mutex."""
    staging = f"{engine.path}/staging/ingest-{uuid.uuid4().hex}"
    started = engine.clock.monotonic_s()
    with ExitStack() as held:
        for tablet in engine.tablets:
            held.enter_context(tablet.flush_lane)
        for tablet in engine.tablets:
            held.enter_context(tablet.mutex)
        engine.check_writable()
        prepared = Prepared(engine.schema, engine.partitions, collect())
        tablets = [tablet for tablet, _, _ in split_by_tablet(engine, prepared)]
        engine.fs.mkdir(staging)
        try:
            done = _attempt(engine, prepared, tablets, staging, on_error, txn, locked=True)
        finally:
            _sweep(engine, staging)
    assert done is not None
    engine.wait_visible(max(done.result.timestamp, newest_of(engine.tablets)))
    return _told(engine, done, started)


def _told(engine: Engine, done: _Built, started: float) -> WriteResult:
    """The result, after the listener was told; nothing is held any more."""
    if done.committed:
        engine.tell(
            IngestEnd(
                elapsed_s=engine.clock.monotonic_s() - started,
                tablets=len(done.parts),
                rows=sum(done.counts[:3]),
                rowsets_added=sum(len(part.rowsets) for part in done.parts),
                output_bytes=sum(part.output_bytes for part in done.parts),
                timestamp=done.result.timestamp,
            )
        )
    return done.result


def _attempt(
    engine: Engine,
    prepared: Prepared,
    tablets: list[Tablet],
    staging: str,
    on_error: str,
    txn: Txn | None,
    *,
    locked: bool,
) -> _Built | None:
    """One try; None when a concurrent write took one of the keys."""
    with ExitStack() as mutexes:
        if locked:
            for tablet in tablets:
                mutexes.enter_context(tablet.mutex)
        built = _build(engine, prepared, staging, on_error, locked=locked)
        if not any(p.rowsets or p.deltas or p.by_key for p in built.parts) and txn is None:
            return built
        engine.fs.sync_dir(staging)
        with ExitStack() as held:
            for tablet in tablets:
                held.enter_context(tablet.mutex)
            engine.check_writable()
            if engine.schema.version != prepared.schema.version:
                raise Closed("the schema changed during an ingest; write again")
            if not locked and any(ingest.conflicts(part) for part in built.parts):
                return None
            ts = commit_parts(engine, built.parts, prepared.schema.version, built.counts, txn)
    result = WriteResult(ts, *built.counts, errors=built.result.errors)
    return _Built(built.parts, result, built.counts, committed=True)


def _build(engine: Engine, prepared: Prepared, staging: str, on_error: str, *, locked: bool) -> _Built:
    """Resolve against views at a cut of each tablet and write the files (G2)."""
    split = split_by_tablet(engine, prepared)
    homes: dict[int, tuple[np.ndarray, Homes]] = {}
    views: dict[int, tuple[View, int]] = {}
    newest = engine.visible_ts
    for tablet, groups, batch in split:
        with tablet.mutex:
            view, cut = tablet.view, engine.log.cut()
            newest = max(newest, tablet.newest_applied)
        views[tablet.id] = view, cut
        home = locate_newest(view, batch) if locked else locate_at(view, batch, cut)[0]
        homes[tablet.id] = groups, home
    decided, net = decide_net(prepared, live_of(prepared, homes))
    errors = refused(prepared, decided, on_error)
    changed = len(net.insert_groups) + len(net.delete_groups) + sum(len(of) for _, of in net.updates)
    undecided = bool(decided.ignored or len(decided.errors)) or changed < prepared.groups
    parts = []
    for tablet, groups, batch in split:
        home = homes[tablet.id][1]
        place = np.full(prepared.groups, -1, np.int64)
        place[groups] = np.arange(len(groups))

        def pick(block: Any, of: np.ndarray) -> tuple[Any, KeyBatch, Homes]:
            if len(of) == len(batch) == prepared.groups:  # noqa: B023  all keys, and all in this tablet
                return block, batch, home  # noqa: B023
            at = place[of]  # noqa: B023
            mine = np.flatnonzero(at >= 0)
            at = at[mine]
            whole = len(mine) == block.rows
            return (
                block if whole else block.take(mine),
                batch.take(at),  # noqa: B023
                Homes(home.store[at], home.row[at], home.ghost[at]),  # noqa: B023
            )

        inserts, insert_keys, _ = pick(net.inserts, net.insert_groups)
        updates = [u for u in (pick(b, g) for b, g in net.updates) if u[0].rows]
        deletes = pick(net.deletes, net.delete_groups)
        changes = ingest.NetChanges(inserts, insert_keys, updates, deletes if deletes[0].rows else None)
        view, cut = views[tablet.id]
        part = ingest.build(tablet, view, cut, changes, staging)
        part.undecided = undecided
        parts.append(part)
    return _Built(parts, result_of(decided, errors, newest), counts_of(decided))


def commit_parts(
    engine: Engine,
    parts: list[ingest.Part],
    schema_version: int,
    counts: tuple[int, int, int, int],
    txn: Txn | None,
) -> int:
    """Under the mutexes: link, log, wait until durable, install (G3 to G5); return the timestamp."""
    parts = [p for p in parts if p.rowsets or p.deltas or p.by_key]
    flushed = {}
    for part in parts:
        assert part.tablet.manifest is not None
        part.tablet.manifest.sync()
        flushed[part.tablet.id] = ingest.flush_changed(part.deltas, part.tablet, [])
        ingest.link(part)
    payload = records.Payload(
        tuple(p.tablet.id for p in parts),
        [
            records.Section(op, block, np.full(block.rows, i, np.int32))
            for i, part in enumerate(parts)
            for op, block, _ in part.by_key
        ],
        {"parts": {str(p.tablet.id): p.to_json() for p in parts}, "counts": list(counts)},
    )
    if txn is not None:
        payload.extra["txn"] = list(txn)
    log = engine.log
    record = records.encode(payload)
    try:
        ts = log.append(KIND_INGEST, schema_version, record)
        log.wait_durable(ts)
        for part in parts:
            ingest.install(
                part.tablet,
                ts,
                part.rowsets,
                {i: ref for i, (ref, _, _) in part.deltas.items()},
                flushed[part.tablet.id],
                {i: deleted for i, (_, _, deleted) in part.deltas.items()},
            )
            _apply_by_key(engine, part, ts)
            part.tablet.newest_applied = ts
        if txn is not None:
            engine.tokens[txn[0]] = Token(txn[1], ts, counts)
        log.applied(ts)
    except BaseException as exc:
        engine.poison_if_owing(exc)
        raise
    for part in parts:
        assert part.tablet.manifest is not None
        part.tablet.manifest.sync()
    return ts


def _apply_by_key(engine: Engine, part: ingest.Part, ts: int) -> None:
    """Changes of rows that live in a MemRowSet, wherever they live by now."""
    for op, block, batch in part.by_key:
        home = locate_newest(part.tablet.view, batch)
        assert home.live.all(), "a row that an ingest changes by key has gone"
        apply_changes(
            part.tablet,
            ts,
            op,
            home.store,
            home.row,
            values_only(engine.schema, block),
        )


def _sweep(engine: Engine, staging: str) -> None:
    """Remove the staging folder; what is left of it is collected at a later open (G6)."""
    try:
        engine.fs.rmtree(staging)
    except (OSError, Poisoned, Fenced):
        return
