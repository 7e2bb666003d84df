"""The walk of a bulk ingest (PROTOCOL G): files first, then one record that names them.

Calls above a threshold are decided like any others, but against views at a cut and without the mutexes.
Their rows are sorted in runs (``sorted_runs.py``), the runs cut into ranges of keys, and range by range, on
all cores, what the rows come to is written: inserts as one DiskRowSet, which overlaps none of the others,
changes as entries of delta files.  The critical section rechecks what was written meanwhile, links the files
and appends the record.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.errors import Fenced, Poisoned, RowErrors
from kudu_core.events import IngestEnd
from kudu_core.rowset.writing import DECODED_SHARE
from kudu_core.table import sorted_runs
from kudu_core.table.decision import Call, Refused, fitted, starts_of
from kudu_core.table.ranges import resolve
from kudu_core.table.refitting import refitted
from kudu_core.table.result import WriteResult
from kudu_core.table.sorted_runs import KeyRange, Piece, Run, key_ranges, pieces, sort_run
from kudu_core.table.state import Token
from kudu_core.table.write import Txn, newest_of, refused
from kudu_core.tablet import ingest, records
from kudu_core.tablet.apply import apply_changes, values_only
from kudu_core.tablet.tablet import Tablet
from kudu_core.tablet.view import locate_newest
from kudu_core.wal import KIND_INGEST

if TYPE_CHECKING:
    from kudu_core.common.partitions import PartitionSchema
    from kudu_core.common.schema import Schema
    from kudu_core.table.engine import Engine

OPTIMISTIC_TRIES = 2
"""Builds that may lose to a concurrent write of the same keys; the next one holds the mutexes."""
MEMORY_SHARE = 4
"""Of the memory limit, what the ranges that are built at one time take before encoding."""
MAX_BYTES = 512 << 20
"""Of a run or a range: what int32 offsets address with room to spare."""


@dataclass(slots=True)
class Sorted:
    """The rows of calls as runs."""

    schema: Schema
    partitions: PartitionSchema
    runs: list[Run]
    starts: np.ndarray
    """Number of the first row of each call, (calls,) int64."""

    @property
    def ordinals(self) -> list[int]:
        """Ordinals of the partitions that the rows belong to, ascending; -1 where none takes some."""
        return sorted({ordinal for run in self.runs for ordinal in run.segments})


class Overtaken(Exception):
    """An ALTER was faster: the rows are to be brought into the form of today and built again (G3)."""


@dataclass(slots=True)
class _Built:
    """Everything an ingest needs for its critical section."""

    parts: list[ingest.Part]
    result: WriteResult
    committed: bool = False


def sort_calls(engine: Engine, calls: Sequence[Call]) -> Sorted:
    """Sort calls that memory holds, on all cores."""
    schema, partitions = engine.schema, engine.partitions
    calls = fitted(schema, calls)

    def sort(piece: Piece) -> Run:
        return sort_run(schema, partitions, piece)

    runs = engine.pool.map(sort, pieces(calls, sorted_runs.RUN_ROWS, MAX_BYTES))
    return Sorted(schema, partitions, list(runs), starts_of(calls))


def _check_form(engine: Engine, rows: Sorted) -> None:
    if engine.schema is not rows.schema or engine.partitions is not rows.partitions:
        raise Overtaken


def _refitted(engine: Engine, rows: Sorted) -> Sorted:
    schema, partitions = engine.schema, engine.partitions
    runs = engine.pool.map(lambda run: refitted(schema, partitions, run), rows.runs)
    return Sorted(schema, partitions, list(runs), rows.starts)


def ingest_calls(
    engine: Engine, calls: Sequence[Call], *, on_error: str = "raise", txn: Txn | None = None
) -> WriteResult:
    """Apply calls by bulk ingest.  The token's lock, if any, is held by the caller."""
    return ingest_sorted(engine, sort_calls(engine, calls), on_error=on_error, txn=txn)


