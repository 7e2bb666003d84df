"""Opening a table: for writing (protocol O1 to O8), and for reading beside a writer (protocol R1 to R3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.cfile.pages.container import FileMissing
from kudu_core.common.format.members import BROKEN, key
from kudu_core.common.run.clock import Clock
from kudu_core.errors import Corruption, KuduError, NotSupported, TableNotFound
from kudu_core.events import EventListener, TableOpened
from kudu_core.options import Options
from kudu_core.table.lifecycle.alter import open_manifest
from kudu_core.table.lifecycle.lost import (
    bring_back,
    keep_segment,
    missing_files,
    sizes_of,
    sort_orphans,
    sweep_lost,
)
from kudu_core.table.lifecycle.purge import delete_purged, purge
from kudu_core.table.lifecycle.staging_folders import sweep_staging
from kudu_core.table.opened import debug
from kudu_core.table.opened.engine import Engine
from kudu_core.table.stored.alteration import alters, followed
from kudu_core.table.stored.table_file import (
    MAX_EPOCH,
    TableState,
    TabletEntry,
    read_state,
    replace,
    tablet_directory,
)
from kudu_core.tablet.ingest.part import named_files
from kudu_core.tablet.maintain.compaction_lane import Compactions
from kudu_core.tablet.maintain.flush_lane import Maintenance
from kudu_core.tablet.replay import invariants
from kudu_core.tablet.replay.bootstrap import Replay, Unreplayed, replay_log
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import renew_active
from kudu_core.tablet.store.manifest import Manifest, TabletState, read_manifest
from kudu_core.tablet.store.tablet import Tablet, TabletContext
from kudu_core.wal import RECORD_KIND_INGEST, Log, LogChanged, LogOptions, LogTail, Record, open_log, read_log

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

T = TypeVar("T")

READ_TRIES = 20
READ_PAUSE_S = 0.05


def _state(fs: FileSystem, path: str) -> TableState:
    if fs.exists(path) and not fs.is_dir(path):
        raise TableNotFound(f"{path} is a file, not a table's directory")
    try:
        return read_state(fs, f"{path}/TABLE")
    except FileNotFoundError:
        raise TableNotFound(f"there is no table at {path}; make one with create_table") from None


def _log_options(options: Options) -> LogOptions:
    return LogOptions(
        durability=options.durability,  # type: ignore[arg-type]
        group_interval_s=options.group_interval_s,
        file_grace_s=options.file_grace_s,
    )


def open_for_writing(
    fs: FileSystem,
    path: str,
    options: Options | Mapping[str, Any] | None,
    timeout_s: float,
    clock: Clock,
    listener: EventListener | None,
    handle: Callable[[Engine], T],
) -> T:
    """Take the lease, read manifests, replay the log, remove orphans, start maintenance.

    ``handle`` makes of the engine what is returned: something that closes it when it is dropped, as by an
    interrupt on the way to the caller.  It is made before any thread is started.
    """
    started = clock.monotonic_s()
    _state(fs, path)
    lease = fs.lease(f"{path}/LOCK")
    opened: list[Engine] = []
    try:
        lease.try_acquire(timeout_s)
        return _open_locked(fs, path, options, clock, listener, lease, started, opened, handle)
    except BaseException:
        for engine in opened:
            engine.discard()  # its files, also while somebody keeps the exception
        lease.release()
        raise


def open_engine(
    fs: FileSystem, path: str, options: Options | Mapping[str, Any] | None, clock: Clock
) -> Engine:
    """As ``open_for_writing``, for one who closes the engine by himself."""

    def itself(engine: Engine) -> Engine:
        return engine

    return open_for_writing(fs, path, options, 0.0, clock, None, itself)


def _open_locked(
    fs: FileSystem,
    path: str,
    options: Options | Mapping[str, Any] | None,
    clock: Clock,
    listener: EventListener | None,
    lease: Any,
    started: float,
    opened: list[Engine],
    handle: Callable[[Engine], T],
) -> T:
    """``opened``: where the engine is put, for whoever has to discard it."""
    before = _state(fs, path)
    if before.epoch + 1 >= MAX_EPOCH:
        raise NotSupported(
            f"{path} was opened for writing {before.epoch:,} times, the most there may be; restore a backup "
            "of it into another folder"
        )
    state = replace(before, epoch=before.epoch + 1, clean_end=0)
    engine = Engine(path, fs, state, state.options.overridden(options), clock, listener, writer=True)
    opened.append(engine)
    engine.lease = lease
    wal = f"{path}/wal"
    # Protocol O3, reading only.
    named: list[_Named] = []

    def noting(record: Record) -> bool:
        if record.kind == RECORD_KIND_INGEST:
            with suppress(Corruption):  # met again, and named, when it is replayed
                named.append(_Named.of(record))
        return _alters(record)

    with closing(read_log(fs, wal, state.uuid, clean_end=before.clean_end, alters=noting)) as tail:
        _take_over(engine, before, tail, named, started)
    made = handle(engine)
    if engine.options.maintenance == "background":
        # Last: whatever fails before leaves no thread that writes.
        assert engine.maintenance is not None and engine.compactions is not None
        engine.maintenance.start()
        engine.compactions.start()
    return made


def _take_over(
    engine: Engine, before: TableState, tail: LogTail, named: Sequence[_Named], started: float
) -> None:
    """Begin the new epoch and replay the log."""
    fs, path, clock, epoch_state = engine.fs, engine.path, engine.clock, engine.state
    wal = f"{path}/wal"
    state, unreplayed = _followed(epoch_state, tail)
    if unreplayed is not None:
        raise unreplayed.as_corruption()
    states = _manifests(fs, path, state)
    _check_numbers(path, before, states, tail)
    _check_age(path, before, states, tail)
    mark = max((s.mark for s in states.values()), default=0)
    tail.check_mark(mark)
    found = missing_files(fs, path, _named_files(path, states, named, tail))
    # Only now is anything written: damage leaves the table as it was.
    bring_back(fs, path, found)
    engine.install_state(epoch_state)
    engine.adopt(state)
    log = Log.resume(
        fs,
        wal,
        state.uuid,
        state.epoch,
        tail,
        clock=clock,
        options=_log_options(engine.options),
        fence_check=engine.fence,
        keep_segment=lambda segment: keep_segment(fs, path, segment, clock.now_us() // 1_000_000),
    )
    log.raise_last_ts(mark)  # protocol O4
    context = engine.context(log)
    tablets = engine.tablets  # one after the other, so that a failure finds those that have files open
    for entry in state.tablets:
        directory = tablet_directory(path, entry.id)
        if entry.id >= epoch_state.next_tablet or not fs.exists(directory):
            # Of a record that TABLE does not know yet: its directory may be there, and its name not durable.
            fs.mkdir(directory, exist_ok=True)
            fs.sync_dir(f"{path}/tablets")
        manifest = open_manifest(engine, entry.id, states[entry.id])
        if before.clean_end == 0:
            # Edits that nobody synced, or whose fsync failed, must not carry later decisions.
            manifest.renew()
        tablets.append(_tablet(engine, context, entry, manifest.state, manifest))
    engine.set_tablets(tablets)
    engine.maintenance = Maintenance(
        lambda: engine.tablets, log, engine.options, clock, engine.tell, engine.save_tokens, engine.pressure
    )
    engine.compactions = Compactions(
        lambda: engine.tablets,
        clock,
        engine.tell,
        lambda drop: engine.horizon(drop=drop),
        engine.options.maintenance_threads,
        purge=lambda: purge(engine),
        delete_purged=lambda: delete_purged(engine) + sweep_staging(engine) + sweep_lost(engine),
    )

    def count(record: Record) -> None:
        engine.note_memory(len(record.payload))
        engine.admit()

    replay = Replay(
        {t.id: t for t in tablets},
        engine.schema,
        writer=True,
        applied_writes=epoch_state.tokens,
        tokens_through=epoch_state.applied_ts,
    )
    context.cut = lambda: replay.position
    unreplayed = replay_log(  # protocol O5
        replay, tail, lambda found, record: False, done=count, relieve=engine.maintenance.relieve
    )
    if unreplayed is not None:
        # The segment that was the last one has been copied, byte for byte, to one of this epoch.
        moved = unreplayed.path == tail.last_segment().path
        where = log.segments[-1].path if moved else unreplayed.path
        raise dataclasses.replace(unreplayed, path=where).as_corruption()
    for tablet in tablets:
        renew_active(tablet)
    context.cut = log.cut
    for tablet in tablets:
        # Else a reader, after a crash of this process, would end before an ingest that replay installed.
        assert tablet.manifest is not None
        tablet.manifest.sync()
    engine.applied_writes, engine.applied_jobs = replay.applied_writes, replay.applied_jobs
    if state is not epoch_state:
        engine.change_state(lambda _: replace(state, tokens=dict(engine.applied_writes)))
    engine.maintenance.may_truncate = True
    engine.pins.floor = max([state.horizon, *(s.horizon for s in states.values())])
    orphans = sort_orphans(engine, replay.files, before.next_tablet)
    sweep_staging(engine, opening=True)
    sweep_lost(engine, opening=True)
    if debug.is_on():
        invariants.check_open(tablets, log, floor=engine.pins.floor, through=tail.through)
    engine.tell(
        TableOpened(
            elapsed_s=clock.monotonic_s() - started,
            path=path,
            mode="rw",
            tablets=len(tablets),
            records_replayed=replay.records,
            orphans_deleted=orphans.deleted,
            orphans_kept=orphans.moved,
            brought_back=len(found),
        )
    )


def _tablet(
    engine: Engine, context: TabletContext, entry: TabletEntry, state: TabletState, manifest: Manifest | None
) -> Tablet:
    return Tablet(
        context,
        entry.id,
        engine.partitions.partitions[entry.partition],
        tablet_directory(engine.path, entry.id),
        state,
        manifest,
        created_ts=entry.created_ts,
        dropped_ts=entry.dropped_ts,
    )


def _manifests(
    fs: FileSystem, path: str, state: TableState, known: Collection[int] = ()
) -> dict[int, TabletState]:
    """The state of every tablet that is not ``known``; one without a MANIFEST is empty (protocol A1)."""
    states = {}
    for entry in state.tablets:
        if entry.id in known:
            continue
        manifest = f"{tablet_directory(path, entry.id)}/MANIFEST"
        try:
            states[entry.id] = read_manifest(fs, manifest, state.uuid, entry.id)[0]
        except FileNotFoundError:
            states[entry.id] = TabletState()
    return states


@dataclass(frozen=True, slots=True)
class _Named:
    """An ingest's record, without its rows."""

    ts: int
    files: dict[int, set[str]]
    """By tablet."""

    @staticmethod
    def of(record: Record) -> _Named:
        where = f"log record {record.lsn}"
        extra = records.decode_extra(record.payload, where, 0)
        try:
            parts = {key(tablet): named_files(part) for tablet, part in extra.get("parts", {}).items()}
        except BROKEN as exc:
            raise Corruption(where, 0, f"ingest record: {exc!r:.200}") from exc
        return _Named(record.ts, {tablet: set(names) for tablet, names in parts.items()})


