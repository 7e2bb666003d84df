"""The compaction lane: compactions, history GC and the removal of retired files.

It has threads of its own beside the flush lane's, so that a flush never waits behind a compaction.  What the
operations do is in ``tablet/compact``; what there is to do, and what pays, in ``operations`` and ``scoring``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from kudu_core.common.run.gates import Flag, Gates
from kudu_core.common.run.locks import NOTHING, Claim, mutex
from kudu_core.common.run.measure.work import LongWork
from kudu_core.common.run.pool import Pool
from kudu_core.errors import Closed
from kudu_core.events import DeltaCompactionEnd, Event, FilesDeleted, HistoryCollected, MergeEnd
from kudu_core.tablet.compact import history_gc
from kudu_core.tablet.compact.delta_compaction import redo_files
from kudu_core.tablet.compact.merge import MergeBuilder, Merged, merge_rowsets
from kudu_core.tablet.maintain import scoring
from kudu_core.tablet.maintain.folding import counted, decoded_bytes, fold
from kudu_core.tablet.maintain.full_policy import full_merges
from kudu_core.tablet.maintain.lane import Lane
from kudu_core.tablet.maintain.looks import Looks
from kudu_core.tablet.maintain.merge_policy import MAX_INPUTS
from kudu_core.tablet.maintain.merge_timing import is_due
from kudu_core.tablet.maintain.operations import Merges, compaction_operations
from kudu_core.tablet.maintain.scoring import HISTORY_GC, MAJOR, MERGE, MINOR, Operation, Pressure
from kudu_core.tablet.maintain.together import for_each_tablet
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock

MAX_ROUNDS = 4
"""Rounds of merges that each take a part of very many small rowsets: in each, 128 of them become few."""

COMPACTIONS = (MINOR, MAJOR, MERGE)
KINDS = (*COMPACTIONS, HISTORY_GC)
NO_PRESSURE = Pressure(0, 1, 0)
"""Nothing here frees memory or log."""


class CompactionLane(Lane):
    """Looks after the files of one table open for writing."""

    def __init__(
        self,
        tablets: Sequence[Tablet],
        clock: Clock,
        tell: Callable[[Event], None],
        horizon: Callable[[bool], int],
        threads: int,
        *,
        newest: Callable[[], int] = lambda: 0,
        purge: Callable[[], bool] = lambda: False,
        delete_purged: Callable[[], int] = lambda: 0,
    ) -> None:
        """``horizon(drop)``: how far back history may be dropped, see ``Engine.horizon``; ``newest``: the
        timestamp of the table's last write; ``purge`` and ``delete_purged``: of tablets whose range was
        dropped, see ``table.lifecycle.purge``."""
        names = (f"kudu-core-compact-{number}" for number in range(threads))
        super().__init__(names, "compaction", tablets, clock, tell)
        self._horizon = horizon
        self._is_due = partial(is_due, clock, newest)
        self._purge = purge
        self._delete_purged = delete_purged
        self._beginning = mutex()
        """Held by a background thread from the look whether it may begin to the claim that it works."""
        self._working: set[tuple[int, object]] = set()
        """Threads, by number, and an object of its own for each operation that they have under way."""
        self._paused: set[object] = set()
        """An object for each caller that wants to be alone."""
        self._changed = Gates()
        self._merges = Merges()
        self._choosing = mutex()
        self._apart: set[int] = set()
        """Tablets in which a ``run_one(apart=True)`` is at work.  Added to under ``_choosing``."""

    def close(self) -> None:
        """Stop the threads.  A merge under way, on whichever thread, is given up; what else is under way
        comes to its end first.  Whoever is interrupted may call it again."""
        super().close()
        self._changed.wait_while(self._others_work)

    def _operation(self) -> Claim:
        """``with`` it: ``close`` waits for its end."""
        return Claim(self._working, (threading.get_ident(), object()), emptied=self._changed.open)

    def is_at_work(self) -> bool:
        """Whether this thread has an operation under way."""
        me = threading.get_ident()
        return any(ident == me for ident, _ in self._working.copy())

    def _others_work(self) -> bool:
        me = threading.get_ident()
        return any(ident != me for ident, _ in self._working.copy())

    def pause(self) -> Claim:
        """``with`` it: the threads begin nothing."""
        return Claim(self._paused, object())

    def await_others(self, timeout_s: float | None = None) -> None:
        """After ``pause``: what is under way comes to its end first."""
        until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        with self._beginning:
            pass  # who has looked before the pause works by now

        def behind() -> bool:
            if self._stop.is_set() or (until_s is not None and self._clock.monotonic_s() >= until_s):
                return False
            return self._others_work()

        self._changed.wait_while(behind)

    def _run_one_beside(self, looks: Looks) -> bool:
        """``run_one`` of a background thread: nothing while somebody asked to be alone."""
        with self._beginning:
            claim = None if self._paused else self._operation()
        if claim is None:
            return False
        with claim:
            return self.run_one(looks=looks, may=self._is_due)

    def _check_going_on(self, work: LongWork | None = None) -> None:
        if self._stop.is_set():
            raise Closed("the table was closed; the compaction under way was given up")
        if work is not None:
            work.check()

    def _work_through(self) -> None:
        looks = self._looks()
        while not self._stop.is_set() and self._run_one_beside(looks):
            self._collect_garbage_of(looks.changed)
        self._purge()
        self.collect_garbage()

    # ---- what is worth doing ----

    def run_all(self, may_go_on: Callable[[], bool], builder: MergeBuilder | None, threads: int) -> int:
        """All that is worth it, in ``threads`` tablets at a time; how many operations it was.

        A tablet's come one after the other, as with one thread.  ``may_go_on`` is asked before each;
        ``builder``: of ``merge_rowsets``.  After one that fails no other is begun; what it raised is raised
        when those under way have come to their end.
        """
        stop = Flag()

        def work() -> int:
            try:
                done, looks = 0, self._looks()
                while not stop.is_set() and may_go_on():
                    if not self.run_one(patient=False, builder=builder, apart=threads > 1, looks=looks):
                        break
                    done += 1
                    self._collect_garbage_of(looks.changed)
            except BaseException:
                stop.set()
                raise
            return done

        if threads == 1:
            return work()
        with Pool(threads, "kudu-core-maintain") as pool:
            try:
                tasks = [pool.submit(work) for _ in range(threads)]
                return sum([task.result() for task in tasks])
            finally:
                stop.set()  # what interrupts this thread ends the others too

    def run_one(
        self,
        kinds: Collection[str] = KINDS,
        *,
        patient: bool = True,
        builder: MergeBuilder | None = None,
        apart: bool = False,
        looks: Looks | None = None,
        at_once: bool = False,
        may: Callable[[Operation], bool] = lambda _: True,
    ) -> bool:
        """Do the operation that gains most for its cost; False when nothing is worth it.

        ``looks``: what earlier calls of the same work saw.  ``builder``: of ``merge_rowsets``.  ``apart``:
        not in a tablet in which another such call is at work, where something else may be best in a moment.
        ``at_once``: all that is worth it will be done, so what a merge takes is not compacted before.
        ``may``: of what is worth it, whether it may be done now.

        Raises
        ------
        Poisoned, Fenced, Closed
            Nothing is written any more.
        Exception
            Not ``patient``: of an operation that failed, which is left alone for a while in either case.
        """
        refused: set[Operation] = set()
        looks = looks or self._looks()
        busy: set[int] = set()

        def pick(found: list[Operation]) -> Operation | None:
            free = [o for o in found if o.kind in kinds and o.tablet_id not in busy and o not in refused]
            allowed = [o for o in free if may(o)]
            return scoring.choose(scoring.unless_merged(allowed) if at_once else allowed, NO_PRESSURE)

        while True:
            with Claim(self._apart) as mine:
                with self._choosing if apart else NOTHING:
                    # Asked before the look: a tablet that is done meanwhile was looked at half done.
                    busy = self._apart.copy() if apart else set()
                    chosen = looks.best(pick)
                    if chosen is None:
                        return False
                    if apart:
                        mine.take((chosen.tablet_id,))
                if self._perform(chosen, partial(self._compact_of, chosen, builder), patient=patient):
                    return True
            refused.add(chosen)

    def _looks(self) -> Looks:
        return Looks(lambda: self.tablets, self._operations)

    def _possible(self, tablets: Sequence[Tablet]) -> list[Operation]:
        now_s, horizon = self._clock.monotonic_s(), self._horizon(False)
        found: list[Operation] = []
        for tablet in tablets:
            left_alone = self._rowsets_left_alone(tablet)
            options = tablet.context.options
            found += compaction_operations(tablet, options, self._merges, horizon, now_s, left_alone)
        return found

    def _compact_of(self, op: Operation, builder: MergeBuilder | None, tablet: Tablet) -> bool:
        if op.kind == HISTORY_GC:
            done = self._collect_history(tablet)
            if not done:
                self._leave_alone(op)  # statistics promised more than the files hold
            return done
        if op.kind != MERGE:
            return self.compact(tablet, op.rowsets[0], op.kind)
        before = set(tablet.view.tree.ids)
        merged = self.merge(tablet, op.rowsets, builder=builder)
        if merged is None:
            return False
        tablet.view.tree.bounds.overlap_ns = 0
        if merged.rowsets_added >= merged.rowsets and not (op.frees_rows and merged.rows_dropped):
            self._merges.settle(tablet, set(tablet.view.tree.ids) - before)
        return True

    # ---- single pieces of work ----

    def compact(
        self, tablet: Tablet, rowset_id: int, kind: str, column_ids: Sequence[int] | None = None
    ) -> bool:
        """One delta compaction; False when there was nothing to do or another one is at it."""
        started = self._clock.monotonic_s()
        rowset = tablet.view.rowset(rowset_id)
        if rowset is None or not redo_files(rowset):
            return False
        with LongWork(kind, self._tell, tablet_id=str(tablet.id)) as work:
            with self._operation():
                self._check_going_on(work)  # after the claim: a close waits for it, or has set the flag
                done = fold(tablet, rowset_id, kind, column_ids)
            if done is None:
                return False
            work.count(done.entries)
            self._tell(
                DeltaCompactionEnd(
                    elapsed_s=self._clock.monotonic_s() - started,
                    tablet_id=str(tablet.id),
                    rowset_id=rowset_id,
                    kind=kind,
                    files=done.files,
                    changes=done.entries,
                    columns=done.columns,
                    output_bytes=done.output_bytes,
                )
            )
        return True

    def merge(
        self,
        tablet: Tablet,
        rowset_ids: Sequence[int],
        *,
        threads: int = 1,
        builder: MergeBuilder | None = None,
    ) -> Merged | None:
        """One merging compaction; None when another compaction is at one of the rowsets, or one has gone."""
        started = self._clock.monotonic_s()
        rows = sum(meta.rows for meta in tablet.rowset_metas if meta.id in set(rowset_ids))
        with LongWork(MERGE, self._tell, tablet_id=str(tablet.id), total=rows) as work:
            with self._operation():
                done = merge_rowsets(
                    tablet,
                    rowset_ids,
                    horizon=self._horizon,
                    threads=threads,
                    builder=builder,
                    check=partial(self._check_going_on, work),
                )
            if done is not None:
                elapsed_s = self._clock.monotonic_s() - started
                self._tell(MergeEnd(elapsed_s=elapsed_s, tablet_id=str(tablet.id), **asdict(done)))
        return done

    def compact_all(self, *, full: bool) -> None:
        """Everything that pays, in several small tablets at once; ``full``: rowsets that overlap nowhere and
        are as large as they are to be, all updates in the base.

        What fails in a tablet holds up no other, and is raised when the others are done.
        """
        if not full:
            worth = {op.tablet_id for op in self._operations() if op.kind in COMPACTIONS}
            tablets = [tablet for tablet in self.tablets if tablet.id in worth]
            for_each_tablet(tablets, counted(self._compact_what_pays), size_bytes=decoded_bytes)
            return
        with self.pause():
            self.await_others()  # or a rowset that the background has at the moment would be left out
            for_each_tablet(list(self.tablets), counted(self._compact_fully), size_bytes=decoded_bytes)

    def _compact_what_pays(self, tablet: Tablet) -> None:
        looks = Looks(lambda: (tablet,), self._operations)
        while self.run_one(COMPACTIONS, patient=False, looks=looks, at_once=True):
            self._check_going_on()

    def _compact_fully(self, tablet: Tablet) -> None:
        self._merge_all(tablet)
        for rowset in tablet.view.rowsets:
            every = [i for store in redo_files(rowset) for i in store.ref.updates]
            self.compact(tablet, rowset.id, MAJOR, every)
            self.compact(tablet, rowset.id, MINOR)

    def _merge_all(self, tablet: Tablet) -> None:
        target_bytes = tablet.context.options.rowset_target_bytes
        for _ in range(MAX_ROUNDS):
            column_ids = frozenset(tablet.context.schema().by_id)
            found = list(full_merges(tablet.rowset_metas, target_bytes, self._horizon(False), column_ids))
            for ids in found:
                self.merge(tablet, ids, threads=tablet.context.pool.threads)
            if not any(len(ids) >= MAX_INPUTS for ids in found):
                return

    def collect_history(self) -> bool:
        """Drop the history that retention and pins no longer keep; whether there was any."""
        found = self._purge()
        wanted = self._horizon(False)
        for tablet in self.tablets:
            if any(history_gc.ancient(rowset, wanted) for rowset in tablet.view.rowsets):
                found |= self._collect_history(tablet)
        return found

    def _collect_history(self, tablet: Tablet) -> bool:
        started = self._clock.monotonic_s()
        with LongWork(HISTORY_GC, self._tell, tablet_id=str(tablet.id), unit="bytes") as work:
            with self._operation():
                self._check_going_on(work)
                horizon = self._horizon(True)
                done = history_gc.collect(tablet, horizon)
            if not done.undo_files and not done.rowsets:
                return False
            work.count(done.bytes)
            self._tell(
                HistoryCollected(
                    elapsed_s=self._clock.monotonic_s() - started,
                    tablet_id=str(tablet.id),
                    horizon=horizon,
                    undo_files=done.undo_files,
                    rowsets=done.rowsets,
                    freed_bytes=done.bytes,
                )
            )
        return True

    def collect_garbage(self) -> int:
        """Delete retired files that nobody can read any more; how many, a purged tablet's counted as one."""
        total = 0
        with self._operation():
            if not self._stop.is_set():
                total += self._delete_purged()
        return total + self._collect_garbage_of(self.tablets)

    def _collect_garbage_of(self, tablets: Sequence[Tablet]) -> int:
        total = 0
        for tablet in tablets:
            with self._operation():
                if self._stop.is_set():
                    break
                files, freed = tablet.collect_garbage()
            if files:
                total += files
                self._tell(FilesDeleted(tablet_id=str(tablet.id), files=files, freed_bytes=freed))
        return total


__all__ = ["CompactionLane"]
