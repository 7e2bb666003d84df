"""What the compaction lane does to one tablet: a delta compaction, or all, and how much of it there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kudu_core.common.run.measure.work import under_way
from kudu_core.rowset.disk.writing import DECODED_FACTOR
from kudu_core.tablet.compact.delta_compaction import Compacted, compact_major, compact_minor
from kudu_core.tablet.maintain.operations import worth_folding
from kudu_core.tablet.maintain.scoring import MINOR

if TYPE_CHECKING:
    from kudu_core.tablet.store.tablet import Tablet


def fold(tablet: Tablet, rowset_id: int, kind: str, column_ids: Sequence[int] | None) -> Compacted | None:
    """None when there was nothing to do, or another one is at it."""
    if kind == MINOR:
        return compact_minor(tablet, rowset_id)
    if column_ids is None:
        column_ids = worth_folding(tablet, rowset_id) or None  # None: all; whoever asks wants some
    return compact_major(tablet, rowset_id, column_ids)


def decoded_bytes(tablet: Tablet) -> int:
    """About what merging all of a tablet would hold."""
    return DECODED_FACTOR * sum(meta.size_bytes for meta in tablet.rowset_metas)


def stored_rows(tablet: Tablet) -> int:
    """Of its rowsets, dead ones too."""
    return sum(meta.rows for meta in tablet.rowset_metas)


def counted(compacts: Callable[[Tablet], None]) -> Callable[[Tablet], None]:
    """The compaction of a tablet as a part of what this thread is at, whichever thread does it."""
    work = under_way()
    if work is None:
        return compacts

    def act(tablet: Tablet) -> None:
        rows = stored_rows(tablet)
        work.check()
        work.on_this_thread(lambda: compacts(tablet))
        work.reach(rows)

    return act


__all__ = ["counted", "decoded_bytes", "fold", "stored_rows"]
