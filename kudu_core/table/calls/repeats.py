"""Which of several rows of one key is the last, where a column says so (``on_duplicate="last"``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType


@dataclass(frozen=True, slots=True)
class RowRules:
    """What a call says of its rows beside their operations."""

    sequence: tuple[int, ColumnType] | None = None
    """The column whose largest value makes a row the last of its key."""
    ignore_null: bool = False
    """A NULL says nothing of its column."""


NO_RULES = RowRules()


def last_rows(keys: EncodedKeys, sequence: ColumnBuffers, type_: ColumnType) -> np.ndarray | None:
    """Rows without those that another row of their key comes after, (n,) int64, ascending; None: all.

    NULL comes before everything.  Rows of one key that are equal, and nothing comes after, all stay.
    """
    group, first = keys.group(keys.hashes())
    if len(first) == len(keys):
        return None
    repeated = np.flatnonzero(np.bincount(group, minlength=len(first))[group] > 1)
    values = sequence.take(repeated)
    rank = pc.rank(values.to_arrow(type_), sort_keys="ascending", tiebreaker="dense")  # from 1
    mine = rank.to_numpy(zero_copy_only=False).astype(np.int64)
    if values.validity is not None:
        mine[~values.valid_mask()] = 0
    largest = np.zeros(len(first), np.int64)
    np.maximum.at(largest, group[repeated], mine)
    kept = np.ones(len(keys), bool)
    kept[repeated] = mine == largest[group[repeated]]
    return np.flatnonzero(kept)


__all__ = ["NO_RULES", "RowRules", "last_rows"]
