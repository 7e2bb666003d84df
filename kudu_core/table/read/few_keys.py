"""Rows of keys, looked up in one call over all rowsets and answered as one batch in the order of the keys.

What the general way (``points``) prepares for each rowset costs some hundred microseconds, whatever the keys
that lie there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.ordered.looked_up import LookedUp
from kudu_core.common.rows.shown import Seen, Shown
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.schema import arrow_schema
from kudu_core.common.types.types import TYPE_BOOL
from kudu_core.table.read.scan_columns import ScanColumns

if TYPE_CHECKING:
    from kudu_core.common.rows.rowblock import RowBlock
    from kudu_core.common.schema.schema import StoredColumn
    from kudu_core.tablet.view.view import KeyBatch, View

FOUND = "_found"
_FOUND_FIELD = pa.field(FOUND, pa.bool_(), False)
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


class Answer:
    """What ``get_many`` answers with of some columns: what kernels and Arrow want to know of them.

    Making it takes as long as reading some rows: it is kept.
    """

    def __init__(
        self, columns: Sequence[StoredColumn], key_ids: Sequence[int], seen: Sequence[Seen] | None = None
    ) -> None:
        """``seen``: as of ``Shown``."""
        self._seen = seen
        self.read = tuple(column for column in columns if column.id not in key_ids)
        """Those that are not asked for as keys."""
        self.columns = ScanColumns(self.read, frozenset())
        self.places = tuple(at for at, column in enumerate(columns) if column.id not in key_ids)
        """Of these columns in the answer."""
        self.keys = [(at, column) for at, column in enumerate(columns) if column.id in key_ids]
        """The others with their places."""

    @cached_property
    def arrow(self) -> pa.Schema:
        """Of the answer."""
        every = dict(self.keys) | dict(zip(self.places, self.read, strict=True))
        return arrow_schema([replace(every[at], nullable=True) for at in sorted(every)]).append(_FOUND_FIELD)

    @cached_property
    def _shown(self) -> Shown:
        every = dict(self.keys) | dict(zip(self.places, self.read, strict=True))
        return Shown([every[at] for at in sorted(every)], self._seen)

    def shown(self, batch: pa.RecordBatch) -> pa.Table:
        """An answer as its user sees it."""
        shown = self._shown
        if not shown.is_plain:
            *cells, found = batch.columns
            absent = ~found.to_numpy(zero_copy_only=False)
            fields = [field.with_nullable(True) for field in shown.arrow]
            schema = pa.schema([*fields, _FOUND_FIELD])
            batch = pa.RecordBatch.from_arrays([*shown.arrays(cells, absent), found], schema=schema)
        return pa.Table.from_batches([batch])


def looked_up(
    views: Sequence[View],
    shares: PartitionKeys,
    batch: KeyBatch,
    block: RowBlock,
    answer: Answer,
    snapshot: int,
) -> pa.RecordBatch | None:
    """A row for each key, NULLs where there is none, and which are there; None: they must be read in another
    way.

    ``shares``: which keys of the batch each view may have; ``block``: the columns of the keys.
    """
    keys, hashes, columns = batch.keys, batch.hashes, answer.columns
    try:
        rows = LookedUp(snapshot, columns.shape, columns.widths, columns.bits, len(batch))
        points = [view.points for view in views]
        rows.look_up(points, keys.data, keys.offsets, hashes, shares.keys, shares.ends)
        asked = []
        for place, column in answer.keys:
            cells = block.columns[column.id]
            values = cells.values if cells.offsets is not None else cells.values[: cells.width * cells.length]
            asked.append((place, cells.width, column.type.kind == TYPE_BOOL, values, cells.offsets))
        made = rows.batch(STRING_BYTES, answer.places, asked)
    except (NeedsGeneralPath, PageError):
        return None
    return pa.RecordBatch._import_from_c(made.address, answer.arrow)


__all__ = ["FOUND", "Answer", "PartitionKeys", "are_few", "looked_up"]
