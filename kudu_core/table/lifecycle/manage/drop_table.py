"""``drop_table``: a table and its files go.

One rename is the end of the table: TABLE becomes ``DROPPED``.  From then on there is no table at the path,
and what still lies there is removed by this call, or, where it is cut short, by the next that drops or makes
a table there.  ``DROPPED`` goes last, so that nobody takes what is left for a table that has lost its TABLE.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kudu_core.common.format.names import DROPPED
from kudu_core.common.run.clock import Clock
from kudu_core.errors import TableNotFound
from kudu_core.objects.urls import is_url
from kudu_core.table.lifecycle.checks import table_state
from kudu_core.table.lifecycle.locations import location_of
from kudu_core.table.lifecycle.manage.own_files import LOCK, remove_own

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import Requests


def drop_table(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
    _requests: Requests | None = None,
) -> tuple[str, ...]:
    """Remove a table: its rows, its history, its files.  What in its folder is not the table's stays.

    Once it has begun there is no table at the path; a call that is cut short is brought to its end by the
    next one, or by ``create_table``.  Who reads in another process goes on with the files that it has open.
    In an object store the place is not used again: a few small objects stay, by which writers of before
    learn that the table is gone, and ``create_table`` refuses the place.

    >>> stock.close()
    >>> kc.drop_table(stock.path)
    ()

    Parameters
    ----------
    storage_options
        As of ``open_table``.

    Returns
    -------
    Names, relative to the table's folder, of what is none of the table's and has stayed.  Empty: the folder
    is gone too.

    Raises
    ------
    TableNotFound
        There is none, nor what is left of one that was dropped.
    Locked
        Somebody has it open for writing; nothing was changed.
    Corruption
        Its TABLE is damaged, or none of ours; nothing was changed.
    """
    place = location_of(
        path, storage_options=storage_options, fs=_fs, clock=_clock or Clock(), requests=_requests
    )
    if is_url(place.root):
        # What few tables need is not loaded with the others.
        from kudu_core.table.lifecycle.in_store.store_location import StoreLocation

        assert isinstance(place, StoreLocation)
        return place.drop()
    return _drop_folder(place.fs, place.root)


def _drop_folder(fs: FileSystem, path: str) -> tuple[str, ...]:
    if not fs.exists(path) or not _is_dropped(fs, path):
        table_state(fs, path)
    lease = fs.lease(f"{path}/{LOCK}")
    lease.try_acquire()
    try:
        if fs.exists(f"{path}/TABLE"):
            table_state(fs, path)
            fs.rename(f"{path}/TABLE", f"{path}/{DROPPED}")
            fs.sync_dir(path)
        elif not _is_dropped(fs, path):
            raise TableNotFound(f"the table at {path} was dropped by another process")
        left = remove_own(fs, path)
        fs.unlink(f"{path}/{LOCK}", missing_ok=True)
        fs.unlink(f"{path}/{DROPPED}", missing_ok=True)
    finally:
        lease.release()
    if not left:
        parent = path.rsplit("/", 1)[0] or "/"
        with suppress(OSError):  # somebody makes a table there by now
            fs.rmdir(path)
            fs.rooted(parent).sync_dir(parent)
    return tuple(left)


def _is_dropped(fs: FileSystem, path: str) -> bool:
    return fs.is_dir(path) and fs.exists(f"{path}/{DROPPED}")


__all__ = ["drop_table"]
