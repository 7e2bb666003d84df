"""What the memory stores of a table take of ``memory_limit_bytes``, which they share with the page cache.

The stores are measured now and then; between two measurements what was written since is added to the last
one.  Which store is flushed, and when, ``scoring`` decides by the ``pressure``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kudu_core._ext.few.memory_counts import MemoryCounts
from kudu_core.tablet.flush.memory import work_bytes
from kudu_core.tablet.maintain.scoring import Pressure

if TYPE_CHECKING:
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.common.run.held_memory import WorkingMemory
    from kudu_core.options import Options
    from kudu_core.tablet.store.tablet import Tablet

CACHE_DIVISOR = 8
"""The page cache keeps the memory limit divided by this, however large the memory stores are."""

WORK_DIVISOR = 4
"""Working memory of flushes and merges counts towards the limit only up to the limit of the stores divided
by this."""

STALE_DIVISOR = 32
"""The stores are measured again when the limit of the stores divided by this was written since."""


class MemoryUse(MemoryCounts):
    """Counts, and gives the page cache what is left.  Thread safe, without a lock: each step of the counting
    is compiled, and whole."""

    def __init__(
        self, options: Options, cache: PageCache, work: WorkingMemory, tablets: Sequence[Tablet]
    ) -> None:
        """``work``: what flushes and merges hold while they run."""
        self.tablets = tablets
        """Whose stores are measured; the table puts others here when its tablets change."""
        limit = options.memory_bytes
        self.limit_bytes = limit
        """Of memory stores and page cache together."""
        self.store_limit_bytes = limit - min(options.cache_bytes, limit // CACHE_DIVISOR)
        """What memory stores may take: the limit without what the page cache keeps in any case."""
        self._cache = cache
        self._most_cache_bytes = options.cache_bytes
        self._work = work
        self.set_threshold(options)

    def set_threshold(self, options: Options) -> None:
        """How much is written between two looks at what is to be flushed."""
        self.step_bytes = min(options.flush_threshold_bytes // 4, self.store_limit_bytes // 16)

    def add(self, nbytes: int, batch_bytes: int) -> bool:
        """Count what the stores take in, of a batch; whether that is so much by now that flushes should
        look."""
        if not self.count_bytes(nbytes, batch_bytes):
            return False
        self.grown()
        return True

    def grown(self) -> None:
        """So much was counted that flushes should look."""
        self._make_room_in_cache(self.estimate())

    def is_stale(self) -> bool:
        """Whether so much was written since the last measurement that another one is worth its cost."""
        return self.added > self.store_limit_bytes // STALE_DIVISOR

    def measure(self) -> int:
        """Bytes of all memory stores, and of what flushes and merges hold while they run."""
        self.added = 0
        used = sum(tablet.memory_bytes for tablet in self.tablets)
        # Not all: were it more, writers would flush every batch for itself and gain nothing.
        used += min(self._work.held_bytes, self.store_limit_bytes // WORK_DIVISOR)
        self.known = used
        self._make_room_in_cache(used)
        return used

    def pressure(self, log_bytes: int) -> Pressure:
        """What maintenance is to relieve.  The flush that would do it needs memory of its own.

        ``log_bytes``: what the log retains.
        """
        needed = (work_bytes(tablet.view.active, self.limit_bytes) for tablet in self.tablets)
        next_bytes = max(needed, default=0)
        used = self.measure() + min(next_bytes, self.store_limit_bytes // WORK_DIVISOR)
        return Pressure(used, self.store_limit_bytes, log_bytes)

    def _make_room_in_cache(self, store_bytes: int) -> None:
        """The page cache takes what memory stores leave of the limit, and its own share in any case."""
        least = self.limit_bytes - self.store_limit_bytes
        left = self.limit_bytes - store_bytes
        self._cache.set_limit(min(self._most_cache_bytes, max(least, left)))


__all__ = ["MemoryUse"]
