"""What a write call answers."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Counts of one write call, or of one batch.

    ``timestamp``: the snapshot from which on the call is visible.  ``errors``: rows that were
    refused (``row``, ``code``, ``key``), empty unless ``on_error="return"``.

    >>> refused = stock.insert([{"id": 1}, {"id": 4}], on_error="return")
    >>> refused.inserted, refused.errors.to_pylist()
    (1, [{'row': 0, 'code': 'already_present', 'key': {'id': 1}}])
    """

    timestamp: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    errors: pa.Table | None = None
    deduplicated: bool = False
    """The call's ``txn`` had been applied before; nothing was done again."""

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.inserted, self.updated, self.deleted, self.ignored
