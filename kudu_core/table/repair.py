"""``kudu_core.repair``: what can be read of a damaged table, as a new one beside it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kudu_core.common.clock import Clock
from kudu_core.errors import InvalidArgument
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.repairing import walk
from kudu_core.table.repairing.report import RepairReport
from kudu_core.table.table import folder_path

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


def repair(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = True,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
) -> RepairReport:
    """Read what can be read of a damaged table and, unless ``dry_run``, make a new table of it.

    The damaged table is never changed.
    """
    fs, root = _fs or PosixFileSystem(), folder_path(path)
    place = f"{root}.repaired" if target is None else folder_path(target)
    if f"{place}/".startswith(f"{root}/"):
        raise InvalidArgument(f"{place} lies in the damaged table's own folder; a repaired table belongs elsewhere")
    return walk.repair(fs, root, place, dry_run=dry_run, clock=_clock or Clock())


__all__ = ["repair"]
