"""Pinned snapshots."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import time_of
from kudu_core.errors import SnapshotTooOld
from kudu_core.table.opened.pins import Pins
from kudu_core.table.read import points
from kudu_core.table.read.expiry.expired import expiry_clock
from kudu_core.table.read.moment import PinnedMoment, snapshot_timestamp
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.scan import open_scan

if TYPE_CHECKING:
    import pyarrow as pa

    from kudu_core.common.run.locks import Claim
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.read.moment import At
    from kudu_core.table.read.scan import Scan

    HistoryOf = Callable[[Handle, Any, Any, Any, Any], pa.Table]
    """Of (handle, key, columns, since, until)."""


def open_snapshot(handle: Handle, at: Any, history_of: HistoryOf | None = None) -> Snapshot:
    """What ``Table.snapshot`` returns.

    ``history_of``: what tells the versions of a row, from a room above; None: nobody will ask.
    """

    def pinned() -> Snapshot:
        engine = handle.opened()
        timestamp = snapshot_timestamp(engine, at)
        clock_us = expiry_clock(engine, at)
        return Snapshot(handle, timestamp, _pin(engine, timestamp), history_of, clock_us)

    return handle.of_now(at, pinned)


def _pin(engine: Engine, timestamp: int) -> Claim:
    """Hold the history from the newest commit in a snapshot on: its tokens, which others read, are of that,
    and once there are later commits history may be dropped up to the snapshot itself."""
    if engine.writer:
        last = engine.log.last_record_ts
        with suppress(SnapshotTooOld):  # history was dropped up to here, between the two
            return engine.pins.pin(last if last <= timestamp else min(timestamp, engine.committed_ts))
    return engine.pins.pin(timestamp)


class Snapshot(PinnedMoment):
    """One state of a table, held readable until ``close()`` in the process that writes.  A context manager.

    A reader holds nothing in the writer: once it was refreshed, by itself too where the writer has replaced
    files, the history may be gone, and reading raises ``SnapshotTooOld``.
    May be shared between threads and used any number of times.

    Travels by pickle, as its ``Table`` does, and reads the same state there.  It holds no history from there:
    where it is of a writer, keep the one here for as long.

    >>> with stock.snapshot() as now:
    ...     now.scan().count(), now.get(1, ["name"])
    (3, {'name': 'pen'})
    """

    def __init__(
        self,
        handle: Handle,
        timestamp: int,
        pin: Claim,
        history_of: HistoryOf | None = None,
        clock_us: int | None = None,
    ) -> None:
        super().__init__(timestamp, pin, clock_us)
        self._handle = handle
        self._history_of = history_of

    def scan(self, columns: Any = None, where: Any = None, **options: Any) -> Scan:
        """As ``Table.scan`` at this snapshot.

        >>> stock.snapshot().scan(["id"]).count()
        3
        """
        self._check()
        return open_scan(self._handle, ScanRequest(columns, where, **options), self)

    def get(self, key: Any, columns: Any = None) -> dict[str, Any] | None:
        """As ``Table.get`` at this snapshot.

        >>> stock.snapshot().get(1, ["name"])
        {'name': 'pen'}
        """
        self._check()
        return points.get(self._handle, key, columns, self)

    def get_many(self, keys: Any, columns: Any = None) -> pa.Table:
        """As ``Table.get_many`` at this snapshot.

        >>> stock.snapshot().get_many([1, 2], ["name"])["name"].to_pylist()
        ['pen', 'ink']
        """
        self._check()
        return points.get_many(self._handle, keys, columns, self)

    def history_of(self, key: Any, columns: Any = None, since: At = None) -> pa.Table:
        """As ``Table.history_of`` up to this snapshot.

        >>> stock.snapshot().history_of(1, ["name"])["name"].to_pylist()
        ['pen']
        """
        self._check()
        assert self._history_of is not None
        return self._history_of(self._handle, key, columns, since, self)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        held = "" if self._pin.held else ", closed"
        at = f"{self.timestamp} ({time_of(self.timestamp)})"
        return f"<kudu_core.Snapshot {at} of {self._handle.path!r}{held}>"

    def __reduce__(self) -> Any:
        self._check()
        moment = self._handle.moment_for_others(self.timestamp)
        return arrived_snapshot, (self._handle, moment, self._history_of, self.clock_us)


def arrived_snapshot(
    handle: Handle, timestamp: int, history_of: HistoryOf | None = None, clock_us: int | None = None
) -> Snapshot:
    """A snapshot in the process to which it was sent, where it holds nothing."""
    return Snapshot(handle, timestamp, Pins(timestamp).pin(timestamp), history_of, clock_us)
