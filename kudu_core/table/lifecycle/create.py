"""Making a new table: directories, the log, first manifests, and last of all TABLE."""

from __future__ import annotations

import errno
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.common.format.names import DROPPED, is_data_file
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import TableExists
from kudu_core.fs.copies import copy_of, keep_copy
from kudu_core.options import Options
from kudu_core.table.lifecycle.manage.own_files import remove_own
from kudu_core.table.stored.table_state import TableState, TabletEntry, tablet_directory
from kudu_core.tablet.store.edits import TabletState
from kudu_core.tablet.store.manifest import Manifest
from kudu_core.wal import Log, holds_records

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

PARTS = ("LOCK", "wal", "staging", "tablets")
"""What a create that was interrupted before TABLE may have left; it is made anew."""


def create(
    fs: FileSystem,
    path: str,
    schema: Schema,
    partitions: PartitionSchema,
    options: Options,
    clock: Clock,
) -> None:
    """Create the table's directory.

    TABLE is written last: a crash before leaves a directory without it, over which ``create``
    may be repeated.

    Raises
    ------
    TableExists
        There is a table, also one that has lost its TABLE, a file, or a directory with anything else in it;
        nothing was changed.
    Locked
        Another process makes a table there at this moment.
    """
    check_free(fs, path)
    state = TableState(
        uuid=uuid.uuid4().bytes,
        epoch=1,
        options=options,
        schemas=(schema,),
        partitions=partitions,
        tablets=tuple(TabletEntry(i + 1, i, 0) for i in range(len(partitions.partitions))),
        edits={i + 1: 1 for i in range(len(partitions.partitions))},
    )
    _make_directory(fs, path)
    lease = fs.lease(f"{path}/LOCK")  # makes the file
    try:
        lease.try_acquire()
        check_free(fs, path)  # again: another process may have made the table meanwhile, and written to it
        if fs.exists(f"{path}/{DROPPED}"):
            _end_drop(fs, path)
        _check_no_rows(fs, path)
        for name in PARTS[1:]:
            if fs.exists(f"{path}/{name}"):
                fs.rmtree(f"{path}/{name}")
            fs.mkdir(f"{path}/{name}")
        log = Log.create(fs, f"{path}/wal", state.uuid, state.epoch, clock=clock)
        log.close()
        for entry in state.tablets:
            new_tablet_directory(fs, path, state.uuid, entry.id, state.epoch)
        fs.sync_dir(f"{path}/tablets")
        fs.sync_dir(path)
        data = state.to_bytes()
        fs.replace_file(f"{path}/TABLE", data)
        keep_copy(fs, f"{path}/TABLE", data)
    finally:
        lease.release()


def _end_drop(fs: FileSystem, path: str) -> None:
    """A table was dropped here, and not all of it is gone.  Under the lease."""
    left = remove_own(fs, path)
    fs.unlink(f"{path}/{DROPPED}")
    fs.sync_dir(path)
    if left:
        raise TableExists(f"{path} is not empty: {left[0]!r} does not belong to a table")


def _make_directory(fs: FileSystem, path: str) -> None:
    """The table's directory, durable under its name."""
    made = not fs.exists(path)
    parent = path.rsplit("/", 1)[0] or "/"
    try:
        fs.mkdir(path, exist_ok=True)
    except FileNotFoundError:
        said = "the folder that is to hold the table does not exist; make it first"
        raise FileNotFoundError(errno.ENOENT, said, parent) from None
    try:
        fs.rooted(parent).sync_dir(parent)
    except OSError:
        # The name may never reach the disk, whatever fsync says the next time: a repeated call must make
        # it anew.
        if made:
            with suppress(OSError):  # not empty: somebody else makes a table there
                fs.rmdir(path)
        raise


def new_tablet_directory(fs: FileSystem, path: str, table_uuid: bytes, tablet_id: int, epoch: int) -> None:
    """A tablet's directory with its first manifest; the parent is the caller's to sync."""
    directory = tablet_directory(path, tablet_id)
    fs.mkdir(directory)

    def nothing() -> None:
        return None

    manifest = Manifest(
        fs,
        directory,
        table_uuid,
        tablet_id,
        epoch,
        TabletState(),
        fence=nothing,
        poison=lambda error: None,
        check_poisoned=nothing,
    )
    manifest.create()
    manifest.close()


def check_free(fs: FileSystem, path: str) -> None:
    """``TableExists`` unless a table may be made at ``path``."""
    if not fs.exists(path):
        return
    if not fs.is_dir(path):
        raise TableExists(f"{path} is a file; a table needs a directory of its own")
    names = fs.listdir(path)
    if "TABLE" in names:
        raise TableExists(f"there is a table at {path}; open it with open_table, or pass exist_ok=True")
    if DROPPED in names:
        return  # what else is there is removed, or was never the table's
    if copy_of("TABLE") in names:
        raise TableExists(f"{path} holds a table without its file TABLE; kudu_core.repair makes one of it")
    foreign = [n for n in names if n not in PARTS and not n.startswith(".")]
    if foreign:
        raise TableExists(f"{path} is not empty: {foreign[0]!r} does not belong to a table")


def _check_no_rows(fs: FileSystem, path: str) -> None:
    """``TableExists`` where no interrupted create has left what lies there, but a table that has lost its
    TABLE.  Under the lease: nobody makes a table there at this moment."""
    held = _rows_in(fs, path)
    if held is not None:
        raise TableExists(
            f"{path} holds rows of a table ({held}) that has lost its file TABLE; kudu_core.repair makes a "
            "table of them; remove the folder to have none of them"
        )


def _rows_in(fs: FileSystem, path: str) -> str | None:
    """Something that has rows, or may have."""
    if fs.is_dir(f"{path}/tablets"):
        for folder in fs.listdir(f"{path}/tablets"):
            directory = f"{path}/tablets/{folder}"
            for name in fs.listdir(directory) if fs.is_dir(directory) else ():
                if is_data_file(name):
                    return f"tablets/{folder}/{name}"
    return "wal" if fs.is_dir(f"{path}/wal") and holds_records(fs, f"{path}/wal") else None
