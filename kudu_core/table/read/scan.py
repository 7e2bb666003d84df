"""A scan of a table: lazy, re-iterable, always at one snapshot; out come Arrow batches.

snapshot -> prune tablets -> rowsets -> pages -> rows, patched -> Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.cfile.pages.container import FileMissing
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn, arrow_schema
from kudu_core.common.types import values
from kudu_core.common.types.types import TYPE_DECIMAL, ColumnType
from kudu_core.common.where.predicates import Filter
from kudu_core.errors import InvalidArgument, SchemaMismatch
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from kudu_core.rowset.rows.rows_at import RowsAt
from kudu_core.rowset.scan.ordered import OrderedBlocks, merge_ordered
from kudu_core.rowset.scan.scan import (
    ScanCounts,
    ScanSpec,
    Selected,
    by_ordinal,
    counter,
    row_ranges,
    rows_of,
    scan_rowset,
    selector,
    to_batch,
    units,
)
from kudu_core.table.read.arrow_out import ArrowResult
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

T = TypeVar("T")

REFRESH_TRIES = 3

_FEW_ROWS = 1 << 10
_BYTES_FOR_THREADS = 64 << 20
"""A scan of fewer bytes, as decoded, is done by one thread before two have shared it out: decoding fills
memory at some 10 GB/s."""
_STRING_BYTES = 32
_TESTED_BYTES = 16
"""What a cell of a string, and one that a predicate looks at, count for."""

_BATCH_ROWS = 1 << 16
_UNIT_ROWS = 1 << 18
"""Rows that a thread reads at once, where batches are not asked to be small."""


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
    dictionary: frozenset[int] = frozenset()
    """Columns that come as Arrow dictionaries."""

    def arrow_schema(self) -> pa.Schema:
        """Of the batches."""
        schema = arrow_schema(self.columns)
        for place, column in enumerate(self.columns):
            if column.id in self.dictionary:
                coded = schema.field(place).with_type(pa.dictionary(pa.int32(), column.type.arrow))
                schema = schema.set(place, coded)
        return schema

    def _unit_rows(self) -> int:
        """Rows of one piece of work: some batches, whose threads then meet less often."""
        if self.limit is not None and self.filter is None:
            return min(self.batch_rows, max(self.limit, _FEW_ROWS))
        if self.limit is not None or self.ordered or self.batch_rows < _BATCH_ROWS:
            return self.batch_rows
        return max(self.batch_rows, _UNIT_ROWS)

    def spec(self) -> ScanSpec:
        return ScanSpec(
            self.schema,
            self.columns,
            self.filter,
            self.lower,
            self.upper,
            self.ordered,
            self._unit_rows(),
            None if self.ordered else self.arrow_schema(),
            self.dictionary,
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
    rows: int
    """In the rowsets that are read."""
    rows_by_keys: int
    """What bounds and a search in the key columns leave of them."""
    rows_wanted: int
    """What zone maps leave of these."""
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
                f"  rows      {self.rows_wanted} of {self.rows} looked at; keys leave {self.rows_by_keys}",
            )
        )


class Scan(ArrowResult):
    """Rows of a table at one snapshot.  Nothing is read before somebody iterates.

    Every iteration starts anew at the same snapshot, which stays readable while the scan lives.
    Speaks Arrow's C stream protocol: DuckDB, Polars, pandas and pyarrow take it as it is.
    """

    def __init__(self, engine: Callable[[], Engine], plan: ScanPlan, snapshot: int, owner: Any) -> None:
        self._engine = engine
        self._path = engine().path
        self._plan = plan
        self._snapshot = snapshot
        self._owner = owner
        self._spec = plan.spec()
        pins, versions = engine().pins, engine().schema_pins
        self._pins = pins.pin(snapshot), versions.pin(plan.schema)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        return self._plan.arrow_schema()

    @property
    def timestamp(self) -> int:
        """The snapshot that is read."""
        return self._snapshot

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Scan does not travel to another process: send table.scan_tokens(...), or, in a function for "
            f"Spark, write kudu_core.spark.table({self._path!r}, at={self._snapshot})"
            f".scan(..., at={self._snapshot})"
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        size = self._plan.batch_rows
        for batch in self._batches():
            for start in range(0, batch.num_rows, size):
                yield batch if batch.num_rows <= size else batch.slice(start, size)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they were read: some batches may be larger than asked for."""
        plan = self._plan
        left = plan.limit
        if left == 0:
            return
        schema = self.schema
        for selected in self._selected():
            batch = selected.batch
            if batch is None:
                batch = to_batch(plan.columns, selected.columns, selected.rows, schema, plan.dictionary)
            if left is None:
                yield batch
            else:
                yield batch.slice(0, left)
                left -= min(left, selected.rows)
                if left == 0:
                    return

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self._batches()), schema=self.schema)

    # ---- answers without rows ----

    def count(self) -> int:
        """How many rows the scan has, reading only what the predicate and deletions need."""
        counts = ScanCounts()
        spec = self._spec
        bare = ScanSpec(
            spec.schema, (), spec.filter, spec.lower, spec.upper, False, _UNIT_ROWS
        )
        total = 0
        for some in self._counted(self._sources(counts), bare, counts):
            total += some
            if self._plan.limit is not None and total >= self._plan.limit:
                return self._plan.limit
        return total

    def _counted(self, sources: list[RowsAt], spec: ScanSpec, counts: ScanCounts) -> Iterator[int]:
        for source in sources:
            if by_ordinal(source, spec):
                yield sum(selected.rows for selected in scan_rowset(source, spec, counts))
        yield from self._parallel(sources, spec, counts, counter)

    def min_max(self, column: str) -> tuple[Any, Any]:
        """The smallest and the largest value that a column has in the scan's rows; NULL and NaN do not count.

        (None, None) where there is none.  They are Python values, as those of ``get``; a date or time outside
        the years 1 to 9999, for which Python has none, is a ``pyarrow.Scalar`` of the column's type, which
        keys and predicates take too.  Without a predicate, rowsets that nothing has changed answer from
        their statistics, and no page is read.
        """
        plan = self._plan
        if plan.limit is not None:
            raise InvalidArgument("min_max of a scan with limit= is not defined: any rows may be in it")
        chosen = plan.schema.column(column)
        whole = plan.filter is None and plan.lower is None and plan.upper is None
        lows: list[Any] = []
        highs: list[Any] = []
        left: list[RowsAt] = []
        counts = ScanCounts()
        for source in self._sources(counts):
            known = _known_bounds(source, chosen) if whole else None
            if known is None:
                left.append(source)
            elif known:
                lows.append(known[0])
                highs.append(known[1])
        spec = ScanSpec(
            plan.schema, (chosen,), plan.filter, plan.lower, plan.upper, False, _UNIT_ROWS
        )
        for selected in self._read(left, spec, counts):
            ends = _ends(selected.columns[chosen.id], chosen.type)
            if ends is not None:
                lows.append(ends[0])
                highs.append(ends[1])
        if not lows:
            return None, None
        low, high = min(lows), max(highs)
        return values.python_or_scalar(chosen.type, low), values.python_or_scalar(chosen.type, high)

    def explain(self) -> Explained:
        """What would be read and what is pruned at each level, without reading rows."""
        counts = ScanCounts()
        engine = self._engine()
        spec = self._spec
        tablets = self._tablets(engine)
        there = sum(tablet.is_there(self._snapshot) for tablet in engine.tablets)
        for source in self._sources(counts):
            row_ranges(source, spec, counts)
        where = self._plan.filter
        return Explained(
            snapshot=self._snapshot,
            tablets=there,
            tablets_pruned=there - len(tablets),
            rowsets=counts.rowsets,
            rowsets_pruned=counts.rowsets_pruned,
            pages=counts.pages,
            pages_pruned=counts.pages_pruned,
            rows=counts.rows,
            rows_by_keys=counts.rows_by_keys,
            rows_wanted=counts.rows_wanted,
            columns=[c.name for c in self._plan.columns],
            predicate="(none)" if where is None else str(where.expression),
            pruning_terms=[] if where is None else [str(t) for t in where.terms],
        )

    # ---- reading ----

    def _tablets(self, engine: Engine) -> list[Tablet]:
        plan = self._plan
        keep = prune_tablets(engine, plan.filter, plan.lower, plan.upper, self._snapshot)
        if plan.tablet_ids is not None:
            keep = [t for t in keep if t.id in plan.tablet_ids]
        return keep

    def _needed(self) -> list[StoredColumn]:
        plan = self._plan
        tested = () if plan.filter is None else plan.filter.columns
        return [*plan.columns, *(plan.schema.by_name[name] for name in tested)]

    def _sources(self, counts: ScanCounts) -> list[RowsAt]:
        """The rowsets to read, every file of them open (protocol R4)."""
        plan = self._plan
        for attempt in range(REFRESH_TRIES):
            engine = self._engine()
            engine.check_open()
            check_columns(engine, plan.schema, self._needed())
            try:
                return self._capture(engine, counts)
            except FileMissing:
                if engine.writer or attempt + 1 == REFRESH_TRIES:
                    raise
                self._owner.refresh()
                snapshot_timestamp(self._engine(), self._snapshot)  # still there?
        raise AssertionError("unreachable")

    def _capture(self, engine: Engine, counts: ScanCounts) -> list[RowsAt]:
        plan = self._plan
        pruning = self._spec.pruning
        needed = {column.id for column in self._needed()}  # columns of the key never change
        sources: list[RowsAt] = []
        for tablet in self._tablets(engine):
            view = tablet.view
            for memory in (view.active, *view.frozen):
                if len(memory):
                    counts.rowsets += 1
                    sources.append(memory.at(self._snapshot))
            within = view.tree.range(plan.lower, plan.upper).tolist()
            counts.rowsets += len(view.rowsets)
            counts.rowsets_pruned += len(view.rowsets) - len(within)
            for place in within:
                rowset = view.rowsets[place]
                if not pruning.rowset_may_match(rowset, self._snapshot):
                    counts.rowsets_pruned += 1
                    continue
                rowset.open_for(self._snapshot, needed)
                seen = rowset.at(self._snapshot)
                if seen is None:
                    counts.rowsets_pruned += 1
                else:
                    sources.append(seen)
        return sources

    def _selected(self) -> Iterator[Selected]:
        counts = ScanCounts()
        spec = self._spec
        sources = self._sources(counts)
        if self._plan.ordered:
            rowsets = [
                OrderedBlocks(first_key_of(at), partial(scan_rowset, at, spec, counts))
                for at in sources
            ]
            yield from merge_ordered(rowsets)
            return
        yield from self._read(sources, spec, counts)

    def _read(self, sources: list[RowsAt], spec: ScanSpec, counts: ScanCounts) -> Iterator[Selected]:
        for source in sources:
            if by_ordinal(source, spec):
                yield from scan_rowset(source, spec, counts)
        for some in self._parallel(sources, spec, counts, selector):
            yield from some

    def _parallel(
        self,
        sources: list[RowsAt],
        spec: ScanSpec,
        counts: ScanCounts,
        worker: Callable[[RowsAt, ScanSpec, Filter | None], Callable[[np.ndarray], T]],
    ) -> Iterator[T]:
        """Units of work on the pool's threads, a bounded number ahead, in a fixed order."""
        pool = self._engine().pool

        def work() -> Iterator[tuple[Callable[[np.ndarray], T], np.ndarray]]:
            for source in sources:
                if not by_ordinal(source, spec):
                    found = row_ranges(source, spec, counts)
                    act = worker(source, spec, found.where)
                    for unit in units(found.ranges, spec.batch_rows):
                        yield act, unit

        def run(unit: tuple[Callable[[np.ndarray], T], np.ndarray]) -> T:
            pool.check_process()  # a scan that was begun before a fork does not go on in the child
            return unit[0](unit[1])

        tested = () if spec.filter is None else spec.filter.columns
        per_row = sum(c.type.width or _STRING_BYTES for c in spec.columns) + _TESTED_BYTES * len(tested)
        enough = _BYTES_FOR_THREADS // max(1, per_row)
        left = work()
        few: list[tuple[Callable[[np.ndarray], T], np.ndarray]] = []
        rows = 0
        for unit in left:
            few.append(unit)
            rows += rows_of(unit[1])
            if rows > enough and len(few) > 1:
                break
        alone = pool.threads == 1 or len(few) < 2 or rows <= enough
        if alone or self._plan.limit is not None:
            yield from map(run, chain(few, left))
        else:
            yield from pool.map(run, chain(few, left))


