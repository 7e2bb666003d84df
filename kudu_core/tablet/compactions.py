"""Compactions, history GC and the removal of retired files: which, when and by whom.

Beside the flush lane (``maintenance``), on threads of its own, so that a flush never waits
behind a compaction.  What the operations do is in the walks; what pays is in ``policy``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from kudu_core.errors import Closed, Fenced, Poisoned
from kudu_core.events import (
    DeltaCompactionEnd,
    Event,
    FilesDeleted,
    HistoryCollected,
    MaintenanceError,
    MergeEnd,
)
from kudu_core.tablet import history_gc
from kudu_core.tablet.delta_compaction import Compacted, compact_major, compact_minor, redo_files
from kudu_core.tablet.full_compaction import full_merges
from kudu_core.tablet.merge_compaction import Merged, merge_rowsets
from kudu_core.tablet.policy import MAJOR, MINOR, delta_choice, major_columns
from kudu_core.tablet.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.common.clock import Clock
    from kudu_core.rowset.diskrowset import DiskRowSet
    from kudu_core.rowset.meta import DeltaRef

POLL_S = 0.5
RETRY_S = 5.0
"""How long a rowset whose compaction failed is left alone."""


class Compactions:
    """Looks after the files of one table open for writing."""

    def __init__(
        self,
        tablets: Callable[[], Sequence[Tablet]],
        clock: Clock,
        tell: Callable[[Event], None],
        horizon: Callable[[bool], int],
        threads: int,
        *,
        purge: Callable[[], bool] = lambda: False,
        delete_purged: Callable[[], int] = lambda: 0,
    ) -> None:
        """``horizon(drop)``: how far back history may be dropped, see ``Engine.horizon``; ``purge`` and
        ``delete_purged``: of tablets whose range was dropped, see ``table.purge``."""
        self._tablets = tablets
        self._clock = clock
        self._tell = tell
        self._horizon = horizon
        self._purge = purge
        self._delete_purged = delete_purged
        self._wanted = threads
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._idle = threading.Condition()
        self._working: list[int] = []
        """Threads with an operation under way.  Under ``_idle``."""
        self._failed: dict[tuple[int, int], float] = {}

    def start(self) -> None:
        for number in range(self._wanted):
            name = f"kudu-core-compact-{number}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop the threads.  A merge under way, on whichever thread, is given up; what else is under way
        comes to its end first."""
        self._stop.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads.clear()
        me = threading.get_ident()
        with self._idle:
            self._idle.wait_for(lambda: not any(ident != me for ident in self._working))

    @contextmanager
    def _operation(self) -> Iterator[None]:
        """``close`` waits for its end."""
        me = threading.get_ident()
        with self._idle:
            self._working.append(me)
        try:
            yield
        finally:
            with self._idle:
                self._working.remove(me)
                self._idle.notify_all()

    def _check_going_on(self) -> None:
        if self._stop.is_set():
            raise Closed("the table was closed; the compaction under way was given up")

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                while not self._stop.is_set() and self.run_one():
                    pass
                self.collect_garbage()
            except (Poisoned, Fenced, Closed):
                return  # nothing is written any more; readers go on
            except Exception as exc:  # noqa: BLE001  a thread has nobody to raise to: it tells
                self._tell(MaintenanceError(error=repr(exc), tablet_id="", operation="compaction"))

    # ---- what is due ----

    def run_one(self) -> bool:
        """Do the next piece of work; False when nothing is worth it."""
        for tablet, rowset_id, kind in self._due():
            try:
                if self.compact(tablet, rowset_id, kind):
                    return True
            except (Poisoned, Fenced, Closed):
                raise
            except Exception as exc:  # noqa: BLE001  told, and no reason to leave the others alone
                self._failed[tablet.id, rowset_id] = self._clock.monotonic_s() + RETRY_S
                error = MaintenanceError(
                    error=repr(exc), tablet_id=str(tablet.id), operation=f"{kind} delta compaction"
                )
                self._tell(error)
        return self.collect_history()

    def _due(self) -> Iterator[tuple[Tablet, int, str]]:
        now = self._clock.monotonic_s()
        for tablet in self._tablets():
            for rowset in tablet.view.rowsets:
                if self._failed.get((tablet.id, rowset.id), 0.0) > now:
                    continue
                kind = delta_choice(rowset.meta, _refs(tablet, rowset))
                if kind is not None:
                    yield tablet, rowset.id, kind

    # ---- single pieces of work ----

    def compact(
        self, tablet: Tablet, rowset_id: int, kind: str, column_ids: Sequence[int] | None = None
    ) -> bool:
        """One delta compaction; False when there was nothing to do or another one is at it."""
        with self._operation():
            return self._compact(tablet, rowset_id, kind, column_ids)

    def _compact(
        self, tablet: Tablet, rowset_id: int, kind: str, column_ids: Sequence[int] | None
    ) -> bool:
        started = self._clock.monotonic_s()
        done: Compacted | None
        if kind == MINOR:
            done = compact_minor(tablet, rowset_id)
        else:
            rowset = tablet.view.rowset(rowset_id)
            if rowset is None:
                return False
            if column_ids is None:
                column_ids = major_columns(rowset.meta, _refs(tablet, rowset))
            done = compact_major(tablet, rowset_id, column_ids)
        if done is None:
            return False
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

    def merge(self, tablet: Tablet, rowset_ids: Sequence[int], *, threads: int = 1) -> Merged | None:
        """One merging compaction; None when another compaction is at one of the rowsets, or one has gone."""
        started = self._clock.monotonic_s()
        with self._operation():
            done = merge_rowsets(
                tablet,
                rowset_ids,
                horizon=self._horizon,
                threads=threads,
                check=self._check_going_on,
            )
        if done is not None:
            elapsed_s = self._clock.monotonic_s() - started
            self._tell(MergeEnd(elapsed_s=elapsed_s, tablet_id=str(tablet.id), **asdict(done)))
        return done

    def compact_all(self, *, full: bool) -> None:
        """Everything that pays; ``full``: rowsets that overlap nowhere and are as large as they are to be,
        all updates in the base."""
        for tablet in self._tablets():
            if full:
                target_bytes = tablet.context.options.rowset_target_bytes
                for ids in full_merges(tablet.rowset_metas, target_bytes, self._horizon(False)):
                    self.merge(tablet, ids, threads=tablet.context.pool.threads)
            for rowset in tablet.view.rowsets:
                if full:
                    every = [i for store in redo_files(rowset) for i in store.ref.updates]
                    self.compact(tablet, rowset.id, MAJOR, every)
                    self.compact(tablet, rowset.id, MINOR)
                    continue
                kind = delta_choice(rowset.meta, _refs(tablet, rowset))
                if kind is not None:
                    self.compact(tablet, rowset.id, kind)

    def collect_history(self) -> bool:
        """Drop the history that retention and pins no longer keep; whether there was any."""
        found = self._purge()
        wanted = self._horizon(False)
        for tablet in self._tablets():
            if not any(history_gc.ancient(rowset, wanted) for rowset in tablet.view.rowsets):
                continue
            started = self._clock.monotonic_s()
            horizon = self._horizon(True)
            done = history_gc.collect(tablet, horizon)
            if done.undo_files or done.rowsets:
                found = True
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
        return found

    def collect_garbage(self) -> int:
        """Delete retired files that nobody can read any more; how many, a purged tablet's counted as one."""
        total = self._delete_purged()
        for tablet in self._tablets():
            files, freed = tablet.garbage.collect(tablet)
            if files:
                total += files
                self._tell(FilesDeleted(tablet_id=str(tablet.id), files=files, freed_bytes=freed))
        return total


def _refs(tablet: Tablet, rowset: DiskRowSet) -> tuple[DeltaRef, ...]:
    """A rowset's first REDO files, but for what they say of dropped columns: no scan pays for that."""
    known = tablet.context.schema().by_id
    return tuple(
        replace(store.ref, updates={i: count for i, count in store.ref.updates.items() if i in known})
        for store in redo_files(rowset)
    )


__all__ = ["Compactions"]
