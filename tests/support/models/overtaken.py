"""A reader beside a writer that replaces all that the reader knows of, whenever a test says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.table.opened.handle import Handle
from tests.support.inside import before_each_open

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
ROWS = 101
AT_ONCE = {"maintenance": "manual", "file_grace_s": 0}
WITHOUT_HISTORY = {**AT_ONCE, "history_retention_s": 0}
WATCHED = str(Path(kc.__file__).parent / "table")


class Pair:
    """A table with rows 0 to 99 and one more, a writer that replaces all files at once, and a reader."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self.path, self.number = path, 0
        self.writer = kc.create_table(path, SCHEMA, "k", options=options)
        self.replace()
        self.reader = kc.open_table(path)

    def replace(self) -> None:
        """Every row has another value, in another file, and what was before, if kept, is history."""
        self.number += 1
        self.writer.upsert({"k": list(range(100)), "v": [self.number] * 100})
        self.writer.delete({"k": [100 + self.number]}, on_missing="ignore")
        self.writer.insert({"k": [101 + self.number], "v": [0]})  # so that there is something to merge
        self.writer.flush()
        self.writer.compact(full=True)
        self.writer.gc()

    def overtake(self) -> None:
        """What another thread does at this moment: the reader's state is gone, and it has a newer one."""
        self.replace()
        self.reader.refresh()

    def before_each_open(self, act: Callable[[], object]) -> None:
        """``act`` each time when the reader has opened a newer state, and has not taken it yet."""
        before_each_open(self.reader, act)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


class At:
    """``with At(n, act):`` does something at the n-th step of what follows, as another thread would: when a
    function of ``kudu_core/table`` begins; after a refresh that is under way then, for whose end the other
    thread would wait.  None: nothing; ``steps`` says how many there were."""

    def __init__(self, at: int | None, act: Callable[[], object]) -> None:
        self.at, self.act, self.steps = at, act, 0

    def __enter__(self) -> At:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        if self.at is not None and self.steps >= self.at:
            self.act()

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(WATCHED):
            self.steps += 1
            if self.at is not None and self.steps >= self.at and not _refreshes(frame):
                self.at = None
                self.act()


def _refreshes(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is Handle.refresh.__code__:
            return True
        frame = frame.f_back
    return False
