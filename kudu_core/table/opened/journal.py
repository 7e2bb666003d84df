"""What maintenance has done to an open table: the last operations, and sums since it was opened.

Fed by the events that a listener gets too.  It lives as long as the handle: what is to be kept longer, a
listener writes down.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from typing import Any

import pyarrow as pa

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.measure.histogram import Histogram, Times
from kudu_core.events import (
    DeltaCompactionEnd,
    DeltaFlushEnd,
    Event,
    FilesDeleted,
    FlushEnd,
    HistoryCollected,
    IngestEnd,
    LogTruncated,
    MaintenanceError,
    MergeEnd,
    TabletsPurged,
)

KEPT = 1000
"""Operations that are remembered one by one."""

SCHEMA = pa.schema(
    [
        pa.field("finished", pa.timestamp("us", "UTC"), False),
        pa.field("operation", pa.string(), False),
        pa.field("tablet", pa.int64()),
        pa.field("elapsed_s", pa.float64(), False),
        pa.field("rows", pa.int64()),
        pa.field("rowsets_read", pa.int64()),
        pa.field("rowsets_written", pa.int64()),
        pa.field("input_bytes", pa.int64()),
        pa.field("output_bytes", pa.int64()),
        pa.field("freed_bytes", pa.int64()),
        pa.field("error", pa.string()),
    ]
)

_OPERATIONS: dict[type[Event], str] = {
    FlushEnd: "flush",
    DeltaFlushEnd: "delta flush",
    MergeEnd: "merge",
    HistoryCollected: "history gc",
    LogTruncated: "log gc",
    FilesDeleted: "file gc",
    TabletsPurged: "purge",
    IngestEnd: "ingest",
}
_COLUMNS = {
    "rows": "rows",
    "changes": "rows",
    "rowsets": "rowsets_read",
    "rowset_id": "rowsets_read",
    "rowsets_added": "rowsets_written",
    "input_bytes": "input_bytes",
    "output_bytes": "output_bytes",
    "freed_bytes": "freed_bytes",
}
"""Column by field of the events; of several that an event has, the first in this order."""

_SUMS = ("elapsed_s", "rows", "input_bytes", "output_bytes", "freed_bytes")


class Journal:
    """The operations of one open table.  Thread safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = mutex()
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._sums: dict[str, float] = {}
        self._times = {"flush": Histogram(), "merge": Histogram()}

    def note(self, event: Event) -> None:
        """Remember an event, if it is an operation that has ended."""
        row = _row(event)
        if row is None:
            return
        with self._mutex:
            row["finished"] = self._clock.now_us()
            self._kept.append(row)
            name = str(row["operation"]).replace(" ", "_")
            if row["error"] is not None:
                self._add("maintenance_errors", 1)
                return
            if name in self._times:
                self._times[name].add(event.elapsed_s)
            self._add(f"{name}_count", 1)
            for column in _SUMS:
                if row.get(column):
                    self._add(f"{name}_{column}", row[column])

    def _add(self, name: str, amount: float) -> None:
        self._sums[name] = self._sums.get(name, 0) + amount

    def table(self) -> pa.Table:
        """The last ``KEPT`` operations, oldest first."""
        with self._mutex:
            rows = list(self._kept)
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def sums(self) -> dict[str, float]:
        """Counts and sums by operation: ``merge_count``, ``merge_elapsed_s``, ``merge_output_bytes``, ...; of
        what has happened."""
        with self._mutex:
            return dict(self._sums)

    def times(self) -> dict[str, Times]:
        """How long flushes and merges took."""
        return {name: times.now() for name, times in self._times.items()}


def _row(event: Event) -> dict[str, Any] | None:
    if isinstance(event, DeltaCompactionEnd):
        operation = event.kind
    elif isinstance(event, MaintenanceError):
        operation = event.operation
    elif type(event) in _OPERATIONS:
        operation = _OPERATIONS[type(event)]
    else:
        return None
    row: dict[str, Any] = {"operation": operation, "elapsed_s": event.elapsed_s, "error": event.error}
    names = {field.name for field in fields(event)}
    for name, column in _COLUMNS.items():
        if name in names and column not in row:
            row[column] = 1 if name == "rowset_id" else getattr(event, name)
    tablet = getattr(event, "tablet_id", "")
    row["tablet"] = int(tablet) if tablet else None
    return row


__all__ = ["SCHEMA", "Journal"]
