"""A scan of a table: lazy, re-iterable, always at one snapshot; out come Arrow batches.

snapshot -> prune tablets -> rowsets -> pages -> rows, patched -> Arrow.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.cfile.container import FileMissing
from kudu_core.common.predicates import Filter
from kudu_core.common.rowblock import ColumnBuffers
from kudu_core.common.schema import Schema, StoredColumn, arrow_schema
from kudu_core.errors import InvalidArgument, SnapshotTooOld
from kudu_core.rowset.diskrowset import DiskRowsAt, DiskRowSet
from kudu_core.rowset.memrowset import MemRowSet
from kudu_core.rowset.reading import RowsAt
from kudu_core.rowset.scan import (
    ScanCounts,
    ScanSpec,
    Selected,
    count_rowset,
    row_ranges,
    scan_rowset,
    select_range,
)
from kudu_core.tablet.merge import Run, merge_runs
from kudu_core.tablet.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.table.engine import Engine

REFRESH_TRIES = 3


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan is asked for, checked against the schema."""

    schema: Schema
    columns: tuple[StoredColumn, ...]
    filter: Filter | None
    lower: bytes | None
    upper: bytes | None
    ordered: bool
    limit: int | None
    batch_rows: int
    tablet_ids: frozenset[int] | None
    """None: all that pruning leaves."""

    def spec(self) -> ScanSpec:
        return ScanSpec(
            self.schema, self.columns, self.filter, self.lower, self.upper, self.ordered, self.batch_rows
        )


@dataclass(slots=True)
class Explained:
    """What a scan would read and what it skips, level by level."""

    snapshot: int
    tablets: int
    tablets_pruned: int
    rowsets: int
    rowsets_pruned: int
    pages: int
    pages_pruned: int
    columns: list[str]
    predicate: str
    pruning_terms: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            (
                f"scan at {self.snapshot}",
                f"  columns   {', '.join(self.columns) or '(none)'}",
                f"  predicate {self.predicate}",
                f"  pruned by {'; '.join(self.pruning_terms) or '(nothing)'}",
                f"  tablets   {self.tablets - self.tablets_pruned} of {self.tablets} read",
                f"  rowsets   {self.rowsets - self.rowsets_pruned} of {self.rowsets} read",
                f"  pages     {self.pages - self.pages_pruned} of {self.pages} read (per column)",
            )
        )