def _named_files(
    path: str, states: Mapping[int, TabletState], named: Iterable[_Named], tail: LogTail
) -> dict[int, dict[str, int | None]]:
    """By tablet, the files that its manifest names, and those of ingests that replay will install."""
    files = {tablet_id: sizes_of(state) for tablet_id, state in states.items()}
    for tablet_id, known in states.items():
        if len(files[tablet_id]) < sum(len(meta.files) for meta in known.rowsets.values()):
            # A merge of the one would delete the other's.
            manifest = f"{tablet_directory(path, tablet_id)}/MANIFEST"
            raise Corruption(manifest, 0, "two rowsets have the same file")
    for ingest in named:
        for tablet_id, names in ingest.files.items():
            state = states.get(tablet_id)
            if state is not None and ingest.ts > max(tail.through, state.ingests_durable):
                files[tablet_id].update(dict.fromkeys(names - files[tablet_id].keys()))
    return files


def _check_numbers(path: str, table: TableState, states: dict[int, TabletState], tail: LogTail) -> None:
    """A MANIFEST that ends below the number that TABLE or the last CHECKPOINT knows has lost edits (protocol
    O2); so has one that does not hold what the log was dropped for."""
    checkpoint = tail.checkpoint
    for tablet_id, state in states.items():
        manifest = f"{tablet_directory(path, tablet_id)}/MANIFEST"
        for who, number in (
            ("TABLE", table.edits.get(tablet_id, 0)),
            ("the log's last CHECKPOINT", checkpoint.edits.get(tablet_id, 0)),
        ):
            if state.number < number:
                reason = f"it ends at edit {state.number}; {who} has seen edit {number}"
                raise Corruption(manifest, 0, reason)
        if state.mark < (mark := checkpoint.marks.get(tablet_id, 0)):
            reason = f"it holds records up to {state.mark}; the log's last CHECKPOINT has seen {mark}"
            raise Corruption(manifest, 0, reason)
    for entry in table.tablets:
        if entry.created_ts <= checkpoint.through and checkpoint.through and entry.id not in checkpoint.edits:
            raise Corruption(
                f"{path}/wal",
                0,
                f"the log was dropped up to {checkpoint.through} without a word of tablet {entry.id}, "
                f"which is there since {entry.created_ts}",
            )


