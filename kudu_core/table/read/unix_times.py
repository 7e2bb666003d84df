"""Integers that are no timestamps of a table, but times since 1970 in seconds or parts of them.

A timestamp is microseconds shifted left by 12 bits.  What ``time.time()`` and its like say of our days, in
seconds, milliseconds, microseconds or nanoseconds, lies as a timestamp before 2005, where no table has rows,
and would be read as an empty state.  It is refused; but never a timestamp at or after the first write of a
table, as a clock that was not set yet may have given it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kudu_core.common.run.clock import hybrid
from kudu_core.errors import InvalidArgument
from kudu_core.fs.missing import FileMissing
from kudu_core.rowset.disk.diskrowset import DiskRowSet

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_FIRST_S = 631_152_000
_END_S = 4_500_000_000
"""1990 and 2112, between which a number is taken to be of our days."""
_CLOCKS_ARE_SET = hybrid(1_577_836_800 * 10**6)
"""2020: earlier times come of clocks that are not set, or of tests."""


def refuse_unix_time(engine: Engine, wanted: int) -> None:
    """``InvalidArgument`` for a number that is a time since 1970 and no timestamp of the table."""
    unit = _unit_of(wanted)
    if unit is None or max(engine.visible_ts, engine.clock.now_hybrid()) < _CLOCKS_ARE_SET:
        return
    if _has_written(engine, wanted):
        return
    meant = _EPOCH + timedelta(seconds=wanted // _UNITS[unit])
    raise InvalidArgument(
        f"{wanted} looks like {unit} since 1970: give an aware datetime, "
        f"datetime.fromisoformat({meant.isoformat()!r}); a timestamp of the table is microseconds since "
        "1970, shifted left by 12 bits, as results of writes and Table.timestamp have it"
    )


def _unit_of(number: int) -> str | None:
    for unit, parts in _UNITS.items():
        if _FIRST_S * parts <= number < _END_S * parts:
            return unit
    return None


def _has_written(engine: Engine, until: int) -> bool:
    """Whether the table has anything of a time up to ``until``.  Insert times in files are read."""
    for tablet in engine.tablets:
        if any(ts and ts <= until for ts in (tablet.created_ts, tablet.dropped_ts)):
            return True
        view = tablet.view
        for memory in (view.active, *view.frozen):
            if memory.first_ts is not None and memory.first_ts <= until:
                return True
        if any(_is_as_old(rowset, until) for rowset in view.rowsets):
            return True
    return False


def _is_as_old(rowset: DiskRowSet, until: int) -> bool:
    meta = rowset.meta
    if any(ref.min_ts <= until for ref in meta.undo):
        return True
    if meta.insert_ts is not None:
        return meta.insert_ts <= until
    try:
        times = rowset.base.open().insert_times(0, meta.rows)
    except FileMissing:
        return True  # the writer has replaced it; who reads learns of that
    return times is None or bool(times.min() <= until)


__all__ = ["refuse_unix_time"]
