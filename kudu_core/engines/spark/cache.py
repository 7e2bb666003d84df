"""Open tables of a worker process.

Spark's Python workers serve many tasks, one after another, so a table opened for reading by one
task serves the next: its page cache and its open files stay warm.  A worker may be killed at any
moment; a table that is open for reading holds nothing that must be given back.
"""

from __future__ import annotations

import os
import threading

from kudu_core.table.change_tokens import ChangeToken
from kudu_core.table.table import Table, open_table
from kudu_core.table.tokens import ScanToken

MAX_TABLES = 8
_lock = threading.Lock()
"""Guards ``_tables``; held while a table is opened, so that it is opened once."""
_tables: dict[str, Table] = {}


def table_for(token: ScanToken | ChangeToken) -> Table:
    """The process's table of a token, opened anew when it is another one at the same path.

    ``Table.scan_token`` and ``Table.change_token`` refresh a table that is behind the token.
    """
    with _lock:
        table = _tables.pop(token.table_path, None)
        if table is not None and table._engine.state.uuid.hex() != token.table_uuid:
            table.close()
            table = None
        if table is None:
            # Spark runs as many workers as there are cores: one thread each.
            table = open_table(token.table_path, options={"scan_threads": 1})
        _tables[token.table_path] = table  # the newest is last
        while len(_tables) > MAX_TABLES:
            _tables.pop(next(iter(_tables))).close()
        return table


def _forget() -> None:
    """In the child of a fork the tables belong to the parent."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _tables.clear()


os.register_at_fork(after_in_child=_forget)
