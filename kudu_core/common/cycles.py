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


class _Collector:
    """This process's."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holders = 0
        self._was_enabled = False

    def hold(self) -> None:
        with self._mutex:
            if self._holders == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._holders += 1

    def release(self) -> None:
        with self._mutex:
            self._holders -= 1
            if self._holders == 0 and self._was_enabled:
                gc.enable()


_collector = _Collector()


@contextmanager
def cycles_left(entries: int) -> Iterator[None]:
    """No collection of cycles in this process until the block ends, if it works on many entries.

    Only where the block ends soon and leaves no cycles.
    """
    if entries < MANY:
        yield
        return
    _collector.hold()
    try:
        yield
    finally:
        _collector.release()


__all__ = ["MANY", "cycles_left"]
