"""Opening a table for writing (protocol O1 to O8).

check -> begin the epoch -> replay -> tidy -> start the lanes.  Until the epoch begins nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.common.format.members import BROKEN, key
from kudu_core.common.run.clock import Clock
from kudu_core.errors import Corruption, NotSupported
from kudu_core.events import EventListener, TableOpened
from kudu_core.options import Options
from kudu_core.table.lifecycle.alter import open_manifest
from kudu_core.table.lifecycle.checks import (
    check_age,
    check_numbers,
    followed_by,
    is_alteration,
    table_state,
    tablet_states,
)
from kudu_core.table.lifecycle.lost import (
    MissingFile,
    bring_back,
    keep_segment,
    missing_files,
    sizes_of,
    sort_orphans,
    sweep_lost,
)
from kudu_core.table.lifecycle.posix_home import PosixHome
from kudu_core.table.lifecycle.replaying import replay_for_writer
from kudu_core.table.lifecycle.staging_folders import sweep_staging
from kudu_core.table.opened import debug
from kudu_core.table.opened.engine import Engine
from kudu_core.table.opened.table_file import TableFile
from kudu_core.table.stored.home import Writing
from kudu_core.table.stored.table_state import MAX_EPOCH, TableState, replace, tablet_directory
from kudu_core.tablet.ingest.install import named_files
from kudu_core.tablet.replay import invariants
from kudu_core.tablet.replay.bootstrap import Replay
from kudu_core.tablet.store import records
from kudu_core.tablet.store.edits import TabletState
from kudu_core.tablet.store.manifest import Manifest
from kudu_core.wal import RECORD_KIND_INGEST, Log, LogOptions, LogTail, Record, read_log

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, Lease

T = TypeVar("T")


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
    table_state(fs, path)
    lease = fs.lease(f"{path}/LOCK")
    opened: list[Engine] = []
    try:
        lease.try_acquire(timeout_s)
        before = table_state(fs, path)
        if before.epoch + 1 >= MAX_EPOCH:
            raise NotSupported(
                f"{path} was opened for writing {before.epoch:,} times, the most there may be; restore a "
                "backup of it into another folder"
            )
        # Protocol O3, reading only.
        named: list[_Named] = []
        alters = _noting_ingests(named)
        with closing(
            read_log(fs, f"{path}/wal", before.uuid, clean_end=before.clean_end, alters=alters)
        ) as tail:
            found = _check(fs, path, before, tail, named)
            settings = found.state.options.overridden(options)
            engine = _begin_epoch(found, settings, clock, listener, lease, opened)
            # The segment that was the last one has been copied, byte for byte, to one of this epoch.
            moved = tail.last_segment().path, engine.log.segments[-1].path
            replay = replay_for_writer(engine, tail, found.epoch_state, moved)
            _tidy(engine, found, replay, started)
        made = handle(engine)
        start_lanes(engine)
        return made
    except BaseException:
        for engine in opened:
            engine.discard()  # its files, also while somebody keeps the exception
        lease.release()
        raise


# ---- check ----


@dataclass(frozen=True, slots=True)
class _Found:
    """A table on disk, read and checked."""

    fs: FileSystem
    path: str
    before: TableState
    """What TABLE says."""
    epoch_state: TableState
    """The same, of the epoch that begins."""
    state: TableState
    """The same with what the log adds; ``epoch_state`` itself where that is nothing."""
    contents: dict[int, TabletState]
    """By tablet, what its manifest says."""
    tail: LogTail
    mark: int
    """The largest of the manifests': no record gets a timestamp up to it."""
    missing: Sequence[MissingFile]
    """Files that are named and not in their place, but in ``lost/``."""


def _check(fs: FileSystem, path: str, before: TableState, tail: LogTail, named: Sequence[_Named]) -> _Found:
    """Read what the log and the manifests add to TABLE, and refuse what does not fit together."""
    epoch_state = replace(before, epoch=before.epoch + 1, clean_end=0)
    state, unreplayed = followed_by(epoch_state, tail)
    if unreplayed is not None:
        raise unreplayed.as_corruption()
    contents = tablet_states(fs, path, state)
    check_numbers(path, before, contents, tail)
    check_age(path, before, contents, tail)
    # The largest of all manifests must be a timestamp that the log can prove (protocol O3).
    mark = max((content.mark for content in contents.values()), default=0)
    tail.check_mark(mark)
    missing = missing_files(fs, path, _named_files(path, contents, named, tail))
    return _Found(fs, path, before, epoch_state, state, contents, tail, mark, missing)


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


