"""What the tests of file systems share."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kudu_core.fs import FileSystem, PosixFileSystem
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem


@pytest.fixture(params=["posix", "memory", "faulty", "posix-rooted", "memory-rooted", "faulty-rooted"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system and an empty directory in it."""
    kind, _, rooted = request.param.partition("-")
    fs: FileSystem = PosixFileSystem()
    folder = str(tmp_path)
    if kind != "posix":
        memory = MemoryFileSystem(now_s=time.time)
        memory.mkdir("/d")
        fs, folder = FaultyFileSystem(memory) if kind == "faulty" else memory, "/d"
    return (fs.rooted(folder) if rooted else fs), folder


@pytest.fixture
def memory() -> MemoryFileSystem:
    """A file system with the durable, empty directory ``/d``."""
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    fs.sync_all()
    return fs
