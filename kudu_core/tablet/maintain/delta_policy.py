"""Which compaction of deltas pays: pure functions of what the manifest says."""

from __future__ import annotations

from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.maintain.scoring import MAJOR, MINOR

MINOR_FILES = 5
"""REDO files of one rowset above which they are merged: each costs a scan a look and a decoding."""

MAJOR_FRACTION = 0.1
"""Of a column's rows changed in files: from there on a scan pays more than the rewriting will."""

MAJOR_FILES_FRACTION = 0.02
"""The same where the files would have to be merged anyway."""


def delta_choice(meta: RowSetMeta, files: tuple[DeltaRef, ...]) -> str | None:
    """What to do with a rowset's first REDO files: ``MINOR``, ``MAJOR`` or None."""
    if not files or not meta.rows:
        return None
    updates: dict[int, int] = {}
    for ref in files:
        for column_id, count in ref.updates.items():
            updates[column_id] = updates.get(column_id, 0) + count
    share = max(updates.values(), default=0) / meta.rows
    many = len(files) >= MINOR_FILES
    if share >= (MAJOR_FILES_FRACTION if many else MAJOR_FRACTION):
        return MAJOR
    return MINOR if many else None


def major_columns(meta: RowSetMeta, files: tuple[DeltaRef, ...]) -> list[int]:
    """Columns that are worth writing anew when a rowset's deltas are folded."""
    updates: dict[int, int] = {}
    for ref in files:
        for column_id, count in ref.updates.items():
            updates[column_id] = updates.get(column_id, 0) + count
    floor = MAJOR_FILES_FRACTION / 4 * meta.rows
    return sorted(column_id for column_id, count in updates.items() if count >= floor)


__all__ = ["MAJOR", "MINOR", "delta_choice", "major_columns"]
