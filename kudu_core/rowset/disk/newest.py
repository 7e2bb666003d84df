"""Which rows of a DiskRowSet are dead in the newest applied state: what writers ask, and readers never do."""

from __future__ import annotations

import numpy as np


class Newest:
    """Which rows are dead in the newest applied state.  Guarded by the tablet's mutex."""

    __slots__ = ("dead", "loaded")

    def __init__(self) -> None:
        self.loaded = False
        self.dead: np.ndarray | None = None  # (rows,) bool; None while no row is dead

    def reserve(self, rows: int) -> None:
        """Make room, so that ``set`` allocates nothing."""
        if self.dead is None:
            self.dead = np.zeros(rows, bool)

    def set(self, rows: int, rowids: np.ndarray, dead: bool) -> None:
        if self.dead is None:
            if not dead:
                return
            self.reserve(rows)
        assert self.dead is not None
        self.dead[rowids] = dead
