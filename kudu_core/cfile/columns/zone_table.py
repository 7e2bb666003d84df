"""The zone maps of all pages of a column at once: bounds as arrays, asked in one step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.pages import zones
from kudu_core.cfile.columns.specs import ZONE_HIGH_OPEN, ZONE_PRESENT
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.sets import closed_ends, places_of

if TYPE_CHECKING:
    from kudu_core.cfile.columns.sought_words import SoughtWords
    from kudu_core.common.where.sets import ValueSet

    U64 = npt.NDArray[np.uint64]
    U8 = npt.NDArray[np.uint8]
    Mask = npt.NDArray[np.bool_]

NO_ROW, EVERY_ROW, SOME_ROWS = range(3)
"""What is known of a page: as in ``_ext.scan.selection``."""
_STATES = np.array([SOME_ROWS, EVERY_ROW, NO_ROW, NO_ROW], np.uint8)


class ZoneTable:
    """Immutable.  Bounds are places (``common.where.sets``; up to 32 bytes of a string) or codes of words."""

    def __init__(
        self, type_: ColumnType, words: SoughtWords | None, index: Any, rows: npt.NDArray[np.int64]
    ) -> None:
        """``index``: the page index (``ColumnPages.index``); ``rows`` of each page."""
        self._type = type_
        self._words = words
        self._nulls = index["nulls"].astype(np.int64)
        self._rows = rows
        self._nans: Mask = index["nans"] > 0
        self._is_plain = not (self._nulls.any() or self._nans.any())
        self._some: Mask = (index["flags"] & ZONE_PRESENT) != 0
        low, high = np.ascontiguousarray(index["low"]), np.ascontiguousarray(index["high"])
        self._strings: tuple[Any, Any, Any] | None = None
        self._asked: tuple[ValueSet, Mask] | None = None
        """The last answer of ``may_hold``."""
        if words is not None:
            self._low, self._high = low.view("<u4").reshape(-1), high.view("<u4").reshape(-1)
        elif type_.width:
            self._low, self._high = (places_of(type_, raw.reshape(-1)) for raw in (low, high))
        else:
            self._strings = low, high, (index["flags"] & ZONE_HIGH_OPEN).astype(np.uint8)

    def may_hold(self, wanted: ValueSet) -> Mask:
        """Which pages may have a cell in the set, NULL aside, (n,) bool; not to be changed."""
        asked = self._asked  # other threads ask too
        if asked is None or asked[0] is not wanted:
            self._asked = asked = wanted, self._may_hold(wanted)
        return asked[1]

    def _may_hold(self, wanted: ValueSet) -> Mask:
        if self._strings is not None:
            found: Mask = np.zeros(len(self._some), np.bool_)
            if len(wanted.intervals) > len(found):  # fewer steps: one for each page
                found[:] = [wanted.meets(low, high) for low, high in _cells(*self._strings)]
                return found & self._some
            for low, high in wanted.intervals:
                found |= zones.strings_meet(*self._strings, low, high).view(np.bool_)
            return found & self._some
        spans = closed_ends(self._type, wanted) if self._words is None else self._words.spans(wanted)
        return self._some & meet(self._low, self._high, spans)

    def states(self, spans: U64, null: bool) -> U8:
        """Of each page, whether no row, every row, or perhaps some rows are in a set, (n,) uint8.

        ``spans``: the set's places, or codes, as (m, 2) ascending ends; ``null``: whether NULL is in it.
        Of numbers of up to 8 bytes, and of words.
        """
        none = ~(meet(self._low, self._high, spans) & self._some)
        every = within(self._low, self._high, spans)
        if not self._is_plain:
            # NaN lies outside the bounds: a page with one has to be looked at.
            none &= ~self._nans
            every = (every | (self._nulls == self._rows)) & ~self._nans
            if null:
                none &= self._nulls == 0
            else:
                every &= self._nulls == 0
        found: U8 = _STATES[2 * none.view(np.uint8) + every.view(np.uint8)]
        return found

    def may_be_null(self, null: bool) -> Mask:
        """Which pages have a null cell; or (false) one that is not."""
        found: Mask = self._nulls > 0 if null else self._nulls < self._rows
        return found


def meet(low: Any, high: Any, spans: U64) -> Mask:
    """Which of the bounds [low, high] meet one of the ascending spans, both ends included."""
    if not len(spans):
        return np.zeros(len(low), np.bool_)
    if len(spans) == 1:
        one: Mask = (low <= spans[0, 1]) & (high >= spans[0, 0])
        return one
    first = np.searchsorted(spans[:, 1], low)
    begins = spans[np.minimum(first, len(spans) - 1), 0]
    met: Mask = (first < len(spans)) & (begins <= high)
    return met


def within(low: Any, high: Any, spans: U64) -> Mask:
    """Which of the bounds [low, high] lie within one of the ascending spans."""
    if not len(spans):
        return np.zeros(len(low), np.bool_)
    if len(spans) == 1:
        one: Mask = (low >= spans[0, 0]) & (high <= spans[0, 1])
        return one
    first = np.searchsorted(spans[:, 1], high)
    begins = spans[np.minimum(first, len(spans) - 1), 0]
    held: Mask = (first < len(spans)) & (begins <= low)
    return held


def _cells(low: Any, high: Any, open_ended: Any) -> Iterator[tuple[bytes, bytes | None]]:
    """The bounds of strings of each page: a byte of length, and that many bytes; None where it is open."""
    for least, most, is_open in zip(low, high, open_ended.tolist(), strict=True):
        yield (
            least[1 : 1 + int(least[0])].tobytes(),
            None if is_open else most[1 : 1 + int(most[0])].tobytes(),
        )
