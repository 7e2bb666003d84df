"""The report of a table, as users hold it: ``kudu_core.report`` and ``Table.report``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kudu_core.fs.posix import PosixFileSystem
from kudu_core.page.gather.gathered import gathered
from kudu_core.page.render.page_html import page_html
from kudu_core.table.entry import open_table
from kudu_core.table.opened.handle import HandleOwner, handle_of

if TYPE_CHECKING:
    from kudu_core.page.report_data import ReportData
    from kudu_core.table.opened.handle import Handle

FRAME_PIXELS = 720
"""The height of the frame in a notebook."""


class Report:
    """A table at one moment: ``data``, and a page that shows it.  A notebook shows the page as it is.

    >>> report = stock.report()
    >>> report.html.startswith("<!DOCTYPE html>"), report.data.mode
    (True, 'rw')
    """

    def __init__(self, data: ReportData) -> None:
        self.data = data
        """The numbers behind the page: plain values, see ``ReportData``."""

    @property
    def html(self) -> str:
        """The page: one self-contained file of HTML, without anything from elsewhere."""
        return page_html(self.data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, in the place of one that is there.

        >>> stock.report().save(path + ".html")
        """
        data = self.html.encode("utf-8", "backslashreplace")
        PosixFileSystem().replace_file(os.fspath(path), data)

    def _repr_html_(self) -> str:
        """A frame of its own: neither styles nor scripts of the page and the notebook meet."""
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.html)}" title="kudu_core report" '
            f'style="width:100%;height:{FRAME_PIXELS}px;border:1px solid #8886;border-radius:6px"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<kudu_core.Report of {self.data.path!r}>"


def report_of(handle: Handle, path: str | os.PathLike[str] | None = None) -> Report:
    """What ``Table.report`` does."""
    made = Report(gathered(handle, import_module("kudu_core").__version__))
    if path is not None:
        made.save(path)
    return made


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
        return report_of(handle_of(table), output)
    with open_table(table, storage_options=storage_options) as opened:
        return report_of(handle_of(opened), output)


__all__ = ["Report", "report", "report_of"]
