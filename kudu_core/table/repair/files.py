"""Where the files of a damaged table are: by name, else by what they hold.

A file of rows or changes is told by its size and the checksum of its footer, which a manifest or a record of
the log has.  So one is found that lies in `lost/` or `staging/`, or under another's name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kudu_core.cfile.pages.container import MAGIC, TRAILER
from kudu_core.common.format.names import is_staging, parse_lost, tablet_of_folder
from kudu_core.errors import Corruption
from kudu_core.rowset.rows.meta import FileRef

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

SUFFIXES = (".rows", ".delta")


@dataclass(slots=True)
class Files:
    """The files below a table's folder.  Follows no link."""

    fs: FileSystem
    root: str
    _by_content: dict[tuple[int, int], str] | None = None
    used: set[str] = field(default_factory=set)

    def place(self, directory: str, ref: FileRef) -> str | None:
        """Where the file is that is to have a name in a folder; None: nowhere."""
        path = f"{directory}/{ref.name}"
        if self._content(path) == (ref.size, ref.footer_crc):
            return path
        elsewhere = self.by_content.get((ref.size, ref.footer_crc))
        if elsewhere is not None:
            return elsewhere
        return path if self.is_file(path) else None

    def is_file(self, path: str) -> bool:
        with suppress(OSError, Corruption):
            return self.fs.exists(path) and not self.fs.is_dir(path)
        return False

    @property
    def by_content(self) -> dict[tuple[int, int], str]:
        """Path by (size, footer CRC) of every file that ends as one of rows or changes does."""
        if self._by_content is None:
            self._by_content = {}
            for path in self.everywhere():
                content = self._content(path)
                if content is not None:
                    self._by_content.setdefault(content, path)
        return self._by_content

    def everywhere(self) -> list[str]:
        """Every file of rows or changes in the folders that a table has."""
        found = self.of(f"{self.root}/lost")
        for name in self._names(f"{self.root}/lost"):
            if self.fs.is_dir(f"{self.root}/lost/{name}"):
                found += self.of(f"{self.root}/lost/{name}")
        for name in self._names(f"{self.root}/tablets"):
            if tablet_of_folder(name) is not None:
                found += self.of(f"{self.root}/tablets/{name}")
        for name in self._names(f"{self.root}/staging"):
            if is_staging(name):
                folder = f"{self.root}/staging/{name}"
                found += self.of(folder)
                for inner in self._names(folder):
                    if not inner.endswith(SUFFIXES) and self.fs.is_dir(f"{folder}/{inner}"):
                        found += self.of(f"{folder}/{inner}")
        return found

    def of_tablet(self, directory: str) -> list[str]:
        """Those of one tablet, and those that were moved out of its folder."""
        tablet = tablet_of_folder(directory.rsplit("/", 1)[1])
        moved = [
            f"{self.root}/lost/{name}"
            for name in self._names(f"{self.root}/lost")
            if name.endswith(SUFFIXES) and (told := parse_lost(name)) and told.tablet_id == tablet
        ]
        return [*self.of(directory), *moved]

    def of(self, directory: str) -> list[str]:
        """The files of rows or changes in one folder."""
        return [f"{directory}/{name}" for name in self._names(directory) if name.endswith(SUFFIXES)]

    def _names(self, directory: str) -> list[str]:
        with suppress(OSError, Corruption):
            return self.fs.listdir(directory)
        return []

    def _content(self, path: str) -> tuple[int, int] | None:
        """(size, footer CRC) as the end of a file says; None where it cannot be read."""
        with suppress(OSError, Corruption):
            file = self.fs.open_read(path)
            try:
                size = file.size()
                if size > TRAILER.size:
                    _, _, crc, magic = TRAILER.unpack(file.pread(TRAILER.size, size - TRAILER.size))
                    if magic == MAGIC:
                        return size, crc
            finally:
                file.close()
        return None


__all__ = ["Files"]
