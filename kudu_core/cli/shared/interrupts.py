"""Ctrl-C that is not lost.

Python raises ``KeyboardInterrupt`` wherever the main thread happens to be.  In a finaliser or a callback of a
weak reference it is printed and forgotten, and a command that goes on until Ctrl-C would go on.  So the
handler also notes that there was one, and such commands ask between their looks.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from kudu_core.table.table import Table

_seen = False


def note_interrupts() -> None:
    """Note Ctrl-C from now on, unless the process ignores it, as scripts have it in their background."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _noted)


def _noted(*_: Any) -> NoReturn:
    global _seen  # noqa: PLW0603
    _seen = True
    raise KeyboardInterrupt


def look_again(table: Table, interval_s: float) -> None:
    """Show what is printed, wait, and refresh the table; ``KeyboardInterrupt`` if Ctrl-C was pressed."""
    from kudu_core.common.run.clock import Clock

    sys.stdout.flush()
    Clock().sleep(interval_s)
    table.refresh()
    if _seen:
        raise KeyboardInterrupt


__all__ = ["look_again", "note_interrupts"]
