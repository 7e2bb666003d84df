"""Which compaction of deltas pays: pure functions of what the manifest says, and of who reads.

A *minor* one bounds how many files a read looks into.  It takes all REDO files, so it waits until the newer
ones hold as much as the oldest: what is written stays a small multiple of the changes.

A *major* one writes single columns anew, each for its own reasons.  Changes of cells of fixed width cost a
scan next to nothing, since they are netted once and laid over pages while these are decoded (``Patch``); such
a column is folded when many changes wait, and it is scanned.  Changes that have no patch, of strings and of
what the page cache would not keep, are replayed by each scan; there a tenth is enough, where scans come again
and again.  What nobody scans in this process is folded late: others may read the table, and its files are not
to grow for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.maintain.scoring import MAJOR, MINOR

MINOR_FILES = 12
"""REDO files of one rowset from which on they may be merged."""

MOST_FILES = 24
"""From here on they are, whatever is written again."""

PATCHED_FRACTION = 0.6
"""Of a column's rows changed in files: from there on a scanned column is written anew."""

REPLAYED_FRACTION = 0.1
"""The same where each scan replays the changes."""

COLD_FACTOR = 2
"""So many times a column's rows changed in files, where nobody scans: a row may change often."""

SCANS = 4
"""Since the last time that the column was folded: fewer say nothing of the next ones."""


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """What reads make of a changed column."""

    scans: int = 0
    """Of a good part of the rowset, in this process, since the column was last written anew."""
    patched: bool = True
    """Whether its changes can be kept as a patch."""

    @property
    def fraction(self) -> float:
        """Of the rows changed: from there on writing the column anew pays."""
        if self.scans < SCANS:
            return COLD_FACTOR
        return PATCHED_FRACTION if self.patched else REPLAYED_FRACTION


NO_USE = ColumnUse()


def delta_choice(
    meta: RowSetMeta, files: tuple[DeltaRef, ...], uses: Mapping[int, ColumnUse] | None = None
) -> str | None:
    """What to do with a rowset's first REDO files: ``MINOR``, ``MAJOR`` or None."""
    if not files or not meta.rows:
        return None
    if major_columns(meta, files, uses):
        return MAJOR
    newer = sum(ref.entries for ref in files[1:])
    enough = newer >= files[0].entries or len(files) >= MOST_FILES
    return MINOR if len(files) >= MINOR_FILES and enough else None


def major_columns(
    meta: RowSetMeta, files: tuple[DeltaRef, ...], uses: Mapping[int, ColumnUse] | None = None
) -> list[int]:
    """Columns that are worth writing anew, each by itself."""
    updates: dict[int, int] = {}
    for ref in files:
        for column_id, count in ref.updates.items():
            updates[column_id] = updates.get(column_id, 0) + count
    uses = {} if uses is None else uses
    return sorted(
        column_id
        for column_id, count in updates.items()
        if count >= uses.get(column_id, NO_USE).fraction * meta.rows
    )


__all__ = ["MAJOR", "MINOR", "ColumnUse", "delta_choice", "major_columns"]
