"""Files that are named and not there."""

from __future__ import annotations

from kudu_core.errors import Corruption


class FileMissing(Corruption):
    """A file that a manifest names is not there: removed since by the writer, or lost.

    A reader looks at the newest manifests before it believes the latter (protocol R4, B14).
    """

    def __init__(self, path: str, offset: int = 0, reason: str = "the file is missing") -> None:
        super().__init__(path, offset, reason)


__all__ = ["FileMissing"]
