"""What ``_ext.row.view`` means: of the changes that a snapshot sees, the last one of each column wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

DELETE, REINSERT = 2, 3
Change = tuple[int, int, int, dict[int, Any]]
"""(timestamp, row, operation, values by column id)"""


def row_after(changes: Sequence[Change], row: int, snapshot: int) -> tuple[bool | None, dict[int, Any]]:
    """What REDO changes in the order of time leave of a row: (lives or None, values)."""
    return _last([c for c in changes if c[1] == row and c[0] <= snapshot])


def row_before(changes: Sequence[Change], row: int, snapshot: int) -> tuple[bool | None, dict[int, Any]]:
    """What UNDO changes, newest first, make of a row at a snapshot."""
    return _last([c for c in changes if c[1] == row and c[0] > snapshot])


def _last(changes: Sequence[Change]) -> tuple[bool | None, dict[int, Any]]:
    lives: bool | None = None
    values: dict[int, Any] = {}
    for _, _, op, columns in changes:
        if op >= DELETE:
            lives = op == REINSERT
        values.update(columns)
    return lives, values
