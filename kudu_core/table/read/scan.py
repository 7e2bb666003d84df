"""A scan of a table: lazy, re-iterable, always at one snapshot; out come Arrow batches.

plan -> tablets -> rowsets, their files open -> units of work -> rows, patched -> Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.shown import Shown, damage_in
from kudu_core.common.run.cached import cached_property
from kudu_core.common.run.clock import time_of
from kudu_core.common.run.measure.call_times import now_s
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types import values
from kudu_core.errors import InvalidArgument
from kudu_core.rowset.disk.diskrowset import DiskRowsAt, DiskRowSet
from kudu_core.rowset.rows.rows_at import RowsAt
from kudu_core.rowset.scan.ordered import scan_in_order
from kudu_core.rowset.scan.row_ranges import Candidates
from kudu_core.rowset.scan.scan import (
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
from kudu_core.rowset.scan.scan_counts import ScanCounts
from kudu_core.table.read.arrow_out import ArrowResult, first_of
from kudu_core.table.read.column_bounds import ends_of, known_bounds
from kudu_core.table.read.expiry.expired import expiry_clock
from kudu_core.table.read.explain import Explained, explained
from kudu_core.table.read.indexed.known_indexes import indexes_for_scans
from kudu_core.table.read.moment import check_readable, snapshot_timestamp
from kudu_core.table.read.plan import ScanPlan, ScanRequest, check_columns, planned_tablets
from kudu_core.table.read.sent.sent_scan import SentScan
from kudu_core.table.read.short_scan import few_rows, wants_few

if TYPE_CHECKING:
    from kudu_core.rowset.scan.by_index import ColumnsIndex
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

T = TypeVar("T")

_BYTES_FOR_THREADS = 64 << 20
"""A scan of fewer bytes, as decoded, is done by one thread before two have shared it out: decoding fills
memory at some 10 GB/s."""
_STRING_BYTES = 32
_TESTED_BYTES = 16
"""What a cell of a string, and one that a predicate looks at, count for."""


def open_scan(handle: Handle, request: ScanRequest, at: Any, schema: Schema | None = None) -> Scan:
    """What ``Table.scan`` returns.

    ``schema``: the columns of an earlier moment, which the caller has pinned; None: those of today.
    """

    def made(engine: Engine) -> Scan:
        snapshot = snapshot_timestamp(engine, at)
        if schema is not None:
            return Scan(handle, request.planned(schema, now_us=expiry_clock(engine, at)), snapshot)
        newest = engine.schema
        plan = request.planned(newest, engine.plans_of(newest), now_us=expiry_clock(engine, at))
        return Scan(handle, plan, snapshot)

    if schema is not None:
        return made(handle.opened())
    return handle.of_now(at, lambda: handle.steady(made))


def count(handle: Handle, where: Any, at: Any, *, expired: bool = False) -> int:
    """The walk behind ``Table.count``.  ``expired``: as of ``ScanRequest``."""
    request = ScanRequest((), where, expired=expired)
    return handle.of_now(at, lambda: open_scan(handle, request, at).count())


class Scan(ArrowResult):
    """Rows of a table at one snapshot.  Nothing is read before somebody iterates.

    Every iteration starts anew at the same snapshot.  In the process that writes it stays readable while the
    scan lives.  A reader holds nothing in the writer: an iteration that has begun goes on to its end, but
    after a ``refresh``, also its own where the writer has replaced files, the next one may find that the
    history is gone: ``SnapshotTooOld``.
    Speaks Arrow's C stream protocol: DuckDB, Polars and pyarrow take it as it is; pandas by ``to_pandas``.
    Travels by pickle, as a ``Snapshot`` does; whole, where ``Table.scan_tokens`` shares it out.

    >>> [batch.num_rows for batch in stock.scan(batch_rows=2)]
    [2, 1]
    """

    def __init__(self, handle: Handle, plan: ScanPlan, snapshot: int) -> None:
        self._handle = handle  # also keeps the table open
        self._plan = plan
        self._snapshot = snapshot
        self._made_spec: ScanSpec | None = None
        engine = handle.engine
        self._pins = engine.pins.pin(snapshot), engine.schema_pins.pin(plan.schema)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        shown = self._plan.shown
        return self._plan.arrow_schema() if shown is None else shown.arrow

    @property
    def _spec(self) -> ScanSpec:
        """What each rowset is asked for."""
        if self._made_spec is None:
            self._made_spec = self._plan.spec(self._indexes())
        return self._made_spec

    def _indexes(self) -> tuple[ColumnsIndex, ...]:
        return () if self._plan.filter is None else indexes_for_scans(self._handle.engine)

    @property
    def timestamp(self) -> int:
        """The snapshot that is read."""
        return self._snapshot

    def _told(self) -> list[tuple[str, str]]:
        at = f"{self._snapshot} ({time_of(self._snapshot)})"
        return [("table", self._handle.path), ("at", at), *self._plan.told()]

    def __reduce__(self) -> Any:
        moment = self._handle.moment_for_others(self._snapshot)
        return ArrivedScan, (self._handle, SentScan.of(self._plan), moment)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        size = self._plan.batch_rows
        for batch in self._batches():
            for start in range(0, batch.num_rows, size):
                yield batch if batch.num_rows <= size else batch.slice(start, size)

    def _batches(self, *, whole: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows in batches as they were read: some may be larger than asked for.  ``whole``: the caller
        takes all of them."""
        shown = self._plan.shown
        read = self._handle.engine.call_times.scan_of(self._read_batches(whole=whole))
        return read if shown is None else self._shown(shown, read)

    def _shown(self, shown: Shown, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with damage_in(self._handle.path):
                seen = shown.batch(batch)
            yield seen

    def _read_batches(self, *, whole: bool) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        left = plan.limit
        if left == 0:
            return
        counts = ScanCounts()
        few = self._few(counts)
        if few is not None:
            yield from few
            return
        schema = plan.arrow_schema()
        for selected in self._selected(counts, whole=whole and left is None):
            batch = selected.batch
            if batch is None:
                if left is not None and selected.rows > left:
                    selected = selected.first(left)
                batch = to_batch(plan.columns, selected.columns, selected.rows, schema, plan.dictionary)
            if left is None:
                yield batch
            else:
                yield first_of(batch, left)
                left -= min(left, batch.num_rows)
                if left == 0:
                    return

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self._batches(whole=True)), schema=self.schema)

    # ---- answers without rows ----

    def count(self) -> int:
        """How many rows the scan has, reading only what the predicate and deletions need.

        >>> stock.scan(where=pc.field("price") > 2).count()
        2
        """
        times = self._handle.engine.call_times
        began_s = now_s()
        total = self._handle.again_where_lost(self._count)
        times.scanned(now_s() - began_s, total)
        return total

    def _count(self) -> int:
        counts, bare, total = ScanCounts(), self._plan.spec_of((), self._indexes()), 0
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

        >>> stock.scan().min_max("price")
        (1.5, 4.0)
        """
        if self._plan.limit is not None:
            raise InvalidArgument("min_max of a scan with limit= is not defined: any rows may be in it")
        chosen = self._plan.schema.seen(column)
        if isinstance(chosen, NestedColumn):
            raise InvalidArgument(f"min_max: column {column!r} is {chosen.type}, whose values have no order")
        return self._handle.again_where_lost(lambda: self._min_max(chosen))

    def _min_max(self, chosen: StoredColumn) -> tuple[Any, Any]:
        plan, counts = self._plan, ScanCounts()
        whole = plan.filter is None and plan.lower is None and plan.upper is None
        lows, highs, left = list[Any](), list[Any](), list[RowsAt]()
        for source in self._sources(counts):
            known = known_bounds(source, chosen) if whole else None
            if known is None:
                left.append(source)
            elif known:
                lows.append(known[0])
                highs.append(known[1])
        for selected in self._read(left, plan.spec_of((chosen,), self._indexes()), counts):
            ends = ends_of(selected.columns[chosen.id], chosen.type)
            if ends is not None:
                lows.append(ends[0])
                highs.append(ends[1])
        if not lows:
            return None, None
        low, high = min(lows), max(highs)
        return values.python_or_scalar(chosen.type, low), values.python_or_scalar(chosen.type, high)

    def explain(self) -> Explained:
        """What would be read and what is pruned at each level, without reading rows.

        >>> stock.scan(where=pc.field("id") == 1).explain().tablets
        1
        """
        return self._handle.again_where_lost(self._explain)

    def _explain(self) -> Explained:
        counts = ScanCounts()
        for source in self._sources(counts):
            row_ranges(source, self._spec, counts)
        return explained(self._handle.engine, self._plan, self._snapshot, counts)

    # ---- reading ----

    def _sources(self, counts: ScanCounts) -> list[RowsAt]:
        """The rowsets to read, every file of them open (protocol R4)."""
        sources, seen, pruned = self._handle.retrying(self._capture)
        counts.rowsets += seen
        counts.rowsets_pruned += pruned
        return sources

    def _capture(self, engine: Engine) -> tuple[list[RowsAt], int, int]:
        """(the rowsets to read; of how many, and how many of those were left out)."""
        plan, pruning = self._plan, self._spec.pruning
        check_readable(engine, self._snapshot)  # a reader may have been refreshed since
        columns = plan.needed()
        check_columns(engine, plan.schema, columns)
        needed = {column.id for column in columns}  # columns of the key never change
        found: list[RowsAt | DiskRowSet] = []
        snapshot, seen = self._snapshot, 0
        for tablet in planned_tablets(engine, plan, snapshot):
            view = tablet.view_of(plan.schema)
            for memory in (view.active, *view.frozen):
                if len(memory):
                    seen += 1
                    found.append(memory.at(snapshot))
            seen += len(view.rowsets)
            places = view.tree.between(plan.lower, plan.upper)
            if plan.ordered and len(places) > 1:
                view.note_ordered(places, plan.limit)
            for place in places:
                rowset = view.rowsets[place]
                if not pruning.columns or pruning.rowset_may_match(rowset, snapshot):
                    found.append(rowset)
                    if engine.in_store:
                        rowset.will_open(snapshot)
        sources: list[RowsAt] = []
        for one in found:
            rows = one.opened_at(snapshot, needed) if isinstance(one, DiskRowSet) else one
            if rows is not None:
                sources.append(rows)
                if engine.in_store and isinstance(rows, DiskRowsAt):
                    rows.file.scans.ask_sections(list(needed))
        return sources, seen, seen - len(sources)

    def _few(self, counts: ScanCounts) -> list[pa.RecordBatch] | None:
        """All rows, where few are wanted and can be read so."""
        wanted = wants_few(self._plan)
        if wanted is None:
            return None
        return self._handle.retrying(self._captured_few, wanted, counts)

    def _captured_few(self, engine: Engine, wanted: int, counts: ScanCounts) -> list[pa.RecordBatch] | None:
        check_readable(engine, self._snapshot)
        return few_rows(engine, self._plan, wanted, self._snapshot, counts)

    def _selected(self, counts: ScanCounts, *, whole: bool) -> Iterator[Selected]:
        return self._handle.begun_again_where_lost(lambda: self._selected_once(counts, whole=whole))

    def _selected_once(self, counts: ScanCounts, *, whole: bool) -> Iterator[Selected]:
        spec = self._spec
        sources = self._sources(counts)
        if self._plan.ordered:
            yield from scan_in_order(sources, spec, counts, limit=self._plan.limit, whole=whole)
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
        worker: Callable[[RowsAt, ScanSpec, Candidates], Callable[[np.ndarray], T]],
    ) -> Iterator[T]:
        """Units of work on the pool's threads, a bounded number ahead, in a fixed order."""
        pool, first_rows = self._handle.engine.pool, self._plan.first_unit_rows(spec)

        def work() -> Iterator[tuple[Callable[[np.ndarray], T], np.ndarray]]:
            for source in sources:
                if not by_ordinal(source, spec):
                    found = row_ranges(source, spec, counts)
                    act = worker(source, spec, found)
                    for unit in units(found.ranges, spec.batch_rows, first_rows):
                        yield act, unit

        def run(unit: tuple[Callable[[np.ndarray], T], np.ndarray]) -> T:
            pool.check_process()  # a scan that was begun before a fork does not go on in the child
            return unit[0](unit[1])

        if self._plan.limit is not None:  # one after the other, and none that is not reached
            yield from map(run, work())
            return
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
        waits = self._handle.engine.in_store  # for each page: that is worth threads
        alone = pool.threads == 1 or len(few) < 2 or (rows <= enough and not waits)
        if alone:
            yield from map(run, chain(few, left))
        else:
            yield from pool.map(run, chain(few, left))


class ArrivedScan(Scan):
    """A scan in the process to which it was sent; it is planned when it is first read."""

    def __init__(self, handle: Handle, sent: SentScan, snapshot: int) -> None:
        self._handle, self._sent, self._snapshot, self._made_spec = handle, sent, snapshot, None

    @cached_property
    def _plan(self) -> ScanPlan:
        return self._handle.steady(lambda engine: self._sent.planned(engine.schema))


__all__ = ["Scan", "count", "open_scan"]