def ingest_sorted(
    engine: Engine, rows: Sorted, *, on_error: str, txn: Txn | None, staging: str | None = None
) -> WriteResult:
    """Apply sorted rows.  ``staging``: a folder of the caller's, who removes it."""
    started = engine.clock.monotonic_s()
    while True:
        try:
            return _told(engine, _ingest(engine, rows, on_error, txn, staging), started)
        except Overtaken:
            rows = _refitted(engine, rows)


def _ingest(engine: Engine, rows: Sorted, on_error: str, txn: Txn | None, staging: str | None) -> _Built:
    """Sorted rows applied, if they are in the form of today."""
    _check_form(engine, rows)
    tablets = _tablets(engine, rows)
    try:
        with ExitStack() as lanes:
            # Flushes wait: the set of rowsets stays what the resolution saw.
            for tablet in tablets:
                lanes.enter_context(tablet.flush_lane)
            if staging is None:
                staging = lanes.enter_context(staging_of(engine))
            engine.check_writable()
            for _ in range(OPTIMISTIC_TRIES):
                done = _attempt(engine, rows, tablets, staging, on_error, txn, locked=False)
                if done is not None:
                    break
            else:
                done = _attempt(engine, rows, tablets, staging, on_error, txn, locked=True)
            assert done is not None
    except RowErrors:
        engine.wait_visible(newest_of(tablets))  # as every answer (W4)
        raise
    engine.wait_visible(done.result.timestamp)
    return done


def ingest_collected(
    engine: Engine,
    collect: Callable[[], Sequence[Call]],
    *,
    on_error: str = "raise",
    txn: Txn | None = None,
) -> WriteResult:
    """A ``where=`` write of many rows: collected and applied under every lane and mutex."""
    started = engine.clock.monotonic_s()
    while True:
        tablets = engine.tablets
        with ExitStack() as held:
            for tablet in tablets:
                held.enter_context(tablet.flush_lane)
            for tablet in tablets:
                held.enter_context(tablet.mutex)
            engine.check_writable()
            if engine.tablets is not tablets:
                continue  # ALTER added a tablet
            rows = sort_calls(engine, collect())
            with staging_of(engine) as staging:
                done = _attempt(engine, rows, _tablets(engine, rows), staging, on_error, txn, locked=True)
        break
    assert done is not None
    engine.wait_visible(max(done.result.timestamp, newest_of(tablets)))
    return _told(engine, done, started)


@contextmanager
def staging_of(engine: Engine) -> Iterator[str]:
    """A folder of its own for one ingest, removed at the end.

    What is left of it is collected at a later open (G6).
    """
    engine.check_writable()
    staging = f"{engine.path}/staging/ingest-{uuid.uuid4().hex}"
    engine.fs.mkdir(staging)
    try:
        yield staging
    finally:
        with suppress(OSError, Poisoned, Fenced):  # the write has succeeded or failed by itself
            engine.fs.rmtree(staging)


def _tablets(engine: Engine, rows: Sorted) -> list[Tablet]:
    """The tablets that the rows belong to, in the order in which their mutexes are taken."""
    return sorted((engine.tablet_of(o) for o in rows.ordinals if o >= 0), key=lambda t: t.id)


def _told(engine: Engine, done: _Built, started: float) -> WriteResult:
    """The result, after the listener was told; nothing is held any more."""
    if done.committed:
        engine.tell(
            IngestEnd(
                elapsed_s=engine.clock.monotonic_s() - started,
                tablets=len(done.parts),
                rows=sum(done.result.counts[:3]),
                rowsets_added=sum(len(part.rowsets) for part in done.parts),
                output_bytes=sum(part.output_bytes for part in done.parts),
                timestamp=done.result.timestamp,
            )
        )
    return done.result