def _noting_ingests(named: list[_Named]) -> Callable[[Record], bool]:
    """``is_alteration``, which adds to ``named`` what the ingests of the log name."""

    def noting(record: Record) -> bool:
        if record.kind == RECORD_KIND_INGEST:
            with suppress(Corruption):  # met again, and named, when it is replayed
                named.append(_Named.of(record))
        return is_alteration(record)

    return noting


# ---- begin the epoch ----


def _begin_epoch(
    found: _Found,
    options: Options,
    clock: Clock,
    listener: EventListener | None,
    lease: Lease,
    opened: list[Engine],
) -> Engine:
    """Write the new epoch into TABLE, the log and manifests, and make the engine.

    ``opened``: where the engine is put, for whoever has to discard it.
    """
    fs, path = found.fs, found.path
    engine: Engine | None = None

    def proven() -> Mapping[int, int]:
        return {} if engine is None else engine.tablets.proven_edits()

    # Only now is anything written: damage leaves the table as it was.
    bring_back(fs, path, found.missing)
    table_file = TableFile(fs, path, found.epoch_state, proven=proven)
    table_file.install(found.epoch_state)
    log = Log.resume(
        fs,
        f"{path}/wal",
        found.epoch_state.uuid,
        found.epoch_state.epoch,
        found.tail,
        clock=clock,
        options=log_options(options),
        fence_check=table_file.fence,
        keep_segment=lambda segment: keep_segment(fs, path, segment, clock.now_us() // 1_000_000),
    )
    # The log's own, which is compiled: nothing that a signal could interrupt comes before it (protocol W8).
    table_file.poison, table_file.check_poisoned = log.poison, log.raise_if_poisoned
    manifests: dict[int, Manifest] = {}
    try:
        log.raise_last_ts(found.mark)  # protocol O4
        _open_manifests(found, table_file, log, manifests)
        engine = Engine(
            table_file,
            found.state,
            found.contents,
            path=path,
            fs=fs,
            options=options,
            clock=clock,
            listener=listener,
            writing=Writing(lease, log, manifests, PosixHome),
        )
        opened.append(engine)
    except BaseException:
        log.abandon()
        for manifest in manifests.values():
            manifest.close()
        raise
    return engine


def log_options(options: Options) -> LogOptions:
    """What a log is told of the options of its table."""
    return LogOptions(
        durability=options.durability,
        group_interval_s=options.group_interval_s,
        file_grace_s=options.file_grace_s,
    )


def _open_manifests(found: _Found, table_file: TableFile, log: Log, manifests: dict[int, Manifest]) -> None:
    """Into ``manifests``, one after the other, so that a failure finds those that have files open."""
    fs, path = found.fs, found.path
    for entry in found.state.tablets:
        directory = tablet_directory(path, entry.id)
        if entry.id >= found.epoch_state.next_tablet or not fs.exists(directory):
            # Of a record that TABLE does not know yet: its directory may be there, and its name not durable.
            fs.mkdir(directory, exist_ok=True)
            fs.sync_dir(f"{path}/tablets")
        manifest = open_manifest(fs, path, table_file, log, entry.id, found.contents[entry.id])
        manifests[entry.id] = manifest
        if found.before.clean_end == 0:
            # Edits that nobody synced, or whose fsync failed, must not carry later decisions.
            manifest.renew()


# ---- tidy, start ----


def _tidy(engine: Engine, found: _Found, replay: Replay, started: float) -> None:
    """All records are in memory or in files: TABLE says what the log has added, and orphans go."""
    state = found.state
    if state is not found.epoch_state:
        engine.table_file.change(lambda _: replace(state, tokens=dict(engine.writers.applied_writes)))
    assert engine.maintenance is not None
    engine.maintenance.may_truncate = True
    orphans = sort_orphans(engine, replay.files, found.before.next_tablet)
    sweep_staging(engine, opening=True)
    sweep_lost(engine, opening=True)
    if debug.is_on():
        invariants.check_open(engine.tablets, engine.log, floor=engine.pins.floor, through=found.tail.through)
    engine.tell(
        TableOpened(
            elapsed_s=engine.clock.monotonic_s() - started,
            path=engine.path,
            mode="rw",
            tablets=len(engine.tablets),
            records_replayed=replay.records,
            orphans_deleted=orphans.deleted,
            orphans_kept=orphans.moved,
            brought_back=len(found.missing),
        )
    )


def start_lanes(engine: Engine) -> None:
    """Last of all: whatever fails before leaves no thread that writes."""
    if engine.options.maintenance == "background":
        assert engine.maintenance is not None and engine.compactions is not None
        engine.maintenance.start()
        engine.compactions.start()


__all__ = ["log_options", "open_for_writing", "start_lanes"]
