"""A table as a dict of key -> values: what the engine is compared with.

Knows the row rules of writes and nothing about stores, files or Arrow.  Cells are whatever the
caller uses for them, compared with ``==``: where NaN matters use a form in which it equals itself
(``tests.support.cells``).  None is NULL.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = Any
Key = tuple[Cell, ...]
Row = Mapping[str, Cell]
State = dict[Key, tuple[Cell, ...]]
"""Key -> the other columns, in the order in which the model was given them."""

ALREADY_PRESENT = "already_present"
NOT_FOUND = "not_found"
NULL_IN_REQUIRED = "null_in_required"


@dataclass(slots=True)
class Outcome:
    """What writes come to.  ``errors``: (row within its call, code), in call order."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.inserted, self.updated, self.deleted, self.ignored


class TableModel:
    """The rows of a table.

    Parameters
    ----------
    key
        Names of the key columns, in key order.
    defaults
        Every other column, with what an insert without it stores (None: NULL).
    required
        Those of them that take no NULL.
    accepts
        Code for which a key cannot be stored at all ("no_partition", "too_large"), or None.
    """

    def __init__(
        self,
        key: Sequence[str],
        defaults: Mapping[str, Cell],
        *,
        required: Iterable[str] = (),
        accepts: Callable[[Key], str | None] = lambda key: None,
    ) -> None:
        self.key = tuple(key)
        self.defaults = dict(defaults)
        self.values = tuple(defaults)
        self.required = frozenset(required)
        self.accepts = accepts
        self._rows: State = {}

    def copy(self) -> TableModel:
        other = TableModel(self.key, self.defaults, required=self.required, accepts=self.accepts)
        other._rows = dict(self._rows)
        return other

    def state(self) -> State:
        """A copy of the rows, which later writes leave alone."""
        return dict(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __getitem__(self, key: Key) -> tuple[Cell, ...]:
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    # ---- the row rules ----

    def call(self, ops: str | Sequence[str], rows: Sequence[Row], outcome: Outcome | None = None) -> Outcome:
        """The rows of one write call, in order; refused ones change nothing.

        ``ops`` is one operation for all rows or one for each.  All rows have the same columns.
        Counts are added to ``outcome``.
        """
        outcome = Outcome() if outcome is None else outcome
        for number, row in enumerate(rows):
            code = self.apply(ops if isinstance(ops, str) else ops[number], row, outcome)
            if code is not None:
                outcome.errors.append((number, code))
        return outcome

    def apply(self, op: str, row: Row, outcome: Outcome | None = None) -> str | None:
        """One row: an operation of ``Table.apply``.  The code for which it is refused, or None."""
        outcome = Outcome() if outcome is None else outcome
        kind, _, ignore = op.partition("_")
        given = [] if kind == "delete" else [c for c in self.values if c in row]
        if any(row[c] is None for c in self.key) or any(row[c] is None for c in given if c in self.required):
            return NULL_IN_REQUIRED
        key = tuple(row[c] for c in self.key)
        code = self.accepts(key)
        if code is not None:
            return code
        live = key in self._rows
        if kind in ("insert", "upsert") and not live:
            if any(c not in given and self.defaults[c] is None for c in self.required):
                return NULL_IN_REQUIRED
            self._rows[key] = tuple(row[c] if c in given else d for c, d in self.defaults.items())
            outcome.inserted += 1
        elif kind == "insert" or not live:
            if not ignore:
                return ALREADY_PRESENT if live else NOT_FOUND
            outcome.ignored += 1
        elif kind == "delete":
            del self._rows[key]
            outcome.deleted += 1
        else:
            old = self._rows[key]
            self._rows[key] = tuple(
                row[c] if c in given else cell for c, cell in zip(self.values, old, strict=True)
            )
            outcome.updated += 1
        return None


Event = tuple[int, Key, "tuple[Cell, ...] | None", "tuple[Cell, ...] | None"]
"""(timestamp, key, the other columns before, and after); None where the key is absent."""


class Timeline:
    """States by the timestamp from which on they are what a snapshot sees."""

    def __init__(self) -> None:
        self.times: list[int] = [0]
        self._states: list[State] = [{}]
        self._events: list[list[Event]] = [[]]

    def commit(self, timestamp: int, state: State) -> None:
        assert timestamp >= self.times[-1], "time went back"
        if timestamp == self.times[-1]:
            assert state == self._states[-1], "two states at one timestamp"
            return
        old = self._states[-1]
        keys = [*state, *(key for key in old if key not in state)]
        changed = [key for key in keys if old.get(key) != state.get(key)]
        self.times.append(timestamp)
        self._states.append(state)
        self._events.append([(timestamp, key, old.get(key), state.get(key)) for key in changed])

    def at(self, timestamp: int) -> State:
        return self._states[bisect.bisect_right(self.times, timestamp) - 1]

    def forget_after(self, timestamp: int) -> None:
        """Times at which nothing changed: what was only read then is forgotten with its process."""
        while self.times[-1] > timestamp and not self._events[-1]:
            for entries in (self.times, self._states, self._events):
                entries.pop()

    @property
    def last_change(self) -> int:
        """When the newest state began."""
        return next((t for t, events in zip(self.times[::-1], self._events[::-1], strict=True) if events), 0)

    def events(self, since: int, until: int) -> Iterator[Event]:
        """What changed in ``(since, until]``, in order of time."""
        first, last = (bisect.bisect_right(self.times, t) for t in (since, until))
        for events in self._events[first:last]:
            yield from events


def check_events(
    timeline: Timeline, since: int, until: int, told: Iterable[Event], *, begin: bool = False
) -> None:
    """That ``told`` is what changed in ``(since, until]``, each change once and in order of time.

    An update that changed nothing may be told.  ``begin``: the state at ``since`` is told first, as inserts.
    """
    wanted = {(time, key): (before, after) for time, key, before, after in timeline.events(since, until)}
    if begin:
        wanted |= {(since, key): (None, row) for key, row in timeline.at(since).items()}
    found: dict[tuple[int, Key], tuple[Any, Any]] = {}
    last = 0
    for time, key, before, after in told:
        assert time >= last, f"a change of {time} after one of {last}"
        assert (time, key) not in found, f"two changes of {key!r} at {time}"
        found[time, key] = (before, after)
        last = time
    for place, images in wanted.items():
        assert place in found, f"not told: {place}, {images[0]!r} to {images[1]!r}"
        assert found[place] == images, f"{place}: told {found[place]!r}, wanted {images!r}"
    for (time, key), (before, after) in found.items():
        if (time, key) not in wanted:
            assert since < time <= until and time in timeline.times, f"nothing was written at {time}"
            there = timeline.at(time).get(key)
            assert there is not None, f"told of {key!r} at {time}, where it was not"
            assert before == after == there, f"told of {key!r} at {time}: {before!r} to {after!r}"


def check_net(
    timeline: Timeline,
    since: int,
    until: int,
    told: Iterable[Event],
    last: Mapping[Key, int],
    *,
    begin: bool = False,
) -> None:
    """That ``told`` has one change for each key whose state differs between the two times, with the time of
    its ``last`` change.  ``begin``: before ``since`` there was nothing."""
    old, new = {} if begin else timeline.at(since), timeline.at(until)
    wanted = {k: (old.get(k), new.get(k)) for k in old.keys() | new.keys() if old.get(k) != new.get(k)}
    found = {}
    for time, key, before, after in told:
        assert key not in found, f"{key!r} came twice"
        assert time == last[key], f"{key!r} has time {time}, its last change was at {last[key]}"
        found[key] = (before, after)
    for key, images in wanted.items():
        assert found.get(key) == images, f"net {key!r}: told {found.get(key)!r}, wanted {images!r}"
    assert len(found) == len(wanted), f"net: nothing differs of {found.keys() - wanted.keys()!r}"


def state_of(model: TableModel, rows: Iterable[Row]) -> State:
    """Whole rows, as a scan gives them, in the model's form.  No key may come twice."""
    state: State = {}
    for row in rows:
        key = tuple(row[name] for name in model.key)
        assert key not in state, f"key {key!r} came twice"
        state[key] = tuple(row[name] for name in model.values)
    return state


def difference(found: State, wanted: State, most: int = 5) -> str:
    """What two states differ in, for people."""
    lines = [
        f"{key!r}: found {found.get(key, 'nothing')!r}, wanted {wanted.get(key, 'nothing')!r}"
        for key in [*wanted, *(k for k in found if k not in wanted)]
        if key not in found or key not in wanted or found[key] != wanted[key]
    ]
    more = [f"... and {len(lines) - most} more"] if len(lines) > most else []
    return "; ".join((*lines[:most], *more)) or "nothing"


def order_of(key: Key) -> tuple[Any, ...]:
    """A sort key in the order of encoded keys: text goes by its bytes."""
    return tuple(cell.encode() if isinstance(cell, str) else cell for cell in key)
