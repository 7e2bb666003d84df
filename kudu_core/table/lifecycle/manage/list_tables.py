"""``list_tables``: the tables directly below a folder, by their TABLEs alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.errors import Corruption, NotSupported, TableNotFound
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.lifecycle.locations import absolute, is_in_store
from kudu_core.table.stored.table_state import MAX_BYTES, parse_state, read_state

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import Requests
    from kudu_core.table.stored.table_state import TableState


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table as ``list_tables`` has found it.

    >>> kc.list_tables(stock.path.removesuffix("/stock"))[0].schema_version
    1
    """

    name: str
    """In the folder that was listed."""
    path: str
    """For ``open_table``."""
    uuid: str | None
    """32 hex digits that are this table's alone; None where TABLE cannot be read."""
    schema_version: int | None
    """How often columns were changed, from 1; None likewise."""
    problem: str | None = None
    """Why TABLE cannot be read: it is damaged, or of a later version."""


def list_tables(
    folder: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
    _requests: Requests | None = None,
) -> list[ListedTable]:
    """The tables directly below a folder, or below a URL, by name.  None of them is opened.

    Only the TABLE of each is read; a damaged one is listed with its ``problem``.  In an object store this is
    one LIST of everything that lies below, and a GET for each table.

    >>> [table.name for table in kc.list_tables(stock.path.removesuffix("/stock"))]
    ['stock']

    Raises
    ------
    FileNotFoundError
        There is no such folder.  (In a store, where folders are only names, the answer is empty.)
    """
    if is_in_store(folder):
        return list(_in_store(os.fspath(folder), storage_options, _clock or Clock(), _requests))
    return list(_in_folder(_fs or PosixFileSystem(), absolute(os.fspath(folder))))


def _in_folder(fs: FileSystem, folder: str) -> Iterator[ListedTable]:
    for name in fs.listdir(folder):
        path = f"{folder.rstrip('/')}/{name}"
        if name.startswith("."):
            continue  # what is being made, or has come to nothing
        try:
            state = read_state(fs.rooted(path), f"{path}/TABLE")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (Corruption, NotSupported) as error:
            yield ListedTable(name, path, None, None, str(error))
        else:
            yield _listed(name, path, state)


def _in_store(
    url: str, storage_options: Mapping[str, Any] | None, clock: Clock, requests: Requests | None
) -> Iterator[ListedTable]:
    # What few tables need is not loaded with the others.
    from kudu_core.table.lifecycle.in_store.store_location import StoreLocation
    from kudu_core.table.lifecycle.in_store.table_object import NAME, place_of

    place = StoreLocation(url, storage_options, clock, requests)
    for entry in place.store.entries(""):
        name, _, rest = entry.name.partition("/")
        if rest != NAME:
            continue
        path = f"{place.root}/{name}"
        with suppress(FileNotFoundError, TableNotFound):  # it was dropped since
            data = place.store.read_bytes(entry.name, MAX_BYTES)
            try:
                state = parse_state(data, f"{path}/{NAME}", in_store=True)
            except (Corruption, NotSupported) as error:
                yield ListedTable(name, path, None, None, str(error))
            else:
                if not place_of(state).restore:  # else it is not whole, and nobody's to open
                    yield _listed(name, path, state)


def _listed(name: str, path: str, state: TableState) -> ListedTable:
    return ListedTable(name, path, state.uuid.hex(), state.schema.version)


__all__ = ["ListedTable", "list_tables"]
