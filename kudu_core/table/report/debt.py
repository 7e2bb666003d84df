"""What reads of a table pay that maintenance has not done yet, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kudu_core.tablet.maintain.merge_policy import RowSetLayout
from kudu_core.tablet.maintain.operations import rowset_stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kudu_core.rowset.rows.meta import RowSetMeta
    from kudu_core.table.opened.engine import Engine


@dataclass(frozen=True, slots=True)
class Debt:
    """Of all tablets together; sizes in bytes."""

    height: float = 0.0
    """In how many rowsets a key lies, averaged over the data: 1 where none overlap, 0 of no rows."""
    height_most: int = 0
    merge_debt_bytes: int = 0
    """Of rowsets that overlap another one: what it would take to read them all once."""
    delta_bytes: int = 0
    """REDO files."""
    delta_share: float = 0.0
    history_bytes: int = 0
    """UNDO files."""
    disk_bytes: int = 0


def debt_of(engine: Engine) -> Debt:
    """By what views say; opens no file and takes no lock."""
    heights = 0.0
    most = overlapping = delta = history = disk = 0
    for tablet in engine.tablets:
        metas = [rowset.meta for rowset in tablet.view.rowsets]
        size = sum(meta.size_bytes for meta in metas)
        disk += size
        delta += sum(ref.file.size for meta in metas for ref in meta.redo)
        history += sum(ref.file.size for meta in metas for ref in meta.undo)
        height, over_each_other, nbytes = _overlaps(metas)
        heights += height * size
        most = max(most, over_each_other)
        overlapping += nbytes
    return Debt(
        height=heights / disk if disk else 0.0,
        height_most=most,
        merge_debt_bytes=overlapping,
        delta_bytes=delta,
        delta_share=delta / disk if disk else 0.0,
        history_bytes=history,
        disk_bytes=disk,
    )


def _overlaps(metas: Sequence[RowSetMeta]) -> tuple[float, int, int]:
    """Of one tablet: (the height as the merge policy has it, rowsets over each other at most, bytes of those
    that overlap another)."""
    ordered = sorted(metas, key=lambda meta: (meta.min_key, meta.max_key))
    if not any(b.min_key <= a.max_key for a, b in pairwise(ordered)):
        return float(bool(metas)), int(bool(metas)), 0  # as most tablets are, and there are many
    overlapping: set[int] = set()
    open_ones: list[RowSetMeta] = []
    most = 0
    for meta in ordered:
        open_ones = [other for other in open_ones if other.max_key >= meta.min_key]
        if open_ones:
            overlapping.update((meta.id, *(other.id for other in open_ones)))
        open_ones.append(meta)
        most = max(most, len(open_ones))
    layout = RowSetLayout.of([rowset_stats(meta, 0, 1, 1) for meta in metas])
    # A key lies in one rowset at least, though of a few rows the policy's shares may say less.
    height = max(1.0, layout.height)
    return height, most, sum(meta.size_bytes for meta in metas if meta.id in overlapping)


__all__ = ["Debt", "debt_of"]
