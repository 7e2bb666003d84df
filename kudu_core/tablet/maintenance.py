"""Background work: flushes by size, age and memory, and removal of log segments.

One thread, the flush lane, looks after all tablets of a table.  What it does is in ``flush`` and
``deltas``; which and when is here.  Manual tables have no thread and call the same methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kudu_core.common.clock import Clock, hybrid
from kudu_core.errors import Fenced, Poisoned
from kudu_core.events import DeltaFlushEnd, Event, FlushEnd, LogTruncated, MaintenanceError
from kudu_core.options import Options
from kudu_core.tablet.deltas import flush_deltas
from kudu_core.tablet.flush import flush_memrowset
from kudu_core.tablet.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.wal.log import Log

POLL_S = 0.5
RETRY_S = 5.0
"""How long a tablet whose flush failed is left alone."""


class Maintenance:
    """Looks after the tablets of one table open for writing."""

    def __init__(
        self,
        tablets: Callable[[], Sequence[Tablet]],
        log: Log,
        options: Options,
        clock: Clock,
        tell: Callable[[Event], None],
        save_tokens: Callable[[int], None],
    ) -> None:
        self._tablets = tablets
        self._log = log
        self._options = options
        self._clock = clock
        self._tell = tell
        self._save_tokens = save_tokens
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: dict[int, float] = {}
        self._truncating = threading.Lock()
        self.may_truncate = False
        """False during replay: records that are not in memory yet must stay in the log."""
        self._relief = threading.Lock()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="kudu-core-flush", daemon=True)
        self._thread.start()

    def kick(self) -> None:
        """Look soon whether something has grown large."""
        self._wake.set()

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._stop.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._truncating:  # a caller's flush may be at it
            self.may_truncate = False

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(POLL_S)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self.run_due()
            except (Poisoned, Fenced):
                return  # nothing is written any more; readers go on
            except Exception as exc:  # noqa: BLE001  a thread has nobody to raise to: it tells
                self._tell(MaintenanceError(error=repr(exc), tablet_id="", operation="maintenance"))

    # ---- what is due ----

    def run_due(self) -> None:
        """Flush whatever has reached its size or its age, then drop what the log no longer needs."""
        flushed = False
        for tablet in self._tablets():
            if self._stop.is_set():
                return
            if self._failed.get(tablet.id, 0.0) > self._clock.monotonic_s():
                continue
            flushed |= self._guarded(tablet, self._flush_due)
        if flushed:
            self.truncate_log()

    def _guarded(self, tablet: Tablet, work: Callable[[Tablet], bool]) -> bool:
        try:
            return work(tablet)
        except (Poisoned, Fenced):
            raise
        except Exception as exc:  # noqa: BLE001  told, and no reason to leave the other tablets alone
            self._failed[tablet.id] = self._clock.monotonic_s() + RETRY_S
            self._tell(MaintenanceError(error=repr(exc), tablet_id=str(tablet.id), operation="flush"))
            return False

    def _flush_due(self, tablet: Tablet) -> bool:
        oldest = hybrid(max(0, self._clock.now_us() - int(self._options.flush_age_s * 1e6)))
        view = tablet.view
        done = False
        active = view.active
        due = len(active) and (
            active.nbytes >= self._options.flush_threshold_bytes or (active.first_ts or oldest) < oldest
        )
        if due or view.frozen:
            done |= self.flush(tablet)
        for rowset in tablet.view.changed:
            stores = rowset.memory_stores
            if (
                sum(s.nbytes for s in stores) >= self._options.flush_threshold_bytes
                or any(s.frozen_at is not None for s in stores)
                or min((s.first_ts or oldest) for s in stores) < oldest
            ):
                done |= self.flush_rowset(tablet, rowset.id)
        return done

    # ---- single pieces of work ----

    def flush(self, tablet: Tablet) -> bool:
        """Flush a tablet's MemRowSets."""
        started = self._clock.monotonic_s()
        done = flush_memrowset(tablet)
        if done is None:
            return False
        self._tell(
            FlushEnd(
                elapsed_s=self._clock.monotonic_s() - started,
                tablet_id=str(tablet.id),
                rows=done.rows,
                rowsets_added=done.rowsets,
                output_bytes=done.output_bytes,
            )
        )
        return True

    def flush_rowset(self, tablet: Tablet, rowset_id: int) -> bool:
        """Flush a rowset's DeltaMemStores."""
        started = self._clock.monotonic_s()
        rowset = tablet.view.rowset(rowset_id)
        if rowset is None:
            return False
        changes = sum(len(s) for s in rowset.memory_stores)
        before = rowset.meta.size_bytes
        if not flush_deltas(tablet, rowset_id):
            return False
        after = tablet.view.rowset(rowset_id)
        self._tell(
            DeltaFlushEnd(
                elapsed_s=self._clock.monotonic_s() - started,
                tablet_id=str(tablet.id),
                rowset_id=rowset_id,
                changes=changes,
                output_bytes=0 if after is None else after.meta.size_bytes - before,
            )
        )
        return True

    def flush_all(self) -> None:
        """Flush every memory store of every tablet, then shorten the log."""
        for tablet in self._tablets():
            self.flush(tablet)
            for rowset in tablet.view.changed:
                self.flush_rowset(tablet, rowset.id)
        self.truncate_log()

    def relieve(self) -> bool:
        """Flush the largest memory store, in the caller's thread; False when there is none."""
        with self._relief:
            largest = max(self._tablets(), key=lambda t: t.memory_bytes, default=None)
            if largest is None or not largest.memory_bytes:
                return False
            done = False
            if len(largest.view.active) or largest.view.frozen:
                done = self.flush(largest)
            for rowset in largest.view.changed:
                done |= self.flush_rowset(largest, rowset.id)
            if done:
                self.truncate_log()
            return done

    def truncate_log(self) -> None:
        """Drop log segments that nothing needs (PROTOCOL T1, T2)."""
        event = self._truncate_log()
        if event is not None:
            self._tell(event)  # without the lock: the listener may close the table

    def _truncate_log(self) -> LogTruncated | None:
        with self._truncating:
            if not self.may_truncate:
                return None
            through = self._log.committed_ts
            tablets = list(self._tablets())
            for tablet in tablets:
                oldest = tablet.first_ts
                if oldest is not None:
                    through = min(through, oldest - 1)
            sealed = [s for s in self._log.segments[:-1] if s.last_ts <= through]
            if not sealed:
                return None
            numbers = {}
            for tablet in tablets:
                assert tablet.manifest is not None
                tablet.manifest.sync()
                numbers[tablet.id] = tablet.manifest.durable_number or tablet.state.number
            self._save_tokens(through)
            before = self._log.bytes_retained
            self._log.checkpoint(through, numbers)
            return LogTruncated(
                through=through, segments=len(sealed), freed_bytes=before - self._log.bytes_retained
            )
