"""The two things that every write does: it is made once, and its record is in the log and in the stores.

``recorded`` appends the record of a write, lets the caller apply it, says so to the log, and poisons where
that comes to nothing (protocol W5 to W7).  Every write goes through it but that of a single dict, whose
path is so short that it has the same steps written out (``table/write/one_row.py``).  ``once`` is the only
place that takes the lock of a write token and asks whether the write was applied before (protocol K1).

An interrupt may come between any two bytecodes of the main thread, so ``recorded`` gives out a compiled
context manager (``InFlight`` in ``_ext/base/holding.pyx``).  These are the places where one can come:

* In ``append``, before the record is in flight, or after it was cut back: nothing happened, and nothing is
  poisoned.  After that the record may be in the log.  ``append`` may not have returned by then, so whether
  this thread owes a record is asked of the log itself (``Log.poison_if_owed``).
* Between the return of ``append`` and the body of the ``with``: no bytecode lies there, since ``__enter__``
  is compiled.  A CPython that looks for signals there all the same drops the object, which then poisons.
* In the body: ``__exit__`` poisons.
* Between the end of the body and ``Log.applied``: no bytecode lies there either, since ``__exit__`` is
  compiled.  In Python it could be interrupted as it begins, with the record neither applied nor poisoned, and
  every later call would wait for it.
* In what ``__exit__`` calls, that is in noting the write or in ``Log.applied``: it poisons if the record is
  still owed.  If ``applied`` had done its work the call is whole, and the interrupt passes on.

So the log either holds no record of the call, or the stores have what it says, or the table is poisoned and
the next open replays the record.  ``tests/interrupts/test_interrupts.py`` raises at every place of every
call, and ``tests/kernels/base/test_in_flight.py`` at each step of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kudu_core._ext.base.holding import InFlight
from kudu_core.common.idempotence.writers import CHECK, AppliedWrite, Counts, Txn
from kudu_core.errors import TokenMismatch
from kudu_core.table.calls.result import WriteResult

if TYPE_CHECKING:
    from kudu_core.common.idempotence.fingerprint import Fingerprint
    from kudu_core.table.opened.engine import Engine
    from kudu_core.wal.format import Buffer


def recorded(
    engine: Engine,
    kind: int,
    schema_version: int,
    parts: Sequence[Buffer],
    *,
    txn: Txn | None = None,
    job: str | None = None,
    counts: Counts = (0, 0, 0, 0),
) -> InFlight:
    """``with`` it ``as ts``: one record at the timestamp ``ts``, which the body applies.

    On entering, the record is appended.  The body puts into the stores what the record says, under the
    mutexes that the caller holds.  When it ends, the write's token and the id of its job are noted, with the
    counts, and the log is told that the record is applied.

    If the body, or anything after the append, fails or is interrupted, the log is poisoned: what it holds is
    not what the stores hold.  If ``append`` fails, nothing happened.
    """
    note: Callable[[int], None] | None = None
    if txn is not None or job is not None:

        def note(ts: int) -> None:
            note_write(engine, ts, txn, job, counts)

    return InFlight(engine.log, kind, schema_version, parts, note)


def note_write(engine: Engine, ts: int, txn: Txn | None, job: str | None, counts: Counts) -> None:
    """Note that a write with a token, or one of a distributed job, was logged and applied."""
    if txn is not None:
        engine.writers.note(txn, ts, counts)
    if job is not None:
        engine.writers.applied_jobs[job] = AppliedWrite(0, ts, counts)


# ---- once ----


def once(
    engine: Engine,
    txn: Txn | None,
    write: Callable[[], WriteResult],
    rows: Callable[[], Fingerprint] | None = None,
    *,
    wait: bool = True,
) -> WriteResult:
    """Make a write unless it was made before: the answer of ``write``, or what is kept of that time's.

    Under the lock of its token a write is compared with what is known of its writer: an equal one is a
    repetition, a new version is applied, and everything else is refused.

    Parameters
    ----------
    rows
        For a write whose rows come while it is made: reads them all and gives their fingerprint.  Called
        only where the rows decide whether the write is a repetition; ``write`` is not called then.
    wait
        Of a repetition, until what it answers is visible; else that is the caller's to see to (protocol W9).

    Raises
    ------
    TokenMismatch
        The version was applied, by another write.  Nothing was applied now.
    InvalidArgument
        The writer is new, and the table knows too many that are too young to be forgotten.
    """
    if txn is None:
        return write()
    with engine.writers.lock_of(txn.app_id):
        repeated = already_applied(engine, txn, rows, wait=wait)
        return write() if repeated is None else repeated


def already_applied(
    engine: Engine, txn: Txn, rows: Callable[[], Fingerprint] | None = None, *, wait: bool = True
) -> WriteResult | None:
    """The answer to a write that was applied before; None: it was not.

    That is final only under the lock of the token.  Parameters and exceptions are those of ``once``.
    """
    known = engine.writers.applied_writes.get(txn.app_id)
    if known is None:
        engine.writers.make_room()
        return None
    repeated = _compared(engine, txn, known, wait)  # what rows cannot mend is refused before they are read
    if rows is None or txn.rows is not None or txn.on_repeat != CHECK or txn.version > known.version:
        return repeated
    # With what was known before the rows were read: a token may be dropped meanwhile, for its age.
    repeated = _compared(engine, txn.of(rows()), known, wait)
    assert repeated is not None, "the rows of a version that is known are the same, or refused"
    return repeated


def _compared(engine: Engine, txn: Txn, known: AppliedWrite, wait: bool) -> WriteResult | None:
    try:
        counts = txn.repeats(known, engine.path)
    except TokenMismatch:
        engine.wait_visible(known.ts)  # as every answer, it may rest on a record that is not durable yet
        raise
    if counts is None:
        return None
    if wait:
        engine.wait_visible(known.ts)
    return WriteResult(known.ts, *counts, deduplicated=True, refused=txn.refused(known))


__all__ = ["already_applied", "note_write", "once", "recorded"]
