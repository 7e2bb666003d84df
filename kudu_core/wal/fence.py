"""The file by which a writer knows that no other has taken over: it must still be the one that it wrote last.

Readers and writers of other processes see the file replaced as a whole, so its identity tells (protocol P2).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kudu_core.common.run.locks import mutex
from kudu_core.errors import Fenced

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

Contents = TypeVar("Contents")


class FencedFile(Generic[Contents]):
    """A file that one process replaces.  Thread safe.

    ``_mutex`` guards its replacement.  ``fence`` takes it too, also with the log's locks held; under it no
    lock is taken.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        name: str,
        state: Contents,
        poison: Callable[[BaseException], None],
    ) -> None:
        self.poison = poison
        """Told an fsync that failed, before a signal handler can run: compiled (protocol W8)."""
        self.state = state
        """What it says; replaced with the file."""
        self._fs = fs
        self._directory = directory
        self._path = f"{directory}/{name}"
        self._mutex = mutex()
        self._identity: Any = None
        """Of the file that this process wrote last; None: it has written none, a reader never does."""
        self._replacing: tuple[Contents, bytes] | None = None
        """What the file is being replaced by: an interrupt may leave it replaced, and nobody knowing."""

    def fence(self) -> None:
        """It must still be the file that this writer installed (protocol P2)."""
        with self._mutex:
            if self._identity is None:
                return
            self._settle()
            try:
                now = self._fs.identity(self._path)
            except FileNotFoundError:
                now = None
            if now != self._identity:
                raise Fenced(
                    f"{self._path} was replaced by another writer; nothing was acknowledged after that"
                )

    def _settle(self) -> None:
        """After a replacement that was interrupted: the file is what it was, or what it was to be.

        An fsync that fails is final, as that of the replacement would have been.
        """
        if self._replacing is None:
            return
        state, data = self._replacing
        with suppress(FileNotFoundError):
            identity = self._fs.identity(self._path)
            same_size = self._fs.stat(self._path).size == len(data)
            if same_size and self._fs.read_bytes(self._path, len(data)) == data:
                self._sync_name(identity)
                self._identity, self.state = identity, state
        self._replacing = None

    def _sync_name(self, identity: Any) -> None:
        """Of the file that an interrupted replacement has installed: it may not be durable yet."""
        try:
            self._fs.sync_dir(self._directory)
        except OSError as error:
            self._identity, self._replacing = identity, None  # this writer's file, and not tried again
            self.poison(error)
            raise

    def _replace(self, state: Contents, data: bytes) -> None:
        """Durably; under the mutex."""
        self._replacing = state, data
        try:
            self._fs.replace_file(self._path, data)
        except OSError:
            self._replacing = None  # final: what was not durable once may not be at a second try
            raise
        self._identity = self._fs.identity(self._path)
        self.state = state
        self._replacing = None


__all__ = ["FencedFile"]
