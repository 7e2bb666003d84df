"""How long rows live after the time that a column of theirs says, where a table has that.

A row has expired when its time plus the lifetime lies at or before the clock of whoever asks.  A row whose
time is NULL never does.  A time without a zone is read as one of UTC; a date is its midnight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from kudu_core.common.format.members import integer
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, shown

LONGEST_LIFETIME_US = 1000 * 366 * 86_400 * 10**6
"""A thousand years, about: what is longer is better no lifetime at all."""
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_US, _DAY_MS = 86_400 * 10**6, 86_400 * 10**3


class TimedColumn(Protocol):
    """What is asked of a column of a schema."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> ColumnType: ...


@dataclass(frozen=True, slots=True)
class Ttl:
    """The column with a row's time, and how long the row lives after it."""

    column_id: int
    lifetime_us: int
    """Microseconds, from 1 on."""

    def last_expired(self, type_: ColumnType, now_us: int) -> int | None:
        """The largest cell of the column, of this type, whose row has expired at a moment, in microseconds of
        UTC since 1970; None where no cell is so small."""
        limit_us = now_us - self.lifetime_us
        if type_.is_date:
            last = limit_us // _DAY_US * (1 if type_.width == 4 else _DAY_MS)
        else:
            last = limit_us * _TICKS[type_.arrow.unit] // 10**6
        bits = 8 * type_.width - 1
        return None if last < -(1 << bits) else min(last, (1 << bits) - 1)

    def to_json(self) -> list[int]:
        return [self.column_id, self.lifetime_us]

    @staticmethod
    def from_json(stored: Any, columns: Iterable[TimedColumn]) -> Ttl | None:
        """None: the table has none.  Raises what is in ``members.BROKEN``, or ``InvalidArgument``."""
        if stored is None:
            return None
        column_id, lifetime_us = stored
        ttl = Ttl(integer(column_id), integer(lifetime_us, 1, LONGEST_LIFETIME_US + 1))
        check_timed({column.id: column for column in columns}[ttl.column_id])
        return ttl


def declared_ttl(given: Any, columns: Mapping[str, TimedColumn], leaves: Sequence[int]) -> Ttl | None:
    """``ttl=`` as a caller gives it; ``InvalidArgument`` names the column.

    ``columns``: those of the table by name; ``leaves``: ids of those that are parts of nested ones.
    """
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], str):
        raise InvalidArgument(
            f'ttl is the column with the time of a row and how long the row lives after it, as ("at", '
            f"timedelta(days=30)), or None, not {shown(given)}"
        )
    name, lifetime = given
    column = columns.get(name)
    if column is None or column.id in leaves:
        raise InvalidArgument(f"ttl: there is no column {shown(name)} that is not a part of another")
    check_timed(column)
    if not isinstance(lifetime, timedelta):
        raise InvalidArgument(f"ttl: how long rows live is a datetime.timedelta, not {shown(lifetime)}")
    lifetime_us = lifetime // timedelta(microseconds=1)
    if not 1 <= lifetime_us <= LONGEST_LIFETIME_US:
        raise InvalidArgument(f"ttl: rows live a microsecond to a thousand years, not {lifetime}")
    return Ttl(column.id, lifetime_us)


def check_timed(column: TimedColumn) -> None:
    """``InvalidArgument`` unless a column's cells say when: timestamps and dates do, numbers do not."""
    type_ = column.type
    if type_.is_converted or not (type_.is_timestamp or type_.is_date):
        raise InvalidArgument(
            f"ttl: column {column.name!r} is {type_}; a row's time is a timestamp or a date"
            + (", of which a number does not say the unit" if type_.name.strip("u").startswith("int") else "")
        )


def told_ttl(ttl: Ttl | None, columns: Mapping[int, TimedColumn]) -> tuple[str, timedelta] | None:
    """The inverse of ``declared_ttl``.  ``columns``: by id."""
    if ttl is None:
        return None
    return columns[ttl.column_id].name, timedelta(microseconds=ttl.lifetime_us)


__all__ = ["Ttl", "check_timed", "declared_ttl", "told_ttl"]