def _known_bounds(source: RowsAt, column: StoredColumn) -> tuple[Any, ...] | None:
    """(min, max) of a column, physical, by the statistics of its rowset, () if it has no value that compares;
    None where they are not exactly those of the rows that are seen."""
    if not isinstance(source, DiskRowsAt) or not source.all_live or source.touches(column.id):
        return None
    if column.id not in source.file.column_ids:
        return None
    zone = source.file.zone(column.id)
    if zone.empty:
        return ()
    low, high = zone.physical_bounds(column.type)
    if low is None or high is None or not (zone.minimum_exact and zone.maximum_exact):
        return None
    return low, high


def _ends(column: ColumnBuffers, type_: ColumnType) -> tuple[Any, Any] | None:
    """The smallest and the largest value as physical ones, None where there is none that compares."""
    array = column.to_arrow(type_)
    if type_.is_date or type_.is_timestamp:  # as numbers: Python has not all of them as dates
        array = array.view(pa.int32() if type_.is_date else pa.int64())
    elif type_.is_string:
        array = array.view(pa.binary())
    found = pc.min_max(array)
    if not found["min"].is_valid:
        return None
    low, high = found["min"].as_py(), found["max"].as_py()
    if type_.kind == TYPE_DECIMAL:
        return values.physical(type_, low), values.physical(type_, high)
    return low, high


