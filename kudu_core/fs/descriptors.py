"""Descriptors of open files: who owns them, and how many there may be.

A table keeps a descriptor for every file that it reads, and results that outlive its files need theirs; a
table of a thousand rowsets has a thousand.  Most systems start a process with a soft limit of 1,024, which is
there for programs that call select(2), and let it have many more.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core._ext.files.descriptors import Descriptor, folder_beneath

if TYPE_CHECKING:
    from collections.abc import Callable


FILE_MODE, FOLDER_MODE = 0o666, 0o777
"""With which a table's files and folders are made, as every program makes its own: the umask of the process
says who else may read them."""


def opened(path: str, flags: int, dir_fd: int | None = None) -> Descriptor:
    """Open a file; one that this makes has the rights that the umask leaves.

    ``dir_fd``: the folder that ``path`` is in.

    Where the process has as many as its soft limit allows, the limit is raised to the hard one: a write that
    fails for want of a descriptor would poison the table.

    Raises
    ------
    OSError
        As open(2) does; with EMFILE it says what to raise.
    """
    return _within_limits(path, os.open, path, flags, FILE_MODE, dir_fd=dir_fd)


def opened_beneath(path: str, names: list[str]) -> Descriptor:
    """The folder to which ``names`` lead from ``path``, none of them a link (``folder_beneath``)."""
    return _within_limits(path, folder_beneath, path, names)


def _within_limits(path: str, call: Callable[..., int], *args: object, **keywords: object) -> Descriptor:
    try:
        return Descriptor(call, *args, **keywords)
    except OSError as exc:
        if exc.errno != errno.EMFILE:
            raise
    _raise_limit()
    try:
        return Descriptor(call, *args, **keywords)
    except OSError as exc:
        if exc.errno == errno.EMFILE:
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            said = f"this process may have {most} files open, and has; raise the hard limit (ulimit -Hn)"
            raise OSError(errno.EMFILE, said, path) from exc
        raise


def _raise_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # refused: then the file is not opened either
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


__all__ = ["FILE_MODE", "FOLDER_MODE", "Descriptor", "opened", "opened_beneath"]
