"""Work in a process of its own: the peak of its memory, and a control group that bounds it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

GROUPS = Path("/sys/fs/cgroup")


def apart(target: Callable[..., None], *given: Any) -> Any:
    """What it puts into the queue that is its last argument; it runs in a fresh process."""
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    process = context.Process(target=target, args=(*given, answer))
    process.start()
    process.join()
    assert process.exitcode == 0, f"ended with {process.exitcode}"
    return answer.get()


def peak_bytes() -> int:
    """The most memory that was resident at once."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise AssertionError("the system does not tell the peak of the memory")


def forget_peak() -> int:
    """Begin anew; what is resident now."""
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


class NoGroup(Exception):
    """Why no control group can be made here."""


@contextmanager
def group_of(limit_bytes: int) -> Iterator[Path]:
    """A control group inside of this process's own, which bounds the memory of what enters it."""
    parent, limit = _own()
    group = parent / f"kudu-core-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NoGroup(f"no control group can be made in {parent}: {error.strerror}") from error
    try:
        try:
            (group / limit).write_text(str(limit_bytes))
        except OSError as error:
            raise NoGroup(f"{group / limit} cannot be set: {error.strerror}") from error
        yield group
    finally:
        group.rmdir()


def _own() -> tuple[Path, str]:
    """The folder of this process's group for memory, and the name of its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return GROUPS / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        if number == "0" and (GROUPS / "cgroup.controllers").exists():
            return GROUPS / path.lstrip("/"), "memory.max"
    raise NoGroup("this process is in no control group that bounds memory")


def enter(group: str) -> None:
    """From here on what this process takes is bounded."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))


def peak_of(group: str) -> int:
    """The most memory that the group had at once, the operating system's cache of its files counted."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (Path(group) / name).exists():
            return int((Path(group) / name).read_text())
    return 0
