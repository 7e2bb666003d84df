"""TABLE of an open table: what it says, how it is replaced, and whether it is still this writer's.

Its bytes are in ``table/stored/table_file.py``.  A reader has its state and replaces nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.locks import mutex
from kudu_core.errors import Fenced
from kudu_core.fs.copies import keep_copy
from kudu_core.table.stored.table_file import TableState, read_state, replace

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


def _no_edits() -> Mapping[int, int]:
    return {}


def _is_read(error: BaseException) -> None:
    raise AssertionError("a table open for reading replaces nothing") from error


class TableFile:
    """TABLE of one open table.  Thread safe.

    ``_mutex`` guards its replacement.  ``fence`` takes it too, also with the log's locks held; under it no
    lock is taken.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        state: TableState,
        *,
        proven: Callable[[], Mapping[int, int]] = _no_edits,
        poison: Callable[[BaseException], None] = _is_read,
    ) -> None:
        """``proven``: by tablet, an edit of its manifest that is known to be on disk.  ``poison`` is told the
        failure of a ``change`` (protocol W8)."""
        self.state = state
        """What it says; replaced with the file."""
        self._fs = fs
        self._directory = directory
        self._path = f"{directory}/TABLE"
        self._proven = proven
        self._poison = poison
        self._mutex = mutex()
        self._identity: Any = None
        """Of the file that this process wrote last; None: it has written none, a reader never does."""
        self._replacing: tuple[TableState, bytes] | None = None
        """What TABLE is being replaced by: an interrupt may leave it replaced, and nobody knowing."""

    def fence(self) -> None:
        """TABLE must still be the file that this writer installed (protocol P2)."""
        with self._mutex:
            if self._identity is None:
                return
            self._settle_replacement()
            try:
                now = self._fs.identity(self._path)
            except FileNotFoundError:
                now = None
            if now != self._identity:
                raise Fenced(
                    f"{self._path} was replaced by another writer; nothing was acknowledged after that"
                )

    def is_of_this_epoch(self) -> bool:
        """Whether nobody has opened the table for writing since the state was read."""
        try:
            return read_state(self._fs, self._path).epoch == self.state.epoch
        except FileNotFoundError:
            return False

    def install(self, state: TableState) -> None:
        """Replace TABLE, durably."""
        with self._mutex:
            self._install(state)

    def change(self, change: Callable[[TableState], TableState]) -> None:
        """Replace TABLE by what ``change`` makes of it; a failure poisons (protocol W8)."""
        self.fence()
        try:
            with self._mutex:
                self._settle_replacement()
                self._install(change(self.state))
        except OSError as exc:
            self._poison(exc)
            raise

    def _settle_replacement(self) -> None:
        """After a replacement that was interrupted: TABLE is what it was, or what it was to be."""
        if self._replacing is None:
            return
        state, data = self._replacing
        with suppress(FileNotFoundError):
            identity = self._fs.identity(self._path)
            same_size = self._fs.stat(self._path).size == len(data)
            if same_size and self._fs.read_bytes(self._path, len(data)) == data:
                self._fs.sync_dir(self._directory)  # its name may not be durable yet
                self._identity, self.state = identity, state
        self._replacing = None

    def _install(self, state: TableState) -> None:
        # What is known to be on disk of the manifests costs nothing to say here.
        edits = {i: max(number, state.edits.get(i, 0)) for i, number in self._proven().items()}
        state = replace(state, edits={**state.edits, **edits})
        data = state.to_bytes()
        self._replacing = state, data
        try:
            self._fs.replace_file(self._path, data)
        except OSError:
            self._replacing = None  # final: what was not durable once may not be at a second try
            raise
        self._identity = self._fs.identity(self._path)
        self.state = state
        self._replacing = None
        keep_copy(self._fs, self._path, data)


__all__ = ["TableFile"]
