"""What happens to a table beside reads and writes: flushes, compactions, history GC, ends and openings.

Answers stay what they were, except that moments before the floor are refused once history was collected.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import kudu_core as kc
from kudu_core.common.run.clock import hybrid
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.differential.cases import Disagree, same
from tests.support.differential.changing import ChangesLook
from tests.support.differential.looking import Look
from tests.support.inside import engine_of, forget, oldest_ts_of

if TYPE_CHECKING:
    from kudu_core.rowset.disk.diskrowset import DiskRowSet
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet
    from tests.support.differential.pair import Pair


@dataclass
class Floor:
    """How far back history reaches, by the model."""

    value: int = 0
    durable: int = 0
    """What dropped files have made of it: an opening may go back to this and no further."""

    def check(self, pair: Pair) -> None:
        """The table says the same; in the background it may have risen as far as it may."""
        found = oldest_ts_of(pair.table)
        if pair.manual:
            same(found, self.value, "the oldest readable moment")
            return
        limit = max(self.value, horizon(pair))
        if not self.value <= found <= limit:
            raise Disagree(f"history reaches back to {found}, not {self.value} to {limit}")
        self.value = found

    def opened(self, pair: Pair) -> None:
        """After an opening for writing."""
        found = oldest_ts_of(pair.table)
        if pair.manual and not self.durable <= found <= self.value:
            raise Disagree(f"opened with history back to {found}, not {self.durable} to {self.value}")
        self.value = self.durable = found


def horizon(pair: Pair) -> int:
    """Protocol H2 with what the model knows: the last commit, its own pin, the clock."""
    retention = pair.case.options.get("history_retention_s", 86_400)
    if retention is None:
        return 0
    limits = [engine_of(pair.table).committed_ts, hybrid(pair.clock.now_us() - int(retention * 1e6))]
    if pair.pinned is not None:
        limits.append(pair.pinned.held)
    return max(0, min(limits))


# ---- files ----


def _flush(pair: Pair, rng: random.Random) -> None:
    pair.table.flush()


def _flush_memrowsets(pair: Pair, rng: random.Random) -> None:
    """Only rows; changes of rowsets stay in memory."""
    engine = _engine(pair)
    assert engine.maintenance is not None
    for tablet in engine.tablets:
        if rng.random() < 0.7:
            engine.maintenance.flush(tablet)


def _flush_deltas(pair: Pair, rng: random.Random) -> None:
    engine = _engine(pair)
    assert engine.maintenance is not None
    for tablet, rowset in _rowsets(engine):
        if rowset.memory_stores and rng.random() < 0.7:
            engine.maintenance.flush_rowset(tablet, rowset.id)


def _minor(pair: Pair, rng: random.Random) -> None:
    engine = _engine(pair)
    assert engine.compactions is not None
    for tablet, rowset in _rowsets(engine):
        if rng.random() < 0.7:
            engine.compactions.compact(tablet, rowset.id, MINOR)


def _major(pair: Pair, rng: random.Random) -> None:
    """Any columns of some rowsets."""
    engine = _engine(pair)
    assert engine.compactions is not None
    share = rng.choice((0.3, 0.7, 1.0))
    columns = [c.id for c in engine.schema.value_columns if rng.random() < share]
    for tablet, rowset in _rowsets(engine):
        if rng.random() < 0.7:
            engine.compactions.compact(tablet, rowset.id, MAJOR, columns)


def _compact(pair: Pair, rng: random.Random) -> None:
    pair.table.compact(full=rng.random() < 0.7)
    _may_have_risen(pair)


def _merge(pair: Pair, rng: random.Random) -> None:
    """Some rowsets of each tablet."""
    engine = _engine(pair)
    assert engine.compactions is not None
    for tablet in engine.tablets:
        ids = [rowset.id for rowset in tablet.view.rowsets if rng.random() < 0.8]
        if ids:
            engine.compactions.merge(tablet, ids)
    _may_have_risen(pair)


def _may_have_risen(pair: Pair) -> None:
    """A merge drops the history that nothing keeps, where it finds any."""
    found, most = _engine(pair).oldest_ts, max(pair.floor.value, horizon(pair))
    if not pair.floor.value <= found <= most:
        raise Disagree(f"history reaches back to {found}, not {pair.floor.value} to {most}")
    pair.floor.value = found


def _collect(pair: Pair, rng: random.Random) -> None:
    engine, floor = _engine(pair), pair.floor
    least = max(floor.value, horizon(pair))
    ancient = any(undo.max_ts <= least for undo in _undo_files(engine))
    pair.table.gc()
    most = max(floor.value, horizon(pair))  # a commit in the background may have raised it
    found = engine.oldest_ts
    if not pair.manual:
        floor.check(pair)
        return
    if not (least <= found <= most or (found == floor.value and not ancient)):
        raise Disagree(f"history collected through {found}, not {least} to {most}")
    left = [undo.file.name for undo in _undo_files(engine) if undo.max_ts <= found]
    same(left if found > floor.value else [], [], "UNDO files that nothing needs")
    floor.value = found
    if ancient:
        floor.durable = found


def _undo_files(engine: Engine) -> list[kc.rowset.meta.DeltaRef]:
    return [undo for tablet in engine.tablets for meta in tablet.rowset_metas for undo in meta.undo]


def _rowsets(engine: Engine) -> list[tuple[Tablet, DiskRowSet]]:
    return [(tablet, rowset) for tablet in engine.tablets for rowset in tablet.view.rowsets]


def _engine(pair: Pair) -> Engine:
    return engine_of(pair.table)


# ---- ends, openings and readers ----


def _reopen(pair: Pair, rng: random.Random) -> None:
    pair.release()
    pair.table.close()
    _opened(pair)


def _crash(pair: Pair, rng: random.Random) -> None:
    """What is there while the table is open is opened by another process, so to speak."""
    pair.release()
    if pair.reader is not None:
        pair.reader.close()
        pair.reader = None
    engine = _engine(pair)
    if not pair.manual:  # files must not change while they are copied
        assert engine.compactions is not None and engine.maintenance is not None
        engine.compactions.close()
        engine.maintenance.close()
    pair.ground.crash(rng)
    forget(pair.table)
    engine.pool.close()
    pair.ground.tidy(rng)
    _opened(pair)


def _opened(pair: Pair) -> None:
    pair.table = pair.open("rw")
    visible, written = pair.table.timestamp, pair.timeline.last_change
    if visible < written:
        raise Disagree(f"after an opening only {visible} of {written} is visible")
    pair.floor.opened(pair)
    pair.timeline.forget_after(visible)
    pair.seen = visible


def _read_elsewhere(pair: Pair, rng: random.Random) -> None:
    with pair.open() as reader:
        _check_reader(pair, reader)


def _refresh(pair: Pair, rng: random.Random) -> None:
    if pair.reader is None:
        pair.reader = pair.open()
    else:
        before = pair.reader.timestamp
        pair.reader.refresh()
        same(pair.reader.timestamp >= before, True, "refresh does not go back")
    _check_reader(pair, pair.reader)


def _check_reader(pair: Pair, reader: kc.Table) -> None:
    seen = reader.timestamp
    if pair.case.options["durability"] == "sync" and seen < pair.timeline.last_change:
        raise Disagree(f"a reader sees {seen}, but {pair.timeline.last_change} was acknowledged")
    rng = random.Random(seen)
    Look(pair, reader, rng, pair.timeline.at(seen), None).everything()
    times = [t for t in pair.timeline.times if oldest_ts_of(reader) <= t <= seen]
    for at in rng.sample(times, min(2, len(times))):
        Look(pair, reader, rng, pair.timeline.at(at), at).something()
    if times:
        since, until = sorted((rng.choice(times), rng.choice(times)))
        ChangesLook(pair, reader, rng).between(since, until)


def _pin(pair: Pair, rng: random.Random) -> None:
    pair.pin()


def _release(pair: Pair, rng: random.Random) -> None:
    pair.release()


UPKEEP: dict[str, Callable[[Pair, random.Random], None]] = {
    "flush": _flush,
    "flush rows": _flush_memrowsets,
    "merge": _merge,
    "flush deltas": _flush_deltas,
    "minor": _minor,
    "major": _major,
    "compact": _compact,
    "gc": _collect,
    "reopen": _reopen,
    "crash": _crash,
    "reader": _read_elsewhere,
    "refresh": _refresh,
    "pin": _pin,
    "release": _release,
}
"""By the name in ``Do``.  Each leaves every answer as it was."""
