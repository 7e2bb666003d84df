"""``Table.repartition``: other tablets with the same rows in the place of all that there are, by one record.

The rows of a moment are read, sorted by the new partitions and written to new tablets, which nothing names.
What changes meanwhile follows in rounds, each of the net changes since the one before, as long as there is
much of it.  Then, under the mutexes of all tablets, the last changes follow, and one INGEST record ends the
old tablets and begins the new ones, as an overwrite does (``table/ingest/overwrite.py``).  Only that keeps
writers waiting.

The old tablets are then those of a dropped range: snapshots of before read them, with the partitions of
before, and ``changes`` tells what was written to them.  That the table got other partitions changes no row,
so nothing of it is told: files of the new tablets have times of before that, which nobody is shown
(``changes/lineage.py``).  docs/repartition.md has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.partition.declared import declared_dimensions
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.locks import HeldLocks
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.errors import Conflict, InvalidArgument, KuduError, NotSupported, RowErrors
from kudu_core.events import TableAltered
from kudu_core.table.calls.conform import apply_calls, conform_calls
from kudu_core.table.changes.changes import open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.ingest.build import build_parts
from kudu_core.table.ingest.commit_parts import (
    ingest_record,
    install_parts,
    prepare_parts,
    sync_manifests,
)
from kudu_core.table.ingest.ingest import staging_of
from kudu_core.table.ingest.overwrite import remove_unborn
from kudu_core.table.ingest.spill import sorted_or_spilled
from kudu_core.table.lifecycle.alter import adopt, new_tablet
from kudu_core.table.opened.record import recorded
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.scan import Scan, open_scan
from kudu_core.table.runs.spilled import OpenRuns
from kudu_core.table.stored.alteration import Alteration
from kudu_core.table.write.door import KEPT_DIVISOR
from kudu_core.tablet.ingest import part as ingest
from kudu_core.wal import RECORD_KIND_INGEST

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.calls.call import Call
    from kudu_core.table.ingest.build import SortedRows
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.stored.table_state import TableState
    from kudu_core.tablet.store.tablet import Tablet

Progress = Callable[[int, int], object]

TRIES = 5
"""Beside changes of columns, ranges and partitions, each of which has it begin anew."""
ROUNDS = 20
FEW_CHANGES = 1000
"""What follows under the mutexes, about, unless others write faster than this reads."""


class _Overtaken(Exception):
    """The columns or the partitions have changed: everything begins anew."""


def repartition(handle: Handle, partition_by: Any, progress: Progress | None = None) -> int:
    """The walk behind ``Table.repartition``."""
    engine = handle.for_writing()
    if engine.in_store:
        raise NotSupported(
            f"{engine.path} is in an object store, where a table keeps its partitions: make another one with "
            "create_table(partition_by=...) and insert the rows of this one"
        )
    declared = declared_dimensions(partition_by)
    for _ in range(TRIES):
        try:
            return _told(engine, *_Repartition.begun(handle, declared).done(progress))
        except _Overtaken:
            pass
    raise Conflict(
        f"the columns or partitions of {engine.path} were changed during each of {TRIES} tries to give it "
        "other partitions; it has those of before: try again when nobody changes them"
    )


def _told(engine: Engine, ts: int, started: float) -> int:
    engine.wait_visible(ts)
    engine.tell(
        TableAltered(
            elapsed_s=engine.clock.monotonic_s() - started,
            timestamp=ts,
            schema_version=engine.schema.version,
            tablets=sum(t.dropped_ts is None for t in engine.tablets),
        )
    )
    return ts


@dataclass(slots=True)
class _Repartition:
    """One try."""

    handle: Handle
    engine: Engine
    schema: Schema
    before: PartitionSchema
    declared: PartitionSchema
    partitions: PartitionSchema
    """The declared ones, with the ordinals that they get."""
    started: float
    since: int = 0
    """What the new tablets have is the state at this time."""

    @staticmethod
    def begun(handle: Handle, declared: Any) -> _Repartition:
        engine = handle.for_writing()
        schema, before = engine.schema, engine.partitions
        made = PartitionSchema.make(schema, declared)
        if before.is_cut_as(made):
            raise InvalidArgument(f"the table has these partitions: {before.told}")
        after = before.followed_by(schema, made)
        return _Repartition(handle, engine, schema, before, made, after, engine.clock.monotonic_s())

    def done(self, progress: Progress | None) -> tuple[int, float]:
        """The timestamp of the change, and when it began on the monotonic clock."""
        engine = self.engine
        try:
            with staging_of(engine) as staging, closing(OpenRuns(engine.fs.local)) as files:
                return self._done(progress, staging, files), self.started
        except RowErrors as refused:
            raise self._outside(refused) from None
        except KuduError:
            if self._is_overtaken():
                raise _Overtaken from None
            raise

    def _done(self, progress: Progress | None, staging: str, files: OpenRuns) -> int:
        engine = self.engine
        self.since = max(engine.log.cut(), engine.oldest_ts)
        with engine.pins.pin(self.since):
            engine.wait_visible(self.since)
            engine.log.wait_committed(self.since)
            scan = open_scan(self.handle, ScanRequest(stored=True, expired=True), self.since)
            calls = conform_calls(self.schema, "insert", _counted(scan, progress), stored=True)
            rows = self._sorted(calls, staging, files)
            new = self._new_tablets()
            try:
                engine.home.make_tablets(new)
                self._follow(new, rows, staging)
                self._catch_up(new, staging, files)
                return self._switch(new, staging, files)
            except BaseException:
                remove_unborn(engine, new)
                raise

    def _sorted(self, calls: Iterator[Call], staging: str, files: OpenRuns) -> SortedRows:
        most_bytes = self.engine.options.memory_bytes // KEPT_DIVISOR
        rows = sorted_or_spilled(self.engine, calls, staging, files, most_bytes, self.partitions)
        if rows.schema is not self.schema:
            raise _Overtaken
        return rows

    def _new_tablets(self) -> list[Tablet]:
        """In memory; their numbers are nobody else's from now on."""
        engine, count = self.engine, len(self.partitions.partitions)

        def numbered(state: TableState) -> TableState:
            return replace(state, next_tablet=state.next_tablet + count)

        with engine.altering:
            engine.check_writable()
            alteration = Alteration.repartitioning(engine.table_file.state, self.partitions)
            engine.table_file.change(numbered)
        return [new_tablet(engine, self.partitions, *entry) for entry in alteration.created]

    # ---- what changes meanwhile ----

    def _catch_up(self, new: Sequence[Tablet], staging: str, files: OpenRuns) -> None:
        """Have the new tablets follow until little is left, or others write as fast."""
        engine = self.engine
        for _ in range(ROUNDS):
            now = max(engine.log.cut(), self.since)
            engine.wait_visible(now)
            engine.log.wait_committed(now)
            counted = [0]
            rows = self._sorted(self._changes(now, counted), staging, files)
            self.since = now
            if counted[0]:
                self._follow(new, rows, staging)
            if counted[0] <= FEW_CHANGES:
                return

    def _changes(self, until: int, counted: list[int]) -> Iterator[Call]:
        """The net changes since the new tablets' time; ``counted`` says how many."""
        if until <= self.since:
            return
        request = ChangesRequest(net=True, stored=True)
        names = [OP_COLUMN, *(column.name for column in self.schema.columns)]

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in open_changes(self.handle, request, self.since, until, self.schema):
                counted[0] += batch.num_rows
                yield batch.select(names)

        yield from apply_calls(self.schema, batches(), OP_COLUMN, stored=True)

    def _follow(self, new: Sequence[Tablet], rows: SortedRows, staging: str) -> None:
        """Put rows into the new tablets, which nobody else has, at their time."""
        parts = self._built(new, rows, staging)
        flushed = prepare_parts(self.engine, parts, [])
        with HeldLocks([tablet.mutex for tablet in new]):
            install_parts(parts, flushed, self.since)
        sync_manifests(self.engine, parts)

    def _built(self, new: Sequence[Tablet], rows: SortedRows, staging: str) -> list[ingest.IngestPart]:
        engine = self.engine
        parts = [ingest.IngestPart(tablet, tablet.view, self.since, staging) for tablet in new]
        errors = build_parts(engine, rows, parts, staging, raising=True)
        errors.told(rows.schema, rows.starts, "raise")
        engine.fs.sync_dir(staging)
        filled = [part for part in parts if not part.empty]
        assert not any(part.by_key for part in filled), "a new tablet has no rows in memory to change"
        return filled

    # ---- the change ----

    def _switch(self, new: Sequence[Tablet], staging: str, files: OpenRuns) -> int:
        engine = self.engine
        with engine.altering:
            engine.check_writable()
            # The new ones too: whoever finds them in memory waits until all is as the record says.
            with HeldLocks([tablet.mutex for tablet in (*engine.tablets, *new)]):
                engine.check_writable()
                if self._is_overtaken():
                    raise _Overtaken
                now = max(engine.log.cut(), self.since)
                engine.wait_visible(now)
                rows = self._sorted(self._changes(now, [0]), staging, files)
                self.since = now
                parts = self._built(new, rows, staging)
                flushed = prepare_parts(engine, parts, [])
                alteration = self._alteration(new)
                record = ingest_record(parts, flushed, (0, 0, 0, 0), None, None, alteration)
                with recorded(engine, RECORD_KIND_INGEST, self.schema.version, record) as ts:
                    engine.log.wait_durable(ts)
                    install_parts(parts, flushed, ts)
                    assert alteration.partitions is not None
                    adopt(engine, alteration, new, ts, engine.schema, alteration.partitions)
                sync_manifests(engine, parts)
        return ts

    def _alteration(self, new: Sequence[Tablet]) -> Alteration:
        """Under ``altering``: of partitions of before some may have gone since this began."""
        engine = self.engine
        partitions = engine.partitions.followed_by(self.schema, self.declared)
        made = Alteration.repartitioning(engine.table_file.state, partitions)
        return replace(made, created=tuple((tablet.id, tablet.partition.ordinal) for tablet in new))

    def _is_overtaken(self) -> bool:
        """Whether the columns, or where rows belong, are not what they were when this began."""
        now = self.engine.partitions
        return self.engine.schema is not self.schema or now.alone != self.before.alone

    def _outside(self, refused: RowErrors) -> Exception:
        """What is told where rows belong to none of the partitions."""
        if set(refused.errors["code"].to_pylist()) != {"no_partition"}:
            return refused
        first = refused.errors["key"][0].as_py()
        return InvalidArgument(
            f"{refused.errors.num_rows:,} rows lie in none of the ranges of {self.declared.told}, as "
            f"{first}: give ranges that take them, or delete them before; nothing was changed"
        )


def _counted(scan: Scan, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    """The batches of a scan, of which it is told how many rows have come, of how many."""
    if progress is None:
        yield from scan
        return
    total, done = scan.count(), 0
    progress(0, total)
    for batch in scan:
        yield batch
        done += batch.num_rows
        progress(done, total)


__all__ = ["repartition"]
