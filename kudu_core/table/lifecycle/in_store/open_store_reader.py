"""Opening a table in an object store for reading, beside a writer (protocol B9, B10).

TABLE, the snapshots, the log to its first missing number, and TABLE once more where that took long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.pool import Pool
from kudu_core.errors import Corruption, KuduError
from kudu_core.events import EventListener, TableOpened
from kudu_core.fs.missing import FileMissing
from kudu_core.options import Options
from kudu_core.table.lifecycle.checks import followed_by
from kudu_core.table.lifecycle.in_store.found import (
    Known,
    SnapshotMissing,
    files_of,
    snapshots_of,
    tail_of,
    with_edits,
)
from kudu_core.table.lifecycle.in_store.put_ids import new_id
from kudu_core.table.lifecycle.in_store.table_object import TableObject, place_of, read_table
from kudu_core.table.lifecycle.replaying import announce_files, replay_for_reader
from kudu_core.table.opened.engine import Engine
from kudu_core.table.opened.read_end import ReadEnd
from kudu_core.wal import LogChanged
from kudu_core.wal.objects.log_object import log_name

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.objects.api import ObjectStore
    from kudu_core.table.stored.table_state import TableState

READ_TRIES = 20
READ_PAUSE_S = 0.05


class _Shortened(Exception):
    """The log was shortened while it was read."""


class StoreReader:
    """Opens one table for reading, and again when it is to be refreshed."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        options: Options | Mapping[str, Any] | None,
        clock: Clock,
        listener: EventListener | None,
        pool: Pool,
    ) -> None:
        """``pool``: for requests side by side."""
        self._store, self._root, self._clock, self._pool = store, root, clock, pool
        self._options = options
        self._listener = listener
        self._newest: tuple[float, TableState, int] | None = None
        """Of the last picture: when TABLE was asked for, what it said, the first number that was missing."""
        self._known = Known()

    def open(self) -> tuple[Engine, TableOpened]:
        """A consistent picture of the table as it is durable now, and what listeners are told of that."""
        started = self._clock.monotonic_s()
        engine, replayed = self._read()
        return engine, TableOpened(
            elapsed_s=self._clock.monotonic_s() - started,
            path=self._root,
            mode="r",
            tablets=len(engine.tablets),
            records_replayed=replayed,
            orphans_deleted=0,
        )

    def reopen(self) -> tuple[Engine, TableOpened] | None:
        """As ``open``; None where nothing has come since, which takes one request."""
        if self._newest is not None:
            asked_s, state, number = self._newest
            is_there = self._is_there(number)
            # The age after the answer: the log may have been shortened while it was on its way.
            if not is_there and self._clock.monotonic_s() - asked_s < _grace_s(state) / 2:
                return None
        return self.open()

    def _is_there(self, number: int) -> bool:
        try:
            self._store.read_ranges(log_name(number), [(0, 1)])
        except FileNotFoundError:
            return False
        return True

    def _read(self) -> tuple[Engine, int]:
        problem: BaseException | None = None
        for _ in range(READ_TRIES):
            try:
                return self._read_once()
            except (LogChanged, SnapshotMissing, FileMissing, _Shortened) as exc:
                problem = exc  # the writer was faster: look again
                self._known = Known()
                self._clock.sleep(READ_PAUSE_S)
        if isinstance(problem, FileMissing):
            raise problem
        if isinstance(problem, SnapshotMissing | LogChanged):
            path = problem.path if isinstance(problem, SnapshotMissing) else str(problem)
            raise Corruption(path, 0, "it is missing, or does not follow the object before it") from problem
        raise KuduError(f"{self._root} changed {READ_TRIES} times while it was being opened") from problem

    def _read_once(self) -> tuple[Engine, int]:
        store, root = self._store, self._root
        asked_s = self._clock.monotonic_s()
        state, version = read_table(store, root)
        snapshots = snapshots_of(store, root, state, self._pool, self._known)
        tail = tail_of(store, root, state, self._pool, self._known)
        tail.read_on()
        if self._clock.monotonic_s() - asked_s >= _grace_s(state) / 2:
            again, _ = read_table(store, root)
            if place_of(again).log_first > place_of(state).log_first:
                raise _Shortened
        self._known.keep(state, snapshots, tail.read)
        tail.read = {}
        whole, unreplayed = followed_by(state, tail)
        contents = with_edits(whole, snapshots, tail, state.epoch)
        end = ReadEnd(tail.committed_ts, state.epoch, settled=0 < state.clean_end == tail.next_number)
        if unreplayed is not None:
            end.stop_at(unreplayed)
        files = files_of(store, root, state.uuid, self._pool, self._known)
        engine = Engine(
            TableObject(store, root, whole, version, clock=self._clock, new_id=new_id),
            whole,
            contents,
            path=root,
            fs=files,
            options=whole.options.overridden(self._options),
            clock=self._clock,
            listener=self._listener,
            read_end=end,
        )
        try:
            if tail.holds_writes:
                announce_files(engine)
            replayed = replay_for_reader(
                engine, end, tail, state.applied_ts, lambda record: record.ts <= end.visible_ts
            )
            if replayed is None:
                raise _Shortened
        except BaseException as error:
            if isinstance(error, Corruption):
                self._known = Known()  # of what was kept, if it was kept so
            engine.discard()
            raise
        files.end_opening()
        self._newest = asked_s, state, tail.next_number
        return engine, replayed


def _grace_s(state: TableState) -> float:
    return state.options.file_grace_s


__all__ = ["StoreReader"]
