"""Maintenance at a caller's wish: what the lanes of an open table would do in the background, done now."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.measure.work import LongWork
from kudu_core.errors import InvalidArgument, KuduError, NotSupported
from kudu_core.tablet.maintain.folding import stored_rows

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.compact.merge import MergeBuilder

REPLAYED_RECORDS, REPLAYED_BYTES = 16, 4 << 20
"""So many records, or so much of them in memory, are much for an open: a replay of a record of 500 rows takes
2 to 4 ms, a flush of eight small tablets what 20 to 40 records take."""


def check_budget(budget_s: object) -> None:
    if budget_s is not None and (
        isinstance(budget_s, bool) or not isinstance(budget_s, int | float) or not budget_s >= 0
    ):
        raise InvalidArgument(f"budget_s is a number of seconds from 0 or None, not {budget_s!r}")


def flush_now(engine: Engine) -> None:
    """Every memory store of every tablet to disk, and what the log holds as well."""
    engine.log.wait_durable(engine.log.cut())
    assert engine.maintenance is not None
    engine.maintenance.flush_all()


def settle(engine: Engine, records_replayed: int) -> bool:
    """Before a process that has opened a table for one write lets go of it: where its open replayed much, all
    goes to files and the log is dropped, so that the next open need not do it all again; whether it did.

    What fails here is found again by the next open: what was written is in the log.
    """
    memory_bytes = sum(tablet.memory_bytes for tablet in engine.tablets)
    is_much = records_replayed >= REPLAYED_RECORDS or memory_bytes >= REPLAYED_BYTES
    if not is_much or engine.options.maintenance != "background":
        return False
    assert engine.maintenance is not None
    with suppress(OSError, KuduError):
        engine.maintenance.flush_all(to_the_end=True)
        return True
    return False


def compact_now(engine: Engine, *, full: bool, progress: Any = None) -> None:
    """The compactions that pay, or all of them; then the files that nobody reads any more go."""
    assert engine.compactions is not None
    total = sum(map(stored_rows, engine.tablets)) if full else None
    with LongWork("compact", engine.tell, total=total, progress=progress):
        engine.compactions.compact_all(full=full)
    engine.compactions.collect_garbage()


def collect_now(engine: Engine) -> None:
    """History that nothing keeps goes, then the files that nobody reads any more, and in a folder what the
    log has of changes that are in files: else that of a table that is seldom written to keeps what was
    deleted.
    """
    assert engine.compactions is not None and engine.maintenance is not None
    engine.compactions.collect_history()
    engine.compactions.collect_garbage()
    if not engine.in_store:
        with suppress(NotSupported):  # timestamps have ended, and with them records
            engine.maintenance.truncate_log(to_the_end=True)


def maintain_now(
    engine: Engine, budget_s: float | None, builder: MergeBuilder | None = None, threads: int = 1
) -> int:
    """What background maintenance would do now; how many operations it was.

    ``builder``: who is asked to build the outputs of merges; ``threads``: compactions at a time, of 1
    on the caller's thread.
    """
    check_budget(budget_s)
    assert engine.maintenance is not None and engine.compactions is not None
    started = engine.clock.monotonic_s()

    def may_go_on() -> bool:
        engine.check_open()
        return budget_s is None or engine.clock.monotonic_s() - started < budget_s

    done = engine.maintenance.run_due(may_go_on, patient=False)
    with engine.compactions.pause():
        engine.compactions.await_others(budget_s)  # what the background is at would be left out
        done += engine.compactions.run_all(may_go_on, builder, threads)
    engine.compactions.collect_garbage()
    return done


__all__ = ["check_budget", "collect_now", "compact_now", "flush_now", "maintain_now", "settle"]
