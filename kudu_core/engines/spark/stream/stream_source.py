"""``readStream.format("kudu_core")``: what is there when the stream starts, then what changes.

An offset says up to which time the changes were read, ``{"table": ..., "ts": 7123...}``.  The state at
the start is read first, in one batch or, with maxRowsPerTrigger, in several: until its end
an offset also says how far, ``{..., "tablet": 3, "key": "80000001"}``: rows of earlier tablets and
smaller keys were read.  So a batch that is repeated is the same one, whatever was merged meanwhile.  ``ts`` 0
is the offset of a stream that has read nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kudu_core.common.run.pool import available_cores
from kudu_core.engines.spark.changes import (
    Share,
    changed_columns,
    lost,
    read_changes,
    read_rows,
)
from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.options import LATEST, ReadOptions
from kudu_core.engines.spark.scan import shared_out
from kudu_core.engines.spark.schema import arrow_schema
from kudu_core.engines.spark.versions.streaming import (
    LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from kudu_core.errors import InvalidArgument, NotSupported, SnapshotInFuture
from kudu_core.table.changes.change_tokens import change_tokens
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.changes.counts import changes_within
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.read.plan import ScanPlan, ScanRequest
from kudu_core.table.read.tokens import Position, ScanToken, position_after, tokens_between


class Shares(InputPartition):
    """What one task of a batch reads."""

    def __init__(self, shares: tuple[Share, ...]) -> None:
        super().__init__(shares)
        self.shares = shares


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream has read."""

    table: str
    ts: int
    reached: Position | None = None
    """The state at ``ts`` was read up to here; None: to its end."""

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"table": self.table, "ts": self.ts}
        if self.reached is not None:
            told |= {"tablet": self.reached.tablet_id, "key": self.reached.key.hex()}
        return told

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Offset:
        try:
            reached = Position(told["tablet"], bytes.fromhex(told["key"])) if "tablet" in told else None
            return Offset(told["table"], told["ts"], reached)
        except (KeyError, TypeError, ValueError):
            raise InvalidArgument(
                f"{told!r} is no offset of a stream of a table: the checkpoint is another source's"
            ) from None


class KuduStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own as long as the stream; copies of it read in tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        with coded():
            self._options = ReadOptions.parse(options)
            if self._options.at is not None:
                raise InvalidArgument(
                    "a stream has no snapshot or timestampAsOf; since says after which time it begins"
                )
            if self._options.limit is not None:
                raise InvalidArgument("a stream has no limit; maxRowsPerTrigger is that of a batch")
            for name, given in (("net", self._options.net), ("until", self._options.until)):
                if given:
                    raise InvalidArgument(f"{name} is for spark.read; a stream tells every change")
            if self._options.max_rows is not None and not LIMITS:
                raise NotSupported(
                    "maxRowsPerTrigger needs PySpark 4.2 or newer; this one does not tell a source where a "
                    "batch begins: leave the option out, and a batch reads all there is"
                )
        self._schema = schema
        self._handle: Handle | None = None
        self._target: int | None = None
        """Where a query that reads what is available now ends."""

    # ---- how far ----

    def initialOffset(self) -> dict[str, Any]:
        # Asked again when the first batch is repeated, so it is the same whenever it is asked.
        with coded(), lost():
            since, handle = self._options.since, self._opened()
            begin = 0 if since is None or since == LATEST else snapshot_timestamp(handle.engine, since)
            return Offset(_uuid(handle), begin).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        with coded(), lost():
            if start is None or limit is None:  # before PySpark 4.2; partitions() is told where it begins
                handle = self._refreshed()
                return Offset(_uuid(handle), handle.opened().visible_ts).to_json()
            if not isinstance(limit, ReadAllAvailable | ReadMaxRows):
                raise NotSupported(f"a stream of a table is limited by rows, not by {limit!r}")
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            return self._next(self._checked(start), most).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        with coded():
            handle = self._refreshed()
            return Offset(_uuid(handle), handle.opened().visible_ts).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        with coded():
            self._target = self._refreshed().opened().visible_ts

    def _next(self, start: Offset, most: int | None) -> Offset:
        handle = self._refreshed()
        newest = handle.opened().visible_ts if self._target is None else self._target
        if start.ts and start.reached is None:
            if start.ts >= newest:
                return start
            within = newest if most is None else changes_within(handle, start.ts, newest, most)
            return Offset(start.table, within)
        at = start.ts or newest
        if most is None or at == 0 or self._options.since == LATEST:
            return Offset(start.table, at)
        plan, snapshot = self._plan(handle), snapshot_timestamp(handle.engine, at)
        reached = handle.retrying(position_after, plan, snapshot, start.reached, most)
        return Offset(start.table, at, reached)

    # ---- reading ----

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with coded(), lost():
            first, last = self._checked(start), self._checked(end)
            if first == last:
                return []
            handle = self._opened()
            if last.ts > handle.opened().visible_ts:
                handle = self._refreshed()
            shares: list[Share] = []
            since = first.ts
            if first.ts == 0 or first.reached is not None:
                if first.ts or self._options.since != LATEST:
                    shares += self._state(handle, first.ts or last.ts, first.reached, last.reached)
                since = first.ts or last.ts
            if since < last.ts:
                where = self._options.filter(handle.engine.schema)
                request = ChangesRequest(self._columns(handle), where, self._options.images)
                shares += change_tokens(handle, request, since, last.ts, self._options.target_rows)
        # No session here to ask for the cluster's cores; the driver's own are the least there are.
        return [Shares(task) for task in shared_out(shares, self._options.target_rows, available_cores())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Shares)
        reader = read_changes if self._options.changes else read_rows
        return reader(partition.shares, arrow_schema(self._schema))

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.close()

    # ---- the table ----

    def _opened(self) -> Handle:
        if self._handle is None:
            self._handle = open_handle(self._options.path, storage_options=self._options.storage)
        return self._handle

    def _refreshed(self) -> Handle:
        handle = self._handle
        if handle is None:
            return self._opened()
        if not handle.engine.is_newest():
            handle.refresh()
        return handle

    def _checked(self, told: Mapping[str, Any]) -> Offset:
        offset, handle = Offset.from_json(told), self._opened()
        if offset.table != _uuid(handle):
            raise InvalidArgument(
                f"the table at {handle.path} is another one than when the stream began; give the query a new "
                "checkpointLocation"
            )
        newest = handle.opened().visible_ts
        if offset.ts > newest:
            newest = self._refreshed().opened().visible_ts
        if offset.ts > newest:
            raise SnapshotInFuture(
                f"the stream has read {handle.path} up to {offset.ts}, and the table ends at "
                f"{newest}: it was put back to an earlier state"
            )
        return offset

    def _columns(self, handle: Handle) -> list[str]:
        stored = handle.engine.schema
        if not self._options.changes:
            return self._options.names(stored, self._schema)
        return changed_columns(stored, self._schema, self._options.images)

    def _state(
        self, handle: Handle, at: int, first: Position | None, last: Position | None
    ) -> list[ScanToken]:
        """Rows of the state that the stream begins with, from one position to another."""
        plan, snapshot = self._plan(handle), snapshot_timestamp(handle.engine, at)
        return tokens_between(handle, plan, snapshot, self._options.target_rows, first, last)

    def _plan(self, handle: Handle) -> ScanPlan:
        schema = handle.engine.schema
        # What has expired too: its removal is told by the changes that follow.
        request = ScanRequest(self._columns(handle), self._options.filter(schema), expired=True)
        return request.planned(schema)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_handle": None}  # a table does not travel


def _uuid(handle: Handle) -> str:
    return handle.engine.uuid.hex()
