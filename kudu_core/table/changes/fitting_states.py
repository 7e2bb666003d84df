"""Whether every state of a table that can be read is as a change of its columns demands.

The oldest readable state, and what became of rows since, are all the states that there are: a value that may
not be there is in one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from kudu_core.common.run.clock import time_of
from kudu_core.errors import InvalidArgument, shown
from kudu_core.table.changes.changes import TIMESTAMP_NAME, open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.scan import count, open_scan

if TYPE_CHECKING:
    from kudu_core.table.lifecycle.altering.demands import Demand
    from kudu_core.table.opened.handle import Handle


def check_states(
    handle: Handle, demands: Sequence[Demand], since: int, until: int, *, first: bool
) -> None:
    """As ``StatesFit``."""
    key = handle.opened().schema.key_names
    for demand in demands:
        if first and since and count(handle, demand.broken, since, expired=True):
            request = ScanRequest(key, demand.broken, limit=1, expired=True)
            found = open_scan(handle, request, since).to_table()
            time = pa.array([since], pa.uint64())
            _refuse(handle, demand, until, found.append_column(TIMESTAMP_NAME, time))
        asked = ChangesRequest(columns=key, where=demand.broken)
        for batch in open_changes(handle, asked, since, until):
            if batch.num_rows:
                _refuse(handle, demand, until, batch.slice(0, 1))


def _refuse(handle: Handle, demand: Demand, until: int, broken: pa.RecordBatch | pa.Table) -> NoReturn:
    """``broken``: one row that breaks the demand, and when."""
    key = handle.opened().schema.key_names
    what = f"column {demand.column!r} {demand.sentence}"
    [row] = broken.to_pylist()
    now = count(handle, demand.broken, until, expired=True)
    if now:
        request = ScanRequest(key, demand.broken, limit=1, expired=True)
        found = open_scan(handle, request, until).to_pylist()
        rows = "1 row" if now == 1 else f"{now:,} rows"
        raise InvalidArgument(f"{what} in {rows}, as in that of {_shown(found[0], key)}")
    raise InvalidArgument(
        f"{what} in a past state that can still be read, in the row of {_shown(row, key)} around "
        f"{time_of(row[TIMESTAMP_NAME])}; "
        'to give up the past, alter(options={"history_retention_s": 0}, ...)'
    )


def _shown(row: Mapping[str, Any], key: Sequence[str]) -> str:
    return ", ".join(f"{name} = {shown(row[name])}" for name in key)


__all__ = ["check_states"]
