"""The words by which tests look inside a table, and change what users cannot.

This is the only file of the tests that knows which private names of the package lead there
(``tests/lint/test_inside.py``).  When one of them changes, only this file does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core.objects import object_lease
from kudu_core.rowset.disk import cell_order
from kudu_core.table.changes import counts
from kudu_core.table.changes.changes import Changes
from kudu_core.table.opened.handle import handle_of
from kudu_core.table.read.scan import Scan
from kudu_core.table.stored import table_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import ModuleType
    from weakref import finalize

    import pytest

    import kudu_core as kc
    from kudu_core._ext.columns.growing import AppendColumn
    from kudu_core._ext.index.hash_index import KeyTable
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.common.idempotence.writers import AppliedWrite
    from kudu_core.common.run.gates import Flag
    from kudu_core.common.run.locks import Reentrant
    from kudu_core.common.schema.schema import Schema
    from kudu_core.objects.object_lease import ObjectLease
    from kudu_core.rowset.disk.diskrowset import DiskRowSet
    from kudu_core.rowset.disk.lazy_file import LazyFile
    from kudu_core.rowset.memory.memrowset import MemRowSet
    from kudu_core.rowset.rows.meta import RowSetMeta
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.opened.tablets import Tablets
    from kudu_core.table.read.plan import ScanPlan
    from kudu_core.table.stored.table_state import TableState
    from kudu_core.tablet.maintain.compaction_lane import CompactionLane
    from kudu_core.tablet.maintain.flush_lane import FlushLane
    from kudu_core.tablet.maintain.scoring import Operation
    from kudu_core.tablet.store.tablet import Tablet
    from kudu_core.wal import Log


# ---- what an open table consists of ----


def picture_of(thing: Any) -> str:
    """What a notebook shows of it, as HTML."""
    html: str = thing._repr_html_()
    return html


def engine_of(table: kc.Table) -> Engine:
    """What stands behind an open table, until it is closed or refreshed."""
    return handle_of(table).engine


def table_file_of(table: kc.Table) -> TableState:
    """What the file TABLE says."""
    return engine_of(table).table_file.state


def schema_of(table: kc.Table) -> Schema:
    """The columns with their numbers, as ``table.schema`` does not show them."""
    return engine_of(table).schema


def forget_parsed_tables() -> None:
    """The next open takes TABLE apart, though one before has read the same bytes."""
    table_state._remembered.cache_clear()


def log_of(table: kc.Table) -> Log:
    return engine_of(table).log


def page_cache_of(table: kc.Table) -> PageCache:
    return engine_of(table).cache


def tablets_of(table: kc.Table) -> Tablets:
    """In the order of their numbers; dropped ones until they are purged."""
    return engine_of(table).tablets


def tablet_of(table: kc.Table) -> Tablet:
    """The first tablet: the only one, of a table without partitions."""
    return tablets_of(table)[0]


def rowsets_of(table: kc.Table) -> tuple[DiskRowSet, ...]:
    """The rowsets on disk of the first tablet."""
    return tablet_of(table).view.rowsets


def all_rowsets_of(table: kc.Table) -> list[DiskRowSet]:
    """The rowsets on disk of all tablets."""
    return [rowset for tablet in tablets_of(table) for rowset in tablet.view.rowsets]


def metas_of(table: kc.Table) -> tuple[RowSetMeta, ...]:
    """What the manifest of the first tablet says of its rowsets."""
    return tablet_of(table).rowset_metas


def flush_lane_of(table: kc.Table) -> FlushLane:
    """The half of maintenance that flushes.  A reader has none."""
    lane = engine_of(table).maintenance
    assert lane is not None
    return lane


def compaction_lane_of(table: kc.Table) -> CompactionLane:
    """The half of maintenance that compacts.  A reader has none."""
    lane = engine_of(table).compactions
    assert lane is not None
    return lane


# ---- what a table knows ----


def oldest_ts_of(table: kc.Table) -> int:
    """The oldest time that can be read: what came before it is forgotten."""
    return engine_of(table).oldest_ts


def applied_writes_of(table: kc.Table) -> dict[str, AppliedWrite]:
    """The last write of each writer that gives its writes names."""
    return engine_of(table).writers.applied_writes


def poison_of(table: kc.Table) -> BaseException | None:
    """The error after which the table takes no writes, or None."""
    return engine_of(table).poisoned


def watch_of(table: kc.Table) -> finalize[Any, Any]:
    """What closes a table that nobody holds any more."""
    return handle_of(table)._watch


def before_each_open(table: kc.Table, act: Callable[[], object]) -> None:
    """``act`` each time when a reader has opened a newer state, and has not taken it yet."""
    handle = handle_of(table)
    opened = handle._reopen
    assert opened is not None

    def reopen() -> Any:
        made = opened()
        act()
        return made

    handle._reopen = reopen


def is_left_to_caller(handle: Handle) -> bool:
    """Whether nobody closes a table but who calls ``close``."""
    return not handle._watch.alive


def is_closed(table: kc.Table) -> bool:
    """Whether every call is refused: from the moment at which a close begins."""
    return engine_of(table).refusal is not None


def is_ended(table: kc.Table) -> bool:
    """Whether a close has come to its end: nothing is held any more."""
    return engine_of(table).closing.ended


def plan_of(scan: kc.Scan) -> ScanPlan:
    """What a scan was told to read, with its predicate compiled."""
    return scan._plan


def is_opened(stored: LazyFile[Any]) -> bool:
    """Whether anything was read from a file of a rowset."""
    return stored._file is not None


def estimated_memory_of(table: kc.Table) -> int:
    """Bytes of the memory stores: the last measurement, and what is counted since."""
    return engine_of(table).memory.estimate()


def token_locks_of(table: kc.Table) -> list[Reentrant]:
    """The locks of writers that give their writes names."""
    return engine_of(table).writers._token_locks


def job_locks_of(table: kc.Table) -> Mapping[str, Reentrant]:
    """The locks of distributed writes that are being committed."""
    return engine_of(table).writers._job_locks


def pinned_schemas_of(table: kc.Table) -> Collection[Any]:
    """The schemas that somebody still reads with."""
    return engine_of(table).schema_pins._pinned


def owned(lock: Reentrant) -> bool:
    """Whether this thread holds it."""
    held: bool = lock._is_owned()  # type: ignore[attr-defined]
    return held


def closing_of(lane: CompactionLane) -> Flag:
    """What a close raises for the lane to stop."""
    return lane._stop


def leave_alone(lane: CompactionLane, operation: Operation) -> None:
    """As after an operation that failed."""
    lane._leave_alone(operation)


def left_alone_by(lane: CompactionLane, tablet: Tablet) -> set[int]:
    """The rowsets whose operations have failed."""
    return lane._rowsets_left_alone(tablet)


def look_for_work(lane: CompactionLane) -> None:
    """As a thread of the lane does before it chooses."""
    lane._operations()


def run_one_due(lane: CompactionLane) -> bool:
    """As a thread of the lane does while others may be at work: an operation, if one is due."""
    return lane.run_one(may=lane._is_due)


def tablets_apart_of(lane: CompactionLane) -> set[int]:
    """The tablets in which one of several threads is at work, by number."""
    return lane._apart


def work_under_way(engine: Engine) -> dict[str, Any]:
    """What an engine has recorded of calls, maintenance and threads that have not ended."""
    poisoned = engine.poisoned is not None
    ended = engine.closing.ended
    stated: dict[str, Any] = {
        "compacting": {t.id: set(t.compacting) for t in engine.tablets if t.compacting},
        "committing": set(engine.writers.committing),
        "closing": set(engine.closing.threads),
        "held_bytes": engine.tablet_context.work.held_bytes,
        "building": set(engine.tablet_context.building._taken),
        "pool": set() if ended else {t for t in engine.pool._open if t._calls or not t._finished},
        "in flight": {} if poisoned or engine._log is None else dict(engine._log.in_flight),
    }
    if (lane := engine.compactions) is not None:
        stated |= {"working": set(lane._working), "paused": set(lane._paused), "apart": set(lane._apart)}
    return stated


def kernels_of(store: MemRowSet) -> tuple[KeyTable, AppendColumn, list[AppendColumn]]:
    """Its keys, the times of its inserts, and its columns, as compiled writes have them."""
    return store._keys, store._inserted.kernel, store._kernels


def changes_within(table: kc.Table, since: int, until: int, rows: int) -> int:
    """Where changes that are read from ``since`` on would stop, if so many rows of them are wanted."""
    return counts.changes_within(handle_of(table), since, until, rows)


# ---- what only tests do ----


def wait_durable(table: kc.Table) -> None:
    """Wait until all that is written is on disk."""
    log = log_of(table)
    log.wait_durable(log.cut())


def set_options(table: kc.Table, **changed: Any) -> None:
    """Change options of an open table."""
    engine_of(table).options = table.options.replace(**changed)


def sweep_soon(table: kc.Table) -> None:
    """The next look at staging is due at once."""
    engine_of(table).swept_s = -1e9


def sweep_lost_soon(table: kc.Table) -> None:
    """The next look at ``lost/`` is due at once."""
    engine_of(table).lost_swept_s = -1e9


def never_sweep(table: kc.Table) -> None:
    """Staging is not looked through any more."""
    engine = engine_of(table)
    engine.swept_s = engine.clock.monotonic_s() + 1e9


def renewed(lease: ObjectLease) -> bool:
    """Renew it, as its thread does now and then; False where another one has it."""
    return lease._renewed()


def given_up_leases() -> set[bytes]:
    """By their put ids: what this process knows of them, and another one does not."""
    return object_lease._given_up


def forget(table: kc.Table) -> None:
    """Let go of a table as the death of its process does: nothing is written, nothing waited for."""
    watch_of(table).detach()
    engine_of(table).abandon()


def forgetting(patch: pytest.MonkeyPatch, module: ModuleType) -> Callable[[], None]:
    """What a module opens by ``open_handle`` is let go of by the answer, as the death of its process does."""
    opened: list[Handle] = []
    real = module.open_handle

    def opening(*arguments: Any, **named: Any) -> Handle:
        handle: Handle = real(*arguments, **named)
        opened.append(handle)
        return handle

    def die() -> None:
        for handle in opened:
            handle._watch.detach()
            handle.engine.abandon()

    patch.setattr(module, "open_handle", opening)
    return die


def after_opening(patch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Have ``then`` called whenever a scan, or changes, have opened the files that they will read."""

    def calling(opening: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            found = opening(*arguments)
            then()
            return found

        return called

    patch.setattr(Scan, "_sources", calling(Scan._sources))
    patch.setattr(Changes, "_stores", calling(Changes._stores))


def orders_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each order of cells that is made for an index from now on."""
    made: list[int] = []
    usual = cell_order._made
    monkeypatch.setattr(cell_order, "_made", lambda *given: made.append(1) or usual(*given))
    return made
