"""The walk of a bulk ingest (protocol G1 to G6): files first, then one record that names them.

Calls above a threshold are decided by the same rules as small ones, but against each tablet's view at a cut
and without its mutex.  The rows are sorted in runs (``table/runs/sorted.py``).  Samples of the runs' keys
cut each tablet into ranges of keys of about one rowset.  The rules look at one key at a time, so the ranges
are decided and written side by side on all cores.  Inserts of a range become one DiskRowSet, which overlaps
none of the others; its columns are gathered one by one while the file is written.  Changes of rows on disk
become entries of delta files.  Changes to rows that are still in memory cannot go into a delta file; they
are kept as a list of keys and new values.  Flushes wait meanwhile, so the rowsets stay what the decision saw.

Then the commit takes the tablet mutexes and checks the keys of the staged files.  If a record written since
the cut changed one of them, the build is discarded and retried; the third attempt runs under the mutexes
from the start.  Otherwise the files are linked into the tablets and one record that names them is written,
made durable and installed.  Where no record could be written the links are removed again: on a full disk
they would keep it full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.idempotence.writers import Txn
from kudu_core.common.run.locks import HeldLocks
from kudu_core.common.run.measure.work import load_of
from kudu_core.errors import Conflict, Fenced, Poisoned, RowErrors, StoreError
from kudu_core.events import IngestEnd
from kudu_core.rowset.disk.warming import warm
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.table.calls.call import Call, fitted, starts_of
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest.accept import Resolved
from kudu_core.table.ingest.build import MAX_BYTES, SortedRows, build_parts
from kudu_core.table.ingest.commit_parts import commit_parts
from kudu_core.table.opened.store_memory import no_store
from kudu_core.table.runs import sorted as sorted_runs
from kudu_core.table.runs.refitted import refitted
from kudu_core.table.runs.sorted import Run, RunPiece, pieces, sort_run
from kudu_core.tablet.ingest import part as ingest
from kudu_core.tablet.ingest.recheck import conflicts
from kudu_core.tablet.store.tablet import Tablet, newest_of

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.table.opened.engine import Engine

OPTIMISTIC_TRIES = 2
"""Builds that may lose to a concurrent write of the same keys; the next one holds the mutexes."""


class Overtaken(Exception):
    """An ALTER or an overwrite was faster: the rows are to be brought into the form of today and built
    again (protocol G3)."""


@dataclass(slots=True)
class _Built:
    """What a try has come to."""

    parts: list[ingest.IngestPart]
    result: WriteResult
    committed: bool = False


def sort_calls(
    engine: Engine, calls: Sequence[Call], partitions: PartitionSchema | None = None
) -> SortedRows:
    """Sort calls that memory holds, on all cores; by the partitions of today, or by others."""
    schema, partitions = engine.schema, partitions or engine.partitions
    calls = fitted(schema, calls)

    def sort(piece: RunPiece) -> Run:
        return sort_run(schema, partitions, piece)

    runs = engine.pool.map(sort, pieces(calls, sorted_runs.RUN_ROWS, MAX_BYTES))
    return SortedRows(schema, partitions, list(runs), starts_of(calls))


def is_of_today(engine: Engine, rows: SortedRows) -> bool:
    """Whether the rows are in the columns of today, and cut into the tablets of today."""
    return engine.schema is rows.schema and engine.partitions is rows.partitions


def _check_form(engine: Engine, rows: SortedRows) -> None:
    if not is_of_today(engine, rows):
        raise Overtaken


def refitted_rows(engine: Engine, rows: SortedRows) -> SortedRows:
    """The rows in the columns and by the partitions of today."""
    schema, partitions = engine.schema, engine.partitions
    runs = engine.pool.map(lambda run: refitted(rows.schema, schema, partitions, run), rows.runs)
    return replace(rows, schema=schema, partitions=partitions, runs=list(runs))


def ingest_calls(
    engine: Engine,
    calls: Sequence[Call],
    *,
    on_error: str = "raise",
    txn: Txn | None = None,
    job: str | None = None,
) -> WriteResult:
    """Apply calls by bulk ingest.  The token's lock, if any, is held by the caller."""
    return ingest_sorted(engine, replace(sort_calls(engine, calls), job=job), on_error=on_error, txn=txn)


