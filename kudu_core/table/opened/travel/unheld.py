"""What is open in this process: closed when nobody holds it any more, let go of in the child of a fork."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from kudu_core.common.run.cycles import forget_others
from kudu_core.common.run.workers import Worker, forget_workers, is_worker
from kudu_core.errors import KuduError
from kudu_core.table.opened.engine import Engine


class Forked(Protocol):
    """A handle, as the child of a fork finds it."""

    def forked(self) -> None:
        """In the child, whose only thread this is."""


open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
open_handles: weakref.WeakSet[Forked] = weakref.WeakSet()


def close_unheld(held: list[Engine]) -> None:
    """Close what nobody holds any more: the state that a handle had last, when the handle is collected or the
    interpreter ends.  There is none where nothing was asked of a handle that has arrived."""
    if not held:
        return
    (engine,) = held
    try:
        if is_worker():
            # The collector ran on a worker, which may hold the very locks that a close waits for.
            Worker(engine.close, "close").start()
        else:
            engine.close()
    except (OSError, KuduError):
        raise
    except BaseException:
        # Nobody catches what a finalizer raises, nor calls again: what an interrupt has cut short goes on.
        Worker(engine.close, "close").start()
        raise


def _after_fork_in_child() -> None:
    forget_workers()
    forget_others()
    for engine in list(open_engines):
        engine.abandon()
    for handle in list(open_handles):
        handle.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)


__all__ = ["close_unheld", "open_engines", "open_handles"]
