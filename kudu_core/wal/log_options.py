"""What the owner of a log gives it when it is opened: a clock, and how it is to behave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Durability: TypeAlias = Literal["sync", "group", "none"]


class LogClock(Protocol):
    """What the log asks of ``common.run.clock``."""

    def now_hybrid(self) -> int: ...
    def monotonic_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log behaves.

    ``segment_bytes`` is the size at which a segment is full; a larger record gets a segment of its
    own size.  Zeros are written ahead of the records, so that an fsync finds a file whose size and
    blocks need no journal: as much again as the segment holds, between ``first_fill_bytes`` and
    ``fill_bytes``; records above ``fill_record_bytes`` gain nothing from it.  ``file_grace_s``: for
    how long a segment that no checkpoint needs is left as it is before its bytes are used again.
    """

    durability: Durability = "sync"
    group_interval_s: float = 0.05
    segment_bytes: int = 64 << 20
    first_fill_bytes: int = 256 << 10
    fill_bytes: int = 4 << 20
    fill_record_bytes: int = 256 << 10
    file_grace_s: float = 60.0


__all__ = ["Durability", "LogClock", "LogOptions"]