def _attempt(
    engine: Engine,
    rows: Sorted,
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
        built = _build(engine, rows, tablets, staging, on_error, locked=locked)
        if all(part.empty for part in built.parts) and txn is None:
            return built
        engine.fs.sync_dir(staging)
        with ExitStack() as held:
            for tablet in tablets:
                held.enter_context(tablet.mutex)
            engine.check_writable()
            _check_form(engine, rows)
            if not locked and any(ingest.conflicts(part) for part in built.parts):
                return None
            counts = built.result.counts
            ts = commit_parts(engine, built.parts, rows.schema.version, counts, txn)
    return _Built(built.parts, WriteResult(ts, *counts, errors=built.result.errors), committed=True)


def _build(
    engine: Engine, rows: Sorted, tablets: list[Tablet], staging: str, on_error: str, *, locked: bool
) -> _Built:
    """Resolve against views at a cut of each tablet and write the files (G2)."""
    parts: dict[int, ingest.Part] = {}
    newest = engine.visible_ts
    for tablet in tablets:
        with tablet.mutex:
            part = ingest.Part(tablet, tablet.view, engine.log.cut(), staging)
            newest = max(newest, tablet.newest_applied)
        parts[tablet.partition.ordinal] = part
    failed = threading.Event()
    """Some row was refused and so nothing will be applied: the rest is decided and not built."""

    def work(range_: KeyRange) -> tuple[tuple[int, ...], Refused | None, bool, ingest.Built | None]:
        part = parts.get(range_.ordinal)
        view = None if part is None else part.view
        cut = None if part is None or locked else part.cut
        resolved = resolve(rows.schema, rows.partitions, view, cut, range_)
        if resolved.refused is not None and on_error == "raise":
            failed.set()
        built = None
        if part is not None and not failed.is_set():
            built = ingest.build(part.tablet, rows.schema, part.view, resolved.net, staging)
        return resolved.counts, resolved.refused, resolved.undecided, built

    ranges = _ranges(engine, rows)
    counts = np.zeros(4, np.int64)
    errors: list[Refused] = []
    undecided = False
    waiting_limit = engine.options.memory_limit_bytes // MEMORY_SHARE
    done = engine.pool.map(work, ranges, window=engine.pool.threads + 1)
    for range_, (added, wrong, came_to_nothing, built) in zip(ranges, done, strict=True):
        counts += added
        undecided |= came_to_nothing
        if wrong is not None:
            errors.append(wrong)
        if built is None or failed.is_set():
            continue
        part = parts[range_.ordinal]
        part.add(built)
        if part.waiting_bytes > waiting_limit and range_.end is not None:
            part.write_deltas(part.passed(range_.end))
    table = refused(rows.schema, Refused.concat(errors) if errors else None, rows.starts, on_error)
    for part in parts.values():
        part.undecided = undecided
        part.write_deltas(list(part.waiting), engine.pool)
    inserted, updated, deleted, ignored = counts.tolist()
    return _Built(
        list(parts.values()), WriteResult(newest, inserted, updated, deleted, ignored, errors=table)
    )


def _ranges(engine: Engine, rows: Sorted) -> list[KeyRange]:
    """Ranges that make about one rowset each, and fit into memory as many at a time as there are threads."""
    threads = engine.pool.threads
    share = engine.options.memory_limit_bytes // (MEMORY_SHARE * threads)
    target = min(engine.options.rowset_target_bytes * DECODED_SHARE, share, MAX_BYTES)
    ordinals = rows.ordinals
    evenly = threads if len(ordinals) == 1 else 1  # with several tablets there is work for all anyway
    return [r for o in ordinals for r in key_ranges(rows.schema, rows.runs, o, target, evenly)]


def commit_parts(
    engine: Engine,
    parts: list[ingest.Part],
    schema_version: int,
    counts: tuple[int, int, int, int],
    txn: Txn | None,
) -> int:
    """Under the mutexes: link, log, wait until durable, install (G3 to G5); return the timestamp."""
    parts = [part for part in parts if not part.empty]
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
