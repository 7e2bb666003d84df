"""What in a table's folder is the table's own, and its removal.  Everything else stays, and is told.

Own is what has a name that a table gives, where it gives it, and is a file where that is a file: the same as
``Table.verify`` has it.  No link is followed, nor removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kudu_core.common.format.names import (
    DROPPED,
    is_data_file,
    is_staging,
    job_of_mark,
    parse_lost,
    tablet_of_folder,
)
from kudu_core.fs.base import is_temporary, temporary_of
from kudu_core.fs.copies import copy_of
from kudu_core.wal import is_log_name

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

LOCK: Final = "LOCK"
_FILES: Final = frozenset(("TABLE", copy_of("TABLE")))
_REPAIRED: Final = re.compile(r"REPORT|rows-[0-9]+\.arrow")


def remove_own(fs: FileSystem, path: str) -> list[str]:
    """Remove what is the table's but ``LOCK`` and ``DROPPED``, durably; the names of what stays, relative to
    the folder ``path``, of which ``fs`` is."""
    left: list[str] = []
    for name in fs.listdir(path):
        if name in (LOCK, DROPPED):
            continue
        whole = f"{path}/{name}"
        if name in _FOLDERS and fs.is_dir(whole):
            left += _emptied(fs, whole, name, _FOLDERS[name])
        elif (name in _FILES or is_temporary(name)) and not fs.is_dir(whole):
            fs.unlink(whole, missing_ok=True)
        else:
            left.append(name)
    fs.sync_dir(path)
    return left


Remove = Callable[["FileSystem", str, str, str], list[str]]
"""(fs, path of something, its name, what is shown of it) -> what of it stays."""


def _emptied(fs: FileSystem, folder: str, shown: str, remove: Remove) -> list[str]:
    """Remove the folder, or of one in which something stays all else."""
    left: list[str] = []
    for name in fs.listdir(folder):
        left += remove(fs, f"{folder}/{name}", name, f"{shown}/{name}")
    if left:
        fs.sync_dir(folder)
    else:
        fs.rmdir(folder)
    return left


def _files(is_own: Callable[[str], bool]) -> Remove:
    """Of a folder of files: those with an own name, and unfinished ones."""

    def remove(fs: FileSystem, path: str, name: str, shown: str) -> list[str]:
        if fs.is_dir(path) or not (is_own(name) or is_temporary(name)):
            return [shown]
        fs.unlink(path, missing_ok=True)
        return []

    return remove


def _tablet(fs: FileSystem, path: str, name: str, shown: str) -> list[str]:
    if tablet_of_folder(name) is None or not fs.is_dir(path):
        return [shown]
    manifests = "MANIFEST", copy_of("MANIFEST")
    return _emptied(fs, path, shown, _files(lambda file: file in manifests or is_data_file(file)))


def _staged(fs: FileSystem, path: str, name: str, shown: str) -> list[str]:
    """A folder of staging is its writer's, whatever lies in it."""
    return _whole(fs, path, shown, is_staging(name), job_of_mark(temporary_of(name) or name) is not None)


def _lost(fs: FileSystem, path: str, name: str, shown: str) -> list[str]:
    own = parse_lost(name) is not None
    return _whole(fs, path, shown, own, own)


def _whole(fs: FileSystem, path: str, shown: str, own_folder: bool, own_file: bool) -> list[str]:
    is_folder = fs.is_dir(path)
    if not (own_folder if is_folder else own_file):
        return [shown]
    if is_folder:
        fs.rmtree(path)
    else:
        fs.unlink(path, missing_ok=True)
    return []


_FOLDERS: Final[dict[str, Remove]] = {
    "wal": _files(is_log_name),
    "tablets": _tablet,
    "staging": _staged,
    "lost": _lost,
    "repair": _files(lambda name: _REPAIRED.fullmatch(name) is not None),
}

__all__ = ["LOCK", "remove_own"]
