"""The walk of a merging compaction: rowsets become others that overlap nowhere (protocol C1 to C4).

The outputs are written at a cut, a range of keys at a time, without any lock and past the page cache, by
this process or by others (``merge_remote``): who writes them is one step.  Meanwhile rows are changed
in the inputs; *rounds* carry these changes over into REDO files of the outputs, by the map that the writing
has left, until few remain.  The last round runs under the flush lane, which keeps delta flushes and ingests
of the tablet away; then, under the mutex, the last changes move from memory to memory and the view is
exchanged with one edit.

Until that edit the tablet is what it was: whatever goes wrong before it, the files are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from kudu_core.cfile.files.delta_format import REDO
from kudu_core.common.run.held_memory import release_free
from kudu_core.common.run.locks import NOTHING, Claim
from kudu_core.common.run.measure.work import counted_here
from kudu_core.common.run.ordering import distinct
from kudu_core.common.run.pool import Pool
from kudu_core.errors import Corruption, InternalError
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.disk.entries import FOREVER, DeltaEntries, changes_between, write_deltas
from kudu_core.rowset.disk.writing import discard
from kudu_core.rowset.history.merging import ROW_BYTES, MergeInput, OutputLimits, plan, row_bytes
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.rows.meta import DeltaRef
from kudu_core.tablet.compact.merge_output import build
from kudu_core.tablet.compact.merge_task import DROPPED, MergeOutput, MergeTask, OutputPlace, rows_of_outputs
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.tablet import Tablet

FEW_CHANGES = 20_000
"""So many changes are moved under the mutex; with more another round comes first."""

MAX_ROUNDS = 10
"""Then writers are as fast as the rounds, and wait for one."""

SMALL_BYTES = 4 << 20
"""A merge that holds no more while its outputs are built waits for no other one that is building."""

MEMORY_DIVISOR = 4
"""The memory limit divided by this: what the ranges that are built at one time take."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merging compaction did."""

    rowsets: int
    rowsets_added: int
    rows: int
    rows_dropped: int
    """Copies of keys that another one tells of now, and rows that nobody can see any more."""
    changes: int
    """Changes that came while the outputs were written."""
    rounds: int
    input_bytes: int
    output_bytes: int
    horizon: int
    """What lies at or below it may be gone; 0: nothing is."""


MergeBuilder = Callable[[Tablet, MergeTask, np.ndarray], list[MergeOutput] | None]
"""Has others build the outputs of ranges of the sources, ``edges`` as of ``merging.plan``: their files are
the tablet's then and ``MergeTask.homes`` is filled in.  None: they are to be built here; nothing has
happened."""


def _go_on(_: str = "") -> None:
    pass


def merge_rowsets(
    tablet: Tablet,
    rowset_ids: Sequence[int],
    *,
    horizon: Callable[[bool], int],
    threads: int = 1,
    builder: MergeBuilder | None = None,
    check: Callable[[], None] = _go_on,
    at_step: Callable[[str], None] = _go_on,
) -> Merged | None:
    """Merge rowsets of a tablet; None when one has left the view, or another compaction works on it.

    Parameters
    ----------
    rowset_ids
        One or more.  One alone is written anew without its dead rows.
    horizon
        ``horizon(drop)``: how far back history may be dropped; with ``drop`` it will be, see
        ``Engine.horizon``.
    threads
        Outputs that are written here at one time, each by a thread of its own.
    builder
        Who is asked first to write the outputs.
    check
        Called often; what it raises ends the merge, and the tablet is as it was.
    at_step
        Told where the merge is: "begun", "written", "round", "ready", "installed".  For tests.

    Raises
    ------
    OSError
        Nothing was installed.
    Corruption
        Two copies of a key are alive at one time, or a change came to a row that was dropped.
    """
    with Claim(tablet.compacting) as claim:
        inputs = _claimed(tablet, rowset_ids, claim)
        if inputs is None:
            return None
        walk = _MergeWalk(tablet, inputs, threads, check, at_step)
        try:
            walk.write(horizon, builder)
            walk.catch_up()
            with tablet.flush_lane:  # from here on no delta flush and no ingest
                tablet.check_open()
                walk.last_round()
                with tablet.mutex:
                    installing = walk.prepare()
                    # Past this point the edit may be there: the files stay.
                    walk.task.written.clear()
                    walk.install(*installing)
        except BaseException:
            discard(tablet.context.fs, walk.task.written)
            raise
    assert tablet.manifest is not None
    tablet.manifest.sync()
    at_step("installed")
    return walk.result()


def _claimed(tablet: Tablet, rowset_ids: Sequence[int], claim: Claim) -> _Inputs | None:
    """Protocol C1: no other compaction on any of them; all changes up to the cut are in their stores."""
    wanted = set(rowset_ids)
    assert wanted and len(wanted) == len(rowset_ids)
    with tablet.mutex:
        rowsets = [r for r in tablet.view.rowsets if r.id in wanted]
        if len(rowsets) != len(wanted) or wanted & tablet.compacting:
            return None
        claim.take(wanted)
        return _Inputs(rowsets, tablet.context.cut())


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    rowsets: list[DiskRowSet]
    """By first key, as they were at the cut."""
    cut: int


