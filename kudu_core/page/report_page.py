"""The report of a table, as users hold it."""

from __future__ import annotations

import os
from html import escape
from typing import TYPE_CHECKING

from kudu_core.fs.posix import PosixFileSystem
from kudu_core.page.render.page_html import page_html

if TYPE_CHECKING:
    from kudu_core.page.report_data import ReportData

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


__all__ = ["Report"]
