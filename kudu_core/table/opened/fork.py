"""What becomes of open tables in a forked child, at interpreter exit and on garbage collection.

A child closes its copies of the files without unlocking or writing (protocol P1).  A table that
nobody holds any more, or that is open when the interpreter ends, is closed cleanly.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.cycles import forget_others
from kudu_core.common.run.workers import Worker, forget_workers, is_worker
from kudu_core.errors import KuduError

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

_open: weakref.WeakSet[Engine] = weakref.WeakSet()


def watch(handle: Any, engine: Engine) -> weakref.finalize[Any, Any]:
    """Close ``engine`` when ``handle`` is collected or the interpreter ends."""
    _open.add(engine)
    return weakref.finalize(handle, _close, engine)


def _close(engine: Engine) -> None:
    """Close what nobody holds any more."""
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
    for engine in list(_open):
        engine.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
