"""Open tables of a worker process.

Spark's Python workers serve many tasks, one after another, so a table opened for reading by one
task serves the next: its page cache and its open files stay warm.  A worker may be killed at any
moment; a table that is open for reading holds nothing that must be given back.
"""

from __future__ import annotations

import os

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import mutex
from kudu_core.errors import Closed
from kudu_core.table.changes.change_tokens import ChangeToken
from kudu_core.table.entry import open_table
from kudu_core.table.lifecycle.handles import folder_path
from kudu_core.table.opened.handle import Handle, handle_of
from kudu_core.table.read.tokens import ScanToken
from kudu_core.table.stored.table_state import read_state
from kudu_core.table.table import Table

MAX_TABLES = 8
_clock = Clock()
_lock = mutex()
"""Guards ``_tables``; held while a table is opened, so that it is opened once."""
_tables: dict[str, Table] = {}
_refreshed_s: dict[str, float] = {}
"""When each was opened, or refreshed for ``table``."""


def table(path: str | os.PathLike[str], *, at: int | None = None, refresh_s: float | None = None) -> Table:
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
    """
    text = os.path.abspath(folder_path(path))
    with _lock:
        found = _taken(text)
        if found is not None and _is_replaced(found):
            found.close()
            found = None
        now = _clock.monotonic_s()
        if found is None:
            found = open_table(text, options={"scan_threads": 1})
            _refreshed_s[text] = now
        elif (at is not None and at > found.timestamp) or (
            refresh_s is not None and now - _refreshed_s[text] >= refresh_s
        ):
            found.refresh()
            _refreshed_s[text] = now
        _keep(text, found)
        return found


def handle_for(token: ScanToken | ChangeToken) -> Handle:
    """The process's table of a token, opened anew when it is another one at the same path.

    ``scan_of`` and ``changes_of`` refresh a table that is behind the token.
    """
    with _lock:
        found = _taken(token.table_path)
        if found is not None and handle_of(found).engine.uuid.hex() != token.table_uuid:
            found.close()
            found = None
        if found is None:
            # Spark runs as many workers as there are cores: one thread each.
            found = open_table(token.table_path, options={"scan_threads": 1})
            _refreshed_s[token.table_path] = _clock.monotonic_s()
        _keep(token.table_path, found)
        return handle_of(found)


def newest_handle(path: str) -> Handle:
    """The process's table at a path, in the state that is durable now."""
    with _lock:
        found = _taken(path)
        if found is not None and _is_replaced(found):
            found.close()
            found = None
        if found is None:
            found = open_table(path, options={"scan_threads": 1})
            _refreshed_s[path] = _clock.monotonic_s()
        elif not handle_of(found).engine.is_newest():
            found.refresh()
        _keep(path, found)
        return handle_of(found)


def _taken(path: str) -> Table | None:
    """The table of a path, out of what is kept; one that a function of the job has closed is forgotten."""
    found = _tables.pop(path, None)
    try:
        if found is not None:
            handle_of(found).opened()
    except Closed:
        return None
    return found


def _is_replaced(found: Table) -> bool:
    """Whether the table at its path is another one by now, or none."""
    engine = handle_of(found).engine
    try:
        return read_state(engine.fs, f"{engine.path}/TABLE").uuid != engine.uuid
    except FileNotFoundError:
        return True


def _keep(path: str, found: Table) -> None:
    _tables[path] = found  # the newest is last
    while len(_tables) > MAX_TABLES:
        _tables.pop(next(iter(_tables))).close()


def _forget() -> None:
    """In the child of a fork the tables belong to the parent."""
    global _lock  # noqa: PLW0603
    _lock = mutex()
    _tables.clear()
    _refreshed_s.clear()


os.register_at_fork(after_in_child=_forget)