def _check_age(path: str, state: TableState, states: dict[int, TabletState], tail: LogTail) -> None:
    """TABLE must not be an older copy of itself: every epoch is in it before it is anywhere else, and
    what a CHECKPOINT lets go, tokens too, is in it before."""
    newest = max((tail.epoch, *(s.epoch for s in states.values())))
    if state.epoch < newest:
        raise Corruption(
            f"{path}/TABLE", 0, f"an older copy: it is of epoch {state.epoch}, other files are of {newest}"
        )
    if state.applied_ts < tail.through:
        raise Corruption(
            f"{path}/TABLE",
            0,
            f"an older copy: it ends at {state.applied_ts}, the log was dropped up to {tail.through}",
        )


# ---- reading ----


def open_for_reading(
    fs: FileSystem,
    path: str,
    options: Options | Mapping[str, Any] | None,
    clock: Clock,
    listener: EventListener | None,
) -> Engine:
    """A consistent picture of the table as it is durable now.  Creates and changes nothing."""
    started = clock.monotonic_s()
    _state(fs, path)
    problem: BaseException | None = None
    for _ in range(READ_TRIES):
        try:
            engine, replayed = _read_once(fs, path, options, clock, listener)
        except (LogChanged, _Moved, FileMissing, FileNotFoundError) as exc:
            if isinstance(exc, TableNotFound):
                raise
            problem = exc  # the writer was faster: look again
            clock.sleep(READ_PAUSE_S)
            continue
        engine.tell(
            TableOpened(
                elapsed_s=clock.monotonic_s() - started,
                path=path,
                mode="r",
                tablets=len(engine.tablets),
                records_replayed=replayed,
                orphans_deleted=0,
            )
        )
        return engine
    if isinstance(problem, FileMissing):
        raise problem
    if isinstance(problem, FileNotFoundError):
        raise Corruption(path, 0, f"a file that the table names is missing: {problem}") from problem
    raise KuduError(f"{path} changed {READ_TRIES} times while it was being opened") from problem


