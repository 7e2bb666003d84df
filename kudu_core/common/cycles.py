"""The collector of cycles, held back while many objects are made that stay.

It runs by the number of objects made since its last time and looks at all of them: of the entries of 10,000
files, which hold no cycle, a third of a commit's time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1000
"""Of fewer entries the collector sees little."""

_mutex = threading.Lock()
_holding = 0
_was_enabled = False


@contextmanager
def cycles_left(entries: int) -> Iterator[None]:
    """No collection of cycles in this process until the block ends, if it works on many entries.

    Only where the block ends soon and leaves no cycles.
    """
    global _holding, _was_enabled
    if entries < MANY:
        yield
        return
    with _mutex:
        if _holding == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holding += 1
    try:
        yield
    finally:
        with _mutex:
            _holding -= 1
            if _holding == 0 and _was_enabled:
                gc.enable()


__all__ = ["MANY", "cycles_left"]