class Scan:
    """Rows of a table at one snapshot.  Nothing is read before somebody iterates.

    Every iteration starts anew at the same snapshot, which stays readable while the scan lives.
    Speaks Arrow's C stream protocol: DuckDB, Polars, pandas and pyarrow take it as it is.
    """

    def __init__(self, engine: Callable[[], Engine], plan: ScanPlan, snapshot: int, owner: Any) -> None:
        self._engine = engine
        self._plan = plan
        self._snapshot = snapshot
        self._owner = owner
        pins = engine().pins
        pins.pin(snapshot)
        self._release = weakref.finalize(self, pins.unpin, snapshot)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        return arrow_schema(self._plan.columns)

    @property
    def timestamp(self) -> int:
        """The snapshot that is read."""
        return self._snapshot

    def __reduce__(self) -> Any:
        raise TypeError("a Scan does not travel to another process; send table.scan_tokens(...) instead")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        left = plan.limit
        if left == 0:
            return
        schema = self.schema
        for selected in self._selected():
            rows = selected.rows if left is None else min(selected.rows, left)
            yield to_batch(plan.columns, selected.columns, rows, selected.rows, schema)
            if left is not None:
                left -= rows
                if left == 0:
                    return

    # ---- Arrow ----

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self), schema=self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """A pandas frame; ``options`` go to ``pyarrow.Table.to_pandas``."""
        return self.to_table().to_pandas(**options)

    def to_polars(self) -> Any:
        """A Polars frame."""
        import polars

        return polars.from_arrow(self.to_table())

    def to_pylist(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.to_table().to_pylist()
        return rows

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = self.to_reader()
        if requested_schema is not None:
            wanted = pa.Schema._import_from_c_capsule(requested_schema)
            if wanted != reader.schema and wanted.names == reader.schema.names:
                reader = reader.cast(wanted)
        return reader.__arrow_c_stream__()

    # ---- answers without rows ----

    def count(self) -> int:
        """How many rows the scan has, reading only what the predicate needs."""
        counts = ScanCounts()
        spec = self._plan.spec()
        bare = ScanSpec(
            spec.schema, (), spec.filter, spec.lower, spec.upper, False, max(spec.batch_rows, 1 << 16)
        )
        total = 0
        for source in self._sources(counts):
            total += count_rowset(source, bare, counts)
            if self._plan.limit is not None and total >= self._plan.limit:
                return self._plan.limit
        return total

    def explain(self) -> Explained:
        """What would be read and what is pruned at each level, without reading rows."""
        counts = ScanCounts()
        engine = self._engine()
        spec = self._plan.spec()
        tablets = self._tablets(engine)
        for source in self._sources(counts):
            for _ in row_ranges(source, spec, counts):
                pass
        where = self._plan.filter
        return Explained(
            snapshot=self._snapshot,
            tablets=len(engine.tablets),
            tablets_pruned=len(engine.tablets) - len(tablets),
            rowsets=counts.rowsets,
            rowsets_pruned=counts.rowsets_pruned,
            pages=counts.pages,
            pages_pruned=counts.pages_pruned,
            columns=[c.name for c in self._plan.columns],
            predicate="(none)" if where is None else str(where.expression),
            pruning_terms=[] if where is None else [str(t) for t in where.terms],
        )

    # ---- reading ----

    def _tablets(self, engine: Engine) -> list[Tablet]:
        plan = self._plan
        keep = prune_tablets(engine, plan.filter, plan.lower, plan.upper)
        if plan.tablet_ids is not None:
            keep = [t for t in keep if t.id in plan.tablet_ids]
        return keep

    def _sources(self, counts: ScanCounts) -> list[RowsAt]:
        """The rowsets to read, every file of them open (PROTOCOL R4)."""
        for attempt in range(REFRESH_TRIES):
            engine = self._engine()
            engine.check_open()
            try:
                return self._capture(engine, counts)
            except FileMissing:
                if engine.writer or attempt + 1 == REFRESH_TRIES:
                    raise
                self._owner.refresh()
                if not self._engine().oldest_ts <= self._snapshot <= self._engine().visible_ts:
                    raise SnapshotTooOld(f"snapshot {self._snapshot} is no longer readable") from None
        raise AssertionError("unreachable")

    def _capture(self, engine: Engine, counts: ScanCounts) -> list[RowsAt]:
        plan = self._plan
        sources: list[RowsAt] = []
        for tablet in self._tablets(engine):
            for store in tablet.view.stores:
                if isinstance(store, MemRowSet):
                    if len(store):
                        counts.rowsets += 1
                        sources.append(store.at(self._snapshot))
                    continue
                counts.rowsets += 1
                if not overlaps(store, plan):
                    counts.rowsets_pruned += 1
                    continue
                store.open_all(self._snapshot)
                seen = store.at(self._snapshot)
                if seen is None:
                    counts.rowsets_pruned += 1
                else:
                    sources.append(seen)
        return sources

    def _selected(self) -> Iterator[Selected]:
        counts = ScanCounts()
        spec = self._plan.spec()
        sources = self._sources(counts)
        if self._plan.ordered:
            runs = [
                Run(first_key_of(source), lambda s=source: scan_rowset(s, spec, counts))  # type: ignore[misc]
                for source in sources
            ]
            yield from merge_runs(runs)
            return
        yield from self._parallel(sources, spec, counts)

    def _parallel(self, sources: list[RowsAt], spec: ScanSpec, counts: ScanCounts) -> Iterator[Selected]:
        """Ranges of rows on the pool's threads, a bounded number ahead, in a fixed order."""
        pool = self._engine().pool
        bounded = spec.lower is not None or spec.upper is not None
        plain = [s for s in sources if isinstance(s, DiskRowsAt) or not bounded]
        for source in sources:
            if source not in plain:
                yield from scan_rowset(source, spec, counts)
        units = ((s, lower, upper) for s in plain for lower, upper in row_ranges(s, spec, counts))

        def read(unit: tuple[RowsAt, int, int]) -> Selected | None:
            return select_range(unit[0], spec, unit[1], unit[2])

        if pool.threads == 1 or self._plan.limit is not None:
            results: Iterator[Selected | None] = map(read, units)
        else:
            results = pool.map(read, units)
        for selected in results:
            if selected is not None:
                yield selected


def prune_tablets(
    engine: Engine, where: Filter | None, lower: bytes | None, upper: bytes | None
) -> list[Tablet]:
    """Tablets whose partition may hold an answer."""
    terms = () if where is None else where.terms
    ordinals = set(engine.partitions.prune(terms, lower, upper))
    return [t for t in engine.tablets if t.partition.ordinal in ordinals]


def overlaps(rowset: DiskRowSet, plan: ScanPlan) -> bool:
    """Whether a rowset's key bounds meet those of the scan."""
    if plan.lower is not None and rowset.meta.max_key < plan.lower:
        return False
    return plan.upper is None or rowset.meta.min_key < plan.upper


def first_key_of(source: RowsAt) -> bytes:
    return source.rowset.meta.min_key if isinstance(source, DiskRowsAt) else b""


def to_batch(
    columns: Sequence[StoredColumn],
    values: dict[int, ColumnBuffers],
    rows: int,
    have: int,
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Decoded columns as one Arrow batch of the first ``rows`` rows."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    arrays = [values[c.id].to_arrow(c.type) for c in columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return batch if rows == have else batch.slice(0, rows)


def check_batch_rows(batch_rows: int) -> int:
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or not 1 <= batch_rows <= 1 << 24:
        raise InvalidArgument(f"batch_rows is a whole number from 1 to {1 << 24:,}, not {batch_rows!r}")
    return batch_rows
