"""What every file system builds from its own primitives, so that a fault may hit each step.

Knows no system call.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from kudu_core.errors import Corruption, InvalidArgument

if TYPE_CHECKING:
    from kudu_core.fs.api import Data, FileSystem

COPY_BYTES = 8 << 20
MAX_DEPTH = 64
"""Folders in folders that ``rmtree`` goes down; what we make is four deep."""
_SUFFIX = ".tmp"
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{1,32}\.tmp", re.DOTALL)


def byte_views(data: Data) -> list[memoryview]:
    """The non-empty buffers of ``data`` as flat views of bytes; nothing is copied."""
    views = []
    for buffer in data if isinstance(data, list | tuple) else (data,):
        view = memoryview(buffer)
        if view.nbytes:
            views.append(view if view.format == "B" and view.ndim == 1 else view.cast("B"))
    return views


def parent(path: str) -> str:
    """The directory that holds the name ``path``."""
    return os.path.dirname(path) or "."


def temporary_name(path: str, token: str) -> str:
    """A hidden name beside ``path``.  ``token`` must be unique among all who may write there."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{token}{_SUFFIX}")


def is_temporary(name: str) -> bool:
    """True for a name that a ``replace_file`` may have left behind when its process died.

    Only who holds the lease of the directory's table may delete such a file.
    """
    return temporary_of(name) is not None


def temporary_of(name: str) -> str | None:
    """The name that what is called so was to get; None where ``temporary_name`` never made this one."""
    found = _TEMPORARY.fullmatch(name)
    return None if found is None else found[1]


def replace_file(fs: FileSystem, path: str, data: Data, token: str) -> None:
    """``FileSystem.replace_file`` from ``create``, ``append``, ``sync``, ``rename`` and ``sync_dir``."""
    temporary = temporary_name(path, token)
    file = fs.create(temporary)
    try:
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()
        fs.rename(temporary, path)
    except BaseException:
        with suppress(Exception):
            fs.unlink(temporary, missing_ok=True)
        raise
    fs.sync_dir(parent(path))


def read_bytes(fs: FileSystem, path: str, limit: int) -> bytes:
    """``FileSystem.read_bytes`` from ``open_read`` and ``pread``."""
    file = fs.open_read(path)
    try:
        # One byte more, so that a file which grows after a look at its size is still caught.
        data = file.pread(min(file.size(), limit) + 1, 0)
        if len(data) > limit:
            raise Corruption(path, limit, f"the file is longer than {limit} bytes, the most it may be")
        return data
    finally:
        file.close()


def names_beneath(root: str, path: str) -> list[str]:
    """The names that lead from a folder to ``path``; none for the folder itself.

    ``InvalidArgument``: the path leads elsewhere, or may.
    """
    if path == root:
        return []
    prefix = root if root.endswith("/") else f"{root}/"
    names = path[len(prefix) :].split("/")
    if not path.startswith(prefix) or not _PLAIN.isdisjoint(names) or "\0" in path:
        raise InvalidArgument(f"{path!r} is no path in {root!r}")
    return names


_PLAIN = frozenset(("", ".", ".."))


def refused_link(path: str) -> Corruption:
    return Corruption(path, 0, "a link stands here; in the folder of a table or of backups none is followed")


def no_file(path: str) -> Corruption:
    return Corruption(path, 0, "something that is no regular file stands in the place of one")


class NoFolder(Corruption):
    """What stands in the place of a folder beneath a rooted one, or on the way to a name, is none."""

    def __init__(self, path: str) -> None:
        super().__init__(path, 0, "something that is no folder stands in the place of one")

    def __reduce__(self) -> tuple[type[NoFolder], tuple[str]]:
        return NoFolder, (self.path,)


def of_opening(error: OSError, path: str) -> Exception:
    """What is raised where a file could not be opened because it is none."""
    if error.errno == errno.ELOOP:
        return refused_link(path)
    return no_file(path) if error.errno in (errno.EISDIR, errno.ENXIO) else error


def detach(fs: FileSystem, path: str, token: str) -> None:
    """Put a copy in the place of a file that has other names too."""
    temporary = temporary_name(path, token)
    reader = fs.open_read(path)
    try:
        with closing(fs.create(temporary)) as writer:
            while data := reader.pread(COPY_BYTES, writer.size()):
                writer.append(data)
            writer.sync()
        fs.rename(temporary, path)
    except BaseException:
        with suppress(Exception):
            fs.unlink(temporary, missing_ok=True)
        raise
    finally:
        reader.close()
    fs.sync_dir(parent(path))


def rmtree(fs: FileSystem, path: str, depth: int = 0) -> None:
    """``FileSystem.rmtree`` from ``listdir``, ``is_dir``, ``unlink`` and ``rmdir`` of a rooted one."""
    if depth == MAX_DEPTH:
        raise too_deep(path)
    for name in fs.listdir(path):
        child = f"{path}/{name}"
        if fs.is_dir(child):
            with suppress(FileNotFoundError):
                rmtree(fs, child, depth + 1)
        else:
            fs.unlink(child, missing_ok=True)
    with suppress(FileNotFoundError):
        fs.rmdir(path)


def too_deep(path: str) -> OSError:
    said = f"more than {MAX_DEPTH} folders in one another: none of them is ours to remove"
    return OSError(errno.ENAMETOOLONG, said, path)


def os_error(number: int, path: str) -> OSError:
    """The operating system's error, of the subclass that belongs to the number."""
    return OSError(number, os.strerror(number), path)


LINKS_UNSUPPORTED = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
"""``link`` copies instead when the system refuses with one of these."""
