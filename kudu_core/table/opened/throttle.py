"""Writers are slowed before memory is full, so that they seldom have to wait for a whole flush.

``memory_limit_bytes`` is for memory stores and page cache together; the cache gives way down to an eighth of
it.  What flushes and merges hold while they run is counted too, up to a quarter of what stores may take.

There are two thresholds at half of what stores may take.  Counting the memory that the next flush will need,
the largest store is flushed; not counting it, writers are slowed.  A writer pays for its bytes at its next
call, by waiting a part of the time that a flush of them takes.  This part grows, so memory that fills faster
than it is flushed fills ever more slowly.  At 80 % writers wait for a flush, or do it themselves.
"""

from __future__ import annotations

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import mutex
from kudu_core.tablet.maintain.scoring import MEMORY_FRACTION

STOP_FRACTION = 0.8
"""Of what memory stores may take: there a writer pays ``MOST`` times the flush of its bytes, and beyond it
waits for a flush."""

MOST = 2.0

SHORTEST_S = 0.001
"""Less is owed until it has come to this: no wait of the system is shorter."""

LONGEST_S = 0.25
"""The longest single wait, in seconds.  What is owed beyond it is forgiven."""


def severity(share: float) -> float:
    """How many times the flush of its bytes a writer waits, 0 to ``MOST``; ``share``: how full memory is."""
    return MOST * min(1.0, max(0.0, (share - MEMORY_FRACTION) / (STOP_FRACTION - MEMORY_FRACTION)))


class Throttle:
    """What the writers of a table owe.  Thread safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = mutex()
        self._owed_bytes = 0
        self._owed_s = 0.0
        self.waits = 0
        self.waited_s = 0.0
        """Since the table was opened, of all writers together."""

    def owe(self, batch_bytes: int) -> None:
        """Memory has taken in a batch."""
        with self._mutex:
            self._owed_bytes += batch_bytes

    def slow_down(self, share: float, flush_pace_s: float) -> None:
        """Wait for what is owed; ``flush_pace_s``: seconds in which a flush writes a byte of memory."""
        with self._mutex:
            self._owed_s += self._owed_bytes * flush_pace_s * severity(share)
            self._owed_bytes = 0
            if self._owed_s < SHORTEST_S:
                return
            wait_s, self._owed_s = min(self._owed_s, LONGEST_S), 0.0
        self._clock.sleep(wait_s)
        self.note(wait_s)

    def note(self, waited_s: float) -> None:
        """A writer has waited."""
        with self._mutex:
            self.waits += 1
            self.waited_s += waited_s


__all__ = ["STOP_FRACTION", "Throttle", "severity"]
