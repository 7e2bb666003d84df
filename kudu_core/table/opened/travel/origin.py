"""Where a handle comes from, and what stands in it for the state that nobody has opened yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kudu_core.errors import Closed, TableNotFound

if TYPE_CHECKING:
    from kudu_core.events import Event
    from kudu_core.table.opened.engine import Engine

Reopen = Callable[[], "tuple[Engine, Event] | None"]
"""Opens a table's newest state for reading, and says what listeners are told of that; None where nothing is
new."""


class Origin(Protocol):
    """How a table was opened, for whoever opens it again for reading.  Picklable."""

    @property
    def path(self) -> str:
        """Of the folder, or a URL."""

    @property
    def refresh_s(self) -> float | None:
        """As of ``open_table``."""

    def open(self) -> tuple[Engine, Event, Reopen]:
        """The newest state; ``TableNotFound`` where another table is at the path by now."""

    def of(self, uuid: bytes) -> Origin:
        """The same, of this table and no other."""

    def sent(self) -> Origin:
        """What of it travels to another process."""


class Unopened:
    """Stands for the state that is opened when something asks for it."""

    refusal = "it is not open yet"
    """Fast paths go by this, and then ask the handle."""

    def __init__(self, opened: Callable[[], Engine]) -> None:
        self._opened = opened

    def check_open(self) -> None:
        raise Closed(self.refusal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened(), name)


def replaced(path: str) -> TableNotFound:
    """The error of a handle whose table is gone, with another one in its place."""
    return TableNotFound(
        f"the table that this handle was of is no longer at {path}: another one is there; "
        "open that with kudu_core.open_table"
    )


__all__ = ["Origin", "Reopen", "Unopened", "replaced"]
