"""How long the calls of an open table take, and those that were slow, for ``logging``.

To look at the clock twice and to count costs a fifth of a point read, so only one of ``SAMPLED`` reads of
one row is measured, and stands for all of them.  Writes are all measured, of fast ones as few counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain, cycle, repeat
from typing import Protocol, TypeVar

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.measure.histogram import Histogram, Times
from kudu_core.events import Ended, Event

CALLS = ("get", "scan", "write")
SAMPLED = 64
"""One of so many calls is counted, and counts as so many; of the first so many each."""
FAST_S = 0.001
"""Writes that take longer are all counted."""

now_s = Clock.monotonic_s
_log = logging.getLogger("kudu_core.slow")


class Written(Protocol):
    """What a write has come to."""

    @property
    def counts(self) -> tuple[int, int, int, int]: ...


class ReadBatch(Protocol):
    """Rows."""

    @property
    def num_rows(self) -> int: ...


B = TypeVar("B", bound=ReadBatch)


class CallTimes:
    """Of one open table, from any thread."""

    def __init__(self, path: str, slow_s: Callable[[], float | None]) -> None:
        """``slow_s``: what takes longer is told to the logger ``kudu_core.slow``; None: nothing is."""
        self.path = path
        self._slow_s = slow_s
        self._times = {call: Histogram() for call in CALLS}
        self._get, self._write = self._times["get"], self._times["write"]
        self._write_is_due = sampling()

    def now(self) -> dict[str, Times]:
        """By call."""
        return {call: times.now() for call, times in self._times.items()}

    def got(self, began_s: float, times: int) -> None:
        """A read of one row has ended that stands for so many."""
        took_s = now_s() - began_s
        self._get.add(took_s, times)
        self.look("get", took_s)

    def wrote(self, began_s: float, done: Written) -> None:
        """A write has ended."""
        took_s = now_s() - began_s
        if took_s > FAST_S:
            self._write.add(took_s)
            self.look("write", took_s, rows=sum(done.counts[:3]))
            return
        times = self._write_is_due()
        if times:
            self._write.add(took_s, times)

    def scan_of(self, batches: Iterator[B]) -> Iterator[B]:
        """The batches, and at their end how long they took: without the time of who took them."""
        took_s, rows = 0.0, 0
        while True:
            began_s = now_s()
            batch = next(batches, None)
            took_s += now_s() - began_s
            if batch is None:
                break
            rows += batch.num_rows
            yield batch
        self.scanned(took_s, rows)

    def scanned(self, took_s: float, rows: int) -> None:
        """A scan has come to its end; the time of who took the rows is not of it."""
        self._times["scan"].add(took_s)
        self.look("scan", took_s, rows=rows)

    def hear(self, event: Event) -> None:
        """A long work that has ended may have been slow."""
        if isinstance(event, Ended):
            tablet = {"tablet": event.tablet_id} if event.tablet_id else {}
            self.look(event.operation, event.elapsed_s, **{event.unit: event.done}, **tablet)

    def look(self, what: str, took_s: float, **counts: object) -> None:
        """Tell of what was slow."""
        slow_s = self._slow_s()
        if slow_s is not None and took_s > slow_s:
            shown = "".join(f" {name}={value}" for name, value in counts.items())
            _log.warning("%s took %.3f s%s path=%s", what, took_s, shown, self.path)


def sampling() -> Callable[[], int]:
    """Asked at each call: for how many it stands, 0: it is not counted.  For any thread."""
    return chain(repeat(1, SAMPLED), cycle((*repeat(0, SAMPLED - 1), SAMPLED))).__next__


__all__ = ["CALLS", "FAST_S", "SAMPLED", "CallTimes", "now_s", "sampling"]
