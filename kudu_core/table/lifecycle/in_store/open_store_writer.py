"""Opening a table in an object store for writing (protocol B4).

lease -> begin the epoch -> snapshots and log -> fence -> look again -> replay -> start the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.common.run.pool import Pool
from kudu_core.errors import Corruption, InvalidArgument, NotSupported
from kudu_core.events import EventListener, TableOpened
from kudu_core.objects.object_lease import ObjectLease
from kudu_core.options import Options
from kudu_core.table.lifecycle.checks import followed_by
from kudu_core.table.lifecycle.in_store.found import (
    SnapshotMissing,
    files_of,
    snapshots_of,
    tail_of,
    with_edits,
)
from kudu_core.table.lifecycle.in_store.put_ids import new_id
from kudu_core.table.lifecycle.in_store.store_home import StoreHome
from kudu_core.table.lifecycle.in_store.table_object import TableObject, read_table
from kudu_core.table.lifecycle.open_writer import log_options, start_lanes
from kudu_core.table.lifecycle.replaying import announce_files, replay_for_writer
from kudu_core.table.opened import debug
from kudu_core.table.opened.engine import Engine
from kudu_core.table.stored.home import Writing
from kudu_core.table.stored.table_state import MAX_EPOCH, TableState, replace
from kudu_core.tablet.replay import invariants
from kudu_core.tablet.store.logged_manifest import LoggedManifest
from kudu_core.wal import LogChanged
from kudu_core.wal.objects.log_object import LogPlace
from kudu_core.wal.objects.object_fence import put_fence
from kudu_core.wal.objects.object_log import ObjectLog

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.objects.api import ObjectStore
    from kudu_core.tablet.store.edits import TabletState
    from kudu_core.wal.objects.object_tail import ObjectTail

T = TypeVar("T")


def open_for_writing(
    store: ObjectStore,
    root: str,
    options: Options | Mapping[str, Any] | None,
    timeout_s: float,
    clock: Clock,
    listener: EventListener | None,
    handle: Callable[[Engine], T],
    pool: Pool,
    restore: str = "",
) -> T:
    """As ``lifecycle.open_writer.open_for_writing``.  ``pool``: for requests side by side; ``restore``: as of
    ``read_table``.

    ``Fenced``: another process has opened the table for writing meanwhile.
    """
    started = clock.monotonic_s()
    read_table(store, root, restore=restore)
    lease = ObjectLease(store, root, clock=clock, new_id=new_id)
    opened: list[Engine] = []
    try:
        lease.try_acquire(timeout_s)
        opening = _Opening(store, root, clock, pool, restore)
        engine = opening.engine(options, listener, lease)
        opened.append(engine)
        if opening.tail.holds_writes:
            announce_files(engine)
        replay = replay_for_writer(engine, opening.tail, opening.epoch_state)
        state = opening.state
        if state is not opening.epoch_state:
            engine.table_file.change(lambda _: replace(state, tokens=dict(engine.writers.applied_writes)))
        assert engine.maintenance is not None
        engine.maintenance.may_truncate = True
        if debug.is_on():
            through = opening.tail.through
            invariants.check_open(engine.tablets, engine.log, floor=engine.pins.floor, through=through)
        engine.tell(
            TableOpened(
                elapsed_s=clock.monotonic_s() - started,
                path=root,
                mode="rw",
                tablets=len(engine.tablets),
                records_replayed=replay.records,
                orphans_deleted=0,
            )
        )
        made = handle(engine)
        start_lanes(engine)
        return made
    except BaseException:
        for engine in opened:
            engine.discard()
        lease.release()
        raise


def end_writers(
    store: ObjectStore, root: str, clock: Clock, pool: Pool, restore: str
) -> ObjectLease:
    """Take the lease and begin an epoch, in which nobody writes: every writer of before is fenced.

    What is returned is the caller's to release.  ``Locked``; ``restore`` as of ``read_table``.
    """
    lease = ObjectLease(store, root, clock=clock, new_id=new_id)
    lease.try_acquire()
    try:
        _Opening(store, root, clock, pool, restore)
    except BaseException:
        lease.release()
        raise
    return lease


class _Opening:
    """A table that is being opened: its epoch has begun, and the log is read up to the own fence."""

    tail: ObjectTail
    epoch_state: TableState
    """TABLE, as it was put."""
    state: TableState
    """The same with what the log adds; ``epoch_state`` itself where that is nothing."""
    contents: dict[int, TabletState]
    """By tablet."""

    def __init__(self, store: ObjectStore, root: str, clock: Clock, pool: Pool, restore: str) -> None:
        self._store, self._root, self._clock, self._pool = store, root, clock, pool
        before, version = read_table(store, root, restore=restore)
        if before.epoch + 1 >= MAX_EPOCH:
            raise NotSupported(
                f"{root} was opened for writing {before.epoch:,} times, the most there may be; restore a "
                "backup of it into another folder"
            )
        self.table = TableObject(store, root, before, version, clock=clock, new_id=new_id)
        self.table.install(replace(before, epoch=before.epoch + 1, clean_end=0))
        self.epoch_state = self.table.state
        try:
            self._read()
        except (LogChanged, SnapshotMissing) as error:
            self.table.prove()  # a later writer has deleted it; else it is lost
            path = error.path if isinstance(error, SnapshotMissing) else str(error)
            raise Corruption(path, 0, "it is missing, or does not follow the object before it") from error

    def _read(self) -> None:
        store, root, state = self._store, self._root, self.epoch_state
        snapshots = snapshots_of(store, root, state, self._pool)
        self.tail = tail_of(store, root, state, self._pool)
        self.tail.read_on()
        self.tail.read = {}
        put_fence(store, self.tail, state.uuid, state.epoch, new_id)
        self.table.prove()
        self.state, unreplayed = followed_by(state, self.tail)
        if unreplayed is not None:
            raise unreplayed.as_corruption()
        self.contents = with_edits(self.state, snapshots, self.tail, state.epoch)

    def engine(
        self, options: Options | Mapping[str, Any] | None, listener: EventListener | None, lease: ObjectLease
    ) -> Engine:
        home: StoreHome | None = None

        def put_checkpoint(place: LogPlace) -> None:
            assert home is not None
            home.put_checkpoint(place)

        settings = self.state.options.overridden(options)
        least_s = self.state.options.file_grace_s
        if settings.file_grace_s < least_s:
            raise InvalidArgument(
                f"file_grace_s is {least_s:g} s in {self._root}, and its readers rely on that; for one "
                f"handle it may be more, and not {settings.file_grace_s:g}"
            )
        log = ObjectLog.resume(
            self._store,
            self.state.uuid,
            self.state.epoch,
            self.tail,
            root=self._root,
            clock=self._clock,
            new_id=new_id,
            options=log_options(settings),
            prove=self.table.prove,
            put_checkpoint=put_checkpoint,
        )
        self.table.check_poisoned = log.raise_if_poisoned
        log.raise_last_ts(max((content.mark for content in self.contents.values()), default=0))
        files = files_of(self._store, self._root, self.state.uuid, self._pool)

        def make_home(engine: Engine) -> StoreHome:
            nonlocal home
            inherited = {i: content.retired for i, content in self.contents.items()}
            home = StoreHome(engine, self._store, self.table, files, self._pool, inherited)
            return home

        manifests = {
            i: LoggedManifest(log, i, self.state.epoch, content) for i, content in self.contents.items()
        }
        return Engine(
            self.table,
            self.state,
            self.contents,
            path=self._root,
            fs=files,
            options=settings,
            clock=self._clock,
            listener=listener,
            writing=Writing(lease, log, manifests, make_home),
        )


__all__ = ["end_writers", "open_for_writing"]
