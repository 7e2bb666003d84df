"""The records of the log laid into the tablets of a table that is being opened (protocol O5)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kudu_core.table.opened.tablets import NEWEST
from kudu_core.tablet.replay.bootstrap import Replay
from kudu_core.tablet.replay.replay_log import replay_log
from kudu_core.tablet.store.apply import renew_active

if TYPE_CHECKING:
    from collections.abc import Callable

    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.read_end import ReadEnd
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


def replay_for_reader(
    engine: Engine,
    end: ReadEnd,
    tail: RecordSource,
    tokens_through: int,
    wanted: Callable[[Record], bool],
) -> int | None:
    """Lay the records of the log into a reader's tablets, up to its end, which may come earlier by that; how
    many they were.  None: by then the history of that end is gone, and the table has to be read anew.

    ``tokens_through``: the last record whose token is in TABLE, or was dropped from it.  ``wanted``: whether
    a record is in the reader's picture.
    """
    replay = Replay(
        {tablet.id: tablet for tablet in engine.tablets},
        engine.schema,
        writer=False,
        applied_writes=engine.writers.applied_writes,
        tokens_through=tokens_through,
    )
    engine.tablet_context.cut = lambda: replay.position  # of a store that is full, and frozen
    unreplayed = replay_log(replay, tail, lambda found, record: False, wanted=wanted)
    if unreplayed is not None:
        end.stop_at(unreplayed)
    engine.writers.learn(replay.applied_writes, replay.applied_jobs)
    if end.visible_ts >= engine.oldest_ts:
        return replay.records
    if end.unreplayed is not None:
        raise end.unreplayed.as_corruption()  # the history of the time before it is gone
    return None


def announce_files(engine: Engine) -> None:
    """Keys of records will be looked for in every rowset that may have them."""
    for tablet in engine.tablets:
        for rowset in tablet.view.rowsets:
            rowset.will_open(NEWEST)


__all__ = ["announce_files", "replay_for_reader", "replay_for_writer"]
