"""A small table whose files are damaged, lost or renamed, and what is in its ``lost/``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import Files, put

ROOT = "/tables/t"
TABLET = f"{ROOT}/tablets/00000001"
MANIFEST = f"{TABLET}/MANIFEST"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OPTIONS: dict[str, Any] = {"maintenance": "manual", "file_grace_s": 0, "lost_grace_s": 3600}
ROWS = 40


class World:
    """A table on a disk in memory, and a clock."""

    def __init__(self, fs: MemoryFileSystem | None = None, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        if fs is None:
            fs = MemoryFileSystem(lambda: self.clock.now_us() / 1e6)
            fs.mkdir("/tables")
            fs.sync_all()
        self.fs = fs

    def create(self, **options: Any) -> kc.Table:
        given = {**OPTIONS, **options}
        return kc.create_table(ROOT, SCHEMA, "k", options=given, _fs=self.fs, _clock=self.clock)

    def open(self, mode: str = "rw", **given: Any) -> kc.Table:
        return kc.open_table(ROOT, mode, _fs=self.fs, _clock=self.clock, **given)

    def merged(self, **options: Any) -> None:
        """Four flushes and the merge of what they wrote, whose edit is the last; closed."""
        with self.create(**options) as table:
            for part in range(4):
                table.insert({"k": list(range(part, ROWS, 4)), "v": [part] * (ROWS // 4)})
                table.flush()
            table.compact(full=True)
            table.gc()

    def keys(self, mode: str = "rw") -> list[int]:
        with self.open(mode) as table:
            found: list[int] = table.scan(["k"], order="key").to_table()["k"].to_pylist()
        return found

    @property
    def lost(self) -> list[str]:
        return self.fs.listdir(f"{ROOT}/lost") if self.fs.exists(f"{ROOT}/lost") else []

    def data_files(self) -> list[str]:
        return [name for name in self.fs.listdir(TABLET) if not name.startswith("MANIFEST")]


def flip(data: bytes, at: int, bit: int = 0) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


def without_lock(files: Files) -> Files:
    return {path: data for path, data in files.items() if not path.endswith("/LOCK")}


# ---- files that nothing names, and files that are named


def orphan(world: World, name: str = "000001-00000999.rows", data: bytes = b"orphan") -> None:
    put(world.fs, f"{TABLET}/{name}", data)
