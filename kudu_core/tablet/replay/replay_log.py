"""The loop of a replay: the records of the log, one after the other or a group at a time (protocol O5).

It asks what is to become of a record that cannot be replayed: an open for writing refuses the table, one for
reading ends before the record, a repair leaves it out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from kudu_core.errors import Corruption, MemoryLimit
from kudu_core.tablet.replay.bootstrap import PASSING, Replay
from kudu_core.tablet.replay.groups import GROUP_BYTES, GroupSize
from kudu_core.wal import RECORD_KIND_WRITE, Record


class RecordSource(Protocol):
    """A log that was read: what a replay asks of it."""

    @property
    def through(self) -> int:
        """Replay needs no record with a timestamp <= this."""

    @property
    def taken_from(self) -> tuple[str, int]:
        """(path, byte offset) of the record that ``records`` gave last."""

    def records(self) -> Iterator[Record]:
        """Those that were not handed out yet, in the order of the log."""

    def place_of(self, lsn: int) -> tuple[str, int]:
        """(path, byte offset) of a record, 0 where it cannot be told any more."""


@dataclass(frozen=True, slots=True)
class Unreplayed:
    """A record of the log that cannot be replayed, though its checksum is good.

    >>> stock.unreplayed is None
    True
    """

    path: str
    """Of the segment."""
    offset: int
    """In bytes, of the record's header there."""
    lsn: int
    timestamp: int
    reason: str

    def __str__(self) -> str:
        return (
            f"log record {self.lsn}, of timestamp {self.timestamp}, at byte {self.offset} of {self.path} "
            f"cannot be replayed: {self.reason}"
        )

    @staticmethod
    def of(place: tuple[str, int], record: Record, error: BaseException) -> Unreplayed:
        """``record``, which lies at (path, offset), has met ``error``."""
        path, offset = place
        said = error.reason if isinstance(error, Corruption) else f"{type(error).__name__}: {error}"
        return Unreplayed(path, offset, record.lsn, record.ts, f"{said:.500}")

    def as_corruption(self) -> Corruption:
        """For a table that is to be written, which needs every record."""
        return Corruption(
            self.path,
            self.offset,
            f"log record {self.lsn}, of timestamp {self.timestamp}, cannot be replayed: {self.reason}. "
            'Nothing was deleted. Opening with mode "r" shows the table as it was before this record; '
            "kudu_core.repair can put the record aside",
        )


def replay_log(
    replay: Replay,
    tail: RecordSource,
    skip: Callable[[Unreplayed, Record], bool],
    *,
    wanted: Callable[[Record], bool] = lambda record: True,
    done: Callable[[Record], None] = lambda record: None,
    relieve: Callable[[], bool] = lambda: False,
) -> Unreplayed | None:
    """Lay the records of the log after its last CHECKPOINT into tablets, in their order.

    Parameters
    ----------
    skip
        Asked about each record that cannot be replayed, with the record.  True: it is left out, and those
        after it are replayed.  False: the replay ends before it, and the answer is that record.
    wanted
        False ends the replay before a record.
    done
        Called for each record that was replayed; for those of a group after the last of them.
    relieve
        Called when there is no memory for a record: whether it was worth trying again.

    None of a WRITE that cannot be replayed is in the tablets: it has room and a place for all its rows before
    the first is laid.  Of an INGEST, tablets that it could be installed in have it.

    Raises
    ------
    OSError, StoreError, Corruption of a data file, MemoryLimit
        Not the record's fault; opening again does the same from the beginning.
    """
    waiting: deque[_Waiting] = deque()
    coming = _wanted_records(tail, wanted)
    sizes = GroupSize()
    while True:
        _fill(waiting, coming, 1)
        if not waiting:
            return None
        size = 1 if replay.may_be_in_files(waiting[0].record) else sizes.next_size()
        _fill(waiting, coming, size)
        if size > 1 and len(waiting) > 1:
            group = [one.record for one in islice(waiting, size) if one.record.kind == RECORD_KIND_WRITE]
            laid = replay.apply_group(group)
            sizes.tried(len(group), laid)
            for _ in range(laid):
                done(waiting.popleft().record)
            if laid:
                continue
        found = _replay_one(replay, tail, waiting.popleft(), skip, done, relieve)
        if found is not None:
            return found


class _Waiting(NamedTuple):
    record: Record
    place: tuple[str, int]


def _wanted_records(tail: RecordSource, wanted: Callable[[Record], bool]) -> Iterator[_Waiting]:
    for record in tail.records():
        if record.ts > tail.through:
            if not wanted(record):
                return
            yield _Waiting(record, tail.taken_from)


def _fill(waiting: deque[_Waiting], coming: Iterator[_Waiting], size: int) -> None:
    """Take in records until so many WRITEs wait, or what they hold is much for a group, or one waits that is
    none."""
    if len(waiting) >= size:
        return
    nbytes = sum(len(one.record.payload) for one in waiting)
    while len(waiting) < size and (nbytes < GROUP_BYTES or not waiting):
        if waiting and waiting[-1].record.kind != RECORD_KIND_WRITE:
            return
        one = next(coming, None)
        if one is None:
            return
        waiting.append(one)
        nbytes += len(one.record.payload)


def _replay_one(
    replay: Replay,
    tail: RecordSource,
    one: _Waiting,
    skip: Callable[[Unreplayed, Record], bool],
    done: Callable[[Record], None],
    relieve: Callable[[], bool],
) -> Unreplayed | None:
    """As ``replay_log``, of one record."""
    record = one.record
    while True:
        try:
            replay.apply(record)
        except PASSING:
            raise
        except MemoryError as error:
            if replay.began or not relieve():
                raise MemoryLimit(
                    f"the system gave no memory for the replay of log record {record.lsn}; open the "
                    "table for writing with a lower memory_limit_bytes: what is replayed is flushed then"
                ) from error
            continue
        except Exception as error:
            if isinstance(error, Corruption) and replay.is_of_data(error):
                raise
            found = Unreplayed.of(_place(tail, one), record, error)
            return None if skip(found, record) else found
        done(record)
        return None


def _place(tail: RecordSource, one: _Waiting) -> tuple[str, int]:
    """Where a record lies.  It is looked for anew: who can read no file any more is told so, and not that the
    record is to blame."""
    path, offset = tail.place_of(one.record.lsn)
    return (path, offset) if offset else one.place  # a reader lets go of segments whose records it was given


__all__ = ["RecordSource", "Unreplayed", "replay_log"]
