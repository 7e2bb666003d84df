"""Rows of keys that are few in each rowset: looked up one by one, and answered as one batch.

What the general way (``points``) prepares for each rowset costs some hundred microseconds, whatever the keys
that lie there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.ordered.looked_up import LookedUp

if TYPE_CHECKING:
    from kudu_core.table.read.scan_columns import ScanColumns
    from kudu_core.tablet.view.view import KeyBatch, View

_KEYS_OF_A_ROWSET = 64
"""Where there are more, arrays are made for the rowset in less time than the keys are looked up in."""
STRING_BYTES = 64 << 20
"""Of one column: longer strings are the general way's."""

I64 = npt.NDArray[np.int64]


def are_few(views: Sequence[View], keys: int) -> bool:
    """Whether it is faster to look so many keys up than to prepare the rowsets of these views."""
    return keys <= _KEYS_OF_A_ROWSET * sum(len(view.rowsets) for view in views)


def looked_up(
    views: Sequence[View], shares: Sequence[I64], batch: KeyBatch, columns: ScanColumns, snapshot: int
) -> tuple[pa.RecordBatch, I64] | None:
    """(the rows of the keys that are there, which keys these are); None: they must be read in another way.

    ``shares``: which keys of the batch each view may have.
    """
    keys, hashes = batch.keys, batch.hashes
    try:
        rows = LookedUp(snapshot, columns.shape, columns.widths, columns.bits)
        places = [
            rows.look_up(view.points, keys.data, keys.offsets, hashes, wanted)
            for view, wanted in zip(views, shares, strict=True)
        ]
        made = rows.batch(STRING_BYTES)
    except (NeedsGeneralPath, PageError):
        return None
    found = pa.RecordBatch._import_from_c(made.address, columns.arrow)
    return found, places[0] if len(places) == 1 else np.concatenate([np.empty(0, np.int64), *places])


__all__ = ["are_few", "looked_up"]
