"""What the tests of this folder share: tables on the machine's own disk."""

from __future__ import annotations

from pathlib import Path

from tests.engine.conftest import make, others, path, small_segments, table

__all__ = ["everything", "make", "others", "path", "small_segments", "table"]


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """Every name below a directory and the directory itself: inode, mode, times of the last changes, size,
    contents.  Not the time of the last reading."""
    found = {}
    for entry in (root, *sorted(root.rglob("*"))):
        stat = entry.lstat()
        content = entry.read_bytes() if entry.is_file() else None
        found[str(entry.relative_to(root))] = (
            stat.st_ino,
            stat.st_mode,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
            stat.st_nlink,
            stat.st_size,
            content,
        )
    return found
