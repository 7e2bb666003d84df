"""What reads in progress hold back: history that snapshots need (PROTOCOL H1, H2), and the data of dropped
columns that scans ask for which were made before (A3)."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

from kudu_core.common.clock import time_of
from kudu_core.common.schema import Schema
from kudu_core.errors import SnapshotTooOld


class Pins:
    """Pinned timestamps of this process and the horizon below which history may be gone."""

    def __init__(self, floor: int) -> None:
        # Re-entrant: the collector may release a forgotten scan in the middle of ``pin``.
        self._mutex = threading.RLock()
        self._pinned: Counter[int] = Counter()
        self.floor = floor

    def pin(self, snapshot: int) -> None:
        """Hold the history at ``snapshot``; views are captured after this."""
        with self._mutex:
            if snapshot < self.floor:
                raise SnapshotTooOld(
                    f"snapshot {snapshot} lies before the oldest readable one, {self.floor} "
                    f"({time_of(self.floor)}); "
                    "history_retention_s says how long history is kept"
                )
            self._pinned[snapshot] += 1

    def unpin(self, snapshot: int) -> None:
        with self._mutex:
            self._pinned[snapshot] -= 1
            if self._pinned[snapshot] <= 0:
                del self._pinned[snapshot]

    def horizon(self, wanted: int, *, drop: bool) -> int:
        """The horizon nearest to ``wanted``: not above a pin, not below the floor, which it becomes with
        ``drop``."""
        with self._mutex:
            horizon = max(self.floor, min(wanted, *self._pinned)) if self._pinned else max(self.floor, wanted)
            if drop:
                self.floor = horizon
            return horizon

    @property
    def oldest(self) -> int | None:
        with self._mutex:
            return min(self._pinned, default=None)

    def __len__(self) -> int:
        return sum(self._pinned.values())


class SchemaPins:
    """Schemas of the scans of this process that are alive."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # as that of ``Pins``
        self._pinned: dict[int, tuple[Schema, int]] = {}
        """By ``id``: of one version there may be several, with columns under the names of their time."""

    def pin(self, schema: Schema) -> int:
        """From now on no file is written without its columns; those that were before may lack them.

        Returns what ``unpin`` takes.
        """
        with self._mutex:
            _, count = self._pinned.get(id(schema), (schema, 0))
            self._pinned[id(schema)] = schema, count + 1
        return id(schema)

    def unpin(self, pinned: int) -> None:
        with self._mutex:
            schema, count = self._pinned.pop(pinned)
            if count > 1:
                self._pinned[pinned] = schema, count - 1

    def stored(self, newest: Schema) -> Schema:
        """The newest schema and, by id, the dropped columns of the others; names may repeat."""
        columns = dict(newest.by_id)
        with self._mutex:
            for schema, _ in self._pinned.values():
                for column in schema.columns:
                    columns.setdefault(column.id, column)
        if len(columns) == len(newest.columns):
            return newest
        return replace(newest, columns=tuple(columns.values()))
