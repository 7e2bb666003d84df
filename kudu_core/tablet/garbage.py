"""Files that no edit names any more: kept while somebody may read them, then deleted (protocol E4)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core.common.locks import mutex

if TYPE_CHECKING:
    from kudu_core.tablet.tablet import Tablet


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

    def __init__(self) -> None:
        self._mutex = mutex()
        self._retired: list[_Retired] = []

    def retire(self, tablet: Tablet, names: Iterable[str], holders: Iterable[object]) -> None:
        """Under the tablet's mutex, after the install that dropped the files."""
        names = tuple(sorted(names))
        if not names:
            return
        context = tablet.context
        ready_s = context.clock.monotonic_s() + context.options.file_grace_s
        number = tablet.state.number
        with self._mutex:
            self._retired.append(_Retired(names, tuple(map(weakref.ref, holders)), ready_s, number))

    def collect(self, tablet: Tablet) -> tuple[int, int]:
        """Delete what nobody can read any more: (files, bytes).

        A file that cannot be deleted is tried again; ``Poisoned`` and ``Fenced`` pass through.
        """
        manifest, context = tablet.manifest, tablet.context
        assert manifest is not None and context.log is not None
        now = context.clock.monotonic_s()
        with self._mutex:
            ready = [
                r
                for r in self._retired
                if r.ready_s <= now
                and r.number <= manifest.durable_number
                and all(holder() is None for holder in r.holders)
            ]
            if not ready:
                return 0, 0
            context.log.raise_if_poisoned()
            context.fence()
            files = freed = 0
            gone: list[str] = []
            for retired in ready:
                left = []
                for name in retired.names:
                    path = f"{tablet.directory}/{name}"
                    try:
                        with suppress(FileNotFoundError):
                            size = context.fs.stat(path).size
                            context.fs.unlink(path, missing_ok=True)
                            files, freed = files + 1, freed + size
                    except OSError:
                        left.append(name)
                gone += (name for name in retired.names if name not in left)
                if left:
                    retired.names = tuple(left)
                else:
                    self._retired.remove(retired)
        tablet.forget(gone)
        return files, freed

    def __len__(self) -> int:
        with self._mutex:
            return sum(len(r.names) for r in self._retired)
