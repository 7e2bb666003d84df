"""Opening a table for reading, beside a writer (protocol R1 to R3).

A reader waits for no lock and writes nothing.  What changes while it looks, it looks at again.  The shared
lock that it takes tells the writer that somebody reads (protocol E4), and keeps nobody out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.errors import Corruption, KuduError, TableNotFound
from kudu_core.events import EventListener, TableOpened
from kudu_core.fs.missing import FileMissing
from kudu_core.options import Options
from kudu_core.table.lifecycle.checks import (
    check_age,
    check_numbers,
    followed_by,
    is_alteration,
    table_state,
    tablet_states,
)
from kudu_core.table.lifecycle.replaying import replay_for_reader
from kudu_core.table.opened.engine import Engine
from kudu_core.table.opened.read_end import ReadEnd
from kudu_core.table.opened.table_file import TableFile
from kudu_core.table.stored.table_state import TableState, tablet_directory
from kudu_core.tablet.store import records
from kudu_core.tablet.store.edits import TabletState
from kudu_core.wal import RECORD_KIND_INGEST, LogChanged, LogTail, Record, open_log

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, ReaderLock

READ_TRIES = 20
READ_PAUSE_S = 0.05


def open_for_reading(
    fs: FileSystem,
    path: str,
    options: Options | Mapping[str, Any] | None,
    clock: Clock,
    listener: EventListener | None,
) -> tuple[Engine, TableOpened]:
    """A consistent picture of the table as it is durable now, and what its listener is to be told of that,
    while writers go on.  Creates and changes nothing."""
    started = clock.monotonic_s()
    table_state(fs, path)
    lock = fs.reader_lock(f"{path}/LOCK")
    lock.take()  # protocol R1: before anything is read that names files
    try:
        engine, replayed = _read(fs, path, options, clock, listener, lock)
    except BaseException:
        lock.release()
        raise
    return engine, TableOpened(
        elapsed_s=clock.monotonic_s() - started,
        path=path,
        mode="r",
        tablets=len(engine.tablets),
        records_replayed=replayed,
        orphans_deleted=0,
    )


def _read(
    fs: FileSystem,
    path: str,
    options: Options | Mapping[str, Any] | None,
    clock: Clock,
    listener: EventListener | None,
    lock: ReaderLock,
) -> tuple[Engine, int]:
    problem: BaseException | None = None
    for _ in range(READ_TRIES):
        try:
            return _read_once(fs, path, options, clock, listener, lock)
        except (LogChanged, TableMoved, FileMissing, FileNotFoundError) as exc:
            if isinstance(exc, TableNotFound):
                raise
            problem = exc  # the writer was faster: look again
            clock.sleep(READ_PAUSE_S)
    if isinstance(problem, FileMissing):
        raise problem
    if isinstance(problem, FileNotFoundError):
        raise Corruption(path, 0, f"a file that the table names is missing: {problem}") from problem
    raise KuduError(f"{path} changed {READ_TRIES} times while it was being opened") from problem


class TableMoved(Exception):
    """TABLE or a manifest changed while it was being read."""


def _check_moved(state: TableState, now: TableState, tail: LogTail) -> None:
    """``TableMoved`` unless what was read with ``state`` and the log amount to what TABLE says now."""
    if now.epoch != state.epoch or (tail.through > state.applied_ts and now != state):
        raise TableMoved
    if not {t.id for t in state.tablets} <= {t.id for t in now.tablets}:
        raise TableMoved  # a tablet was purged, and with it its manifest


def _read_once(
    fs: FileSystem,
    path: str,
    options: Options | Mapping[str, Any] | None,
    clock: Clock,
    listener: EventListener | None,
    lock: ReaderLock,
) -> tuple[Engine, int]:
    with pictured(fs, path, lock) as seen:
        engine = Engine(
            TableFile(fs, path, seen.state),
            seen.state,
            seen.contents,
            path=path,
            fs=fs,
            options=seen.state.options.overridden(options),
            clock=clock,
            listener=listener,
            read_end=seen.end,
        )
        try:
            wanted = _wanted(engine, seen.end, seen.contents)
            replayed = replay_for_reader(engine, seen.end, seen.tail, seen.before.applied_ts, wanted)
            if replayed is None:
                raise TableMoved
        except BaseException:
            engine.discard()
            raise
    return engine, replayed


@dataclass(frozen=True, slots=True)
class Picture:
    """What is read of a table, of one moment."""

    before: TableState
    """What TABLE says."""
    state: TableState
    """The same with what the log adds."""
    contents: dict[int, TabletState]
    """By tablet, what its manifest says."""
    tail: LogTail
    """Whose records are read on."""
    end: ReadEnd


@contextmanager
def pictured(fs: FileSystem, path: str, lock: ReaderLock) -> Iterator[Picture]:
    """The table as it is durable now; ``TableMoved`` and ``LogChanged`` where a writer was faster.

    Protocol R1: the log's segments first, then TABLE, then manifests; so nothing can fall between.
    """
    alive = fs.lease(f"{path}/LOCK").holder() is not None
    first = table_state(fs, path)
    with closing(
        open_log(
            fs,
            f"{path}/wal",
            first.uuid,
            writer_alive=alive,
            clean_end=0 if alive else first.clean_end,
            alters=is_alteration,
        )
    ) as tail:
        before = table_state(fs, path)
        if before.epoch != first.epoch:
            raise TableMoved  # a takeover between TABLE and the log: the segments may be of another life
        contents = tablet_states(fs, path, before)
        alive = fs.lease(f"{path}/LOCK").holder() is not None
        tail.read_on(writer_alive=alive, clean_end=0 if alive else before.clean_end)
        if alive and tail.taken_over:
            raise TableMoved  # in a moment it will say that: now nothing would be readable
        _check_moved(before, table_state(fs, path), tail)
        check_numbers(path, before, contents, tail)  # of tablets that are still there
        check_age(path, before, contents, tail)
        # What the writer has altered since is in the log; a tablet that it made there is in TABLE by now.
        state, unreplayed = followed_by(before, tail)
        if alive and not all(entry.id in contents for entry in state.tablets):
            raise TableMoved
        contents |= tablet_states(fs, path, state, known=contents)
        if not alive:
            tail.check_mark(max((s.mark for s in contents.values()), default=0))
        end = ReadEnd(tail.committed_ts, tail.epoch, settled=not alive, lock=lock)
        if unreplayed is not None:
            end.stop_at(unreplayed)
        yield Picture(before, state, contents, tail, end)


def _wanted(engine: Engine, end: ReadEnd, states: dict[int, TabletState]) -> Callable[[Record], bool]:
    """Whether a record is in the reader's picture.  It ends before an ingest that the manifests do not
    hold (protocol R2)."""
    clean_end = engine.table_file.state.clean_end

    def wanted(record: Record) -> bool:
        if record.ts > end.visible_ts:
            return False
        try:
            lacking = lacking_of(record, states) if record.kind == RECORD_KIND_INGEST else None
        except Corruption:
            return True  # the replay meets it again, and says which record it is
        if lacking is None:
            return True
        if clean_end:
            raise Corruption(
                f"{tablet_directory(engine.path, lacking)}/MANIFEST",
                0,
                f"the table was closed after the ingest of {record.ts}, which is not in it",
            )
        end.stop_before(record.ts)
        return False

    return wanted


def lacking_of(record: Record, states: dict[int, TabletState]) -> int | None:
    """A tablet whose manifest does not hold an ingest yet, None when all do."""
    named = records.decode(record.payload, f"log record {record.lsn}", 0).tablets
    return next((t for t in named if t in states and record.ts > states[t].ingests_durable), None)


__all__ = [
    "READ_PAUSE_S",
    "READ_TRIES",
    "Picture",
    "TableMoved",
    "lacking_of",
    "open_for_reading",
    "pictured",
]
