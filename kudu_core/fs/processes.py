"""Which process this is, and whether another one is dead, as far as this machine can tell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ProcessName(NamedTuple):
    """A process among all machines.  ``boot_id`` is "" where the system has none."""

    pid: int
    host: str
    boot_id: str


def this_process() -> ProcessName:
    try:
        boot_id = _BOOT_ID.read_text().strip()
    except OSError:
        boot_id = ""
    return ProcessName(os.getpid(), os.uname().nodename, boot_id)


def is_known_dead(other: ProcessName) -> bool:
    """Whether it was one of this boot of this host, and is no more."""
    me = this_process()
    if not me.boot_id or (other.host, other.boot_id) != (me.host, me.boot_id) or other.pid <= 0:
        return False
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


__all__ = ["ProcessName", "is_known_dead", "this_process"]
