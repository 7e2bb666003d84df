"""What a write call answers."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from kudu_core.common.format.html_table import html_table
from kudu_core.common.run.clock import time_of


@dataclass(frozen=True)
class WriteResult:
    """Counts of one write call, or of one batch.

    ``timestamp``: the snapshot from which on the call is visible.  ``errors``: with ``on_error="return"`` a
    table of the rows that were refused (``row``, ``code``, ``key``), which may have no rows; otherwise None.

    Of a repetition (``deduplicated``) the table keeps the timestamp and the counts of the writer's last
    version.  Of the versions before it the counts are not kept: they are 0, and ``refused`` is None.
    ``errors`` is None of every repetition.

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
    refused: int | None = 0
    """How many rows were refused.  Of a repetition, how many of the rows that were given then are in none of
    the counts; None where that is not known: of versions before the last, and of writes by ``where=``."""

    def _repr_html_(self) -> str:
        names = "inserted", "updated", "deleted", "ignored", "refused"
        counts = [getattr(self, name) for name in names]
        again = " (a repetition: nothing was done again)" if self.deduplicated else ""
        title = f"written at {self.timestamp} ({time_of(self.timestamp)}){again}"
        return html_table(title, names, [["?" if count is None else f"{count:,}" for count in counts]])

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.inserted, self.updated, self.deleted, self.ignored
