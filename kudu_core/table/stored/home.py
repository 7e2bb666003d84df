"""The home of a table: where it lives, a folder or a place in an object store, as far as the two differ while
it is open for writing.

It is chosen once, when the table is opened; nothing on the way of a write asks which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kudu_core.fs.api import Lease
    from kudu_core.tablet.store.manifest import OpenManifest
    from kudu_core.tablet.store.tablet import Tablet
    from kudu_core.wal.appending import AppendingLog


class Home(Protocol):
    """See the module."""

    in_place: bool
    """New files of tablets get their names at once: there is no folder beside, from which to link them."""

    def make_tablets(self, tablets: Sequence[Tablet]) -> None:
        """Give new tablets what holds their edits, durably."""

    def remove_tablets(self, tablets: Sequence[Tablet]) -> None:
        """Take it away again: no record names them."""

    def begin_staging(self) -> str:
        """A folder of its own for the files of one ingest."""

    def end_staging(self, folder: str) -> None:
        """Remove it, with what has come to nothing."""

    def purge(self) -> bool:
        """Let go of tablets that have ended and that nobody may read; whether there were any."""

    def delete_gone(self) -> int:
        """Delete what was let go of, but for the files of tablets that are there; how much."""

    def before_close(self) -> None:
        """Nobody writes any more, and the log is still open."""


@dataclass(frozen=True, slots=True)
class Writing:
    """What an open table has by which it is written, and a reader lacks."""

    lease: Lease
    log: AppendingLog
    manifests: Mapping[int, OpenManifest]
    """By tablet."""
    home: Callable[[Any], Home]
    """Makes it for the open table, when that is put together."""


__all__ = ["Home", "Writing"]
