"""The records of the log laid into the tablets of a table that is being opened (protocol O5)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kudu_core.table.opened.tablets import NEWEST
from kudu_core.tablet.replay.bootstrap import Replay
from kudu_core.tablet.replay.replay_log import replay_log
from kudu_core.tablet.store.apply import renew_active

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.table_state import TableState
    from kudu_core.tablet.replay.replay_log import RecordSource
    from kudu_core.wal import Record


def replay_for_writer(
    engine: Engine, tail: RecordSource, before: TableState, moved: tuple[str, str] | None = None
) -> Replay:
    """Lay the records that are not in files into memory, which is flushed where it gets too much.

    ``before``: TABLE as the open found it.  ``moved``: a segment that was read under the first of these
    paths, and has the second by now.
    """
    log, context = engine.log, engine.tablet_context
    assert engine.maintenance is not None

    def count(record: Record) -> None:
        engine.memory.note(len(record.payload))
        engine.memory.admit()

    replay = Replay(
        {tablet.id: tablet for tablet in engine.tablets},
        engine.schema,
        writer=True,
        applied_writes=before.tokens,
        tokens_through=before.applied_ts,
    )
    context.cut = lambda: replay.position
    announce_files(engine)
    unreplayed = replay_log(
        replay, tail, lambda found, record: False, done=count, relieve=engine.maintenance.relieve
    )
    if unreplayed is not None:
        if moved is not None and unreplayed.path == moved[0]:
            unreplayed = dataclasses.replace(unreplayed, path=moved[1])
        raise unreplayed.as_corruption()
    for tablet in engine.tablets:
        renew_active(tablet)
    context.cut = log.cut
    for tablet in engine.tablets:
        # Else a reader, after a crash of this process, would end before an ingest that replay installed.
        assert tablet.manifest is not None
        tablet.manifest.sync()
    engine.writers.learn(replay.applied_writes, replay.applied_jobs)
    return replay


def announce_files(engine: Engine) -> None:
    """Keys of records will be looked for in every rowset that may have them."""
    if engine.in_store:
        for tablet in engine.tablets:
            for rowset in tablet.view.rowsets:
                rowset.will_open(NEWEST)


__all__ = ["announce_files", "replay_for_writer"]
