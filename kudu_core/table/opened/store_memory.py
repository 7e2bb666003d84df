"""The memory of an open table: who waits for room in its stores.

What the stores hold and may hold is counted in ``tablet/maintain/memory_use.py``, by which maintenance
decides what is flushed; how writers are slowed is in ``throttle``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kudu_core.errors import MemoryLimit
from kudu_core.events import Event, WritersThrottled
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.table.opened.throttle import STOP_FRACTION, Throttle
from kudu_core.tablet.maintain.memory_use import MemoryUse
from kudu_core.tablet.maintain.scoring import MEMORY_FRACTION

if TYPE_CHECKING:
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.common.run.clock import Clock
    from kudu_core.common.run.held_memory import WorkingMemory
    from kudu_core.options import Options
    from kudu_core.tablet.maintain.flush_lane import FlushLane
    from kudu_core.tablet.store.apply import Laying
    from kudu_core.tablet.store.tablet import Tablet


class StoreMemory(MemoryUse):
    """Slows and stops writers, and makes room for what they write.  Thread safe."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        cache: PageCache,
        work: WorkingMemory,
        tablets: Sequence[Tablet],
        tell: Callable[[Event], None],
    ) -> None:
        super().__init__(options, cache, work, tablets)
        self.flush_lane: FlushLane | None = None
        """None in a table that is open for reading."""
        self.throttle = Throttle(clock)
        self._clock = clock
        self.slow_bytes = int(self.store_limit_bytes * MEMORY_FRACTION)
        self._slows_down = options.maintenance == "background"
        self._tell = tell

    # ---- before a write ----

    def admit(self) -> None:
        """Before a write: slower the fuller memory stores are, so that flushes keep up; near the limit, wait
        for a flush, doing it if nobody else does."""
        if self.estimate() <= self.slow_bytes:
            return
        limit = self.store_limit_bytes
        used = self.measure() if self.is_stale() else self.estimate()
        lane = self.flush_lane
        if lane is not None and self._slows_down:
            self.throttle.owe(self.take_unpaid())
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
        if self.add(max(2 * batch_bytes, store_bytes), batch_bytes):
            self.wake_flushes()

    def wake_flushes(self) -> None:
        """Have the flush lane look what there is to do."""
        if self.flush_lane is not None:
            self.flush_lane.kick()


# ---- the errors of a batch for which there is no memory ----


def too_much(batch_bytes: int, limit_bytes: int) -> MemoryLimit:
    return MemoryLimit(
        f"a batch of {batch_bytes:,} bytes does not fit into memory_limit_bytes={limit_bytes:,}; "
        "nothing of it was applied: write it in smaller pieces or raise the option"
    )


def no_store(reason: object) -> MemoryLimit:
    return MemoryLimit(
        f"no store in memory can take the batch ({reason}); nothing of it was applied: write it in smaller "
        "pieces"
    )


def no_memory(batch_bytes: int) -> MemoryLimit:
    return MemoryLimit(
        f"the system gave no memory for a batch of {batch_bytes:,} bytes; nothing of it was applied: write "
        "it in smaller pieces, or lower memory_limit_bytes so that memory is flushed before"
    )


__all__ = ["StoreMemory", "no_memory", "no_store", "too_much"]
