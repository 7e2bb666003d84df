"""``rename_table``: a table's folder gets another path, by one rename."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.errors import InvalidArgument, NotSupported, TableNotFound
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.lifecycle.beside import check_empty
from kudu_core.table.lifecycle.checks import table_state
from kudu_core.table.lifecycle.locations import absolute, is_in_store
from kudu_core.table.lifecycle.manage.own_files import LOCK

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


def rename_table(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    _fs: FileSystem | None = None,
) -> None:
    """Give a table another path on the same file system: it is there or here, whole, at every moment.

    Everything in its folder goes with it.  Who reads it in another process opens it anew under the new path.

    >>> stock.close()
    >>> kc.rename_table(stock.path, path)
    >>> kc.open_table(path).count()
    3

    Raises
    ------
    TableNotFound
        There is no table at ``src``.
    TableExists
        There is something at ``dst``.
    Locked
        Somebody has it open for writing.  In all three cases nothing was changed.
    NotSupported
        One of them is in an object store, where nothing can be renamed: ``Table.clone`` copies a table there,
        and so do ``Table.backup`` and ``restore``; ``drop_table`` removes the old one.
    OSError
        Such as another file system (EXDEV): nothing was changed, and ``Table.clone`` copies it there.  Of an
        fsync: the table has its old path again, or, after a power cut, one of the two.
    """
    if is_in_store(src) or is_in_store(dst):
        raise NotSupported(
            f"{os.fspath(src)} to {os.fspath(dst)}: in an object store nothing can be renamed; copy the "
            "table with Table.clone, or with Table.backup and restore, and remove the old one with drop_table"
        )
    source, target = absolute(os.fspath(src)), absolute(os.fspath(dst))
    fs = _fs or PosixFileSystem()
    own = fs.rooted(source)
    table_state(own, source)
    _check_target(fs, source, target)
    lease = own.lease(f"{source}/{LOCK}")
    lease.try_acquire()
    try:
        table_state(own, source)
        _check_target(fs, source, target)
        fs.rename(source, target)
        try:
            for parent in dict.fromkeys((_parent(target), _parent(source))):
                fs.sync_dir(parent)
        except BaseException:
            with suppress(OSError):
                fs.rename(target, source)
                fs.sync_dir(_parent(source))
            raise
    except FileNotFoundError as error:
        if isinstance(error, TableNotFound):
            raise
        said = "the folder that is to hold the table does not exist; make it first"
        raise FileNotFoundError(errno.ENOENT, said, _parent(target)) from None
    finally:
        lease.release()


def _check_target(fs: FileSystem, source: str, target: str) -> None:
    if f"{target}/".startswith(f"{source}/"):
        raise InvalidArgument(f"{target} lies in the table at {source}, or is the same path")
    check_empty(fs.rooted(_parent(target)), target)


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


__all__ = ["rename_table"]
