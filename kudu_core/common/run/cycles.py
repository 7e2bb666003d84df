"""The collector of cycles, held back while many objects are made that stay.

It runs by the number of objects made since its last time and looks at all of them: of the entries of 10,000
files, which hold no cycle, a third of a commit's time.
"""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager

from kudu_core.common.run.locks import NOTHING, Claim

MANY = 1000
"""Of fewer entries the collector sees little."""


_holders: set[object] = set()
"""Blocks of this process in which it is held back, by an object of each; the last one lets it go on."""


def cycles_left(entries: int) -> AbstractContextManager[object]:
    """``with`` it: no collection of cycles in this process until the block ends, if it works on many entries.

    Only where the block ends soon and leaves no cycles.
    """
    if entries < MANY or not (gc.isenabled() or _holders):
        return NOTHING  # nobody lets it go on that has not held it back
    claim = Claim(_holders, object(), emptied=gc.enable)
    gc.disable()
    return claim


def forget_others() -> None:
    """In the child of a fork: what threads of the parent have held back goes on."""
    if _holders:
        _holders.clear()
        gc.enable()


__all__ = ["MANY", "cycles_left", "forget_others"]
