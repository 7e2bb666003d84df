"""Which snapshots are in use, and how far back history reaches (PROTOCOL H1, H2)."""

from __future__ import annotations

import threading
from collections import Counter

from kudu_core.errors import SnapshotTooOld


class Pins:
    """Pinned timestamps of this process and the horizon below which history may be gone."""

    def __init__(self, floor: int) -> None:
        # Re-entrant: the collector may release a forgotten scan in the middle of ``pin``.
        self._mutex = threading.RLock()
        self._pinned: Counter[int] = Counter()
        self.floor = floor

    def pin(self, snapshot: int) -> None:
        """Hold the history at ``snapshot``; views are captured after this."""
        with self._mutex:
            if snapshot < self.floor:
                raise SnapshotTooOld(
                    f"snapshot {snapshot} lies before the oldest readable one, {self.floor}; "
                    "history_retention_s says how long history is kept"
                )
            self._pinned[snapshot] += 1

    def unpin(self, snapshot: int) -> None:
        with self._mutex:
            self._pinned[snapshot] -= 1
            if self._pinned[snapshot] <= 0:
                del self._pinned[snapshot]

    def horizon(self, wanted: int, *, drop: bool) -> int:
        """The horizon nearest to ``wanted``: not above a pin, not below the floor, which it becomes with
        ``drop``."""
        with self._mutex:
            horizon = max(self.floor, min(wanted, *self._pinned)) if self._pinned else max(self.floor, wanted)
            if drop:
                self.floor = horizon
            return horizon

    @property
    def oldest(self) -> int | None:
        with self._mutex:
            return min(self._pinned, default=None)

    def __len__(self) -> int:
        return sum(self._pinned.values())
