"""A file system in memory that can hold up one call, and threads that keep their answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.fs.faulty import Call, FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("s", pa.string())])
PATH = "/d/t"
SOON_S = 0.3
LATE_S = 10.0


class Disk(FaultyFileSystem):
    """A file system in memory that can hold up one call of the thread named "slow"."""

    def __init__(self) -> None:
        self.memory = MemoryFileSystem()
        self.memory.mkdir("/d")
        self.memory.sync_all()
        super().__init__(self.memory, before=self._look)
        self.hold: Callable[[Call], bool] = lambda call: False
        self.see: Callable[[Call], object] = lambda call: None
        self.reached, self.go = threading.Event(), threading.Event()

    def _look(self, call: Call) -> None:
        self.see(call)
        if threading.current_thread().name == "slow" and not self.reached.is_set() and self.hold(call):
            self.reached.set()
            assert self.go.wait(LATE_S)

    @contextmanager
    def held(self, hold: Callable[[Call], bool], action: Callable[[], object]) -> Iterator[None]:
        """``action`` stands in a call that ``hold`` picks; it goes on at the end."""
        self.hold = hold
        slow = Thread(action, "slow")
        try:
            assert self.reached.wait(LATE_S)
            yield
        finally:
            self.go.set()
            slow.join(LATE_S)


class Thread(threading.Thread):
    """Runs an action and keeps its answer or its exception."""

    def __init__(self, action: Callable[[], object], name: str = "other") -> None:
        super().__init__(name=name, daemon=True)
        self.answer: list[object] = []
        self._action = action
        self.start()

    def run(self) -> None:
        try:
            self.answer.append(self._action())
        except BaseException as exc:  # noqa: BLE001  the test looks at it
            self.answer.append(exc)


@pytest.fixture
def disk() -> Disk:
    """A file system in memory that can hold up one call."""
    return Disk()


def create(disk: Disk, path: str = PATH, **options: Any) -> kc.Table:
    return kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual", **options}, _fs=disk)


def reopen(disk: Any, **options: Any) -> kc.Table:
    return kc.open_table(PATH, "rw", options=options or None, _fs=disk)


def rows(lower: int, upper: int) -> pa.Table:
    keys = list(range(lower, upper))
    return pa.table({"k": keys, "a": keys, "s": ["x"] * len(keys)}, schema=SCHEMA)


def values_of(table: kc.Table) -> dict[int, int]:
    found = table.scan(["k", "a"]).to_table().to_pydict()
    return dict(zip(found["k"], found["a"], strict=True))


def log_sync(call: Call) -> bool:
    return call.op == "sync" and "/wal/" in call.path
