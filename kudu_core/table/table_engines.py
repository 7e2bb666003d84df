"""Doors of a ``Table`` to engines that are above it: they are found by their names when one is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kudu_core.table.opened.handle import HandleOwner

if TYPE_CHECKING:
    import polars as pl

LAZY_MODULE = "kudu_core.engines.arrow.polars_source"
"""The module above that makes Polars' frames; it imports ``polars``, which is no dependency."""


class TableEngines(HandleOwner):
    """What of ``Table`` belongs to one engine: every method of it is one of ``Table``'s."""

    def lazy(self, at: Any = None) -> pl.LazyFrame:
        """The table at one snapshot as a Polars ``LazyFrame``.

        Polars hands down the columns, the predicate and ``head``: what they exclude is not read.  Of the
        predicate that is comparisons of columns with constants, ``is_between``, ``is_in``, ``is_null``,
        ``is_nan``, ``str.starts_with``, and ``&``, ``|``, ``~`` of these; Polars applies the rest.
        The snapshot stays pinned while the frame lives, as that of ``to_dataset`` does.

        >>> stock.lazy().sql("select name from self where price > 2").collect()["name"].to_list()
        ['ink', 'pad']

        Parameters
        ----------
        at
            As of ``scan``.

        Raises
        ------
        NotSupported
            There is no Polars, or it has no type for a column: decimals of more than 38 digits, intervals.
        SnapshotTooOld, SnapshotInFuture
            As ``scan``.
        """
        self._handle.opened()
        frame: pl.LazyFrame = import_module(LAZY_MODULE).lazy_frame(self._handle, at)
        return frame


__all__ = ["TableEngines"]
