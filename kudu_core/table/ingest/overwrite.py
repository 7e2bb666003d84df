"""The walk of an overwrite (protocol G7): new tablets with the rows, then one record that puts them in the
place of all that are there.

A new tablet for each partition is built beside the table: its files (made by the tasks of a distributed
write, which know only the partition, or here), a directory and a MANIFEST, all durable and named by nothing.
Then, under all tablet mutexes as for an ALTER: one INGEST record that names the tablets that end and those
that begin, the rowsets installed, TABLE replaced, memory changed.  An overwrite that fails before its record
removes its directories, or the next open moves them away.

Log readers see an overwrite as an ``Alteration``, as they do for ALTER.  The old tablets are then treated
like the tablets of a dropped range: read by snapshots of before and by ``changes``, purged when nobody may
read them any more.  So a partition has had several tablets, one after the other; ``changes`` joins them by
key and reports an overwrite as one change for each key.

The partition schema is replaced by an equal copy.  A concurrent write compares object identity, sees that
its routing is stale, and routes again.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.common.run.locks import HeldLocks
from kudu_core.errors import Fenced, Poisoned
from kudu_core.events import IngestEnd
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest.accept import Resolved
from kudu_core.table.ingest.build import SortedRows, build_parts
from kudu_core.table.ingest.commit_parts import (
    ingest_record,
    install_parts,
    prepare_parts,
    sync_manifests,
)
from kudu_core.table.ingest.ingest import counts_of_parts, is_of_today, refitted_rows
from kudu_core.table.lifecycle.alter import adopt, new_tablet
from kudu_core.table.opened.record import note_write, recorded
from kudu_core.table.stored.alteration import Alteration
from kudu_core.tablet.ingest import part as ingest
from kudu_core.wal import RECORD_KIND_INGEST

if TYPE_CHECKING:
    from kudu_core.common.idempotence.writers import Txn
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet


def overwrite_sorted(
    engine: Engine,
    rows: SortedRows,
    *,
    txn: Txn | None,
    staging: str,
    resolved: Resolved | None = None,
) -> WriteResult:
    """Put sorted rows, which insert or upsert, in the place of all rows of the table.

    Writers beside it wait while its record is written, and then write to the new tablets; what changes
    columns or ranges, or purges, waits from the beginning.

    Parameters
    ----------
    staging
        A folder of the caller's, who removes it.
    resolved
        What others have built of the rows.

    Raises
    ------
    RowErrors
        Rows were refused.  Nothing was applied.
    """
    started = engine.clock.monotonic_s()
    with engine.altering:
        engine.check_writable()
        if not is_of_today(engine, rows):
            rows, resolved = refitted_rows(engine, rows), None
        alteration = Alteration.overwriting(engine.table_file.state)
        new = [new_tablet(engine, engine.partitions, *entry) for entry in alteration.created]
        parts = _built(engine, rows, new, staging, resolved)
        filled = [part for part in parts if not part.empty]
        assert not any(part.by_key for part in filled), "a new tablet has no rows in memory to change"
        counts = counts_of_parts(parts)

        try:
            engine.home.make_tablets(new)
            flushed = prepare_parts(engine, filled, [])
            # The new ones too: whoever finds them in memory waits until all is as the record says.
            with HeldLocks([tablet.mutex for tablet in (*engine.tablets, *new)]):
                engine.check_writable()
                record = ingest_record(filled, flushed, counts, txn, rows.job, alteration)
                with recorded(engine, RECORD_KIND_INGEST, rows.schema.version, record) as ts:
                    engine.log.wait_durable(ts)
                    install_parts(filled, flushed, ts)
                    note_write(engine, ts, txn, rows.job, counts)  # TABLE, which adopt writes, has the tokens
                    # Other partitions, though equal: whoever has routed rows by those of before looks again.
                    adopt(engine, alteration, new, ts, engine.schema, copy.copy(engine.partitions))
                sync_manifests(engine, filled)
        except BaseException:
            remove_unborn(engine, new)
            raise
    engine.wait_visible(ts)
    engine.tell(
        IngestEnd(
            elapsed_s=engine.clock.monotonic_s() - started,
            tablets=len(parts),
            rows=sum(counts[:3]),
            rowsets_added=sum(len(part.rowsets) for part in parts),
            output_bytes=sum(part.output_bytes for part in parts),
            timestamp=ts,
        )
    )
    return WriteResult(ts, *counts)


def _built(
    engine: Engine, rows: SortedRows, new: Sequence[Tablet], staging: str, resolved: Resolved | None
) -> list[ingest.IngestPart]:
    """A part for each new tablet, its files in staging."""
    found = {} if resolved is None else resolved.parts(engine, new)
    cut = engine.visible_ts
    missing = [
        ingest.IngestPart(tablet, tablet.view, cut, staging)
        for tablet in new
        if tablet.partition.ordinal not in found
    ]
    errors = build_parts(engine, rows, missing, staging, raising=True)
    errors.told(rows.schema, rows.starts, "raise")
    engine.fs.sync_dir(staging)
    return [*found.values(), *missing]


def remove_unborn(engine: Engine, new: Sequence[Tablet]) -> None:
    """The directories of new tablets whose record did not come.  Not those that a record, if there is one,
    names."""
    if new[0] in engine.tablets:
        return
    for tablet in new:
        tablet.close(discard=True)
    with suppress(OSError, Poisoned, Fenced):
        engine.log.raise_if_poisoned()
        engine.home.remove_tablets(new)


__all__ = ["overwrite_sorted", "remove_unborn"]
