"""How far the picture goes that a reader has of a table."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kudu_core.errors import UnreplayedWarning

if TYPE_CHECKING:
    from kudu_core.fs.api import ReaderLock
    from kudu_core.tablet.replay.replay_log import Unreplayed


@dataclass(slots=True)
class ReadEnd:
    """The end of what an open for reading shows.  It only moves back, while the table is being opened."""

    visible_ts: int
    """W_r: the newest snapshot that may be read."""
    epoch: int
    """Of the log, as far as it was read: the writer whose epoch it is has made all before it durable."""
    settled: bool
    """Nobody held the table for writing when the end of the log was read, and the picture holds all of it."""
    unreplayed: Unreplayed | None = None
    """The record of the log before which it ends, as it cannot be replayed."""
    lock: ReaderLock | None = None
    """By which the writer knows that somebody reads (protocol R1), as long as this lives."""

    def stop_before(self, ts: int) -> None:
        """End before the record of ``ts``: what it says is not there yet."""
        self.visible_ts = ts - 1
        self.settled = False  # whoever opens the table for writing brings it in

    def stop_at(self, unreplayed: Unreplayed) -> None:
        """End before a record that cannot be replayed."""
        self.unreplayed = unreplayed
        self.stop_before(unreplayed.timestamp)


def warn_of_unreplayed(record: Unreplayed | None) -> None:
    """Warn whoever has called the caller's caller, which are ours."""
    if record is not None:
        warnings.warn(
            f"{record}. What is readable is the table as it was before it; kudu_core.repair can put the "
            "record aside",
            UnreplayedWarning,
            stacklevel=4,
        )


__all__ = ["ReadEnd", "warn_of_unreplayed"]
