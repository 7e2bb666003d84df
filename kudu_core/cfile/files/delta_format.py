"""What a ``.delta`` file is to others: kinds, operations, own columns, its record in a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    U32 = npt.NDArray[np.uint32]
    U64 = npt.NDArray[np.uint64]

REDO = "redo"
UNDO = "undo"

ROWID_ID = -3
TIMESTAMP_ID = -4
OP_ID = -5


@dataclass(frozen=True, slots=True)
class DeltaMeta:
    """What a manifest records of a ``.delta`` file.

    ``delete_count`` counts DELETE or DEAD, ``reinsert_count`` ALIVE entries; ``updates`` the values
    by column id; the times are None where they are the record's.
    """

    kind: str
    entries: int
    size: int
    footer_crc: int
    tail: int
    """See ``FileMeta``."""
    min_ts: int | None
    max_ts: int | None
    min_rowid: int
    max_rowid: int
    delete_count: int
    reinsert_count: int
    updates: dict[int, int]
    column_stats: dict[int, dict[str, Any]]


def in_order(kind: str, rowids: U32, ts: U64 | None) -> bool:
    """Whether entries are sorted by rowid, and within a rowid by strictly rising or falling time."""
    if len(rowids) < 2:
        return True
    later = rowids[1:] > rowids[:-1]
    if ts is None:
        return bool(later.all())
    apart = ts[1:] > ts[:-1] if kind == REDO else ts[1:] < ts[:-1]
    return bool((later | ((rowids[1:] == rowids[:-1]) & apart)).all())
