"""A file that is opened when it is first needed, by whoever comes first, and shared from then on."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

from kudu_core.cfile.files.open_file import OpenFile
from kudu_core.common.run.locks import mutex

F = TypeVar("F", bound=OpenFile)


class LazyFile(ABC, Generic[F]):
    """What stands for a file until it is opened, and holds it after that."""

    def __init__(self) -> None:
        self._file: F | None = None
        self._opening = mutex()
        self.borrowed = False
        """Whether the file is another's, which lets it go."""
        self._others: list[LazyFile[F]] = []

    def open(self) -> F:
        file = self._file
        if file is None:
            with self._opening:
                file = self._file
                if file is None:
                    file = self._opened()
                    self._file = file
        return file

    @property
    def opened(self) -> F | None:
        """The file, if somebody has opened it."""
        return self._file

    @abstractmethod
    def _opened(self) -> F:
        """Open it, and check that it is what a manifest says."""

    def held(self) -> Self:
        """The same, with a hold of its own on the file."""
        other = copy.copy(self)
        other._opening = mutex()
        other.borrowed = other._file is not None
        return other

    def uncached(self) -> Self:
        """The same, read past the page cache; opened here, and open as long as this one."""
        other = self.held()
        other._file = self.open().uncached()
        other.borrowed = True
        return other

    def outlive(self, other: LazyFile[F]) -> None:
        """``other``, which stands for the same file, lives as long as this one: who waits for the one waits
        for both, before the file goes."""
        self._others.append(other)

    def let_go(self, *, close: bool = False) -> None:
        """Hold the file no longer; it is closed when the last scan that reads it ends, or at once."""
        with self._opening:
            file, self._file = self._file, None
        if file is not None and not self.borrowed:
            file.let_go()
            if close:
                file.close()

    def __del__(self) -> None:
        # Of a rowset that a compaction replaced: else the cache would keep its file open.
        self.let_go()
