"""A table with ``ttl`` beside one without, from which all that has expired is deleted before each call.

Whatever users do, both answer alike: that is what ``ttl`` promises.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support.clock import ManualClock

DAY = dt.timedelta(days=1)
LIFETIME = 10 * DAY
SCHEMA = [
    kc.Column("k", pa.int64()),
    kc.Column("at", pa.timestamp("us", "UTC")),
    kc.Column("v", pa.int64(), default=7),
    kc.Column("s", pa.string()),
]
MANUAL = {"maintenance": "manual", "durability": "none", "history_retention_s": None}
Rows = list[dict[str, Any]]


class SentClock(ManualClock):
    """It travels with a handle, and stands still there."""

    def __reduce__(self) -> tuple[type[ManualClock], tuple[int]]:
        return ManualClock, (self.now_us(),)


def now_of(clock: ManualClock) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=clock.now_us())


class Twins:
    """``ttl`` has the policy, ``plain`` does not; ``clock`` is of both."""

    def __init__(self, folder: Path, tablets: int = 2, **options: Any) -> None:
        self.clock = SentClock()
        self.folder = folder
        self.options = {**MANUAL, **options}
        parts = [] if tablets == 1 else [kc.HashPartition("k", tablets)]
        how: dict[str, Any] = {"partition_by": parts, "options": self.options, "_clock": self.clock}
        self.ttl = kc.create_table(folder / "ttl", SCHEMA, "k", ttl=("at", LIFETIME), **how)
        self.plain = kc.create_table(folder / "plain", SCHEMA, "k", **how)

    def close(self) -> None:
        self.ttl.close()
        self.plain.close()

    @property
    def now(self) -> dt.datetime:
        return now_of(self.clock)

    def expire(self) -> None:
        """What is gone by now from the one without ``ttl``."""
        self.plain.delete(where=pc.field("at") <= pa.scalar(self.now - LIFETIME, pa.timestamp("us", "UTC")))

    def both(self, act: Callable[[kc.Table], Any]) -> Any:
        """What a call on each answers, which is the same."""
        self.expire()
        one, other = told(act, self.ttl), told(act, self.plain)
        assert one == other
        return one

    def reopen(self) -> None:
        self.close()
        self.ttl = kc.open_table(self.folder / "ttl", "rw", _clock=self.clock)
        self.plain = kc.open_table(self.folder / "plain", "rw", _clock=self.clock)

    def rows(self) -> Rows:
        """Of the one without, which the other must have too."""
        self.expire()
        return sorted_rows(self.plain.to_table())


def sorted_rows(table: pa.Table) -> Rows:
    return sorted(table.to_pylist(), key=lambda row: row["k"])


def told(act: Callable[[kc.Table], Any], table: kc.Table) -> Any:
    """What a call comes to, in values that compare; of an error its kind and which rows it names."""
    try:
        made = act(table)
    except kc.RowErrors as error:
        return "refused", error.errors.select(["row", "code"]).to_pylist()
    except kc.KuduError as error:
        return type(error).__name__, str(error).replace(table.path, "")
    if isinstance(made, kc.WriteResult):
        errors = None if made.errors is None else made.errors.select(["row", "code"]).to_pylist()
        return made.counts, made.refused, errors
    return made


__all__ = ["DAY", "LIFETIME", "MANUAL", "SCHEMA", "Rows", "Twins", "now_of", "sorted_rows", "told"]
