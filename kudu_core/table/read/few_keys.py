"""Rows of keys, looked up in one call over all rowsets and answered as one batch in the order of the keys.

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

MOST_KEYS = 1 << 14
"""Of a call: it runs with the interpreter's lock, which the general way gives back in between."""
STRING_BYTES = 1 << 30
"""Of one column: longer strings are the general way's."""

I64 = npt.NDArray[np.int64]


def are_few(keys: int) -> bool:
    """Whether so many keys are looked up in this way."""
    return keys <= MOST_KEYS


def looked_up(
    views: Sequence[View], shares: Sequence[I64], batch: KeyBatch, columns: ScanColumns, snapshot: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]] | None:
    """(a row for each key, which of them are there); None: they must be read in another way.

    ``shares``: which keys of the batch each view may have.
    """
    keys, hashes = batch.keys, batch.hashes
    try:
        rows = LookedUp(snapshot, columns.shape, columns.widths, columns.bits, len(batch))
        for view, wanted in zip(views, shares, strict=True):
            rows.look_up(view.points, keys.data, keys.offsets, hashes, wanted)
        made = rows.batch(STRING_BYTES)
    except (NeedsGeneralPath, PageError):
        return None
    return pa.RecordBatch._import_from_c(made.address, columns.arrow), rows.found


__all__ = ["are_few", "looked_up"]
