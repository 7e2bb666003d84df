"""What ``_ext.changes.replay`` means, on dictionaries.  Slow on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Log = Sequence[tuple[int, bytes, bool]]
"""(rowid, new cell, whether it is a value) in the order in which they apply."""


def replay(cells: dict[int, tuple[bytes, bool]], logs: Iterable[Log]) -> dict[int, tuple[bytes, bool]]:
    """``cells``: by row, the cell and whether it is a value."""
    out = dict(cells)
    for log in logs:
        for rowid, cell, valid in log:
            if rowid in out:
                out[rowid] = cell, valid
    return out
