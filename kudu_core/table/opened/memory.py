"""The memory of an open table: what its stores hold, what they may hold, and who waits for room.

``memory_limit_bytes`` is for memory stores and page cache together.  The stores are measured now and then;
between two measurements what was written since is added to the last one.  How writers are slowed is in
``throttle``; which store is flushed, and when, is decided by maintenance, which asks for the ``pressure``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kudu_core.common.run.locks import mutex
from kudu_core.events import Event, WritersThrottled
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.table.opened.memory_errors import no_memory, no_store, too_much
from kudu_core.table.opened.throttle import STOP_FRACTION, Throttle
from kudu_core.tablet.flush.memory import work_bytes
from kudu_core.tablet.maintain.scoring import MEMORY_FRACTION, Pressure

if TYPE_CHECKING:
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.common.run.clock import Clock
    from kudu_core.common.run.memory import WorkingMemory
    from kudu_core.options import Options
    from kudu_core.tablet.maintain.flush_lane import Maintenance
    from kudu_core.tablet.store.apply import Laying
    from kudu_core.tablet.store.tablet import Tablet

CACHE_DIVISOR = 8
"""The page cache keeps the memory limit divided by this, however large the memory stores are."""

WORK_DIVISOR = 4
"""Working memory of flushes and merges counts towards the limit only up to the limit of the stores divided
by this."""

STALE_DIVISOR = 32
"""The stores are measured again when the limit of the stores divided by this was written since."""


class StoreMemory:
    """Counts what the memory stores of a table take.  Slows and stops its writers, and gives the page cache
    what is left.  Thread safe; under its mutex no other lock is taken."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        cache: PageCache,
        work: WorkingMemory,
        tablets: Callable[[], Sequence[Tablet]],
        flush_lane: Maintenance | None,
        tell: Callable[[Event], None],
    ) -> None:
        """``work``: what flushes and merges hold while they run."""
        limit = options.memory_limit_bytes
        self.limit_bytes = limit
        """Of memory stores and page cache together."""
        self.store_limit_bytes = limit - min(options.page_cache_bytes, limit // CACHE_DIVISOR)
        """What memory stores may take: the limit without what the page cache keeps in any case."""
        self.throttle = Throttle(clock)
        self.flush_lane = flush_lane
        """None in a table that is open for reading."""
        self._clock = clock
        self._cache = cache
        self._most_cache_bytes = options.page_cache_bytes
        self._work = work
        self._tablets = tablets
        self._slows_down = options.maintenance == "background"
        self._tell = tell
        self._step_bytes = min(options.flush_threshold_bytes // 4, self.store_limit_bytes // 16)
        """So much has to be added before the flush lane is woken."""
        self._mutex = mutex()
        """Guards the three counters."""
        self._known = 0
        """Bytes, at the last measurement."""
        self._added = 0
        """Bytes since then."""
        self._unseen = 0
        """Bytes since the flush lane was last woken."""

    # ---- before a write ----

    def admit(self) -> None:
        """Before a write: slower the fuller memory stores are, so that flushes keep up; near the limit, wait
        for a flush, doing it if nobody else does."""
        limit = self.store_limit_bytes
        if self.estimate() <= limit * MEMORY_FRACTION:
            return
        used = self.measure() if self._is_stale() else self.estimate()
        lane = self.flush_lane
        if lane is not None and self._slows_down:
            self.throttle.slow_down(used / limit, lane.flush_pace_s)
        if used <= limit * STOP_FRACTION:
            return
        self._tell(WritersThrottled(memory_bytes=used, limit_bytes=limit))
        started = self._clock.monotonic_s()
        while self.measure() > limit * STOP_FRACTION:
            if lane is None or not lane.relieve():
                break
        self.throttle.note(self._clock.monotonic_s() - started)

    def check_batch(self, batch_bytes: int) -> None:
        """``MemoryLimit`` for a batch that does not fit whatever is flushed."""
        if batch_bytes > self.limit_bytes:
            raise too_much(batch_bytes, self.limit_bytes)

    def reserve(self, layings: Sequence[Laying], record_bytes: int) -> None:
        """Under the mutexes, before the log record: make room for what it says, or refuse it (protocol W5).

        ``MemoryLimit``: nothing happened.  ``Moved``: nor then, but the keys have other homes.
        """
        self.check_batch(max(record_bytes, sum(laying.nbytes for laying in layings)))
        try:
            closed = [laying.reserve() for laying in layings]
        except StoreFull as full:
            raise no_store(full) from full
        except MemoryError:
            raise no_memory(record_bytes) from None
        if any(closed):
            self.wake_flushes()
        self.count(layings, record_bytes)

    # ---- counting ----

    def count(self, layings: Sequence[Laying], record_bytes: int) -> None:
        """Count what is about to be laid into memory."""
        self.note(record_bytes, sum(laying.nbytes for laying in layings))

    def note(self, batch_bytes: int, store_bytes: int = 0) -> None:
        """Count a batch that memory takes in; a large sum wakes the flush lane.

        ``store_bytes``: what the rows take there, which of small ones is many times their bytes.
        """
        self.throttle.owe(batch_bytes)
        added = max(2 * batch_bytes, store_bytes)
        with self._mutex:
            self._added += added
            self._unseen += added
            # Not at every write from there on: each call costs a switch to the flush lane.
            if self._unseen < self._step_bytes:
                return
            self._unseen = 0
        self._make_room_in_cache(self.estimate())
        self.wake_flushes()

    def wake_flushes(self) -> None:
        """Have the flush lane look what there is to do."""
        if self.flush_lane is not None:
            self.flush_lane.kick()

    def estimate(self) -> int:
        """Bytes at the last measurement, and those that were written since."""
        with self._mutex:
            return self._known + self._added

    def _is_stale(self) -> bool:
        """Whether so much was written since the last measurement that another one is worth its cost."""
        with self._mutex:
            return self._added > self.store_limit_bytes // STALE_DIVISOR

    def measure(self) -> int:
        """Bytes of all memory stores, and of what flushes and merges hold while they run."""
        with self._mutex:
            self._added = 0
        used = sum(tablet.memory_bytes for tablet in self._tablets())
        # Not all: were it more, writers would flush every batch for itself and gain nothing.
        used += min(self._work.held_bytes, self.store_limit_bytes // WORK_DIVISOR)
        with self._mutex:
            self._known = used
        self._make_room_in_cache(used)
        return used

    def pressure(self, log_bytes: int) -> Pressure:
        """What maintenance is to relieve.  The flush that would do it needs memory of its own.

        ``log_bytes``: what the log retains.
        """
        next_bytes = max((work_bytes(tablet.view.active) for tablet in self._tablets()), default=0)
        used = self.measure() + min(next_bytes, self.store_limit_bytes // WORK_DIVISOR)
        return Pressure(used, self.store_limit_bytes, log_bytes)

    def _make_room_in_cache(self, store_bytes: int) -> None:
        """The page cache takes what memory stores leave of the limit, and its own share in any case."""
        least = self.limit_bytes - self.store_limit_bytes
        left = self.limit_bytes - store_bytes
        self._cache.set_limit(min(self._most_cache_bytes, max(least, left)))


__all__ = ["StoreMemory"]