class _Moved(Exception):
    """TABLE or a manifest changed while it was being read."""


def _check_moved(state: TableState, now: TableState, tail: LogTail) -> None:
    """``_Moved`` unless what was read with ``state`` and the log amount to what TABLE says now."""
    if now.epoch != state.epoch or (tail.through > state.applied_ts and now != state):
        raise _Moved
    if not {t.id for t in state.tablets} <= {t.id for t in now.tablets}:
        raise _Moved  # a tablet was purged, and with it its manifest


def _read_once(
    fs: FileSystem,
    path: str,
    options: Options | Mapping[str, Any] | None,
    clock: Clock,
    listener: EventListener | None,
) -> tuple[Engine, int]:
    # Protocol R1: the log's segments first, then TABLE, then manifests; so nothing can fall between.
    alive = fs.lease(f"{path}/LOCK").holder() is not None
    first = _state(fs, path)
    with closing(
        open_log(
            fs,
            f"{path}/wal",
            first.uuid,
            writer_alive=alive,
            clean_end=0 if alive else first.clean_end,
            alters=_alters,
        )
    ) as tail:
        state = _state(fs, path)
        if state.epoch != first.epoch:
            raise _Moved  # a takeover between TABLE and the log: the segments may be of another life
        states = _manifests(fs, path, state)
        alive = fs.lease(f"{path}/LOCK").holder() is not None
        tail.read_on(writer_alive=alive, clean_end=0 if alive else state.clean_end)
        if alive and tail.taken_over:
            raise _Moved  # in a moment it will say that: now nothing would be readable
        _check_moved(state, _state(fs, path), tail)
        _check_numbers(path, state, states, tail)  # of tablets that are still there
        _check_age(path, state, states, tail)
        tokens_through = state.applied_ts
        # What the writer has altered since is in the log; a tablet that it made there is in TABLE by now.
        state, unreplayed = _followed(state, tail)
        if alive and not all(entry.id in states for entry in state.tablets):
            raise _Moved
        states |= _manifests(fs, path, state, known=states)
        if not alive:
            tail.check_mark(max((s.mark for s in states.values()), default=0))
        engine = Engine(path, fs, state, state.options.overridden(options), clock, listener, writer=False)
        engine.read_settled = not alive
        engine.unreplayed = unreplayed
        try:
            replayed = _lay_out(engine, tail, states, tokens_through)
        except BaseException:
            engine.discard()
            raise
    return engine, replayed


