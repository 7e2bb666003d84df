"""What is true, whoever knows it: the history that the log's objects make, and what may be deleted.

The store tells the oracle of each put and each deletion that it applies.  A put at a number that was used
before is a ghost and no part of history.
"""

from __future__ import annotations

from bisect import bisect_right

from tests.model.objects.records import TABLE, LogObject, Row, State, Table
from tests.model.objects.rules import AS_SPECIFIED, Corruption, Violation
from tests.model.objects.store import Name


class Oracle:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.state = State(table, [None] * len(table.snapshots), AS_SPECIFIED)
        self.history: list[Row] = []
        self.places: dict[int, int] = {}  # id -> place in history
        self.acknowledged = 0  # all that was acknowledged lies below this place
        self._waiting: dict[int, LogObject] = {}  # beyond the first number that nobody has used
        self._claims: list[tuple[int, int]] = []  # a time, and the rows that a reader saw at it

    # -- told by the store ---------------------------------------------------------------------------------

    def put(self, name: Name, value: object) -> None:
        if name == TABLE:
            assert isinstance(value, Table)
            self.table = value
        elif isinstance(value, LogObject) and value.n >= self.state.next:
            self._waiting.setdefault(value.n, value)
            while self.state.next in self._waiting:
                item = self._waiting.pop(self.state.next)
                for row in self._rows(item):
                    if row[1] in self.places:
                        raise Violation("N1: a write is in the history twice")
                    self.places[row[1]] = len(self.history)
                    self.history.append(row)

    def _rows(self, item: LogObject) -> list[Row]:
        """A shortcut may have led here by numbers that were given up: the chain is not of interest."""
        try:
            return sorted(self.state.apply(item, gap=True))
        except Corruption as error:
            raise Violation(str(error)) from error

    def delete(self, name: Name) -> None:
        if name[0] == "log":
            if name[1] >= self.table.log_first:
                raise Violation("B12: an object of the log is deleted that TABLE names")
        elif name in self.table.snapshots:
            raise Violation("B12: a snapshot is deleted that TABLE names")
        elif any(name == known for tablet in self.state.tablets for known, _ in tablet.files):
            raise Violation("B12: a file is deleted that a tablet names")

    # -- told by those who look ----------------------------------------------------------------------------

    def acknowledge(self, ids: tuple[int, ...]) -> None:
        for key in ids:
            place = self.places.get(key)
            if place is None:
                raise Violation("N17: acknowledged, and not in the history")
            self.acknowledged = max(self.acknowledged, place + 1)

    def seen(self, rows: list[Row], before: int) -> None:
        """A reader's rows; ``before``: what was acknowledged when it began."""
        if rows != self.history[: len(rows)]:
            raise Violation("N13: a reader has seen what is no prefix of the history")
        if len(rows) < before:
            raise Violation("N13: a reader lacks what was acknowledged before it began")

    def claim(self, ts: int, rows: int) -> None:
        """A reader has answered for ``ts`` with so many rows: no other may come at or below it."""
        self._claims.append((ts, rows))

    def end(self) -> None:
        times = [ts for ts, _ in self.history]
        for ts, rows in self._claims:
            if bisect_right(times, ts) != rows:
                raise Violation("B10: a row has come at a time for which a reader had answered")
