"""What the design is compared with: other ways to keep changing rows, as plain arrays in memory.

Each is the least that its kind must do, with nothing around it: no file is opened, no page unpacked, no
checksum checked.  So a model's time is a lower bound of what a system of its kind would take, and where ours
is faster, the difference is of the way and not of the code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PAGE_BYTES = 8192
"""Of a block of rows, as PostgreSQL and Oracle have them."""


@dataclass(frozen=True)
class Runs:
    """BigTable: sorted runs, oldest first.  A key may be in several of them; the newest is what holds.

    Keys are int64 or strings, one column of values; each run is sorted by its keys.
    """

    keys: list[pa.Array]
    values: list[pa.Array]

    def sum_of_now(self) -> float:
        """The aggregate of a column: the runs are merged by key, though nobody asked for the key."""
        keys = pa.concat_arrays(self.keys)
        values = pa.concat_arrays(self.values).to_numpy()
        if pa.types.is_integer(keys.type):
            numbers = keys.to_numpy()
            order = np.argsort(numbers, kind="stable")  # merges runs; equal keys stay oldest first
            ordered = numbers[order]
            last = np.append(ordered[1:] != ordered[:-1], True)
        else:
            order = pc.array_sort_indices(keys).to_numpy()  # stable too
            ordered = keys.take(pa.array(order))
            last = np.append(pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False), True)
        return float(values[order[last]].sum())

    @property
    def key_bytes(self) -> int:
        """That a read has to look at beside the values."""
        return sum(array.nbytes for array in self.keys)


@dataclass(frozen=True)
class Versions:
    """Timestamps as part of the key: all versions of a cell lie side by side, the newest first."""

    keys: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, keys: list[np.ndarray], values: list[np.ndarray]) -> Versions:
        """Of each write, oldest first."""
        all_keys, all_values = np.concatenate(keys[::-1]), np.concatenate(values[::-1])
        order = np.argsort(all_keys, kind="stable")
        return cls(all_keys[order], all_values[order])

    def sum_of_now(self) -> float:
        newest = np.append(True, self.keys[1:] != self.keys[:-1])
        return float(self.values[newest].sum())


def copied_pages(rows: np.ndarray, row_bytes: int) -> int:
    """Bytes of the blocks that are copied before rows of them change, each block once.

    ``rows``: positions in a table whose rows lie one after the other.
    """
    per_page = max(1, PAGE_BYTES // row_bytes)
    return len(np.flatnonzero(np.bincount(rows // per_page))) * PAGE_BYTES


def undo_visits(rows: np.ndarray, row_bytes: int, record_bytes: int) -> int:
    """Pages of undo that a scan of the past goes to, block after block, one kept at hand.

    Records lie in the order of the changes (``rows``), so those of one block are anywhere.
    """
    block = rows // max(1, PAGE_BYTES // row_bytes)
    page = np.arange(len(rows)) // (PAGE_BYTES // record_bytes)
    visited = page[np.lexsort((page, block))]
    return int(np.count_nonzero(visited[1:] != visited[:-1])) + 1


def positions_by_search(runs: list[np.ndarray], keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Which of the keys are in a run, without blooms: each run is searched for each key; and the searches."""
    there = np.zeros(len(keys), bool)
    for run in runs:
        at = np.minimum(np.searchsorted(run, keys), len(run) - 1)
        there |= run[at] == keys
    return there, len(runs) * len(keys)
