"""Rows of keys, looked up in one call over all rowsets and answered as one batch in the order of the keys.

What the general way (``points``) prepares for each rowset costs some hundred microseconds, whatever the keys
that lie there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.ordered.looked_up import LookedUp

if TYPE_CHECKING:
    from kudu_core.table.read.scan_columns import ScanColumns
    from kudu_core.tablet.view.view import KeyBatch, View

MOST_KEYS = 1 << 14
"""Of a call: it runs with the interpreter's lock, which the general way gives back in between."""
STRING_BYTES = 1 << 30
"""Of one column: longer strings are the general way's."""

I64 = npt.NDArray[np.int64]


@dataclass(slots=True)
class PartitionKeys:
    """Which keys of a batch which partition may have."""

    ordinals: list[int]
    """Of the partitions."""
    keys: I64
    """One partition's after the other's, each in the order of keys."""
    ends: I64
    """Where those of each partition end."""

    @staticmethod
    def of(route: npt.NDArray[np.int32], order: I64) -> PartitionKeys:
        """``route``: the partition of each key, -1 for none; ``order``: the keys in their order."""
        routed = route[order]
        if len(routed) and routed.min() < 0:
            order, routed = order[routed >= 0], routed[routed >= 0]
        if not len(routed):
            return PartitionKeys([], order, np.empty(0, np.int64))
        most = routed.max()
        if routed.min() == most:
            return PartitionKeys([int(most)], order, np.array([len(order)]))
        # Of 16 bits numpy sorts by digits.
        by_share = np.argsort(routed.astype(np.uint16) if most <= 0xFFFF else routed, kind="stable")
        routed = routed[by_share]
        ends = np.append(np.flatnonzero(routed[1:] != routed[:-1]) + 1, len(routed))
        return PartitionKeys(routed[ends - 1].tolist(), order[by_share], ends)

    def pairs(self) -> list[tuple[int, I64]]:
        """(partition, its keys)."""
        cuts = [0, *self.ends.tolist()]
        return [(o, self.keys[lo:hi]) for o, (lo, hi) in zip(self.ordinals, pairwise(cuts), strict=True)]


def are_few(keys: int) -> bool:
    """Whether so many keys are looked up in this way."""
    return keys <= MOST_KEYS


def looked_up(
    views: Sequence[View], shares: PartitionKeys, batch: KeyBatch, columns: ScanColumns, snapshot: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]] | None:
    """(a row for each key, which of them are there); None: they must be read in another way.

    ``shares``: which keys of the batch each view may have.
    """
    keys, hashes = batch.keys, batch.hashes
    try:
        rows = LookedUp(snapshot, columns.shape, columns.widths, columns.bits, len(batch))
        points = [view.points for view in views]
        rows.look_up(points, keys.data, keys.offsets, hashes, shares.keys, shares.ends)
        made = rows.batch(STRING_BYTES)
    except (NeedsGeneralPath, PageError):
        return None
    return pa.RecordBatch._import_from_c(made.address, columns.arrow), rows.found


__all__ = ["PartitionKeys", "are_few", "looked_up"]
