"""What ``_ext.changes.patch`` means, on dictionaries.  Slow on purpose."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.oracles.changes.replay import Log


def net(logs: Iterable[Log], rows: int) -> dict[int, tuple[bytes, bool]]:
    """By row below ``rows``, the last cell that it is changed to and whether that is a value."""
    out: dict[int, tuple[bytes, bool]] = {}
    for log in logs:
        for rowid, cell, valid in log:
            if rowid < rows:
                out[rowid] = cell, valid
    return out
