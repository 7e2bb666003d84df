"""``Table.clone`` in folders: a table with the same rows, history and all, whose files are links.

A picture of the table is read as a reader in another process reads it (protocol R1, R2), so writers go on
meanwhile, and the clone is of one moment.  Data files are written once and named once in each folder, so two
tables may share their bytes: each links, moves and deletes names of its own.  TABLE, manifests and log are
written anew, with a uuid of its own: the manifests as one edit each, the log as the records that the files do
not hold yet.

It is made beside its place and renamed when it is whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kudu_core.errors import InvalidArgument, KuduError, TableNotFound
from kudu_core.fs.copies import keep_copy
from kudu_core.fs.missing import FileMissing
from kudu_core.table.lifecycle.beside import check_empty, make_beside, open_beside
from kudu_core.table.lifecycle.open_reader import (
    READ_PAUSE_S,
    READ_TRIES,
    Picture,
    TableMoved,
    lacking_of,
    pictured,
)
from kudu_core.table.opened.travel.origin import replaced
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.stored.table_state import tablet_directory
from kudu_core.table.write.whole.restore_to import restore_to
from kudu_core.tablet.store.manifest import Manifest
from kudu_core.wal import RECORD_KIND_INGEST, Checkpoint, LogChanged, Record
from kudu_core.wal.copied_log import write_copied_log

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.tablet.store.edits import TabletState


def clone_folder(handle: Handle, fs: FileSystem, path: str, at: Any) -> None:
    """Make the clone of a table in a folder, in another folder; the walk behind ``Table.clone``."""
    engine = handle.opened()
    if f"{path}/".startswith(f"{engine.path}/"):
        raise InvalidArgument(f"{path} lies in the table's own folder; a clone belongs elsewhere")
    check_empty(fs.rooted(path.rsplit("/", 1)[0] or "/"), path)
    moment = None if at is None else snapshot_timestamp(engine, at)
    if engine.writer:
        # What this handle shows is in the picture.
        engine.log.wait_durable(engine.log.cut())
    pin = None if moment is None else engine.pins.pin(moment)
    try:
        make_beside(fs, path, lambda inside, place: _build(handle, inside, place, moment))
    finally:
        if pin is not None:
            pin.release()


def _build(handle: Handle, fs: FileSystem, place: str, moment: int | None) -> None:
    """``fs``: of the folder in which the clone is to be at ``place``."""
    engine = handle.opened()
    lock = engine.fs.reader_lock(f"{engine.path}/LOCK")
    lock.take()  # protocol R1: files that are let go of stay for a while
    problem: BaseException | None = None
    try:
        for _ in range(READ_TRIES):
            try:
                with pictured(engine.fs, engine.path, lock) as seen:
                    _check_whole(engine, seen)
                    _write(engine.fs, engine.path, seen, fs, place)
                break
            except (LogChanged, TableMoved, FileMissing, FileNotFoundError) as exc:
                if isinstance(exc, TableNotFound):
                    raise
                problem = exc  # the writer was faster: look again
                if fs.exists(place):
                    fs.rmtree(place)
                engine.clock.sleep(READ_PAUSE_S)
        else:
            raise KuduError(f"{engine.path} changed {READ_TRIES} times while it was cloned") from problem
    finally:
        lock.release()
    if moment is not None:
        _take_back(fs, place, engine.clock, moment)


def _check_whole(engine: Engine, seen: Picture) -> None:
    """``TableMoved`` where files hold what lies after the picture, as in the middle of an ingest."""
    if seen.before.uuid != engine.uuid:
        raise replaced(engine.path)
    if seen.end.unreplayed is not None:
        raise seen.end.unreplayed.as_corruption()
    if max((content.mark for content in seen.contents.values()), default=0) > seen.end.visible_ts:
        raise TableMoved


def _write(source: FileSystem, root: str, seen: Picture, fs: FileSystem, place: str) -> None:
    """All of the clone, durable but for the name of its folder."""
    table_uuid, epoch = uuid.uuid4().bytes, seen.before.epoch
    for folder in ("", "/wal", "/staging", "/tablets"):
        fs.mkdir(f"{place}{folder}")
    lease = fs.rooted(place).lease(f"{place}/LOCK")  # makes the file
    lease.try_acquire()
    lease.release()
    edits = {}
    for entry in seen.state.tablets:
        content = replace(seen.contents[entry.id], retired=frozenset())
        edits[entry.id] = _write_tablet(source, root, fs, place, table_uuid, epoch, entry.id, content)
    fs.sync_dir(f"{place}/tablets")
    marks = {entry.id: seen.contents[entry.id].mark for entry in seen.state.tablets}
    checkpoint = Checkpoint(seen.tail.through, edits, marks)
    records, committed_ts = _records(seen), seen.end.visible_ts
    last = write_copied_log(fs, f"{place}/wal", table_uuid, epoch, records, checkpoint, committed_ts)
    fs.sync_dir(place)
    listed = {entry.id for entry in seen.before.tablets}
    state = replace(
        seen.before,
        uuid=table_uuid,
        clean_end=last,
        edits={tablet: number for tablet, number in edits.items() if tablet in listed},
    )
    data = state.to_bytes()
    fs.replace_file(f"{place}/TABLE", data)
    keep_copy(fs, f"{place}/TABLE", data)
    fs.sync_dir(place.rsplit("/", 1)[0])


def _records(seen: Picture) -> Iterator[Record]:
    """Those that the files do not hold yet; ``TableMoved`` where they are not all there."""
    for record in seen.tail.records():
        if record.ts > seen.end.visible_ts:
            return
        if record.kind == RECORD_KIND_INGEST and lacking_of(record, seen.contents) is not None:
            raise TableMoved
        yield record


def _write_tablet(
    source: FileSystem,
    root: str,
    fs: FileSystem,
    place: str,
    table_uuid: bytes,
    epoch: int,
    tablet_id: int,
    content: TabletState,
) -> int:
    """The folder of a tablet: links to the files, and a manifest; the number of its edit."""
    old, new = tablet_directory(root, tablet_id), tablet_directory(place, tablet_id)
    fs.mkdir(new)
    for name in sorted(content.files):
        source.stat(f"{old}/{name}")  # no link is followed on the way to it
        fs.whole.link(f"{old}/{name}", f"{new}/{name}")
    fs.sync_dir(new)

    def nothing(*_: Any) -> None:
        return None

    manifest = Manifest(
        fs, new, table_uuid, tablet_id, epoch, content, fence=nothing, poison=nothing, check_poisoned=nothing
    )
    manifest.renew()
    manifest.close()
    return manifest.state.number


def _take_back(fs: FileSystem, place: str, clock: Clock, moment: int) -> None:
    """The rows of a past time, by one more record."""
    with open_beside(fs, place, clock) as opened:
        restore_to(opened, moment)


__all__ = ["clone_folder"]
