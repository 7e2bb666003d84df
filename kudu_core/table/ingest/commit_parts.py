"""The critical section of an ingest (protocol G3 to G5, G7): link the files, append the record, install.

``commit_parts`` is the whole of it for a bulk ingest.  An overwrite takes the same steps one by one, since it
has more to do between them (``overwrite.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.columns.growing import data_limit
from kudu_core.errors import InternalError
from kudu_core.rowset.disk.writing import discard
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.table.opened.record import recorded
from kudu_core.table.opened.store_memory import no_memory
from kudu_core.tablet.ingest import install
from kudu_core.tablet.ingest import part as ingest
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying, Moved, values_only
from kudu_core.tablet.view.view import locate_newest
from kudu_core.wal import RECORD_KIND_INGEST

if TYPE_CHECKING:
    from kudu_core.common.idempotence.writers import Counts, Txn
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.alteration import Alteration
    from kudu_core.wal.format import Buffer

Flushed = dict[int, dict[int, list[Any]]]
"""By tablet and rowset: what ``tablet.ingest.install.flush_changed`` has written."""


def commit_parts(
    engine: Engine,
    parts: Iterable[ingest.IngestPart],
    schema_version: int,
    counts: Counts,
    txn: Txn | None,
    job: str | None = None,
) -> int:
    """Under the mutexes: link, log, wait until durable, install (protocol G3 to G5); return the timestamp.

    ``job``: the id of the distributed write that the parts are of.
    ``StoreFull``: no store in memory can take what changes rows that only memory holds; nothing happened.
    """
    parts = [part for part in parts if not part.empty]
    layings = _reserve_by_key(engine, parts)
    written: list[str] = []
    try:
        flushed = prepare_parts(engine, parts, written)
        record = ingest_record(parts, flushed, counts, txn, job)
        with recorded(
            engine, RECORD_KIND_INGEST, schema_version, record, txn=txn, job=job, counts=counts
        ) as ts:
            engine.log.wait_durable(ts)
            install_parts(parts, flushed, ts, layings)
        sync_manifests(engine, parts)
        return ts
    except Exception:  # not an interrupt: a second one may leave the log in doubt
        _discard(engine, parts, written)
        raise


def prepare_parts(engine: Engine, parts: Sequence[ingest.IngestPart], written: list[str]) -> Flushed:
    """Under the mutexes of the tablets: make durable what a record of these parts rests on (protocol G3).

    ``written``: where the files are told of that were written of what memory held.
    """
    for part in parts:
        install.check_entries(part)
    flushed = {p.tablet.id: install.flush_changed(p.deltas, p.tablet, written) for p in parts}

    def prepare(part: ingest.IngestPart) -> None:
        assert part.tablet.manifest is not None
        part.tablet.manifest.sync()
        install.link(part)

    engine.pool.each(prepare, parts)
    return flushed


def ingest_record(
    parts: Sequence[ingest.IngestPart],
    flushed: Flushed,
    counts: Counts,
    txn: Txn | None,
    job: str | None,
    alteration: Alteration | None = None,
) -> list[Buffer]:
    """The record that names the files of the parts.  ``alteration``: of an overwrite, or of other partitions,
    what it does to the table."""
    payload = records.Payload(
        tuple(p.tablet.id for p in parts),
        [
            records.Section(op, block, np.full(block.rows, i, np.int32))
            for i, part in enumerate(parts)
            for op, block, _ in part.by_key
        ],
        {"parts": {str(p.tablet.id): p.to_json() for p in parts}, "counts": list(counts)},
    )
    edits = {str(p.tablet.id): install.recorded_edit(p, flushed[p.tablet.id]) for p in parts}
    if any(edits.values()):
        payload.extra["edits"] = edits
    if txn is not None:
        payload.extra["txn"] = txn.to_json()
    if job is not None:
        payload.extra["job"] = job
    if alteration is not None:
        payload.extra |= alteration.in_ingest
    return records.encode(payload)


def install_parts(
    parts: Sequence[ingest.IngestPart],
    flushed: Flushed,
    ts: int,
    layings: Mapping[int, Laying] = MappingProxyType({}),
) -> None:
    """Under the mutexes, the record durable: what it says, on disk and in memory (protocol G5).

    ``layings``: by tablet, the changes by key, with room for them; of an overwrite there are none.
    """
    for part in parts:
        install.install(
            part.tablet,
            ts,
            part.rowsets,
            {i: delta.ref for i, delta in part.deltas.items()},
            flushed[part.tablet.id],
            {i: delta.deleted for i, delta in part.deltas.items()},
        )
        if part.tablet.id in layings:
            layings[part.tablet.id].lay(ts)
        part.tablet.newest_applied = ts


def sync_manifests(engine: Engine, parts: Sequence[ingest.IngestPart]) -> None:
    """Make the edits durable by which the parts were installed."""

    def sync(part: ingest.IngestPart) -> None:
        assert part.tablet.manifest is not None
        part.tablet.manifest.sync()

    engine.pool.each(sync, parts)


def _discard(engine: Engine, parts: Sequence[ingest.IngestPart], written: Sequence[str]) -> None:
    """Remove the files that tablets were given for a record that was not written: on a full disk they would
    take its room until the next open, and longer.  Not where the record may be there: it names them."""
    if engine.poisoned is not None:
        return
    named = {f"{p.tablet.directory}/{name}" for p in parts for name in p.tablet.state.files}
    linked = [f"{p.tablet.directory}/{name}" for p in parts for _, name in p.staged]
    discard(engine.fs, [path for path in (*linked, *written) if path not in named])


def _reserve_by_key(engine: Engine, parts: Sequence[ingest.IngestPart]) -> dict[int, Laying]:
    """By tablet: the changes of rows that lived in a MemRowSet, with room for them where they live by now."""
    by_key = [part for part in parts if part.by_key]
    size = sum(block.nbytes for part in by_key for _, block, _ in part.by_key)
    if size > data_limit():  # nor could a record
        raise StoreFull(f"{size} bytes of changes of rows in memory", empty=True)
    layings = {}
    for part in by_key:
        laying = _laying_by_key(engine, part)
        while True:
            try:
                laying.reserve()
                break
            except Moved:
                laying = _laying_by_key(engine, part)
            except MemoryError:
                raise no_memory(size) from None
        layings[part.tablet.id] = laying
    engine.memory.count(list(layings.values()), size)
    return layings


def _laying_by_key(engine: Engine, part: ingest.IngestPart) -> Laying:
    laying = Laying(part.tablet)
    for op, block, batch in part.by_key:
        home = locate_newest(part.tablet.view, batch)
        if not home.live.all():
            raise InternalError("a row that an ingest changes by key has gone")
        laying.change(op, home.store, home.row, values_only(engine.schema, block))
    return laying


__all__ = [
    "commit_parts",
    "ingest_record",
    "install_parts",
    "prepare_parts",
    "sync_manifests",
]
