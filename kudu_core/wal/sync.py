"""Waiting until a log is durable, and the thread that makes durable what nobody waits for.

Whoever waits first syncs, for all others too: handing it to another thread would cost two switches on a path
that is as short as the disk allows.  The log thread does what has no waiter: the intervals of ``group``,
records whose waiter was interrupted, and those of calls that do not wait (protocol W9).

Not known here: how records get into the log, and what a sync is: an fsync, or a put into an object store.
"""

from __future__ import annotations

from collections.abc import Callable

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.gates import LOOK_S, Flag
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.measure.histogram import Histogram
from kudu_core.common.run.workers import Worker
from kudu_core.errors import Closed, Fenced, Poisoned, StoreError
from kudu_core.wal.log_options import LogClock, LogOptions
from kudu_core.wal.watermarks import Watermarks

GATHER_S = 0.003
"""So long the log thread lets records gather for which nobody waits.  Without it a caller that does not wait
would have an fsync a call on a fast disk, and two switches of threads with each."""
RETRY_S = 0.25
"""After so long the log thread tries again when there was no memory, or a store did not answer."""


class SyncedLog(Watermarks):
    """A log whose active segment can be synced and waited for.

    Who needs a sync while one runs does not queue for the lock: the thread that has just synced would
    take it again before those whom its sync covered had woken, and they would wait for
    nothing.  They wait at ``_syncing``, which opens for all of them; those still not covered
    compete for the lock.
    """

    def __init__(self, table_uuid: bytes, epoch: int, clock: LogClock, options: LogOptions) -> None:
        super().__init__(table_uuid, epoch, clock, options)
        self._sync_lock = mutex()

        self._thread: Worker | None = None
        self._work = Flag()
        self._stop = Flag()

        self.fsyncs = 0
        self.sync_times = Histogram()
        """Of syncs that somebody waited for, or the log thread ran."""

    # Waiting ------------------------------------------------------------------------------------

    def wait_visible(self, ts: int) -> None:
        """Return when V covers every record <= ``ts``; raises ``Poisoned`` or ``Fenced`` if it never
        will.  An interrupted wait leaves the record to the log thread."""
        if self.visible_ts >= ts:
            return
        self.raise_if_poisoned()
        ts = min(ts, self.last_record_ts)
        if self.syncs:
            self.wait_durable(ts)
        self._wait_while(lambda: self.visible_ts < ts)

    def is_visible_within(self, ts: int, timeout_s: float) -> bool:
        """As ``wait_visible``, but for so long at most; whether V covers the records.

        The fsync is the log thread's: one that has begun cannot be given up.
        """
        end_s = self.clock.monotonic_s() + timeout_s
        while self.visible_ts < ts:
            if self.failure is not None or self.closed:
                self._refuse()
            left_s = end_s - self.clock.monotonic_s()
            if left_s <= 0:
                return False
            self.ask_log_thread()
            self.advancing.wait(lambda: self.visible_ts < ts and self.failure is None, min(left_s, LOOK_S))
        return True

    def wait_committed(self, ts: int) -> None:
        """Return when W covers every record <= ``ts``, for other processes to read them: what is durable
        is so a moment before W says it."""
        if self.committed_ts >= ts:
            return
        self.raise_if_poisoned()
        ts = min(ts, self.last_record_ts)
        self.wait_durable(ts)
        self._wait_while(lambda: self.committed_ts < ts)

    def _wait_while(self, behind: Callable[[], bool]) -> None:
        while behind():
            if self.failure is not None or self.closed:
                self._refuse()
            self.advancing.wait(lambda: behind() and self.failure is None)
            if behind():  # whoever was to advance the watermarks may have been interrupted
                with self.mutex:
                    self.advance()

    def wait_durable(self, ts: int) -> None:
        """Return when an fsync covers every record <= ``ts``, and run it if nobody else does.

        The fsync asked for by one waiter covers all that was appended when it began.
        """
        if self.durable_ts >= ts:
            return
        self.raise_if_poisoned()
        try:
            self._wait_or_sync(min(ts, self.last_record_ts))
        except (Poisoned, Fenced, Closed):
            raise
        except BaseException:
            self.ask_log_thread()
            raise

    def _wait_or_sync(self, ts: int) -> None:
        while self.durable_ts < ts:
            if self.closed and self.durable_ts < ts:  # in the child of a fork nobody gives the lock back
                self._refuse()
            if self._sync_lock.locked():
                self._syncing.wait(lambda: self._sync_lock.locked() and self.durable_ts < ts)
                continue
            with self._sync_lock:
                if self.durable_ts < ts:
                    self._sync_timed()
            self._syncing.open()

    def _sync_timed(self) -> None:
        """``_sync_now``, and how long it took."""
        began_s = Clock.monotonic_s()
        self._sync_now()
        self.sync_times.add(Clock.monotonic_s() - began_s)

    # What a subclass gives ------------------------------------------------------------------------

    def _sync_now(self) -> None:
        """Under the sync lock, not the mutex: make all durable that is appended, then ``_durable``."""
        raise NotImplementedError

    def _close_files(self) -> None:
        """Let go of what is open; ``OSError`` is suppressed."""
        raise NotImplementedError

    def _durable(self, ts: int, lsn: int) -> None:
        """Under the mutex: every record <= ``lsn`` is on disk, and this writer is not fenced."""
        if self.failure is not None:
            self._refuse()
        self.durable_ts = max(self.durable_ts, ts)
        self.durable_lsn = max(self.durable_lsn, lsn)
        self.advance()

    # The log thread -----------------------------------------------------------------------------

    def ask_log_thread(self) -> None:
        """See that what is appended becomes durable although nobody waits for it."""
        if self.failure is not None or self.closed:
            return
        if not self._work.is_set():
            self._work.set()
        if self._thread is None or not self._thread.is_alive:
            self._start_thread()

    def _start_thread(self) -> None:
        with self.mutex:
            if self._stop.is_set() or (self._thread is not None and self._thread.is_alive):
                return
            self._thread = Worker(self._run, "kudu-log")
            self._thread.start()  # one whose start was interrupted is alive, or another will be made

    def _run(self) -> None:
        pause = self._options.group_interval_s if self.groups else GATHER_S
        while True:
            self._work.wait()
            if self._stop.wait(pause):
                return
            self._work.clear()
            try:
                with self._sync_lock:
                    if self.last_lsn > self.durable_lsn:
                        self._sync_timed()
                self._syncing.open()
            except (Poisoned, Fenced, Closed):
                return
            except (MemoryError, StoreError):
                self._work.set()  # another time
                self._stop.wait(RETRY_S)


__all__ = ["SyncedLog"]
