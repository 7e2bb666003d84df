"""A page of a table by its path: ``kudu_core.report``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kudu_core.page.report_page import Report
from kudu_core.table.entry import open_table
from kudu_core.table.opened.handle import HandleOwner, handle_of
from kudu_core.table.report.gather.gathered import report_of


def report(
    table: HandleOwner | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """A page on which one sees a table: its tablets and rowsets, history, columns, maintenance, memory, log.

    >>> kc.report(stock, path + ".html").data.tablets[0].rows_stored
    3

    Parameters
    ----------
    table
        A ``Table``, or the path or URL of one, which is opened for reading; others may write to it.
    output
        Where the page is written, as one file of HTML; None: nowhere.
    storage_options
        As of ``open_table``, of a URL.

    Raises
    ------
    TableNotFound, Corruption
        As of ``open_table``.
    OSError
        The page could not be written.
    """
    if isinstance(table, HandleOwner):
        return report_of(handle_of(table).current(), output)
    with open_table(table, storage_options=storage_options) as opened:
        return report_of(handle_of(opened), output)


__all__ = ["report"]
