"""Doors of a ``Table`` to engines that are above it: they are found by their names when one is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kudu_core.table.opened.handle import HandleOwner

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from kudu_core.table.calls.result import WriteResult

SQL_MODULE = "kudu_core.engines.statements.run_statement"
"""The module above that runs statements; what it needs, ``sqlglot`` and ``duckdb``, is no dependency."""
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

    def sql(self, text: str, /, **parameters: Any) -> pa.Table | WriteResult:
        """Run one SQL statement over the table, which it calls ``this``, or as its folder is called.

        SELECT, WITH and EXPLAIN run in DuckDB over a snapshot of now and give an Arrow table: columns and
        filters prune, and so does ``LIKE`` with a prefix.  UPDATE and DELETE, with WHERE, INSERT and MERGE
        become ``update``, ``delete``, ``insert``, ``upsert`` and ``merge``, with their answers: one record,
        whole or not at all.  Queries inside of them read a snapshot from before.  docs/sql.md has all.

        >>> stock.sql("SELECT name FROM this WHERE price > $least ORDER BY id", least=2)["name"].to_pylist()
        ['ink', 'pad']
        >>> stock.sql("UPDATE this SET price = price * 2 WHERE name LIKE 'p%'").updated
        2

        Parameters
        ----------
        text
            One statement, in DuckDB's dialect.
        parameters
            What ``$name`` stands for; and by their names what is a table: anything that speaks Arrow, frames,
            datasets, other tables of this package.

        Raises
        ------
        InvalidArgument
            The text is no such statement, or a part of it cannot be computed, which is quoted; nothing was
            done.
        NotSupported
            A clause that is not understood; or sqlglot or DuckDB is not installed.
        RowErrors
            As ``insert``.
        """
        done: pa.Table | WriteResult = import_module(SQL_MODULE).run_sql(self, text, parameters)
        return done


__all__ = ["TableEngines"]
