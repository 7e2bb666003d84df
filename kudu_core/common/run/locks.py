"""The locks of the package, and the rules by which an interrupt leaves none of them held.

``KeyboardInterrupt`` is raised by a signal handler, which CPython runs in the main thread between two
bytecodes: after a call, at the beginning of a function, when a loop goes back.  It runs none between a lock's
``__enter__``, which is C, and the body of the ``with``.  So:

* A lock is taken by ``with lock:`` alone, where ``lock`` is made here: never by ``acquire``, an
  ``ExitStack``, a ``@contextmanager`` or an ``__enter__`` written in Python, after all of which there are
  bytecodes.
* Several at once are taken by ``with HeldLocks(locks):`` (``_ext/base/holding.pyx``), which is compiled.
* What is counted or listed while something is under way is a ``Claim``, which is compiled too and gives back
  what it has taken when it goes.
* A failure that is final is kept by ``poison``, which is compiled, and it is the first that an ``except``
  calls: a failed fsync must not be forgotten because Ctrl-C was pressed meanwhile (protocol W8).
* A record that is in the log and not yet applied is ``InFlight``, which is compiled for the same reason
  (``table/opened/record.py``).
* Threads wait for each other at ``Gates`` and ``Flag`` (``common/run/gates.py``), not at what ``threading``
  has: ``Condition``, ``Event``, ``Semaphore`` and ``Barrier`` are Python around a lock, which an interrupt
  leaves held.
* A thread is a ``Worker`` (``common/run/workers.py``): ``Thread.start`` waits at an ``Event``.

CPython 3.14 may run a handler after ``__enter__`` and before the body all the same (its issue 148874, mended
in 3.15): what ``HeldLocks`` or a claim holds is given back there too, because the object goes; a plain
``with lock:`` is not safe on such a 3.14.

A call that was interrupted is applied wholly or not at all, or the log is poisoned.  The handle of a table
is made before its threads start.  A replacement of TABLE that was cut short is known again by its bytes.
``close()`` keeps the lease until no thread of the table can write; if it is interrupted the table stays
closing, and the next call goes on.  Lack of memory is an exception like these, at the same places.

The order of the locks is in docs/ARCHITECTURE.md, section 7.  Under these none of that list is taken:

* held while something is opened, read or synced: ``LazyFile._opening``, ``ColumnPages._mutex``,
  ``KeyReader._mutex``, ``OpenRuns._lock``, ``Manifest._replacing``, ``Patches._mutex``,
  ``TableObject._mutex``, ``ObjectLease._mutex``;
* held for a moment: ``Pins._mutex``, ``Pool._lock``, ``Slots._mutex``,
  ``Tablet._numbers``, ``Throttle._mutex``, ``Journal._mutex``, ``Closing._mutex``,
  ``Lane._failed_mutex``, ``CompactionLane._beginning``, ``Handle._exchange_mutex``, ``Tally._mutex``,
  ``ObjectFiles._mutex``, ``AskedPieces._mutex``, ``KeptPieces._mutex``, ``StoreHome._mutex``,
  ``PieceCache._mutex``, ``LongWork._mutex``;
* held while another open table is made, which has locks of its own: ``Handle._refresh_mutex``, of a reader,
  and that of ``engines/spark/cache.py``, taken before it.

The page cache has none: its steps are compiled, and whole (``_ext/files/cached_pages.pyx``).

``tests/lint/test_locks.py`` holds the package to this.  ``tests/interrupts/test_interrupts.py`` raises at
every place of every public call, ``test_signals.py`` at random moments, ``test_no_memory.py`` where memory
is taken.
"""

from __future__ import annotations

import threading
from _thread import LockType
from contextlib import nullcontext
from typing import TypeAlias

from kudu_core._ext.base.holding import Claim, HeldLocks, Turns

Mutex: TypeAlias = LockType
Reentrant: TypeAlias = threading.RLock

NOTHING = nullcontext()
"""In the place of a lock that is not wanted."""


def mutex() -> Mutex:
    """A lock that its holder may not take again."""
    return threading.Lock()


def reentrant() -> Reentrant:
    """A lock that its holder may take again."""
    return threading.RLock()


__all__ = ["NOTHING", "Claim", "HeldLocks", "Mutex", "Reentrant", "Turns", "mutex", "reentrant"]
