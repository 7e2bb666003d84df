"""The flush lane: flushes by size, age and memory, and removal of log segments.

One thread looks after all tablets of a table.  What it does is in ``tablet/flush``, what there is to do in
``operations`` and which comes first in ``scoring``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kudu_core.common.run.clock import Clock, micros_of
from kudu_core.common.run.gates import Flag
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.measure.work import LongWork
from kudu_core.errors import Closed, Fenced, Poisoned
from kudu_core.events import DeltaFlushEnd, Event, FlushEnd, LogTruncated, MaintenanceError, TokensDropped
from kudu_core.tablet.flush.deltas import flush_deltas
from kudu_core.tablet.flush.memory import flush_memrowset
from kudu_core.tablet.maintain.lane import Lane
from kudu_core.tablet.maintain.looks import Looks
from kudu_core.tablet.maintain.memory_use import MemoryUse
from kudu_core.tablet.maintain.operations import KeptLog, flush_operations
from kudu_core.tablet.maintain.scoring import DELTA_FLUSH, FLUSH, LOG_GC, Operation, Pressure, choose
from kudu_core.tablet.maintain.together import for_each_tablet
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.wal.appending import AppendingLog
    from kudu_core.wal.format import Segment

REST_S = 5.0
"""After so long without a record a table is at rest: then what lies in memory alone keeps any log."""

REST_BYTES = 256 << 10
"""Of a segment's file, at rest: a smaller one is left where it is.  Zeros that were written ahead count, as
they take the same room as records."""

PACE_BYTES = 1 << 20
"""Flushes of less say nothing of how fast a flush is."""

_Store: TypeAlias = "tuple[str, int, tuple[int, ...]]"
"""Kind of the flush, tablet, rowsets."""


class FlushLane(Lane):
    """Flushes the memory of one table open for writing, and shortens its log."""

    def __init__(
        self,
        tablets: Sequence[Tablet],
        memory: MemoryUse,
        log: AppendingLog,
        clock: Clock,
        tell: Callable[[Event], None],
        save_tokens: Callable[[int], int],
    ) -> None:
        """``save_tokens``: write into TABLE what the log will not say any more, see ``Writers.save``."""
        super().__init__(("kudu-core-flush",), "maintenance", tablets, clock, tell)
        self._memory = memory
        self._log = log
        self._save_tokens = save_tokens
        self._kicked = Flag()
        self.flush_pace_s = 1 / (200 << 20)
        """Seconds that a flush takes for a byte of memory: those of the last large one."""
        self._truncating = mutex()
        self._rested: tuple[int, int] = (0, 0)
        """Sequence number and last timestamp of the segment that rest has left behind."""
        self._noted: dict[int, int] = {}
        """The edits that the last CHECKPOINT of this life told of."""
        self.may_truncate = False
        """False during replay: records that are not in memory yet must stay in the log."""
        self._relief = mutex()

    def kick(self) -> None:
        """Look soon whether something has grown large."""
        self._kicked.set()

    def close(self) -> None:
        self._stop.set()
        self._kicked.set()
        super().close()
        with self._truncating:  # a caller's flush may be at it
            self.may_truncate = False

    def _wait(self, timeout_s: float) -> None:
        self._kicked.wait(timeout_s)
        self._kicked.clear()

    def _work_through(self) -> None:
        self.run_due()

    # ---- what is due ----

    def run_due(self, may_go_on: Callable[[], bool] = lambda: True, *, patient: bool = True) -> int:
        """Flush what memory, the log, size or age ask for, and drop what the log no longer needs; how many
        operations that were.

        ``may_go_on`` is asked before each.  Not ``patient``: an operation that fails raises; in either case
        its store is left alone for a while.
        """
        done = 0
        shortened = False
        missed: Counter[_Store] = Counter()
        looks = Looks(lambda: self.tablets, self._operations)
        pressure: Pressure | None = None
        while not self._stop.is_set() and may_go_on():
            pressure = self._pressure(pressure)
            others = [] if shortened else self._log_operations()
            chosen = looks.best(partial(_chosen, others, pressure, missed))
            if chosen is None:
                return done
            if chosen.kind == LOG_GC:
                shortened = True  # whatever it leaves, a flush comes first
                self.truncate_log()
                done += 1
                continue
            try:
                acted = self._perform(chosen, partial(self._flush_of, chosen), patient=patient)
            except Closed:
                if self._stop.is_set():
                    return done
                raise
            if acted:
                done += 1
                shortened = False
                missed.clear()
            else:  # a writer that needed memory was before us, or it failed
                missed[_store_of(chosen)] += 1
        return done

    def _pressure(self, known: Pressure | None) -> Pressure:
        """What is scarce.  It is measured again, which asks all tablets, only where that may say otherwise
        than ``known``: flushes relieve what was scarce, and writes add."""
        if known is None or known.on_memory or known.on_log or self._memory.is_stale():
            return self._memory.pressure(self._log.replay_bytes)
        return known

    def _possible(self, tablets: Sequence[Tablet]) -> list[Operation]:
        now_us, log = self._clock.now_us(), KeptLog(self._log.segments)
        found: list[Operation] = []
        for tablet in tablets:
            found += flush_operations(tablet, tablet.context.options, now_us, log)
        return found

    def candidates(self) -> list[Operation]:
        return [*self._log_operations(), *super().candidates()]

    def _flush_of(self, op: Operation, tablet: Tablet, tell: Callable[[Event], None] | None = None) -> bool:
        return self.flush_rowset(tablet, op.rowsets[0], tell) if op.rowsets else self.flush(tablet, tell)

    def _log_operations(self) -> list[Operation]:
        """Dropping what the log no longer needs, where that is something."""
        if not self.may_truncate:
            return []
        through = self._droppable(self.tablets)
        segments = self._log.segments
        due = self._log.is_due(through)
        size = sum(s.end for s in segments[:-1] if s.last_ts <= through) if due else 0
        if self._is_at_rest():
            size += self._log.spare_bytes
            if self._is_idle(segments[-1], through):
                size += segments[-1].size
        return [Operation(LOG_GC, -1, log_bytes=size)] if size else []

    def _is_at_rest(self) -> bool:
        """Whether nothing was written for a while: then the log gives back what it keeps for more."""
        quiet_us = self._clock.now_us() - micros_of(self._log.segments[-1].last_ts)
        return quiet_us >= REST_S * 1e6

    def _is_idle(self, newest: Segment, through: int, least_bytes: int = REST_BYTES) -> bool:
        """Whether the segment that takes records could go too, and is worth it.

        The one that took its place is as large as the zeros that were written for its CHECKPOINT: it stays
        until there are records behind that one, or segments would follow each other for ever.
        """
        if (newest.seq, newest.last_ts) == self._rested:
            return False
        return newest.last_ts <= through and newest.size >= least_bytes

    def _droppable(self, tablets: Sequence[Tablet]) -> int:
        """Records at or below it are in files (protocol T1)."""
        through = self._log.committed_ts
        for tablet in tablets:
            oldest = tablet.first_ts
            if oldest is not None:
                through = min(through, oldest - 1)
        return through

    # ---- single pieces of work ----

    def flush(self, tablet: Tablet, tell: Callable[[Event], None] | None = None) -> bool:
        """Flush a tablet's MemRowSets; ``tell``: another who is told than the listener."""
        return self._flush_rows(tablet, tell or self._tell, sync=True)

    def _flush_rows(self, tablet: Tablet, tell: Callable[[Event], None], *, sync: bool) -> bool:
        """``sync``: make the edit durable; else whoever calls does that, after more edits."""
        started = self._clock.monotonic_s()
        view = tablet.view
        if not len(view.active) and not view.frozen:
            return False
        memory_bytes = sum(m.nbytes for m in (view.active, *view.frozen))
        with LongWork(FLUSH, tell, tablet_id=str(tablet.id)) as work:
            done = flush_memrowset(tablet)
            if done is None:
                return False
            if sync:
                _sync_edits(tablet)
            if memory_bytes >= PACE_BYTES:
                self.flush_pace_s = max(0.0, self._clock.monotonic_s() - started) / memory_bytes
            work.count(done.rows)
            tell(
                FlushEnd(
                    elapsed_s=self._clock.monotonic_s() - started,
                    tablet_id=str(tablet.id),
                    rows=done.rows,
                    rowsets_added=done.rowsets,
                    output_bytes=done.output_bytes,
                )
            )
        return True

    def flush_rowset(
        self, tablet: Tablet, rowset_id: int, tell: Callable[[Event], None] | None = None
    ) -> bool:
        """Flush a rowset's DeltaMemStores; ``tell`` as for ``flush``."""
        return self._flush_changes(tablet, (rowset_id,), tell or self._tell)

    def _flush_changes(
        self, tablet: Tablet, rowset_ids: Sequence[int], tell: Callable[[Event], None]
    ) -> bool:
        """Flush the DeltaMemStores of rowsets, and make their edits durable; each rowset is told."""
        started = self._clock.monotonic_s()
        before = {r.id: r for r in map(tablet.view.rowset, rowset_ids) if r is not None}
        changes = {rowset.id: sum(map(len, rowset.memory_stores)) for rowset in before.values()}
        with LongWork(DELTA_FLUSH, tell, tablet_id=str(tablet.id)) as work:
            if not flush_deltas(tablet, tuple(before)):
                return False
            _sync_edits(tablet)
            for rowset in before.values():
                after = tablet.view.rowset(rowset.id)
                work.count(changes[rowset.id])
                tell(
                    DeltaFlushEnd(
                        elapsed_s=self._clock.monotonic_s() - started,
                        tablet_id=str(tablet.id),
                        rowset_id=rowset.id,
                        changes=changes[rowset.id],
                        output_bytes=0 if after is None else after.meta.size_bytes - rowset.meta.size_bytes,
                    )
                )
        return True

    def flush_all(self, *, to_the_end: bool = False) -> None:
        """Flush every memory store of every tablet, of small ones several at once, then shorten the log; with
        ``to_the_end`` also of the segment that takes records, as at rest, so that an open replays nothing.

        A tablet that cannot be flushed holds up no other: it is told, and raised when the others are done.
        """
        told: deque[Event] = deque()

        def tell() -> None:
            while told:
                self._tell(told.popleft())  # by this thread, which holds nothing: the listener may close

        holding = [t for t in self.tablets if len(t.view.active) or t.view.frozen or t.view.changed]
        try:
            for_each_tablet(
                holding,
                lambda tablet: self._flush_whole(tablet, told.append),
                size_bytes=lambda tablet: tablet.memory_bytes,
                after_each=tell,
            )
        finally:
            tell()
        self.truncate_log(to_the_end=to_the_end)
        self.note_edits()

    def _flush_whole(self, tablet: Tablet, tell: Callable[[Event], None]) -> None:
        """Every memory store of a tablet, with one fsync of its manifest."""
        try:
            flushed = self._flush_rows(tablet, tell, sync=False)
            # Changes that came during the flush are in stores of the new rowsets: these go to files too.
            changed = [rowset.id for rowset in tablet.view.changed]
            if not (changed and self._flush_changes(tablet, changed, tell)) and flushed:
                _sync_edits(tablet)
        except (Poisoned, Fenced, Closed):
            raise
        except Exception as error:
            tell(MaintenanceError(error=repr(error), tablet_id=str(tablet.id), operation=FLUSH))
            raise

    def _durable_edits(self, tablets: Sequence[Tablet]) -> tuple[dict[int, int], dict[int, int]]:
        """By tablet: the number of the last edit, made durable, and a mark that is not above it."""
        edits, marks = {}, {}
        for tablet in tablets:
            assert tablet.manifest is not None
            state = tablet.state  # before the fsync: what it says is in the file
            tablet.manifest.sync()
            edits[tablet.id], marks[tablet.id] = tablet.manifest.proven_number, state.mark
        return edits, marks

    def note_edits(self) -> None:
        """Tell the log how far the manifests go, unless it knows: an edit that is missing is damage then."""
        with self._truncating:
            if not self.may_truncate:
                return
            edits, marks = self._durable_edits(list(self.tablets))
            if edits != self._noted:
                self._log.note_edits(edits, marks)
                self._noted = edits

    def relieve(self) -> bool:
        """Flush the largest memory store, in the caller's thread; False when there is none."""
        told: list[Event] = []
        with self._relief:
            found = [op for op in self._operations() if op.memory_bytes]
            if not found:
                return False
            largest = max(found, key=lambda op: op.memory_bytes)
            tablet = self._tablet_of(largest)
            done = tablet is not None and self._flush_of(largest, tablet, told.append)
        for event in told:
            self._tell(event)  # without the lock: the listener may write
        if done:
            self.truncate_log()
        return done

    def truncate_log(self, *, to_the_end: bool = False) -> None:
        """Drop log segments that nothing needs (protocol T1, T2)."""
        for event in self._truncate_log(to_the_end):
            self._tell(event)  # without the lock: the listener may close the table

    def _truncate_log(self, to_the_end: bool) -> list[Event]:
        with self._truncating:
            if not self.may_truncate:
                return []
            # The watermark first: a tablet that comes after the list was made has nothing below it.
            committed = self._log.committed_ts
            tablets = list(self.tablets)
            through = min(committed, self._droppable(tablets))
            spare_bytes = 0
            rolled = False
            if to_the_end or self._is_at_rest():
                spare_bytes = self._log.drop_spares()
                if self._is_idle(self._log.segments[-1], through, 0 if to_the_end else REST_BYTES):
                    self._log.roll()
                    rolled = True
            due = to_the_end or self._log.is_due(through)
            sealed = [s for s in self._log.segments[:-1] if s.last_ts <= through] if due else []
            if not sealed and not spare_bytes:
                return []
            edits, marks = self._durable_edits(tablets)
            tokens = self._save_tokens(through)
            before = self._log.bytes_retained
            checkpoint_ts = self._log.checkpoint(through, edits, marks)
            self._noted = edits
            if rolled:
                self._rested = (self._log.segments[-1].seq, checkpoint_ts)
            freed = before - self._log.bytes_retained + spare_bytes
            truncated = LogTruncated(through=through, segments=len(sealed), freed_bytes=freed)
            return [truncated, TokensDropped(tokens=tokens)] if tokens else [truncated]


def _chosen(
    others: list[Operation], pressure: Pressure, missed: Counter[_Store], found: list[Operation]
) -> Operation | None:
    """``missed``: how often nothing was left to do to a store since something was done to any.  After twice
    the others come first; it is not left alone for a time, in which its memory would grow without bound."""
    if missed:
        found = [op for op in found if missed[_store_of(op)] < 2]
    return choose(found + others, pressure)


def _store_of(op: Operation) -> _Store:
    return op.kind, op.tablet_id, op.rowsets


def _sync_edits(tablet: Tablet) -> None:
    assert tablet.manifest is not None
    tablet.manifest.sync()
