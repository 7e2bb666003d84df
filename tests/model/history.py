"""The history of a key: its states by time, folded into a row, joined over rowsets (protocol F2, C2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.rules import Rules, Violation
from tests.model.stores import FOREVER, Change, Image, MemRow, Row, RowSet, Undo

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Ascending (time, state from then on or None where the key is absent).
Events = list[tuple[int, Image | None]]


def of_memory(row: MemRow, through: int) -> Events:
    times = sorted({row.insert_ts} | {entry[0] for entry in row.chain})
    return [(ts, row.at(ts)) for ts in times if ts <= through]


def of_rowset(rowset: RowSet, rowid: int, through: int) -> Events:
    row = rowset.rows[rowid]
    times = {row.insert_ts} | {undo.ts for undo in row.undo}
    times |= {change.ts for change in rowset.changes(through=through) if change.rowid == rowid}
    return [(ts, rowset.at(rowid, ts)) for ts in sorted(times) if ts <= through]


def fold(key: int, events: Events, horizon: int) -> tuple[Row, int] | None:
    """The row that tells ``events`` as far back as ``horizon``, and the time of its trailing DELETE.

    None when nothing at or above the horizon can see the key; FOREVER when it is alive at the end.
    """
    start = 0
    while start + 1 < len(events) and events[start + 1][0] <= horizon:
        start += 1
    events = events[start:]
    if len(events) == 1 and events[0][1] is None and events[0][0] <= horizon:
        return None
    if events and events[0][1] is None:
        events = events[1:]
    if not events or events[0][1] is None:
        return None
    deleted = FOREVER
    if events[-1][1] is None:
        deleted = events[-1][0]
        events = events[:-1]
    undo = []
    for (_, before), (ts, after) in zip(reversed(events[:-1]), reversed(events[1:]), strict=True):
        if after is None:
            undo.append(Undo(ts, "present", before))
        elif before is None:
            undo.append(Undo(ts, "absent", None))
        else:
            differing = {c: v for c, v in enumerate(before) if v != after[c]}
            undo.append(Undo(ts, "update", differing))
    image = events[-1][1]
    assert image is not None
    return Row(key, events[0][0], image, tuple(undo)), deleted


def build(
    histories: Iterable[tuple[int, Events]], horizon: int
) -> tuple[tuple[Row, ...], tuple[Change, ...], dict[int, int]]:
    """Output rows, the REDO file of their trailing DELETEs, and key -> rowid."""
    rows: list[Row] = []
    deletes = []
    rowids = {}
    for key, events in histories:
        folded = fold(key, events, horizon)
        if folded is None:
            continue
        row, deleted = folded
        rowids[key] = len(rows)
        if deleted != FOREVER:
            deletes.append(Change(len(rows), deleted, "D", None))
        rows.append(row)
    return tuple(rows), tuple(deletes), rowids


def _state(events: Events, ts: int) -> Image | None:
    image = None
    for when, state in events:
        if when > ts:
            break
        image = state
    return image


def _concatenated(sides: list[Events]) -> Events:
    """The shortcut: the newest copy's history behind all of the others'."""
    sides = sorted(sides, key=lambda events: (events[-1][1] is not None, events[-1][0]))
    out: Events = []
    for events in sides:
        out = [event for event in out if event[0] < events[0][0]] + events
    return out


def join(sides: list[Events], horizon: int, rules: Rules) -> Events:
    """The union by time of one key's histories in several rowsets.

    Raises Violation where two of them are live at once at or above the horizon.
    """
    sides = [events for events in sides if events]
    if len(sides) < 2:
        return sides[0] if sides else []
    if not rules.join_by_time:
        return _concatenated(sides)
    out: Events = []
    for ts in sorted({event[0] for events in sides for event in events}):
        alive = [state for state in (_state(events, ts) for events in sides) if state is not None]
        if len(alive) > 1 and ts >= horizon:
            raise Violation(f"N3: two live copies while joining at {ts}: {sides}")
        out.append((ts, alive[-1] if alive else None))
    if not rules.join_writes_absent:
        starts = {events[0][0] for events in sides} - {min(events[0][0] for events in sides)}
        out = [
            event
            for event, following in zip(out, [*out[1:], (-1, None)], strict=True)
            if event[1] is not None or following[0] not in starts
        ]
    return out
