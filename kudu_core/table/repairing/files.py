"""Where the files of a damaged table are: by name, else by what they hold.

A file of rows or changes is told by its size and the checksum of its footer, which a manifest or a record of
the log has.  So one is found that lies in `lost/` or `staging/`, or under another's name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kudu_core.cfile.container import MAGIC, TRAILER
from kudu_core.rowset.meta import FileRef

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

SUFFIXES = (".rows", ".delta")
MAX_DEPTH = 4
"""Of folders below the table's own in which files are looked for."""


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
        return self.fs.exists(path) and not self.fs.is_dir(path)

    @property
    def by_content(self) -> dict[tuple[int, int], str]:
        """Path by (size, footer CRC) of every file that ends as one of rows or changes does."""
        if self._by_content is None:
            self._by_content = {}
            for path in self.below(self.root):
                content = self._content(path)
                if content is not None:
                    self._by_content.setdefault(content, path)
        return self._by_content

    def below(self, directory: str, depth: int = MAX_DEPTH) -> list[str]:
        """Every file with a suffix of ours below a folder."""
        found: list[str] = []
        with suppress(OSError):
            for name in self.fs.listdir(directory):
                path = f"{directory}/{name}"
                if self.fs.is_dir(path):
                    if depth:
                        found += self.below(path, depth - 1)
                elif name.endswith(SUFFIXES):
                    found.append(path)
        return found

    def _content(self, path: str) -> tuple[int, int] | None:
        """(size, footer CRC) as the end of a file says; None where it cannot be read."""
        with suppress(OSError):
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
