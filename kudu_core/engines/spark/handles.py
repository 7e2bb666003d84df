"""Tables as users give them to functions of ``kudu_core.spark``: by a path, or open."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

from kudu_core.table.lifecycle.handles import folder_path, open_handle
from kudu_core.table.opened.handle import Handle, handle_of
from kudu_core.table.table import Table

Path = str | os.PathLike[str]
PathOrTable = str | os.PathLike[str] | Table


def given_handle(table: PathOrTable) -> Handle | None:
    """The handle of an open table; None of a path."""
    return handle_of(table) if isinstance(table, Table) else None


def folder_of(table: PathOrTable) -> str:
    """Where the table is."""
    return table.path if isinstance(table, Table) else folder_path(table)


def reading(table: PathOrTable) -> AbstractContextManager[Handle]:
    """``with`` it: the handle of an open table, which stays open, or one of a path, opened for reading."""
    return nullcontext(handle_of(table)) if isinstance(table, Table) else open_handle(table)


__all__ = ["Path", "PathOrTable", "folder_of", "given_handle", "reading"]