def _lay_out(engine: Engine, tail: LogTail, states: dict[int, TabletState], tokens_through: int) -> int:
    """A reader's tablets, with the records of the log laid into them; the number of those.

    ``tokens_through``: the last record whose token is in TABLE, or was dropped from it.
    """
    path, state = engine.path, engine.state
    context = engine.context(None)
    tablets = [_tablet(engine, context, entry, states[entry.id], None) for entry in state.tablets]
    engine.set_tablets(tablets)
    visible = tail.committed_ts
    if engine.unreplayed is not None:
        visible = engine.unreplayed.timestamp - 1
    replay = Replay(
        {t.id: t for t in tablets},
        engine.schema,
        writer=False,
        applied_writes=state.tokens,
        tokens_through=tokens_through,
    )
    context.cut = lambda: replay.position  # of a store that is full, and frozen

    def wanted(record: Record) -> bool:
        nonlocal visible
        if record.ts > visible:
            return False
        try:
            lacking = _lacking(record, states) if record.kind == RECORD_KIND_INGEST else None
        except Corruption:
            return True  # the replay meets it again, and says which record it is
        if lacking is not None and state.clean_end:
            raise Corruption(
                f"{tablet_directory(path, lacking)}/MANIFEST",
                0,
                f"the table was closed after the ingest of {record.ts}, which is not in it",
            )
        if lacking is not None:
            visible = record.ts - 1  # protocol R2: stop before an ingest that the manifests do not hold
            engine.read_settled = False  # whoever opens the table for writing installs it
        return lacking is None

    unreplayed = replay_log(replay, tail, lambda found, record: False, wanted=wanted)
    if unreplayed is not None:
        engine.unreplayed, visible = unreplayed, unreplayed.timestamp - 1
    if engine.unreplayed is not None:
        engine.read_settled = False
    engine.applied_writes, engine.applied_jobs = replay.applied_writes, replay.applied_jobs
    engine.read_visible_ts = visible
    engine.read_oldest_ts = max([state.horizon, *(s.horizon for s in states.values())])
    engine.pins.floor = engine.read_oldest_ts
    if visible < engine.read_oldest_ts and engine.unreplayed is not None:
        raise engine.unreplayed.as_corruption()  # the history of the time before it is gone
    if visible < engine.read_oldest_ts:
        raise _Moved
    return replay.records


def _alters(record: Record) -> bool:
    """``alters``; a broken record is met again, and named, when it is replayed."""
    try:
        return alters(record)
    except Corruption:
        return False


def _followed(state: TableState, tail: LogTail) -> tuple[TableState, Unreplayed | None]:
    """A table as its log alters it, up to a record that says what no table can be."""
    for record in tail.alterations:
        if record.ts <= tail.committed_ts:
            try:
                state = followed(state, [record])
            except Corruption as error:
                return state, Unreplayed.of(tail, record, error)
    return state, None


def _lacking(record: Record, states: dict[int, TabletState]) -> int | None:
    """A tablet whose manifest does not hold an ingest yet, None when all do."""
    named = records.decode(record.payload, f"log record {record.lsn}", 0).tablets
    return next((t for t in named if t in states and record.ts > states[t].ingests_durable), None)


__all__ = ["open_engine", "open_for_reading", "open_for_writing"]
