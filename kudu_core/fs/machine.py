"""How much memory a process may use: what the machine has, or less where a control group bounds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath


@lru_cache
def memory_bytes(root: Path = Path("/")) -> int:
    """Bytes: the least of the machine's memory and of the limits of this process's control groups.

    ``root``: where ``proc`` and ``sys`` are.  Groups of version 1 and 2 are understood, where they are
    mounted as usual; a limit that cannot be read is none.  Asked once a process.
    """
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    groups = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            yield from _of_group(groups, group, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _of_group(groups / "memory", group, "memory.limit_in_bytes")


def _of_group(mounted: Path, group: str, name: str) -> Iterator[int]:
    """The limits of a group and of all that it is in.  In a container its own may be the mount itself."""
    path = PurePosixPath("/", group)
    for part in (path, *path.parents):
        limit = _text(mounted / part.relative_to("/") / name).strip()
        if limit.isdecimal() and int(limit) > 0:
            yield int(limit)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