def ingest_sorted(
    engine: Engine,
    rows: SortedRows,
    *,
    on_error: str,
    txn: Txn | None,
    staging: str | None = None,
    resolved: Resolved | None = None,
) -> WriteResult:
    """Apply sorted rows; the token's lock, if any, is the caller's.

    ``staging``: a folder of the caller's, who removes it.  ``resolved``: what others have built of the rows.
    """
    started = engine.clock.monotonic_s()
    flushed = False
    with load_of(engine.tell):
        while True:
            try:
                return _told(engine, _ingest(engine, rows, on_error, txn, staging, resolved), started)
            except Overtaken:
                rows, resolved = refitted_rows(engine, rows), None
            except StoreFull as full:
                _flush_or_refuse(engine, full, flushed)
                flushed = True


def _flush_or_refuse(engine: Engine, full: StoreFull, flushed: bool) -> None:
    """Changes of rows that only memory holds are too many for it: in files they are changes like others."""
    if flushed:
        raise no_store(full) from full
    assert engine.maintenance is not None
    for tablet in engine.tablets:
        engine.maintenance.flush(tablet)


def _ingest(
    engine: Engine,
    rows: SortedRows,
    on_error: str,
    txn: Txn | None,
    staging: str | None,
    resolved: Resolved | None,
) -> _Built:
    """Sorted rows applied, if they are in the form of today."""
    _check_form(engine, rows)
    tablets = _tablets(engine, rows)
    try:
        # Flushes wait: the set of rowsets stays what the resolution saw.
        lanes = HeldLocks([tablet.flush_lane for tablet in tablets])
        with lanes, staging_of(engine) if staging is None else nullcontext(staging) as folder:
            engine.check_writable()
            _check_form(engine, rows)  # from here on no column changes its cells
            kept = {} if resolved is None else resolved.parts(engine, tablets)
            for _ in range(OPTIMISTIC_TRIES):
                done = _attempt(engine, rows, tablets, folder, on_error, txn, kept, locked=False)
                if done is not None:
                    break
            else:
                done = _attempt(engine, rows, tablets, folder, on_error, txn, kept, locked=True)
            assert done is not None
    except RowErrors:
        engine.wait_visible(newest_of(tablets))  # as every answer (protocol W4)
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
    """A write of many rows that the newest state decides: made and applied under every lane and mutex."""
    return ingest_made(engine, lambda staging: sort_calls(engine, collect()), on_error=on_error, txn=txn)


def ingest_made(
    engine: Engine,
    make: Callable[[str], SortedRows],
    *,
    on_error: str = "raise",
    txn: Txn | None = None,
) -> WriteResult:
    """Rows that are known only under every lane and mutex, where ``make`` makes them; perhaps more than once.
    It is given a folder for what it spills."""
    with load_of(engine.tell):
        return _ingest_made(engine, make, on_error, txn)


def _ingest_made(
    engine: Engine, make: Callable[[str], SortedRows], on_error: str, txn: Txn | None
) -> WriteResult:
    started = engine.clock.monotonic_s()
    flushed = False
    while True:
        tablets = engine.tablets
        try:
            with HeldLocks([*(t.flush_lane for t in tablets), *(t.mutex for t in tablets)]):
                engine.check_writable()
                if engine.tablets is not tablets:
                    continue  # ALTER added a tablet
                with staging_of(engine) as staging:
                    rows = make(staging)
                    touched = _tablets(engine, rows)
                    done = _attempt(engine, rows, touched, staging, on_error, txn, {}, locked=True)
            break
        except (RowErrors, Conflict):
            engine.wait_visible(newest_of(tablets))  # as every answer (protocol W4)
            raise
        except StoreFull as full:
            _flush_or_refuse(engine, full, flushed)
            flushed = True
    assert done is not None
    engine.wait_visible(max(done.result.timestamp, newest_of(tablets)))
    return _told(engine, done, started)


