"""TABLE of an open table: what it says, how it is replaced, and whether it is still this writer's.

Its bytes are in ``table/stored/table_state.py``.  A reader has its state and replaces nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kudu_core.fs.copies import keep_copy
from kudu_core.table.stored.table_state import TableState, read_state, replace
from kudu_core.wal.fence import FencedFile

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


def _no_edits() -> Mapping[int, int]:
    return {}


def _is_read(error: BaseException) -> None:
    raise AssertionError("a table open for reading replaces nothing") from error


def _not_poisoned() -> None:
    return None


class StoredTable(Protocol):
    """TABLE of one open table, a file or an object.  Thread safe."""

    state: TableState
    """What the table is."""

    @property
    def storage_options(self) -> Mapping[str, Any] | None:
        """What the client of its store was given; None of a folder."""

    def fence(self) -> None:
        """``Fenced`` where it is known that another writer has the table (protocol P2)."""

    def install(self, state: TableState) -> None:
        """Replace TABLE, durably."""

    def change(self, change: Callable[[TableState], TableState]) -> None:
        """From now on the table is what ``change`` makes of it; a failure poisons (protocol W8)."""

    def keep(self, change: Callable[[TableState], TableState]) -> None:
        """As ``change``, and durably; of a store, whose TABLE says most things later, too."""

    def is_unwritten(self) -> bool:
        """Of a reader: whether nobody has the table open for writing, nor has since the state was read."""

    def is_replaced(self) -> bool:
        """Whether another table is in its place by now, or none."""

    def requests(self) -> Mapping[str, int]:
        """For ``Table.metrics``: what was asked of the store, by metric; of a folder nothing."""


class TableFile(FencedFile[TableState]):
    """See ``StoredTable``: a file."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        state: TableState,
        *,
        proven: Callable[[], Mapping[int, int]] = _no_edits,
        poison: Callable[[BaseException], None] = _is_read,
        check_poisoned: Callable[[], None] = _not_poisoned,
    ) -> None:
        """``proven``: by tablet, an edit of its manifest that is known to be on disk.

        ``poison`` is told the failure of a ``change`` (protocol W8), after which none is made:
        ``check_poisoned`` raises then.  Both are the log's, and are set when there is one.
        """
        super().__init__(fs, directory, "TABLE", state, poison)
        self.check_poisoned = check_poisoned
        self._proven = proven

    def is_unwritten(self) -> bool:
        """A writer has the lease, and its life begins with an epoch."""
        if self._fs.lease(f"{self._directory}/LOCK").holder() is not None:
            return False
        try:
            return read_state(self._fs, self._path).epoch == self.state.epoch
        except FileNotFoundError:
            return False

    @property
    def storage_options(self) -> None:
        return None

    def is_replaced(self) -> bool:
        try:
            return read_state(self._fs, self._path).uuid != self.state.uuid
        except FileNotFoundError:
            return True

    def install(self, state: TableState) -> None:
        """Replace TABLE, durably."""
        with self._mutex:
            self._install(state)

    def change(self, change: Callable[[TableState], TableState]) -> None:
        """Replace TABLE by what ``change`` makes of it; a failure poisons (protocol W8)."""
        self.check_poisoned()
        self.fence()
        try:
            with self._mutex:
                self.check_poisoned()  # another thread's may have failed meanwhile
                self._settle()
                self._install(change(self.state))
        except OSError as exc:
            self.poison(exc)
            raise

    def keep(self, change: Callable[[TableState], TableState]) -> None:
        self.change(change)

    def requests(self) -> Mapping[str, int]:
        return {}

    def _install(self, state: TableState) -> None:
        # What is known to be on disk of the manifests costs nothing to say here.
        edits = {i: max(number, state.edits.get(i, 0)) for i, number in self._proven().items()}
        state = replace(state, edits={**state.edits, **edits})
        data = state.to_bytes()
        self._replace(state, data)
        keep_copy(self._fs, self._path, data)


if TYPE_CHECKING:

    def _checked(table_file: TableFile) -> StoredTable:
        return table_file


__all__ = ["StoredTable", "TableFile"]
