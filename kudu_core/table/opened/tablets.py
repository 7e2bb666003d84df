"""The tablets of an open table: those that are there, and those that have ended and are not purged.

Replaced, never changed: whoever reads beside an ALTER has the tablets of before or those of after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from kudu_core.errors import SnapshotTooOld

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.tablet.store.tablet import Tablet

NEWEST = 2**64 - 1
"""A snapshot that sees everything that is applied."""


class Tablets(tuple["Tablet", ...]):
    """In the order of their ids, which is the order in which mutexes are taken.

    A tuple, so that to walk over them costs no call.  Nothing of it changes but a cache, so it has no lock.
    """

    partitions: PartitionSchema
    """Those that these tablets are of."""
    only: Tablet | None
    """That of every key, where no column of the key is asked for it."""
    _by_ordinal: dict[int, Tablet]
    """The newest tablet of each partition."""
    _since: int
    """Timestamp of the last change of the ranges that snapshots may look behind."""
    _there: tuple[Tablet, ...]
    """Those that snapshots since then see."""
    switches: frozenset[int]
    """When the table got other partitions: the tablets that ended then, and those that began, have the same
    rows, and of what files of the latter say of times before nobody is told."""
    _partitions_at: dict[int, PartitionSchema]
    """By the time of a change: the partitions from then on, of the times that were asked for."""

    def __new__(cls, tablets: Iterable[Tablet], partitions: PartitionSchema) -> Tablets:
        made = super().__new__(cls, sorted(tablets, key=lambda tablet: tablet.id))
        made.partitions = partitions
        made.only = made[0] if len(made) == 1 and not partitions.range_ids else None
        made._by_ordinal = {tablet.partition.ordinal: tablet for tablet in made}
        made._since = max((t.dropped_ts or t.created_ts for t in made), default=0)
        made._partitions_at = {}
        made.switches = _switches(made) if partitions.former else frozenset()
        made._there = tuple(tablet for tablet in made if tablet.dropped_ts is None)
        return made

    def with_new(self, new: Iterable[Tablet], partitions: PartitionSchema) -> Tablets:
        """These and others, of the partitions that they are of from now on."""
        return Tablets((*self, *new), partitions)

    def without(self, ids: Collection[int]) -> Tablets:
        """Those that are left of them."""
        left = [tablet for tablet in self if tablet.id not in ids]
        return Tablets(left, self.partitions.kept_for(tablet.partition.ordinal for tablet in left))

    def of_ordinal(self, ordinal: int, snapshot: int = NEWEST) -> Tablet:
        """The tablet of a partition that was one of the table's at that time.

        ``SnapshotTooOld``: it was dropped, and purged while the caller looked for it.
        """
        found = self._by_ordinal.get(ordinal)
        if found is not None and snapshot < found.created_ts:  # the table was overwritten since
            older = (t for t in self if t.partition.ordinal == ordinal and t.is_there(snapshot))
            found = next(older, None)
        if found is None:
            raise SnapshotTooOld(f"the tablet of partition {ordinal} was dropped, and its history is gone")
        return found

    def there(self, snapshot: int) -> Sequence[Tablet]:
        """Those that were the table's at that time."""
        if snapshot >= self._since:
            return self._there
        return [tablet for tablet in self if tablet.is_there(snapshot)]

    def partitions_at(self, snapshot: int) -> PartitionSchema:
        """The partitions as they were at that time."""
        if snapshot >= self._since:
            return self.partitions
        stamps = {ts for t in self for ts in (t.created_ts, t.dropped_ts) if ts is not None}
        since = max((ts for ts in stamps if ts <= snapshot), default=0)
        known = self._partitions_at.get(since)
        if known is None:
            ordinals = {t.partition.ordinal for t in self if t.is_there(since)}
            scheme = self.partitions.scheme_of(min(ordinals)) if ordinals else self.partitions
            known = scheme.with_live([first in ordinals for first in scheme.first_ordinals])
            self._partitions_at[since] = known
        return known

    def proven_edits(self) -> dict[int, int]:
        """By tablet: an edit of its manifest that is known to be on disk."""
        return {t.id: t.manifest.proven_number for t in self if t.manifest is not None}


def _switches(tablets: Tablets) -> frozenset[int]:
    """Times at which tablets ended and others began that are of other partitions."""
    first_of = tablets.partitions.scheme_of
    ended = {
        (tablet.dropped_ts, first_of(tablet.partition.ordinal).first)
        for tablet in tablets
        if tablet.dropped_ts is not None
    }
    began = {(tablet.created_ts, first_of(tablet.partition.ordinal).first) for tablet in tablets}
    return frozenset(ts for ts, one in ended for at, other in began if ts == at and one != other)


__all__ = ["NEWEST", "Tablets"]
