"""Short stories of a table: the calls that are played over a file system that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kudu_core.tablet.compact.merge import merge_rowsets
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.bulk import MEMORY_LIMIT_BYTES
from tests.support.faults import INGEST_ROWS, SMALL, TINY, Stage, Steps, Story
from tests.support.inside import engine_of, tablets_of
from tests.support.models.deciding import merge, read_and_write, write_if


def _mixed(stage: Stage) -> None:
    """Rowsets with REDO and UNDO, an ingested one, changes in memory, rows in memory."""
    stage.create()
    stage.write(20)
    stage.write(20)
    stage.flush()
    stage.write(10)
    stage.flush()
    stage.write(10)


def _with_ingest(stage: Stage) -> None:
    stage.create()
    stage.write(15, range(20))
    stage.write(15, range(20))
    stage.flush()
    stage.write(10, range(20))
    stage.write(12, range(20, 30))


def _before_load(stage: Stage) -> None:
    """Rows in memory and in rowsets, in each key range of the loads to come."""
    stage.create(memory_limit_bytes=MEMORY_LIMIT_BYTES)
    stage.write(25)
    stage.flush()
    stage.write(10, range(20, 60))


def _one_tablet(stage: Stage) -> None:
    """What the path of single rows takes."""
    stage.create(buckets=1)
    stage.write(20)
    stage.flush()
    stage.write(10)


def _empty(stage: Stage) -> None:
    stage.create()
    stage.write(4)


def write_steps() -> Steps:
    return [lambda s: s.write(12), lambda s: s.write(3), lambda s: s.write(12)]


def row_steps() -> Steps:
    return [*[lambda s: s.write(1)] * 8, lambda s: s.flush(), *[lambda s: s.write(1)] * 6]


def flush_steps() -> Steps:
    """Updates, deletes and reinsertions before the flush and, by way of a frozen MemRowSet, during it."""

    def half_way(stage: Stage) -> None:
        from kudu_core.tablet.store.tablet import freeze_memrowset

        for tablet in tablets_of(stage.opened):
            if not tablet.view.frozen:
                freeze_memrowset(tablet)

    return [
        lambda s: s.write(20),
        lambda s: s.write(10),
        half_way,
        lambda s: s.write(12),
        lambda s: s.write(6),
        lambda s: s.flush_memrowsets(),
        lambda s: s.write(6),
        lambda s: s.flush(),
    ]


def delta_steps() -> Steps:
    return [lambda s: s.write(10), lambda s: s.flush(), lambda s: s.write(10), lambda s: s.flush()]


def ingest_steps() -> Steps:
    return [lambda s: s.ingest(), lambda s: s.write(6), lambda s: s.ingest(range(10, 60))]


def deciding_steps() -> Steps:
    """Merges, conditional writes and batches that read, by the log and by files, over rows in all places."""
    return [
        lambda s: s.decide(merge),
        lambda s: s.decide(write_if),
        lambda s: s.decide(read_and_write),
        lambda s: s.flush(),
        lambda s: s.decide(merge, range(10, 90), INGEST_ROWS + 8),
        lambda s: s.decide(write_if, range(10, 90), INGEST_ROWS + 8),
        lambda s: s.decide(read_and_write, range(10, 90), INGEST_ROWS + 8),
        lambda s: s.decide(merge),
    ]


def overwrite_steps() -> Steps:
    """Over rows on disk and in memory, over rows of an overwrite, and by nothing."""
    return [
        lambda s: s.overwrite(),
        lambda s: s.write(6),
        lambda s: s.overwrite(range(10, 60), attempts=1),
        lambda s: s.flush(),
        lambda s: s.write(6),
        lambda s: s.overwrite(rows=0),
        lambda s: s.write(6),
    ]


def load_steps() -> Steps:
    return [lambda s: s.load(), lambda s: s.write(6), lambda s: s.load(range(10, 90))]


def _compact(kind: str, columns: Sequence[str] | None = None) -> Callable[[Stage], None]:
    """One compaction of every rowset that has something to compact."""

    def step(stage: Stage) -> None:
        engine = engine_of(stage.opened)
        assert engine.compactions is not None
        stage.clock.advance(us=7)
        ids = None if columns is None else [engine.schema.by_name[name].id for name in columns]
        for tablet in engine.tablets:
            for rowset in tablet.view.rowsets:
                if rowset.meta.redo:
                    engine.compactions.compact(tablet, rowset.id, kind, ids)

    return step


def _collect(stage: Stage) -> None:
    stage.clock.advance(us=7)
    stage.opened.gc()


def _several_redo_files(stage: Stage) -> None:
    """Rowsets with REDO files of several flushes, also of deletions, and changes in memory."""
    _mixed(stage)
    stage.flush()
    stage.write(10)
    stage.flush()
    stage.write(10)
    stage.flush()
    stage.write(6)


def _short_history(stage: Stage) -> None:
    """The same, and nothing keeps what was."""
    stage.create(history_retention_s=0)
    for _ in range(4):
        stage.write(20)
        stage.flush()
    stage.write(6)


def compaction_steps() -> Steps:
    """Minor and major ones beside changes in memory, and again over what they left."""
    return [
        _compact(MINOR),
        lambda s: s.write(6),
        _compact(MAJOR, ["a"]),
        lambda s: s.flush(),
        lambda s: s.write(8),
        lambda s: s.flush(),
        _compact(MAJOR, ["b", "c"]),
        _compact(MINOR),
        lambda s: s.write(4),
    ]


def _retired(stage: Stage) -> None:
    """Compacted and collected, and the files that nothing names any more still lie there."""
    stage.create(file_grace_s=60, history_retention_s=0)
    for _ in range(3):
        stage.write(20)
        stage.flush()
    stage.opened.compact(full=True)
    stage.clock.advance(us=7)
    stage.opened.gc()
    stage.write(8)
    stage.flush()
    stage.write(6)


def history_steps() -> Steps:
    """UNDO files that are dropped, rowsets of dead rows, files that are deleted."""
    return [
        lambda s: s.opened.compact(full=True),
        _collect,
        lambda s: s.write(8),
        lambda s: s.flush(),
        lambda s: s.opened.compact(full=True),
        _collect,
        lambda s: s.write(4),
    ]


def log_steps() -> Steps:
    """Several segments, dropped and recycled; at rest the one that takes records goes too, and spares."""

    def rest(stage: Stage) -> None:
        engine = engine_of(stage.opened)
        assert engine.maintenance is not None
        engine.log.drop_spares()
        engine.log.roll()
        engine.maintenance.truncate_log()

    return [
        *[lambda s: s.write(6)] * 5,
        lambda s: s.flush(),
        *[lambda s: s.write(6)] * 4,
        lambda s: s.flush(),
        rest,
        lambda s: s.write(4),
        lambda s: s.flush(),
        rest,
    ]


def _overlapping(stage: Stage) -> None:
    """Rowsets that overlap, with copies of keys and a past in memory and in files."""
    stage.create()
    for _ in range(3):
        stage.write(16)
        stage.flush_memrowsets()
        stage.write(6)
    stage.ingest()
    stage.flush()
    stage.write(10)


def merge_steps() -> Steps:
    """All of each tablet, with writes and a flush between the rounds; then what came of it, and writes."""

    def merge(stage: Stage) -> None:
        engine = engine_of(stage.opened)
        for tablet in engine.tablets:
            ids = [rowset.id for rowset in tablet.view.rowsets]
            meanwhile = {
                "written": lambda: stage.write(6),
                "round": lambda: stage.write(4),
                "ready": lambda: stage.write(4),
            }

            def at_step(step: str, left: dict[str, Callable[[], None]] = meanwhile) -> None:
                left.pop(step, lambda: None)()

            if ids:
                merge_rowsets(tablet, ids, horizon=lambda drop: engine.horizon(drop=drop), at_step=at_step)

    return [
        merge,
        lambda s: s.write(8),
        lambda s: s.flush(),
        lambda s: s.opened.compact(full=True),
        lambda s: s.write(4),
    ]


def reopen_steps() -> Steps:
    def close(stage: Stage) -> None:
        stage.opened.close()

    return [lambda s: s.write(4), lambda s: s.flush(), close]


def _long_log(stage: Stage) -> None:
    """A log with writes, an ingest and a half-written last segment to replay."""
    stage.create()
    stage.write(15)
    stage.flush()
    stage.write(10)
    stage.ingest()
    stage.write(10)
    stage.write(10)


def _overwritten(stage: Stage) -> None:
    """A log with writes before and after an overwrite, of which no manifest knows, and after a second one."""
    stage.create()
    stage.write(15)
    stage.flush()
    stage.write(10)
    stage.overwrite()
    stage.write(10)
    stage.overwrite(range(10, 60))
    stage.write(10)


STORIES = {
    story.name: story
    for story in (
        Story("write", _mixed, write_steps, SMALL),
        Story("rows", _one_tablet, row_steps, SMALL),
        Story("flush", _empty, flush_steps, SMALL),
        Story("delta flush", _mixed, delta_steps, SMALL),
        Story("ingest", _with_ingest, ingest_steps, SMALL),
        Story("decided by what is there", _mixed, deciding_steps, SMALL),
        Story("overwrite", _mixed, overwrite_steps, SMALL, tried=2),
        Story("load", _before_load, load_steps, SMALL, spilled=True),
        Story("merge", _overlapping, merge_steps, SMALL),
        Story("log", _empty, log_steps, TINY),
        Story("delta compaction", _several_redo_files, compaction_steps, SMALL),
        Story("history", _short_history, history_steps, SMALL),
        Story("reopen", _long_log, reopen_steps, TINY, faults_in_open=True),
        Story("reopen after overwrites", _overwritten, reopen_steps, TINY, faults_in_open=True, tried=2),
        Story("reopen after compactions", _retired, reopen_steps, TINY, faults_in_open=True),
    )
}
