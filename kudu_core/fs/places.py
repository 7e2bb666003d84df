"""Names in folders that were reached without following a link.

A ``Place`` is a name and the open folder that has it, so what happens to the path meanwhile does not matter.
Nothing is kept: each call of a file system finds its place anew.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from kudu_core.errors import Corruption
from kudu_core.fs import base
from kudu_core.fs.descriptors import Descriptor, opened, opened_beneath

_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP)


class Place:
    """``path`` is for messages; ``name`` is what the system is told, in the folder ``dir_fd``."""

    __slots__ = ("_held", "dir_fd", "name", "path")

    def __init__(self, path: str, name: str, held: Descriptor | None = None) -> None:
        self.path = path
        self.name = name
        self.dir_fd = None if held is None else held.fd
        self._held = held

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """An error of the system names the whole path."""
        if isinstance(error, OSError):
            error.filename = self.path

    def opened(self, flags: int) -> Descriptor:
        with self:
            return opened(self.name, flags, self.dir_fd)

    def folder(self, flags: int) -> Descriptor:
        """The folder of this name, open; ``Corruption`` when it is a link or no folder."""
        try:
            return self.opened(flags | os.O_NOFOLLOW)
        except OSError as exc:
            if exc.errno in _NOT_A_FOLDER:
                raise self.no_folder() from None
            raise

    def lstat(self) -> os.stat_result:
        with self:
            return os.stat(self.name, dir_fd=self.dir_fd, follow_symlinks=False)

    def unlink(self) -> None:
        with self:
            os.unlink(self.name, dir_fd=self.dir_fd)

    def rmdir(self) -> None:
        with self:
            os.rmdir(self.name, dir_fd=self.dir_fd)

    def no_folder(self) -> Corruption:
        """What is raised where a folder of this name could not be opened because it is none."""
        with suppress(OSError):
            if stat.S_ISLNK(self.lstat().st_mode):
                return base.refused_link(self.path)
        return base.NoFolder(self.path)


def place_beneath(root: str, path: str) -> Place:
    """Where ``path`` is, reached from ``root``, whose own path may contain links.

    Raises
    ------
    Corruption
        A folder on the way is a link, or none (``base.NoFolder``).
    InvalidArgument
        The path leads out of ``root``.
    """
    names = base.names_beneath(root, path)
    if len(names) < 2:
        return Place(path, path)  # the system looks at all but the last name as the user gave them
    try:
        held = opened_beneath(f"{root.rstrip('/')}/{names[0]}", names[1:-1])
    except OSError as exc:
        if exc.errno in _NOT_A_FOLDER:
            raise place_beneath(root, exc.filename).no_folder() from None
        raise
    return Place(path, names[-1], held)


def clear(folder: Descriptor, path: str, depth: int = 0) -> None:
    """Remove everything in an open folder; names that vanish meanwhile are no error."""
    if depth == base.MAX_DEPTH:
        raise base.too_deep(path)
    for name in os.listdir(folder.fd):
        place = Place(f"{path}/{name}", name, folder)
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(place.lstat().st_mode):
                place.unlink()
                continue
            clear(place.folder(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), place.path, depth + 1)
            place.rmdir()


__all__ = ["Place", "clear", "place_beneath"]
