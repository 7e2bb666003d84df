"""How users come to a ``Table``: they make one, open one, or make one of its backups."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.measure.work import LongWork
from kudu_core.events import tell
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.backup.backup_place import options_of_both, place_at
from kudu_core.table.backup.restore import restore as restore_table
from kudu_core.table.lifecycle.handles import create_handle, open_handle
from kudu_core.table.lifecycle.locations import location_of
from kudu_core.table.table import Table
from kudu_core.table.write.expired_rows import swept

if TYPE_CHECKING:

    from kudu_core.common.partition.declared import HashPartition, RangePartition
    from kudu_core.events import EventListener
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import Requests
    from kudu_core.options import Options
    from kudu_core.table.calls.arguments import Mode, ProgressLike


def create_table(
    path: str | os.PathLike[str],
    schema: Any,
    primary_key: str | Sequence[str],
    *,
    partition_by: HashPartition | RangePartition | Sequence[HashPartition | RangePartition] = (),
    options: Options | Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    listener: EventListener | None = None,
    ttl: tuple[str, timedelta] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
    _requests: Requests | None = None,
) -> Table:
    """Make a table in a new or empty directory, or place of an object store, and open it for writing.

    >>> kc.create_table(path, pa.schema([("id", pa.int64())]), "id").insert([{"id": 7}]).inserted
    1

    Parameters
    ----------
    schema
        An Arrow schema, a list of ``Column`` (for defaults, encodings and comments) or of (name, type), a
        dict of names and types, or whatever has a schema: a frame of pandas or Polars, a table, reader or
        dataset of Arrow.  Only the schema of that is used: its rows are not written.
    primary_key
        Names of the key columns, in key order.  They become NOT NULL.
    partition_by
        Any number of ``HashPartition`` and at most one ``RangePartition``; none: one tablet.
    options
        Stored with the table; what is not given has its default.
    exist_ok
        Open the table that is there, if its schema, key, ttl and partitions are these.  Its own options stay
        stored; those that are given hold for this handle, as of ``open_table``.
    listener
        As of ``open_table``.
    ttl
        A column with times or dates, and how long a row lives after its own: then it is hidden, and removed
        later (docs/ttl.md).  A row without a time stays.
    storage_options
        Of `s3://`, `gs://`, `az://` and `abfss://`: the client's keys, as of ``check_store``, and
        ``cache_dir`` and ``cache_bytes``, of a cache on this machine (docs/objects.md).

    Raises
    ------
    TableExists
        There is a table, a file or something else at ``path``; nothing was changed.
    InvalidArgument
        The schema, the key, a partition or an option breaks a rule; nothing was made.
    """
    handle = create_handle(
        path, schema, primary_key,
        partition_by=partition_by, options=options, exist_ok=exist_ok, listener=listener,
        storage_options=storage_options, fs=_fs, clock=_clock, requests=_requests, ttl=ttl,
    )  # fmt: skip
    return Table(swept(handle))


def open_table(
    path: str | os.PathLike[str],
    mode: Mode = "r",
    *,
    options: Options | Mapping[str, Any] | None = None,
    timeout_s: float = 0.0,
    listener: EventListener | None = None,
    storage_options: Mapping[str, Any] | None = None,
    refresh_s: float | None = None,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
    _requests: Requests | None = None,
) -> Table:
    """Open a table: any number of times for reading (``"r"``), once for writing (``"rw"``).

    >>> with kc.open_table(stock.path) as reader:
    ...     reader.count()
    3

    Parameters
    ----------
    mode
        ``"auto"``: for writing if nobody else has it so, else for reading; ``Table.mode`` says which.  A
        reader stays one, also when the writer goes.  Whoever may not write there gets the system's error.
    options
        Override the table's own for this handle: every option that is named, also with its default.  What is
        in force is ``Table.options``.
    timeout_s
        How long to wait for another writer to let go, in seconds; with ``"auto"`` the table is opened for
        reading after that.
    listener
        Called with every event (``kudu_core.events``), on the thread that did the work.
    storage_options
        As of ``create_table``.
    refresh_s
        Of a reader: a read (``get``, ``get_many``, ``scan``, ``count``, ``snapshot``, ``changes``, ...) makes
        a ``refresh()`` first if the last one, or the opening, is so many seconds ago, or more.  0: before
        each.  None: whoever wants a newer state calls ``refresh()``.  A writer sees the newest state anyway.

    Raises
    ------
    TableNotFound, Locked, NotSupported
        Nothing was changed.
    Corruption
        Of TABLE, a manifest or the log: nothing was changed.  Of a data file that the replay of the log
        reads, and in mode "rw" of a record of the log that cannot be replayed, though its checksum is good: a
        new epoch has begun, nothing is lost or deleted, and opening again says the same.

    Warns
    -----
    UnreplayedWarning
        In mode "r", of such a record: the table is read as it was before it (``Table.unreplayed``).
    """
    handle = open_handle(
        path, mode, options=options, timeout_s=timeout_s, listener=listener, storage_options=storage_options,
        refresh_s=refresh_s, fs=_fs, clock=_clock, requests=_requests,
    )  # fmt: skip
    return Table(swept(handle))


def restore(
    src: str | os.PathLike[str],
    path: str | os.PathLike[str],
    at: Any = None,
    *,
    listener: EventListener | None = None,
    progress: ProgressLike = None,
    storage_options: Mapping[str, Any] | None = None,
    src_storage_options: Mapping[str, Any] | None = None,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
    _requests: Requests | None = None,
    _src_requests: Requests | None = None,
) -> Table:
    """Make a new table from a folder of backups and open it for writing.

    It has the columns, partitions and options that the table had at the restored backup, and its rows, all
    with the time of the restore: what happened before cannot be read.  It appears at ``path`` whole
    or not at all.  Into an object store: one that is cut short leaves what only the same restore, run again,
    can see and bring to its end.

    >>> stock.backup(folder).total
    3
    >>> kc.restore(folder, path).count()
    3

    Parameters
    ----------
    src
        The folder, or the URL, that ``Table.backup`` wrote to.
    path
        Where the new table is to be: a new folder, or a URL.
    at
        Which backup: what ``backup`` returned, or its ``timestamp``.  None: the newest one.
    listener
        As of ``open_table``; it is told of the restore too.
    progress
        As of ``Table.backup``.
    storage_options
        As of ``open_table``, for URLs in ``path`` and in ``src``.
    src_storage_options
        For a URL in ``src``, where it needs others.

    Raises
    ------
    TableExists
        There is something at ``path``; nothing was changed.
    TableNotFound
        There is no backup at ``src``.
    InvalidArgument
        No backup is of ``at``; the message says which there are.
    Corruption
        A file is damaged or missing, or a backup between is.
    """
    fs, clock = _fs or PosixFileSystem(), _clock or Clock()
    of_path, of_src = options_of_both(src, path, storage_options, src_storage_options)
    place = place_at(src, of_src, clock, fs=fs, requests=_src_requests)
    target = location_of(path, storage_options=of_path, fs=fs, clock=clock, requests=_requests)
    told = None if listener is None else partial(tell, listener)
    with LongWork("restore", told, progress=progress):
        restore_table(place, fs, target, at, clock)
    return open_table(
        path, "rw", listener=listener, storage_options=of_path, _fs=_fs, _clock=_clock, _requests=_requests
    )


__all__ = ["create_table", "open_table", "restore"]
