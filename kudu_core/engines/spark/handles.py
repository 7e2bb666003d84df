"""Tables as users give them to functions of ``kudu_core.spark``: by a path or a URL, or open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kudu_core.errors import InvalidArgument
from kudu_core.table.lifecycle.handles import open_handle, table_path
from kudu_core.table.opened.handle import Handle, handle_of
from kudu_core.table.table import Table

Path = str | os.PathLike[str]
PathOrTable = str | os.PathLike[str] | Table
StorageOptions = Mapping[str, Any] | None


def given_handle(table: PathOrTable, storage_options: StorageOptions = None) -> Handle | None:
    """The handle of an open table; None of a path."""
    if not isinstance(table, Table):
        return None
    if storage_options is not None:
        raise InvalidArgument("storage_options are for a URL; an open table has its own")
    return handle_of(table)


def place_of(table: PathOrTable) -> str:
    """Where the table is."""
    return table.path if isinstance(table, Table) else table_path(table)


def reading(
    table: PathOrTable, storage_options: StorageOptions = None
) -> AbstractContextManager[Handle]:
    """``with`` it: the handle of an open table, which stays open, or one of a path, opened for reading."""
    given = given_handle(table, storage_options)
    if given is not None:
        return nullcontext(given)
    assert not isinstance(table, Table)
    return open_handle(table, storage_options=storage_options)


__all__ = ["Path", "PathOrTable", "StorageOptions", "given_handle", "place_of", "reading"]
