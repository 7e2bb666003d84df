"""What a folder holds, to the last detail: that a call has changed nothing."""

from __future__ import annotations

from pathlib import Path


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
