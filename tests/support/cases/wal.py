"""A log to test with: short ways to write one, to copy its files as a crash would, and to read it.

``Tapped`` is a file system that shows each operation to a test before it happens; the test may let
it fail.  It knows nothing of the log.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal import (
    RECORD_KIND_WRITE,
    Log,
    LogOptions,
    LogTail,
    Record,
    read_log,
)
from tests.support.clock import ManualClock

UUID = bytes(range(16))
SMALL = LogOptions(segment_bytes=8 << 10, first_fill_bytes=1 << 10, fill_bytes=2 << 10, file_grace_s=1.0)

Tap = Callable[[str, str], None]


class Tapped:
    """A file system that calls ``tap(operation, path)`` before each operation on it or its files."""

    def __init__(self, inner: Any, tap: Tap | None = None) -> None:
        self.inner = inner
        self.tap: Tap = tap or (lambda operation, path: None)
        self.counts: dict[str, int] = {}
        self.lock = threading.Lock()

    def saw(self, operation: str, path: str) -> None:
        with self.lock:
            self.counts[operation] = self.counts.get(operation, 0) + 1
        self.tap(operation, path)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.saw(name, str(args[0]))
            result = method(*args, **kwargs)
            return TappedFile(self, result) if name in ("create", "open_write") else result

        return call


class TappedFile:
    def __init__(self, fs: Tapped, inner: Any) -> None:
        self.fs = fs
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.fs.saw("file." + name, self.inner.path)
            return value(*args, **kwargs)

        return call


def create(directory: Path, **options: Any) -> Log:
    directory.mkdir(parents=True, exist_ok=True)
    options.setdefault("clock", ManualClock())
    options.setdefault("options", SMALL)
    fs = options.pop("fs", None) or PosixFileSystem()
    return Log.create(fs, str(directory), UUID, options.pop("epoch", 1), **options)


def resume(directory: Path, epoch: int, *, clean_end: int = 0, **options: Any) -> tuple[Log, list[Record]]:
    """Open the log again as the writer does: read, take over, replay."""
    options.setdefault("clock", ManualClock())
    options.setdefault("options", SMALL)
    fs = options.pop("fs", None) or PosixFileSystem()
    tail = read_log(fs, str(directory), UUID, clean_end=clean_end)
    log = Log.resume(fs, str(directory), UUID, epoch, tail, **options)
    records = list(tail.records())
    tail.close()
    return log, records


def read(directory: Path, *, clean_end: int = 0) -> LogTail:
    return read_log(PosixFileSystem(), str(directory), UUID, clean_end=clean_end)


def write(log: Log, *parts: bytes, kind: int = RECORD_KIND_WRITE) -> int:
    """One record, applied, not waited for."""
    ts = log.append(kind, 1, parts)
    log.applied(ts)
    return ts


def commit(log: Log, *parts: bytes) -> int:
    """One record, applied and visible."""
    ts = write(log, *parts)
    log.wait_visible(ts)
    return ts


def payloads(records: Sequence[Record]) -> list[bytes]:
    return [bytes(record.payload) for record in records]


def crashed(directory: Path, to: Path) -> Path:
    """The files as they are now, elsewhere."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(directory, to)
    return to


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


GROUP = replace(SMALL, durability="group", group_interval_s=0.01)
NONE = replace(SMALL, durability="none")


def eventually(reached: object, timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():  # type: ignore[operator]
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.002)
