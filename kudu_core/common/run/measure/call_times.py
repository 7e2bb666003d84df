"""How long the calls of an open table take, and those that were slow, for ``logging``.

To look at the clock twice and to count costs a fifth of a point read, so only one of ``SAMPLED`` reads of
one row is measured, and stands for all of them; likewise of writes of few rows that wait for no disk.  Other
writes, and scans, are all measured; of those that are fast, as few are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain, cycle, repeat
from typing import TYPE_CHECKING, Protocol, TypeVar

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.measure.histogram import Histogram, Times
from kudu_core.events import Ended, Event

if TYPE_CHECKING:
    from kudu_core.options import Options

CALLS = ("get", "scan", "write")
SAMPLED = 256
"""One of so many calls is counted, and counts as so many; of the first so many each."""
FAST_S = 0.001
"""Writes that take longer are all counted."""

now_s = Clock.monotonic_s
_log = logging.getLogger("kudu_core.slow")
_log.addHandler(logging.NullHandler())  # who has set up no logging sees nothing


class DoneWrite(Protocol):
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

    def __init__(self, path: str, options: Options) -> None:
        self.path = path
        self.slow_s = options.slow_operation_s
        """What takes longer is told to the logger ``kudu_core.slow``; None: nothing is."""
        self._times = {call: Histogram() for call in CALLS}
        self._get_times, self._write_times = self._times["get"], self._times["write"]
        self._scans_due = sampling()
        self.writes_due = sampling()
        """Asked before each write of rows, as ``Handle.gets_due``."""
        self.times_all = options.durability == "sync"
        """Whether writes of few rows are all measured, and not only those of which the sampling says so."""

    def now(self) -> dict[str, Times]:
        """By call."""
        return {call: times.now() for call, times in self._times.items()}

    def got(self, began_s: float, times: int) -> None:
        """A read of one row has ended that stands for so many."""
        took_s = now_s() - began_s
        self._get_times.add(took_s, times)
        self.look("get", took_s)

    def wrote(self, began_s: float, done: DoneWrite, times: int = 1, *, sampled: bool = False) -> None:
        """A write has ended.  If it was fast it stands for so many, 0: it is not counted; if it was slow for
        itself, unless others like it are not looked at (``sampled``)."""
        took_s = now_s() - began_s
        if took_s > FAST_S:
            self._write_times.add(took_s, times if sampled else 1)
            self.look("write", took_s, rows=sum(done.counts[:3]))
        elif times:
            self._write_times.add(took_s, times)
            self.look("write", took_s, rows=sum(done.counts[:3]))

    def scan_of(self, batches: Iterator[B]) -> Iterator[B]:
        """The batches, and at their end how long they took: without the time of who took them."""
        took_s, rows = 0.0, 0
        began_s = now_s()
        for batch in batches:
            took_s += now_s() - began_s
            rows += batch.num_rows
            yield batch
            began_s = now_s()
        took_s += now_s() - began_s
        stands_for = next(self._scans_due)
        if took_s > FAST_S or stands_for:
            self.scanned(took_s, rows, stands_for)

    def scanned(self, took_s: float, rows: int, times: int = 1) -> None:
        """A scan has come to its end; the time of who took the rows is not of it.  If it was fast it stands
        for so many."""
        self._times["scan"].add(took_s, 1 if took_s > FAST_S else times)
        self.look("scan", took_s, rows=rows)

    def hear(self, event: Event) -> None:
        """A long work that has ended may have been slow."""
        if isinstance(event, Ended):
            tablet = {"tablet": event.tablet_id} if event.tablet_id else {}
            self.look(event.operation, event.elapsed_s, **{event.unit: event.done}, **tablet)

    def look(self, what: str, took_s: float, **counts: object) -> None:
        """Tell of what was slow."""
        if self.slow_s is not None and took_s > self.slow_s:
            shown = "".join(f" {name}={value}" for name, value in counts.items())
            _log.warning("%s took %.3f s%s path=%s", what, took_s, shown, self.path)


def sampling() -> Iterator[int]:
    """Asked at each call: for how many it stands, 0: it is not counted.  A step of C, so any thread may ask;
    ``next`` of it takes a third of the time of a method."""
    return chain(repeat(1, SAMPLED), cycle((*repeat(0, SAMPLED - 1), SAMPLED)))


__all__ = ["CALLS", "FAST_S", "SAMPLED", "CallTimes", "now_s", "sampling"]
