"""What ``at=`` may be, and a moment that is held readable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from kudu_core.common.format.members import LIMIT
from kudu_core.common.run.clock import last_of_microsecond, time_of, timestamp_of
from kudu_core.errors import Closed, InvalidArgument, SnapshotInFuture, SnapshotTooOld, shown
from kudu_core.table.read.unix_times import refuse_unix_time

if TYPE_CHECKING:
    from kudu_core.common.run.locks import Claim
    from kudu_core.table.opened.engine import Engine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PinnedMoment:
    """A moment of a table, whose history is held until ``close()``."""

    def __init__(self, timestamp: int, pin: Claim, clock_us: int | None = None) -> None:
        self.timestamp = timestamp
        """The hybrid time that is read: microseconds << 12 | counter."""
        self._pin = pin
        self.clock_us = clock_us
        """By which its reads tell what has expired, as of ``Clock.now_us``; None: by the time of each."""

    def close(self) -> None:
        """Let the history go.  Scans that were made before keep theirs.

        >>> now = stock.snapshot()
        >>> now.close()
        """
        self._pin.release()

    def _check(self) -> None:
        """``Closed``: its history is no longer held."""
        if not self._pin.held:
            raise Closed(f"snapshot {self.timestamp} was closed")


At: TypeAlias = SupportsIndex | datetime | PinnedMoment | str | None
"""What ``at=`` may be, for type checkers: a timestamp, an aware datetime, a snapshot, the name of a tag; or
None: now."""


def snapshot_timestamp(engine: Engine, at: Any) -> int:
    """The timestamp to read for an ``at=`` argument, checked to be readable (protocol H2)."""
    if at is None:
        return engine.visible_ts
    if isinstance(at, PinnedMoment):
        at._check()
        # Looked at like any other: it may be of another table, or of before a refresh.
        wanted = at.timestamp
    elif isinstance(at, datetime):
        wanted = _of_datetime(at)
    elif isinstance(at, str):
        wanted = _of_tag(engine, at)
    else:
        number = timestamp_of(at)
        if number is None:
            raise InvalidArgument(
                f"at is a timestamp, an aware datetime, a Snapshot or the name of a tag, not {shown(at)}"
            )
        wanted = number
        refuse_unix_time(engine, wanted)
    if not 0 <= wanted < 2**64:
        raise InvalidArgument(f"timestamp {shown(wanted)} is not between 0 and 2**64")
    check_readable(engine, wanted, at)
    if wanted <= engine.visible_ts:
        return wanted
    if engine.writer and wanted <= _end_of_now(engine):
        # Nothing may be written at or below what was read: the clock is raised first.
        engine.wait_visible(engine.log.raise_last_ts(wanted))
        return wanted
    if engine.unreplayed is not None:
        raise SnapshotInFuture(
            f"{_said(at, wanted)} lies after {readable(engine)}: {engine.unreplayed}; "
            "kudu_core.repair can put the record aside"
        )
    if not engine.writer and wanted <= _end_of_now(engine):
        if engine.is_newest():
            return engine.visible_ts  # nobody writes: nothing lies, or will, between the two
        raise SnapshotInFuture(
            f"{_said(at, wanted)} lies after {readable(engine)}; "
            "refresh() makes what was written since readable"
        )
    raise SnapshotInFuture(f"{_said(at, wanted)} lies after {readable(engine)}")


def check_readable(engine: Engine, wanted: int, at: Any = None) -> None:
    """``SnapshotTooOld``: the history of a timestamp is gone.  ``at``: what the caller said instead of it."""
    if wanted < engine.oldest_ts:
        raise SnapshotTooOld(
            f"{_said(at, wanted)} lies before {readable(engine)}; "
            "history_retention_s says how long history is kept"
        )


def _of_tag(engine: Engine, name: str) -> int:
    known = engine.table_file.state.tags
    if name not in known:
        newer = "" if engine.writer else "; refresh() shows those of since this handle was opened"
        raise InvalidArgument(
            f"there is no tag {shown(name)} (tags() has them{newer}); a time is an aware datetime, as "
            "datetime.fromisoformat makes one, or a timestamp"
        )
    return known[name]


def _end_of_now(engine: Engine) -> int:
    return min(last_of_microsecond(engine.clock.now_us()), LIMIT - 1)


def readable(engine: Engine) -> str:
    """Which snapshots may be read, for a message."""
    first, last = engine.oldest_ts, engine.visible_ts
    return f"what is readable here, {first} to {last} ({time_of(first)} to {time_of(last)})"


def _said(at: Any, wanted: int) -> str:
    return at.isoformat() if isinstance(at, datetime) else f"timestamp {wanted} ({time_of(wanted)})"


def _of_datetime(at: datetime) -> int:
    if at.tzinfo is None:
        raise InvalidArgument(f"{at!r} has no time zone; say which, for example datetime.now(timezone.utc)")
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    if micros < 0:
        raise InvalidArgument(f"{at!r} lies before 1970")
    return last_of_microsecond(micros)
