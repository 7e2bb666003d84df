"""A file system that counts what is read through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kudu_core as kc
from kudu_core.fs.posix import PosixFileSystem
from tests.support.fs.faulty import FaultyFileSystem


def counting(path: Path, options: Any = None, mode: str = "r") -> tuple[FaultyFileSystem, kc.Table]:
    """A table read through a file system that counts calls, without a cache of pages."""
    fs = FaultyFileSystem(PosixFileSystem())
    settings = {"page_cache_bytes": 0, "scan_threads": 1, **(options or {})}
    table = kc.open_table(path, mode=mode, _fs=fs, options=settings)
    return fs, table


def reads(fs: FaultyFileSystem) -> int:
    return fs.counts["pread"] + fs.counts["preadv"]
