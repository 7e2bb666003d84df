"""What a change of columns demands of the rows: no NULL where a column is to take none, and no value that its
new type does not have.

Every state that can be read is shown with the columns of today, so every one of them must be as they say, not
only the newest: a past one that is not makes the change be refused.  What the horizon has passed cannot be
read: it is raised as far as ``history_retention_s`` and pins let it, and the record says how far.

The rows are looked at twice.  All states up to a moment, without a lock, while history is held; then, under
the mutexes of all tablets, what was written since, with all of it durable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.run.clock import hybrid
from kudu_core.common.types.recasting import broken, lossless
from kudu_core.common.types.widening import changes_cells, most_decimal, narrows
from kudu_core.errors import InternalError, SnapshotTooOld

if TYPE_CHECKING:
    from kudu_core.common.run.locks import Claim
    from kudu_core.common.schema.schema import Schema, StoredColumn
    from kudu_core.table.opened.engine import Engine


@dataclass(frozen=True, slots=True)
class Demand:
    """Of a column: which of its values may not be there."""

    column: str
    """Its name before the change."""
    broken: pc.Expression
    """True of rows that break it."""
    sentence: str
    """Why the change is refused then, after the column's name."""


class StatesFit(Protocol):
    """Raises ``InvalidArgument`` where a readable state breaks a demand."""

    def __call__(self, demands: Sequence[Demand], since: int, until: int, *, first: bool) -> None:
        """States after ``since`` up to ``until``; ``first``: that of ``since`` too."""


def refuse_demands(demands: Sequence[Demand], since: int, until: int, *, first: bool) -> None:
    raise InternalError(f"nobody looks whether rows fit {[demand.column for demand in demands]}")


def demands_of(before: Schema, after: Schema) -> list[Demand]:
    """What the columns that stay demand of rows that are there."""
    found = []
    for column in after.columns:
        known = before.by_id.get(column.id)
        if known is None:
            continue
        if known.nullable and not column.nullable:
            found.append(
                Demand(known.name, pc.field(known.name).is_null(), "cannot become NOT NULL: it is NULL")
            )
        if narrows(known.type, column.type):
            sentence = f"cannot become {column.type}: it has more digits"
            found.append(Demand(known.name, _beyond(known, column), sentence))
        if changes_cells(known.type, column.type) and not lossless(known.type, column.type):
            sentence = f"cannot become {column.type}: it has another value"
            found.append(Demand(known.name, broken(known.type, column.type, pc.field(known.name)), sentence))
    return found


def _beyond(known: StoredColumn, column: StoredColumn) -> pc.Expression:
    """True of decimals with more digits than the column is to have."""
    field, most = pc.field(known.name), most_decimal(column.type)
    low, high = (pa.scalar(number, known.type.value.declared) for number in (-most, most))
    return (field < low) | (field > high)


class Fitted:
    """The looks at the rows of one change."""

    def __init__(
        self, engine: Engine, demands: Sequence[Demand], options: Mapping[str, Any], fit: StatesFit
    ) -> None:
        """The first look, without a lock.  ``options``: that change beside."""
        self._engine, self._demands, self._fit = engine, demands, fit
        self._through = self._horizon = 0
        self._pin: Claim | None = None
        if not demands:
            return
        self._through = _settled(engine)
        self._horizon, self._pin = _pinned_horizon(engine, options)
        fit(demands, self._horizon, self._through, first=True)

    def settled(self) -> int:
        """The second look, under the mutexes of all tablets, after which nothing below the horizon is read
        any more: the horizon, which the record says; 0: none."""
        if not self._demands:
            return 0
        engine, horizon = self._engine, self._horizon
        last = _settled(engine)
        if last > self._through:
            self._fit(self._demands, self._through, last, first=False)
        found = engine.pins.horizon(horizon, drop=True)
        if found < horizon:  # somebody has taken a snapshot of before meanwhile
            self._fit(self._demands, found, horizon, first=True)
        if self._pin is not None:
            self._pin.release()
        return found


def _settled(engine: Engine) -> int:
    """The last record, once it is durable."""
    last = engine.log.last_record_ts
    engine.log.wait_committed(last)
    return last


def _pinned_horizon(engine: Engine, options: Mapping[str, Any]) -> tuple[int, Claim]:
    """The time below which no state need be read any more; it is not raised yet, and goes no further."""
    retention = options.get("history_retention_s", engine.options.history_retention_s)
    oldest = 0
    if retention is not None:
        oldest = hybrid(max(0, engine.clock.now_us() - int(retention * 1e6)))
    while True:
        horizon = engine.pins.horizon(min(engine.log.committed_ts, oldest), drop=False)
        try:
            return horizon, engine.pins.pin(horizon)
        except SnapshotTooOld:
            continue  # history was dropped between the two


__all__ = ["Demand", "Fitted", "StatesFit", "demands_of", "refuse_demands"]
