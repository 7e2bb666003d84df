"""What reads in progress hold back: history that snapshots need (protocol H1, H2), the data of dropped
columns that scans ask for which were made before (protocol A3), and the files of purged tablets
(protocol H3)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kudu_core.common.run.clock import time_of
from kudu_core.common.run.locks import Claim, reentrant
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import SnapshotTooOld


class Pins:
    """Pinned timestamps of this process and the horizon below which history may be gone."""

    def __init__(self, floor: int, kept: Iterable[int] = ()) -> None:
        """``kept``: the times of the table's tags, which are pinned as long as it is open."""
        self._mutex = reentrant()
        """No pin is registered while the floor moves.  They go without it."""
        self._pinned: set[tuple[int, object]] = set()
        """A timestamp, and an object of its own for each pin."""
        self._kept = frozenset(kept)
        """Replaced, never changed."""
        self.floor = floor

    def pin(self, snapshot: int) -> Claim:
        """Hold the history at ``snapshot`` while what is returned lives, or until its ``release``; views are
        captured after this."""
        with self._mutex:
            if snapshot < self.floor:
                raise SnapshotTooOld(
                    f"snapshot {snapshot} lies before the oldest readable one, {self.floor} "
                    f"({time_of(self.floor)}); "
                    "history_retention_s says how long history is kept"
                )
            return Claim(self._pinned, (snapshot, object()))

    def keep(self, timestamps: Iterable[int]) -> None:
        """From now on these are the times of tags."""
        with self._mutex:
            self._kept = frozenset(timestamps)

    def horizon(self, wanted: int, *, drop: bool) -> int:
        """The horizon nearest to ``wanted``: not above a pin, not below the floor, which it becomes with
        ``drop``."""
        with self._mutex:
            oldest = self.oldest
            horizon = max(self.floor, wanted if oldest is None else min(wanted, oldest))
            if drop:
                self.floor = horizon
            return horizon

    @property
    def oldest(self) -> int | None:
        pinned = (snapshot for snapshot, _ in self._pinned.copy())
        return min((*pinned, *self._kept), default=None)

    def __len__(self) -> int:
        return len(self._pinned)


class SchemaPins:
    """Schemas of the scans of this process that are alive."""

    def __init__(self) -> None:
        self._pinned: set[_Pinned] = set()
        self._dropped: dict[int, StoredColumn] = {}
        """As they were last, those of the dropped columns that lie in some files as another type."""

    def note_dropped(self, before: Schema, after: Schema) -> None:
        """A newer schema is about to take the place of one."""
        gone = [c for c in before.columns if c.older and c.id not in after.by_id]
        self._dropped.update({column.id: column for column in gone})

    def types(self, newest: Schema) -> Mapping[int, ColumnType]:
        """By id, of the columns of ``stored`` that may lie in files as others."""
        types = newest.cell_types
        if not self._dropped:
            return types
        dropped = self._dropped.copy()  # another thread may add to it
        return {**{i: column.type.value for i, column in dropped.items()}, **types}

    def pin(self, schema: Schema) -> Claim:
        """While what is returned lives no file is written without the schema's columns; those that were
        written before may lack them."""
        return Claim(self._pinned, _Pinned(schema))

    def stored(self, newest: Schema) -> Schema:
        """The newest schema and, by id, the dropped columns of the others; names may repeat."""
        columns = dict(newest.by_id)
        for pinned in self._pinned.copy():
            for column in pinned.schema.columns:
                columns.setdefault(column.id, self._dropped.get(column.id, column))
        if len(columns) == len(newest.columns):
            return newest
        return replace(newest, columns=tuple(columns.values()))


class _Pinned:
    """One pin of a schema, unequal to every other."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema


@dataclass(slots=True)
class Purged:
    """A tablet that is no longer the table's, and whose files are."""

    directory: str
    holders: tuple[weakref.ref[Any], ...]
    """Whoever may still open or read the files."""
    ready_s: float
