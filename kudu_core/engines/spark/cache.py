"""Open tables of a worker process.

Spark's Python workers serve many tasks, one after another, so a table opened for reading by one
task serves the next: its page cache and its open files stay warm.  A worker may be killed at any
moment; a table that is open for reading holds nothing that must be given back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from kudu_core.common.run.locks import mutex
from kudu_core.errors import Closed, InvalidArgument
from kudu_core.objects.urls import is_url
from kudu_core.table.changes.change_tokens import ChangeToken
from kudu_core.table.entry import open_table
from kudu_core.table.lifecycle.handles import table_path
from kudu_core.table.opened.handle import Handle, handle_of
from kudu_core.table.read.tokens import ScanToken
from kudu_core.table.table import Table

MAX_TABLES = 8
_lock = mutex()
"""Guards ``_tables``; held while a table is opened, so that it is opened once."""
_tables: dict[_CacheKey, Table] = {}


def table(
    path: str | os.PathLike[str],
    *,
    at: int | None = None,
    refresh_s: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """The table at a path, open for reading, for functions that run in Spark's workers: the same one for
    every call in a process, so that it is opened once and its cache stays warm.

        @F.pandas_udf("string")
        def name_of(ids: pd.Series) -> pd.Series:
            return ks.table("/tables/customers").get_many(ids.to_frame("id"), ["name"])["name"].to_pandas()

    Do not close it: others in the process read it too, and the next call opens it anew.  A table that was
    made anew at the path is another one, and opened as such.

    >>> ks.table(stock).get(1, ["name"])
    {'name': 'pen'}

    Parameters
    ----------
    at
        A timestamp that will be read: refresh a table that is behind it.  The same ``at`` here and in the
        read fixes one state for all of a job.
    refresh_s
        Refresh it when it was opened or refreshed longer ago than so many seconds.  None: the state that the
        process has come upon is good enough.
    storage_options
        As of ``kudu_core.open_table``, for a URL of an object store.
    """
    place = _CacheKey.of(path, storage_options)
    with _lock:
        found = _taken(place)
        if found is not None and handle_of(found).engine.table_file.is_replaced():
            found.close()
            found = None
        if found is None:
            found = _opened(place)
        elif at is not None and at > found.timestamp:
            found.refresh()
        elif refresh_s is not None:
            handle_of(found).refresh_older(refresh_s)
        _keep(place, found)
        return found


def handle_for(token: ScanToken | ChangeToken) -> Handle:
    """The process's table of a token, opened anew when it is another one at the same path.

    ``scan_of`` and ``changes_of`` refresh a table that is behind the token.
    """
    place = _CacheKey.of(token.table_path, token.storage_options)
    with _lock:
        found = _taken(place)
        if found is not None and handle_of(found).engine.uuid.hex() != token.table_uuid:
            found.close()
            found = None
        if found is None:
            found = _opened(place)
        _keep(place, found)
        return handle_of(found)


def newest_handle(path: str, storage_options: Mapping[str, Any] | None = None) -> Handle:
    """The process's table at a path, in the state that is durable now."""
    place = _CacheKey.of(path, storage_options)
    with _lock:
        found = _taken(place)
        if found is not None and handle_of(found).engine.table_file.is_replaced():
            found.close()
            found = None
        if found is None:
            found = _opened(place)
        elif not handle_of(found).engine.is_newest():
            found.refresh()
        _keep(place, found)
        return handle_of(found)


class _CacheKey(NamedTuple):
    """Where a table is, and how its store is reached."""

    path: str
    options: str | None
    """As JSON, so that equal ones are one place."""

    @staticmethod
    def of(path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> _CacheKey:
        options = None
        if storage_options is not None:
            try:
                options = json.dumps(storage_options, sort_keys=True)
            except (TypeError, ValueError):
                raise InvalidArgument(
                    "storage_options for Spark travel to its workers: names and plain values"
                ) from None
        return _CacheKey(table_path(path), options)


def _opened(place: _CacheKey) -> Table:
    # Spark runs as many workers as there are cores: one thread each, but of a store, which is waited for.
    options = {} if is_url(place.path) else {"scan_threads": 1}
    known = None if place.options is None else json.loads(place.options)
    return open_table(place.path, options=options, storage_options=known)


def _taken(path: _CacheKey) -> Table | None:
    """The table of a place, out of what is kept; one that a function of the job has closed is forgotten."""
    found = _tables.pop(path, None)
    try:
        if found is not None:
            handle_of(found).opened()
    except Closed:
        return None
    return found


def _keep(path: _CacheKey, found: Table) -> None:
    _tables[path] = found  # the newest is last
    while len(_tables) > MAX_TABLES:
        _tables.pop(next(iter(_tables))).close()


def _forget() -> None:
    """In the child of a fork the tables belong to the parent."""
    global _lock  # noqa: PLW0603
    _lock = mutex()
    _tables.clear()


os.register_at_fork(after_in_child=_forget)
