"""What changes are asked for, what that comes to for one schema, and the windows in which they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core.common.rows.shown import Seen, Shown, picked
from kudu_core.common.run.clock import time_of
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.errors import ChangesLost, InvalidArgument, SnapshotTooOld
from kudu_core.sql.where_text import without_text
from kudu_core.table.changes.keyed import keys_of
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.read.plan import kept, kept_filters

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.view.view import KeyBatch


@dataclass(frozen=True, slots=True)
class ChangesRequest:
    """What changes are asked for, as ``Table.changes`` has it from its caller; not checked yet.

    It may be planned more than once: what its caller gave as an iterator is read here, and kept.
    """

    columns: Any = None
    where: Any = None
    images: str = "after"
    net: bool = False
    key: Any = None
    stored: bool = False
    """Rows as they are stored, not as their user declared them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", kept(self.columns))
        object.__setattr__(self, "where", kept_filters(self.where))
        if isinstance(self.key, Iterator):
            object.__setattr__(self, "key", list(self.key))

    def check(self) -> None:
        """``InvalidArgument`` for what no schema makes right."""
        if self.images not in ("after", "both"):
            raise InvalidArgument(f'images is "after" or "both", not {self.images!r}')

    def planned(self, schema: Schema) -> ChangesPlan:
        """What it comes to; ``InvalidArgument`` or ``SchemaMismatch`` names what does not fit."""
        columns, seen = picked(schema, self.columns, stored=self.stored)
        where = compile_where(without_text(self.where, schema), schema)
        keys = None if self.key is None else keys_of(schema, self.key)
        both = self.images == "both"
        return ChangesPlan(
            schema, columns, where, both, bool(self.net), keys=keys, seen=seen, stored=self.stored
        )


@dataclass(frozen=True, slots=True)
class ChangesPlan:
    """What is asked for, checked against the schema."""

    schema: Schema
    columns: tuple[StoredColumn, ...]
    filter: Filter | None
    both: bool
    net: bool
    tablet_ids: frozenset[int] | None = None
    """Of these tablets alone; None: of all."""
    keys: KeyBatch | None = None
    """Of these keys alone; None: of all."""
    seen: Sequence[Seen] | None = None
    """What users see of the projected columns; None: the same."""
    stored: bool = False
    """As of the request."""
    shown: Shown = field(default=None, compare=False)  # type: ignore[assignment]
    """How users see the projected columns."""

    def __post_init__(self) -> None:
        if self.shown is None:
            object.__setattr__(self, "shown", Shown(self.columns, self.seen, stored=self.stored))

    @property
    def needed(self) -> tuple[StoredColumn, ...]:
        """The projected columns and those of the predicate."""
        if self.filter is None:
            return self.columns
        have = {c.id for c in self.columns}
        more = (self.schema.by_name[name] for name in sorted(self.filter.columns))
        return (*self.columns, *(c for c in more if c.id not in have))


# ---- windows ----


def window(engine: Engine, since: Any, until: Any) -> tuple[int, int]:
    """The timestamps of a window, checked to be readable.

    Changes are told up to the committed watermark: what a crash may take back is not told.
    """
    start = engine.oldest_ts if since is None else readable_since(engine, since)
    end = engine.committed_ts if until is None else snapshot_timestamp(engine, until)
    if until is not None and engine.writer:
        engine.log.wait_committed(end)
    if start > end:
        if until is not None:
            raise InvalidArgument(f"since, {start}, lies after until, {end}")
        end = start  # nothing is committed after it yet
    check_window(engine, start)
    return start, end


def readable_since(engine: Engine, since: Any) -> int:
    """The timestamp of the beginning of a window; ``ChangesLost``: history no longer reaches back to it."""
    try:
        return snapshot_timestamp(engine, since)
    except SnapshotTooOld:
        raise _lost(engine, since) from None


def check_window(engine: Engine, since: int) -> None:
    if since < engine.oldest_ts:
        raise _lost(engine, since)


def _lost(engine: Engine, since: Any) -> ChangesLost:
    return ChangesLost(
        f"changes since {since} are gone: history reaches back to {engine.oldest_ts} "
        f"({time_of(engine.oldest_ts)}); "
        "start again with since=None, or keep history for longer (history_retention_s)"
    )


def windows(
    times: np.ndarray, counts: np.ndarray, since: int, until: int, target: int
) -> Iterator[tuple[int, int]]:
    """The window cut so that each piece has about ``target`` changes, or one timestamp.

    ``times`` and ``counts`` as ``Changes.counts`` gives them.
    """
    events = 0
    for at, (stamp, count) in enumerate(zip(times.tolist(), counts.tolist(), strict=True)):
        if events and events + count > target:
            yield since, int(times[at - 1])
            since, events = int(times[at - 1]), 0
        if count > target:
            if stamp - 1 > since:
                yield since, stamp - 1
            yield stamp - 1, stamp
            since = stamp
        else:
            events += count
    if since < until:
        yield since, until


def summed(stamps: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """(times, numbers) of several stores put together."""
    if not stamps:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    distinct, back = np.unique(np.concatenate([times for times, _ in stamps]), return_inverse=True)
    weights = np.concatenate([counts for _, counts in stamps])
    return distinct, np.bincount(back.reshape(-1), weights, len(distinct)).astype(np.int64)


def counted(times: np.ndarray, weight: int) -> tuple[np.ndarray, np.ndarray]:
    """(distinct times, how many events each stands for)."""
    distinct, counts = np.unique(times, return_counts=True)
    return distinct, counts * weight


__all__ = [
    "ChangesPlan",
    "ChangesRequest",
    "check_window",
    "counted",
    "readable_since",
    "summed",
    "window",
    "windows",
]