class _MergeWalk:
    """One merge under way."""

    def __init__(
        self,
        tablet: Tablet,
        inputs: _Inputs,
        threads: int,
        check: Callable[[], None],
        at_step: Callable[[str], None],
    ) -> None:
        self.tablet = tablet
        self.ids = [rowset.id for rowset in inputs.rowsets]
        self.threads = threads
        self.at_step = at_step
        self._inputs = inputs.rowsets
        self.task = MergeTask(
            place=OutputPlace.of(tablet),
            schema=tablet.context.stored(),
            sources=[],
            cut=inputs.cut,
            horizon=0,
            check=check,
            homes=[np.full(r.meta.rows, DROPPED, np.uint32) for r in inputs.rowsets],
        )
        self.outputs: list[MergeOutput] = []
        self.through = inputs.cut
        """Q: the outputs' files hold every change up to it, and none above."""
        self._starts: list[np.ndarray] = []
        """By source: its first row in each output, (outputs,) int64."""
        self._caught: list[list[DeltaRef]] = []
        """By output: the REDO files of the rounds."""
        self._added: dict[int, DiskRowSet] = {}
        """By output: the rowset that it is to be."""
        self._rounds = self._changes = 0
        self._input_bytes = 0

    # ---- protocol C2 ----

    def write(self, horizon: Callable[[bool], int], builder: MergeBuilder | None) -> None:
        """Have the outputs written at the cut."""
        task, context = self.task, self.tablet.context
        self.at_step("begun")
        if any(_oldest(rowset) <= horizon(False) for rowset in self._inputs):
            task.horizon = min(horizon(True), task.cut)
        for rowset in self._inputs:
            task.check()
            task.sources.append(MergeInput.of(rowset, task.cut, task.horizon))
        options = context.options
        limits = OutputLimits(
            options.rowset_target_bytes, options.memory_bytes // (MEMORY_DIVISOR * self.threads)
        )
        sizes = [row_bytes(task.schema, source) for source in task.sources]
        edges = plan(task.sources, sizes, limits)
        outputs = None if builder is None else builder(self.tablet, task, edges)
        self.outputs = self._build_here(edges, sizes) if outputs is None else outputs
        self._starts = list(np.array([output.lower for output in self.outputs]).T)
        self._caught = [[] for _ in self.outputs]
        task.sources.clear()
        self.tablet.sync_directory()
        self.at_step("written")

    def _build_here(self, edges: np.ndarray, sizes: Sequence[tuple[float, float]]) -> list[MergeOutput]:
        task, context = self.task, self.tablet.context
        each = np.array([decoded + ROW_BYTES for _, decoded in sizes])

        def built(number: int) -> list[MergeOutput]:
            nbytes = int(((edges[number + 1] - edges[number]) * each).sum())
            with context.work.hold(nbytes):
                outputs = build(task, edges[number], edges[number + 1])
            release_free(nbytes)
            return outputs

        small = int(((edges[-1] - edges[0]) * each).sum()) <= SMALL_BYTES
        if small and len(edges) == 2:
            return built(0)  # a thread of its own costs as much again, more beside other tablets
        with NOTHING if small else context.building.take(), Pool(self.threads, "kudu-core-merge") as pool:
            done = pool.map(built, range(len(edges) - 1), window=self.threads)
            return [output for outputs in counted_here(done, rows_of_outputs) for output in outputs]

    # ---- protocol C3 ----

    def catch_up(self) -> None:
        """Rounds, until few changes are left."""
        for number in count(1):
            self._round()
            if self._waiting() <= FEW_CHANGES or number == MAX_ROUNDS:
                return

    def last_round(self) -> None:
        """The round after which nothing but memory can hold a later change."""
        self._round()
        context = self.tablet.context
        assert context.log is not None
        context.log.wait_durable(self.through)  # protocol E1
        for number, output in enumerate(self.outputs):
            if output.meta is None:
                continue
            redo = (*output.meta.redo, *self._caught[number])
            meta = replace(output.meta, redo=redo, durable=self.through)
            rowset = self.tablet.rowset(meta)
            rowset.load_newest()  # here, not when a writer asks under the mutex
            self._added[number] = rowset
        self.at_step("ready")

    def _round(self) -> None:
        """Changes in ``(through, Q]`` of the inputs, through the map, into REDO files of the outputs."""
        self.task.check()
        tablet = self.tablet
        with tablet.mutex:
            upto = tablet.context.cut()
            inputs = self._now()
            schema = tablet.context.stored()  # a column may be new since the cut
        written = len(self.task.written)
        for output, changes in self._missed(inputs, self.through, upto):
            entries = changes.within(schema)
            if not len(entries):
                continue
            name = tablet.new_file("delta")
            self.task.written.append(f"{tablet.directory}/{name}")
            ref = write_deltas(tablet.context.fs, schema, tablet.directory, name, REDO, entries)
            self._caught[output].append(ref)
            self._changes += len(entries)
        if len(self.task.written) > written:
            tablet.sync_directory()
        self.through = upto
        self._rounds += 1
        self.at_step("round")

    def _now(self) -> list[DiskRowSet]:
        """The inputs as they are now."""
        found = [self.tablet.view.rowset(rowset_id) for rowset_id in self.ids]
        assert None not in found, "a claimed rowset stays"
        return [rowset for rowset in found if rowset is not None]

    def _waiting(self) -> int:
        """How many changes lie above ``through``, at least."""
        inputs = self._now()
        in_memory = sum(len(log) - log.limit(self.through) for r in inputs for log in r.memory_stores)
        in_files = sum(ref.entries for r in inputs for ref in r.meta.redo if ref.max_ts > self.through)
        return in_memory + in_files

    def _missed(self, inputs: list[DiskRowSet], since: int, until: int) -> Iterator[tuple[int, DeltaEntries]]:
        """By output: the inputs' changes in ``(since, until]`` at the rows where they belong.

        Raises
        ------
        Corruption
            A row that was dropped has changed (protocol C4).
        """
        parts: dict[int, list[DeltaEntries]] = {}
        for number, rowset in enumerate(inputs):
            for store in rowset.redo:
                entries = changes_between(store, since, until)
                if entries is None:
                    continue
                rows = self.task.homes[number][entries.rowids]
                if (rows == DROPPED).any():
                    row = int(entries.rowids[np.flatnonzero(rows == DROPPED)[0]])
                    raise Corruption(
                        rowset.base.path, 0, f"row {row}, which a merge has dropped at {since}, has changed"
                    )
                place = np.searchsorted(self._starts[number], entries.rowids, side="right") - 1
                moved = entries.at_rows(rows)
                for output in distinct(place).tolist():
                    mine = np.flatnonzero(place == output)
                    part = moved if len(mine) == len(moved) else moved.take(mine)
                    parts.setdefault(output, []).append(part)
        for output in sorted(parts):
            yield output, DeltaEntries.concat(parts[output])

    # ---- protocol C4 ----

    def prepare(self) -> tuple[list[DiskRowSet], list[DiskRowSet]]:
        """Under the mutex: (inputs as they are, outputs with all changes)."""
        inputs = self._now()
        if any(r.meta.durable > self.through for r in inputs):
            raise InternalError("an input of a merge was flushed beyond the cut of its outputs")
        for number, changes in self._missed(inputs, self.through, FOREVER):
            self._added[number] = self._added[number].with_changes(_log_of(changes))
            self._changes += len(changes)
        return inputs, list(self._added.values())

    def install(self, inputs: list[DiskRowSet], outputs: list[DiskRowSet]) -> None:
        """Under the mutex: exchange the inputs for the outputs."""
        tablet = self.tablet
        gone = set(self.ids)
        kept = tuple(r for r in tablet.view.rowsets if r.id not in gone)
        edit = Edit(
            remove=tuple(self.ids),
            add=tuple(r.meta for r in outputs),
            horizon=self.task.horizon,
            mark=self.through,
        )
        tablet.install(tablet.view.with_rowsets((*kept, *outputs)), edit)
        for rowset in inputs:
            files = [s for s in (*rowset.redo, *rowset.undo) if isinstance(s, DeltaStore)]
            tablet.retire([f.name for f in rowset.meta.files], [rowset.base, *files])
        self._input_bytes = sum(rowset.meta.size_bytes for rowset in inputs)

    def result(self) -> Merged:
        metas = [rowset.meta for rowset in self._added.values()]
        rows = rows_of_outputs(self.outputs)
        return Merged(
            rowsets=len(self.ids),
            rowsets_added=len(metas),
            rows=rows,
            rows_dropped=rows - sum(meta.rows for meta in metas),
            changes=self._changes,
            rounds=self._rounds,
            input_bytes=self._input_bytes,
            output_bytes=sum(meta.size_bytes for meta in metas),
            horizon=self.task.horizon,
        )


def _oldest(rowset: DiskRowSet) -> int:
    """A time before which nothing happened to the rowset's rows."""
    meta = rowset.meta
    inserted = meta.insert_ts
    if inserted is None:
        inserted = rowset.base.open().meta.min_insert or 0
    return min([inserted, *(ref.min_ts for ref in (*meta.redo, *meta.undo))])


def _log_of(entries: DeltaEntries) -> ChangeLog:
    """A DeltaMemStore of changes of several rowsets, put in order of time."""
    assert entries.timestamps is not None
    order = np.argsort(entries.timestamps, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    columns = {}
    for column_id, (at, values) in entries.columns.items():
        numbers = place[at]
        by_time = np.argsort(numbers)
        columns[column_id] = (numbers[by_time].astype(np.uint32), values.take(by_time))
    return ChangeLog.of(entries.timestamps[order], entries.rowids[order], entries.ops[order], columns)


__all__ = ["MergeBuilder", "Merged", "merge_rowsets"]
