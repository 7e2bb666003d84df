"""Stores in memory that break one promise each; for tests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kudu_core.objects.api import ALWAYS, Entry, Unmet
from tests.support.objects.memory import MemoryObjectStore

if TYPE_CHECKING:
    from kudu_core.objects.api import Condition, Version
    from tests.support.objects.memory import Object

BREAKS = (
    "absent ignored", "absent racy", "absent overwrites", "replace ignored", "replace racy",
    "replace overwrites", "replace makes", "one version", "old bytes", "remembers nothing", "cut short",
    "range ignored", "range off by one", "list lacks", "list spills", "list sizes", "delete lies",
)  # fmt: skip
"""What is broken: see the methods."""


ALONE_S = 0.3
"""A request that nobody races waits so long."""


class BrokenStore(MemoryObjectStore):
    def __init__(self, breaks: str, versions: Literal["etag", "generation"] = "etag") -> None:
        assert breaks in BREAKS
        super().__init__(versions=versions)
        self.breaks = breaks
        self._old: dict[str, Object] = {}
        self._was_missing: set[str] = set()
        self._judged: Counter[str] = Counter()
        self._others = threading.Condition()

    def _meet(self, path: str) -> None:
        """A request whose condition holds waits for a second one, which finds that it holds too."""
        with self._others:
            self._judged[path] += 1
            self._others.notify_all()
            self._others.wait_for(lambda: self._judged[path] > 1, ALONE_S)

    def version_of(self, found: Object) -> Version:
        return '"always"' if self.breaks == "one version" else super().version_of(found)

    def get(self, path: str, limit: int | None) -> tuple[bytes, Version]:
        if self.breaks == "remembers nothing" and path in self._was_missing:
            self._was_missing.discard(path)
            raise FileNotFoundError(2, "no such object", path)
        try:
            data, version = super().get(path, limit)
        except FileNotFoundError:
            self._was_missing.add(path)
            raise
        old = self._old.pop(path, None)
        if self.breaks == "old bytes" and old is not None:
            return old.data, self.version_of(old)
        if self.breaks == "cut short" and len(data) > 100_000:
            return data[:-1], version
        return data, version

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if self.breaks == "range ignored":
            return [self._found(path).data for _ in ranges]
        if self.breaks == "range off by one":
            return super().get_ranges(path, [(offset, length + 1) for offset, length in ranges])
        return super().get_ranges(path, ranges)

    def put(self, path: str, data: bytes, condition: Condition) -> Version:
        if path in self.objects:
            self._old[path] = self.objects[path]
        absent, replace = condition is None, isinstance(condition, str)
        if (self.breaks == "absent ignored" and absent) or (self.breaks == "replace ignored" and replace):
            return super().put(path, data, ALWAYS)
        if self.breaks == "replace makes" and replace and path not in self.objects:
            return super().put(path, data, ALWAYS)
        if (self.breaks == "absent racy" and absent) or (self.breaks == "replace racy" and replace):
            self._judge(path, condition)
            self._meet(path)
            return super().put(path, data, ALWAYS)
        try:
            return super().put(path, data, condition)
        except Unmet:
            if self.breaks == ("absent overwrites" if absent else "replace overwrites"):
                self.store(path, data)
            raise

    def _judge(self, path: str, condition: Condition) -> None:
        have = self.objects.get(path)
        if (have is None) != (condition is None) or (have and self.version_of(have) != condition):
            raise Unmet(path)

    def delete(self, paths: Sequence[str]) -> None:
        gone = {path: self.objects[path] for path in paths if path in self.objects}
        super().delete(paths)
        if self.breaks == "delete lies":
            self.objects.update(dict(list(gone.items())[1:3]))

    def list(self, prefix: str) -> list[Entry]:
        found = super().list(prefix)
        if self.breaks == "list lacks":
            return found[:-1]
        if self.breaks == "list sizes":
            return [each._replace(size=each.size // 10) for each in found]
        if self.breaks == "list spills" and prefix:
            return [each for each in super().list("") if each.name.startswith(prefix)]
        return found
