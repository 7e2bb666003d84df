"""Work in a process of its own: the peak of its memory, and a control group that bounds what it takes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
"""In which a group may use its share of processor time."""


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


def group_of(limit_bytes: int) -> AbstractContextManager[Path]:
    """``with`` it: a control group inside this process's own, which bounds the memory of what enters it."""
    return _group("memory", {"memory.limit_in_bytes": str(limit_bytes)}, {"memory.max": str(limit_bytes)})


def group_of_cores(cores: float) -> AbstractContextManager[Path]:
    """The same, which bounds the processor time of all threads together."""
    quota = round(cores * PERIOD_US)
    older = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    return _group("cpu", older, {"cpu.max": f"{quota} {PERIOD_US}"})


@contextmanager
def _group(controller: str, older: dict[str, str], newer: dict[str, str]) -> Iterator[Path]:
    """``older``, ``newer``: what to write into which file of it, in control groups of version 1 and 2."""
    parent, is_newer = _own(controller)
    group = parent / f"kudu-core-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NoGroup(f"no control group can be made in {parent}: {error.strerror}") from error
    try:
        for name, value in (newer if is_newer else older).items():
            try:
                (group / name).write_text(value)
            except OSError as error:
                raise NoGroup(f"{group / name} cannot be set: {error.strerror}") from error
        yield group
    finally:
        group.rmdir()


def _own(controller: str) -> tuple[Path, bool]:
    """The folder of this process's group, and whether it is of version 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return GROUPS / controller / path.lstrip("/"), False
        if number == "0" and (GROUPS / "cgroup.controllers").exists():
            return GROUPS / path.lstrip("/"), True
    raise NoGroup(f"this process is in no control group that bounds {controller}")


def enter(group: str) -> None:
    """From here on what this process takes is bounded."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))


def peak_of(group: str) -> int:
    """The most memory that the group had at once, the operating system's cache of its files counted."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (Path(group) / name).exists():
            return int((Path(group) / name).read_text())
    return 0
