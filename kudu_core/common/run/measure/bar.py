"""A line on standard error that shows how far a long work is."""

from __future__ import annotations

import sys
from typing import TextIO

from kudu_core.events import Ended, Event, Started, WorkEvent

WIDTH = 24
"""Characters of the bar."""
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Bar:
    """Hears the events of one work.  Where standard error is no terminal, it writes at the end alone."""

    def __init__(self, out: TextIO | None = None) -> None:
        """``out``: another file than standard error."""
        self._out = out
        self._shown = 0
        """Characters of the line that stands there."""

    def __call__(self, event: Event) -> None:
        out = self._out or sys.stderr
        if out is None or not isinstance(event, WorkEvent):  # a process without standard error
            return
        is_end = isinstance(event, Ended)
        try:
            if not is_end and (isinstance(event, Started) or not out.isatty()):
                return
            text = line(event)
            back = "\r" if self._shown else ""
            out.write(back + text.ljust(self._shown) + ("\n" if is_end else ""))
            out.flush()
            self._shown = len(text)
        except (OSError, ValueError):  # closed, or nobody reads it: the work goes on
            return


def line(event: WorkEvent) -> str:
    """What there is to show, without an end of the line."""
    name = f"{event.operation} {event.phase}".strip()
    if isinstance(event, Ended):
        if event.error is not None:
            return f"{name}: ended after {event.elapsed_s:.1f} s: {event.error}"
        return f"{event.operation}: {amount(event.done, event.unit)} in {event.elapsed_s:.1f} s"
    done, rate = amount(event.done, event.unit), amount(int(event.rate), event.unit)
    if not event.total:
        return f"{name}: {done}, {rate}/s"
    share = min(1.0, event.done / event.total)
    filled = round(share * WIDTH)
    bar = "#" * filled + "." * (WIDTH - filled)
    left_s = (event.total - event.done) / event.rate if event.rate > 0 else 0.0
    return f"{name}: [{bar}] {share:4.0%}  {done}, {rate}/s, {max(0.0, left_s):.0f} s left"


def amount(number: int, unit: str) -> str:
    if unit == "bytes":
        for size, suffix in _SIZES:
            if number >= size:
                return f"{number / size:.1f} {suffix}"
    return f"{number:,} {unit}"


__all__ = ["Bar"]