def prune_tablets(
    engine: Engine, where: Filter | None, lower: bytes | None, upper: bytes | None, snapshot: int
) -> list[Tablet]:
    """Tablets whose partition may hold an answer at a snapshot."""
    terms = () if where is None else where.terms
    ordinals = set(engine.partitions.prune(terms, lower, upper, dropped=True))
    return [t for t in engine.tablets if t.partition.ordinal in ordinals and t.is_there(snapshot)]


def check_columns(engine: Engine, schema: Schema, columns: Iterable[StoredColumn]) -> None:
    """A reader that was refreshed past a drop cannot tell whether the column's data is still there (protocol
    R4); the writing process keeps it while something is alive that asks for it."""
    if engine.writer or engine.schema.version == schema.version:
        return
    for column in columns:
        if column.id not in engine.schema.by_id:
            raise SchemaMismatch(f"column {column.name!r} was dropped; make the scan again")


def first_key_of(source: RowsAt) -> bytes:
    return source.rowset.meta.min_key if isinstance(source, DiskRowsAt) else b""


def check_batch_rows(batch_rows: int) -> int:
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or not 1 <= batch_rows <= 1 << 24:
        raise InvalidArgument(f"batch_rows is a whole number from 1 to {1 << 24:,}, not {batch_rows!r}")
    return batch_rows
