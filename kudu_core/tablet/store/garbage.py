"""Files that no edit names any more: kept while somebody may read them, then deleted (protocol E4)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core.common.format.names import file_path
from kudu_core.common.run.locks import mutex

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


@dataclass(slots=True)
class _Retired:
    names: tuple[str, ...]
    holders: tuple[weakref.ref[Any], ...]
    """Whoever may still open or read the files: versions of rowsets in views and scans hold them."""
    ready_s: float
    number: int
    """The edit that dropped the files: it must be durable first."""


class Garbage:
    """The retired files of one tablet.  What is left at the end is an orphan for the next open."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._mutex = mutex()
        self._retired: list[_Retired] = []

    def retire(self, names: Iterable[str], holders: Iterable[object], ready_s: float, number: int) -> None:
        """Files that edit ``number`` has dropped: not deleted before ``ready_s`` on the monotonic clock."""
        names = tuple(sorted(names))
        if names:
            with self._mutex:
                self._retired.append(_Retired(names, tuple(map(weakref.ref, holders)), ready_s, number))

    def collect(
        self,
        now_s: float,
        durable_number: int,
        has_readers: Callable[[], bool],
        check: Callable[[], None],
    ) -> tuple[list[str], int, int]:
        """Delete what nobody can read any more: (names that are gone, files, bytes).

        A file that cannot be deleted is tried again.  ``has_readers`` is asked for those whose time has not
        come: without readers it need not.  ``check`` raises where nothing may be deleted any more.
        """
        with self._mutex:
            ready = [
                r
                for r in self._retired
                if r.number <= durable_number and all(holder() is None for holder in r.holders)
            ]
            # After the look at the edits: a reader that comes later reads manifests that do not name these.
            if any(r.ready_s > now_s for r in ready) and has_readers():
                ready = [r for r in ready if r.ready_s <= now_s]
            if not ready:
                return [], 0, 0
            check()
            files = freed = 0
            gone: list[str] = []
            for retired in ready:
                left = []
                for name in retired.names:
                    path = file_path(self._directory, name)
                    try:
                        with suppress(FileNotFoundError):
                            size = self._fs.stat(path).size
                            self._fs.unlink(path, missing_ok=True)
                            files, freed = files + 1, freed + size
                    except OSError:
                        left.append(name)
                gone += (name for name in retired.names if name not in left)
                if left:
                    retired.names = tuple(left)
                else:
                    self._retired.remove(retired)
        return gone, files, freed

    def __len__(self) -> int:
        with self._mutex:
            return sum(len(r.names) for r in self._retired)
