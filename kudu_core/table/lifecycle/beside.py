"""A table that is made beside its place, under a temporary name, and renamed when it is whole.

What others left so and did not finish is swept.  Nothing but the folder that holds the place is touched, and
in it nothing is followed that is a link: the folder may have come from elsewhere too.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.errors import TableExists
from kudu_core.fs.base import temporary_name, temporary_of
from kudu_core.table.lifecycle.create import check_free
from kudu_core.table.lifecycle.handles import open_handle

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.fs.api import FileSystem, Lease
    from kudu_core.table.opened.handle import Handle

BUSY = "BUSY"
"""The first file in the folder under a temporary name: its lease says that somebody is at work there."""


def make_beside(fs: FileSystem, path: str, build: Callable[[FileSystem, str], None]) -> None:
    """Make the table at ``path``, whole or not at all.

    ``build`` is given a file system of the folder under the temporary name, and the table's path in it.

    Raises
    ------
    TableExists
        There is something at ``path``; nothing was changed.
    """
    parent = path.rsplit("/", 1)[0] or "/"
    fs = fs.rooted(parent)
    check_empty(fs, path)
    _remove_leftovers(fs, path)
    place = temporary_name(path, uuid.uuid4().hex)
    fs.mkdir(place)
    busy = _busy(fs, place)
    built = False
    try:
        busy.try_acquire()
        fs.sync_dir(place)
        build(fs.rooted(place), f"{place}/table")
        check_empty(fs, path)
        built = True
        fs.rename(f"{place}/table", path)
        fs.sync_dir(parent)
    except BaseException:
        with suppress(OSError):
            if built and not fs.exists(f"{place}/table"):
                _take_back(fs, place, path)
            _remove(fs, place)
        raise
    finally:
        busy.release()
    with suppress(OSError):  # the table is there, and nothing else in it but the mark
        _remove(fs, place)


def open_beside(fs: FileSystem, path: str, clock: Clock) -> Handle:
    """The table that is being made, open for writing.  A context manager.

    Nobody closes it but its caller: where that fails or is cut short, the table goes, and whoever closed it
    later would write to a folder that was removed, or is another's.
    """
    handle = open_handle(path, "rw", options={"maintenance": "manual"}, fs=fs, clock=clock)
    handle.leave_to_caller()
    return handle


def check_empty(fs: FileSystem, path: str) -> None:
    """``TableExists`` unless a table may be made at ``path``; ``fs`` is of the folder that holds it."""
    if fs.exists(path) and fs.is_dir(path) and fs.listdir(path):
        raise TableExists(f"{path} is not empty; a table is made at a new place")
    check_free(fs, path)


def _busy(fs: FileSystem, place: str) -> Lease:
    """The caller has seen that ``place`` is a folder, and no link to one."""
    return fs.rooted(place).lease(f"{place}/{BUSY}")


def _remove_leftovers(fs: FileSystem, path: str) -> None:
    """What was begun for this path and did not come to its end."""
    parent, name = path.rsplit("/", 1)
    for other in fs.listdir(parent or "/"):
        place = f"{parent}/{other}"
        if temporary_of(other) != name or not fs.is_dir(place):
            continue
        if not fs.listdir(place):
            with suppress(OSError):
                fs.rmdir(place)
        elif fs.exists(f"{place}/{BUSY}") and _busy(fs, place).holder() is None:
            try:
                _remove(fs, place)
            except OSError as exc:
                if exc.errno != errno.ENOTEMPTY:  # a task of a driver that was killed is still writing there
                    raise


def _take_back(fs: FileSystem, place: str, path: str) -> None:
    """A table whose new name may never reach the disk.  Its files go when it has lost that name for good."""
    fs.rename(path, f"{place}/table")
    fs.sync_dir(place)
    fs.sync_dir(path.rsplit("/", 1)[0] or "/")


def _remove(fs: FileSystem, place: str) -> None:
    """The mark last, also for a power cut: what lies there without one is nobody's to remove."""
    if fs.exists(f"{place}/table"):
        fs.rmtree(f"{place}/table")
        fs.sync_dir(place)
    fs.rmtree(place)


__all__ = ["check_empty", "make_beside", "open_beside"]
