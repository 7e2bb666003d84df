"""The rowsets of a view by their bounds: who may hold a key, a batch of keys, a range of them.

An immutable value beside the tuple of rowsets, made anew when rowsets come or go and kept when only what
belongs to one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.run.cached import cached_property
from kudu_core.rowset.disk.diskrowset import DiskRowSet


class RowSetTree:
    """Bounds of rowsets, which are numbered by first key and id."""

    __slots__ = ("__dict__", "_first", "_last", "bounds", "ids")

    def __init__(self, first: Sequence[bytes], last: Sequence[bytes], ids: Sequence[int]) -> None:
        self._first = first
        self._last = last
        self.ids = ids
        """By place."""
        keys = [EncodedKeys.from_list(bounds) for bounds in (first, last)]
        self.bounds = BoundsTree(*((k.data, k.offsets) for k in keys))
        """The kernel's half."""

    @staticmethod
    def of(rowsets: Iterable[DiskRowSet]) -> tuple[RowSetTree, tuple[DiskRowSet, ...]]:
        """The tree, and the rowsets in its order."""
        ordered = tuple(sorted(rowsets, key=lambda r: (r.meta.min_key, r.meta.id)))
        metas = [r.meta for r in ordered]
        tree = RowSetTree([m.min_key for m in metas], [m.max_key for m in metas], [m.id for m in metas])
        return tree, ordered

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def places(self) -> dict[int, int]:
        """Place by id."""
        return {rowset_id: place for place, rowset_id in enumerate(self.ids)}

    def point(self, key: bytes) -> np.ndarray:
        """Places of the rowsets that may hold an encoded key, (k,) int64, ascending."""
        return self.bounds.point(key)

    def range(self, lower: bytes | None, upper: bytes | None) -> np.ndarray:
        """Those that may hold keys in ``[lower, upper)``; None: an open end."""
        return self.bounds.range(lower, upper)

    def between(self, lower: bytes | None, upper: bytes | None) -> Sequence[int]:
        """``range`` as numbers of Python."""
        if len(self._first) == 1:  # as in most tablets of a table that has many
            met = (lower is None or lower <= self._last[0]) and (upper is None or self._first[0] < upper)
            return _FIRST if met else ()
        found: list[int] = self.bounds.range(lower, upper).tolist()
        return found

    def batch(self, keys: EncodedKeys) -> Iterable[tuple[int, int, int]]:
        """(place, lower, upper): keys ``[lower, upper)`` of an ascending batch lie within its bounds."""
        found = self.bounds.batch(keys.data, keys.offsets)
        return zip(*(part.tolist() for part in found), strict=True)

    @property
    def height(self) -> int:
        """In how many rowsets a key lies at most."""
        return max((len(self.point(key)) for key in self._first), default=0)


_FIRST = (0,)
EMPTY = RowSetTree((), (), ())

__all__ = ["EMPTY", "RowSetTree"]