@contextmanager
def staging_of(engine: Engine) -> Iterator[str]:
    """A folder of its own for one ingest, removed at the end.

    What is left of it is collected at a later open (protocol G6).
    """
    engine.check_writable()
    staging = engine.home.begin_staging()
    try:
        yield staging
    finally:
        with suppress(OSError, StoreError, Poisoned, Fenced):  # the write has succeeded or failed by itself
            engine.home.end_staging(staging)


def _tablets(engine: Engine, rows: SortedRows) -> list[Tablet]:
    """The tablets that the rows belong to, in the order in which their mutexes are taken."""
    tablets = engine.tablets  # one look: an ALTER or a purge beside this may replace them
    if tablets.partitions is not rows.partitions:
        raise Overtaken
    return sorted((tablets.of_ordinal(o) for o in rows.ordinals if o >= 0), key=lambda t: t.id)


def _told(engine: Engine, done: _Built, started: float) -> WriteResult:
    """The result, after the listener was told; nothing is held any more."""
    if done.committed:
        for part in done.parts:
            for rowset_id in part.deltas:
                warm(part.view.rowset(rowset_id), part.tablet.view.rowset(rowset_id))
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
    rows: SortedRows,
    tablets: list[Tablet],
    staging: str,
    on_error: str,
    txn: Txn | None,
    kept: dict[int, ingest.IngestPart],
    *,
    locked: bool,
) -> _Built | None:
    """One try; None when a concurrent write took one of the keys.

    ``kept``: parts, by ordinal, that are built already; afterwards those that another try may keep.
    """
    with HeldLocks([tablet.mutex for tablet in tablets] if locked else []):
        if locked:
            _drop_conflicting(kept)
        missing = [tablet for tablet in tablets if tablet.partition.ordinal not in kept]
        built = _build(engine, rows, missing, staging, on_error, locked=locked)
        parts = [*kept.values(), *built.parts]
        kept.update({part.tablet.partition.ordinal: part for part in built.parts})
        engine.fs.sync_dir(staging)
        with HeldLocks([tablet.mutex for tablet in tablets]):
            engine.check_writable()
            _check_form(engine, rows)
            if not locked and _drop_conflicting(kept):
                if on_error != "raise":
                    kept.clear()  # what was refused is told of all rows together
                return None
            counts = counts_of_parts(parts)
            newest = max([built.result.timestamp, *(tablet.newest_applied for tablet in tablets)])
            told = built.result
            result = WriteResult(newest, *counts, errors=told.errors, refused=told.refused)
            if all(part.empty for part in parts) and txn is None:
                return _Built(parts, result)
            ts = commit_parts(engine, parts, rows.schema.version, counts, txn, rows.job)
    return _Built(parts, replace(result, timestamp=ts), committed=True)


def _drop_conflicting(kept: dict[int, ingest.IngestPart]) -> bool:
    """Under the mutexes: forget the parts of tablets in which something changed that they rest on."""
    conflicting = [ordinal for ordinal, part in kept.items() if conflicts(part)]
    for ordinal in conflicting:
        del kept[ordinal]
    return bool(conflicting)


def counts_of_parts(parts: Iterable[ingest.IngestPart]) -> tuple[int, int, int, int]:
    """Inserted, updated, deleted, ignored."""
    total = sum((part.counts for part in parts), np.zeros(4, np.int64))
    inserted, updated, deleted, ignored = total.tolist()
    return inserted, updated, deleted, ignored


def _build(
    engine: Engine, rows: SortedRows, tablets: list[Tablet], staging: str, on_error: str, *, locked: bool
) -> _Built:
    """Resolve against views at a cut of each tablet and write the files (protocol G2)."""
    parts = []
    for tablet in tablets:
        with tablet.mutex:
            parts.append(ingest.IngestPart(tablet, tablet.view, engine.log.cut(), staging))
    newest = max([engine.visible_ts, *(tablet.newest_applied for tablet in tablets)])
    errors = build_parts(engine, rows, parts, staging, raising=on_error == "raise", newest=locked)
    told = errors.told(rows.schema, rows.starts, on_error)
    return _Built(parts, WriteResult(newest, errors=told, refused=0 if told is None else told.num_rows))
