"""Changes of rows in memory, addressed by rowid, in timestamp order.

A DeltaMemStore is one of these; a MemRowSet keeps one for the changes of its own rows.  Per
column there is a log of (rowid, change number, value); a hash map gives each row's last change and
every change names the row's change before it: a point read walks that chain, or searches its index
where it is long.  Since the
logs are in timestamp order, what a snapshot sees is a prefix: a scan replays it over the decoded
column by direct addressing.

Source: Kudu's DeltaMemStore (tablet/deltamemstore.h), with columnar logs in place of a tree of
row changes; ``kudu_core/rowset/memory/__init__.py`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kudu_core._ext.batch import batch_stores
from kudu_core._ext.few import few_rows
from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.errors import InternalError
from kudu_core.rowset.memory import growing
from kudu_core.rowset.memory.column_log import ColumnLog
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.rowset.memory.logged import LoggedChanges
from kudu_core.rowset.memory.memory_deltas import MemoryDeltas

if TYPE_CHECKING:
    from kudu_core._ext.batch.given_batch import GivenBatch
    from kudu_core._ext.row.shape import Cell


@dataclass(frozen=True, slots=True)
class Change:
    """Columns set to new values for some rows, or rows removed or revived, at one timestamp."""

    op: int
    rowids: np.ndarray
    """(n,) uint32, no rowid twice within one timestamp."""
    columns: Mapping[int, ColumnBuffers]
    """New values by column id, n rows each; empty for a DELETE."""
    times: np.ndarray | None = None
    """(n,) uint64, ascending: of changes that a replay lays together, each at the time of its record."""


class ChangeLog(LoggedChanges):
    """Changes of the rows of one rowset.

    One writer at a time (the tablet's mutex); any number of readers, who look only at changes
    with timestamps that are applied.
    """

    def reserve(self, changes: Sequence[Change]) -> None:
        """Make room for changes, so that appending them allocates nothing and is not refused.

        ``StoreFull``: the log cannot take them.  As after MemoryError, it holds what it held.
        """
        count = sum(len(change.rowids) for change in changes)
        is_empty = not len(self)
        if len(self) + count > growing.MAX_ROWS:
            raise StoreFull(f"{len(self)} changes and {count} more", empty=is_empty)
        needed: dict[int, tuple[int, int, int]] = {}
        for change in changes:
            for column_id, values in change.columns.items():
                _, rows, size = needed.get(column_id, (0, 0, 0))
                more = 0 if values.offsets is None else int(values.offsets[-1]) - int(values.offsets[0])
                needed[column_id] = values.width, rows + values.length, size + more
        for column_id, (width, rows, size) in needed.items():
            log = self._columns.get(column_id)
            if log is None:
                log = self._new_column(column_id, width)
            try:
                log.values.reserve(rows, size)
            except OverflowError as exc:
                raise StoreFull(f"changes of column {column_id}: {exc}", empty=is_empty) from exc
            log.rowids.reserve(rows)
            log.numbers.reserve(rows)
        self.points.reserve(count)

    def append(self, ts: int, change: Change) -> None:
        """Add changes at ``ts``, or at times that end with it; not below any before them, of no row twice."""
        count = len(change.rowids)
        if not count:
            return
        first_ts = ts if change.times is None else int(change.times[0])
        self._begin(first_ts)
        self._newest_ts = ts
        rowids = np.ascontiguousarray(change.rowids, np.uint32)
        first = len(self._timestamps)
        for column_id, values in change.columns.items():
            log = self._columns.get(column_id)
            if log is None:
                log = self._new_column(column_id, values.width)
            log.values.append(values)
            log.rowids.append(rowids)
            log.numbers.append_ascending(first, count)
        # Last: a reader finds a change by its timestamp.
        if change.times is None:
            self.points.append_rows(ts, change.op, rowids)
        else:
            begins = np.flatnonzero(np.diff(change.times, prepend=change.times[:1] - np.uint64(1))).tolist()
            for begin, end in pairwise([*begins, count]):
                self.points.append_rows(int(change.times[begin]), change.op, rowids[begin:end])
        if self.first_ts is None:
            self.first_ts = first_ts
        self.last_ts = ts

    def reserve_one(self, ids: tuple[int | None, ...], widths: Sequence[int], cells: list[Cell]) -> None:
        """``reserve`` for ``append_one``; ``OverflowError``: a column is more than half full."""
        while (new := self.points.reserve_one(ids, cells)) >= 0:
            column_id = ids[new]
            assert column_id is not None
            self._new_column(column_id, widths[new])

    def append_one(
        self, ts: int, op: int, rowid: int, ids: tuple[int | None, ...], cells: list[Cell]
    ) -> None:
        """``append`` of one change, which was reserved.

        ``ids`` and ``cells`` by column: a cell is bytes, None for NULL, or ``...`` where the change does not
        set the column; so it is where the id is None.
        """
        self._begin(ts)
        self.points.append_one(ts, op, rowid, ids, cells)
        if self.first_ts is None:
            self.first_ts = ts
        self.last_ts = ts

    def reserve_few(self, ids: tuple[int | None, ...], widths: Sequence[int], rows: list[list[Cell]]) -> None:
        """``reserve`` for ``append_few``; ``OverflowError``: a column is more than half full."""
        while (new := few_rows.reserve_changes(self.points, ids, rows)) >= 0:
            column_id = ids[new]
            assert column_id is not None
            self._new_column(column_id, widths[new])

    def append_few(
        self, ts: int, op: int, rowids: list[int], ids: tuple[int | None, ...], rows: list[list[Cell]]
    ) -> None:
        """``append_one`` of a few changes, which were reserved, and of which all set the same columns."""
        self._begin(ts)
        few_rows.put_changes(self.points, ts, op, rowids, ids, rows)
        if self.first_ts is None:
            self.first_ts = ts
        self.last_ts = ts

    def reserve_batch(
        self, ids: tuple[int | None, ...], widths: Sequence[int], batch: GivenBatch, rows: np.ndarray | None
    ) -> None:
        """``reserve`` for ``append_batch``; ``OverflowError``: a column is more than half full."""
        while (new := batch_stores.reserve_change_batch(self.points, ids, batch, rows)) >= 0:
            column_id = ids[new]
            assert column_id is not None
            self._new_column(column_id, widths[new])

    def append_batch(
        self,
        ts: int,
        op: int,
        rowids: np.ndarray,
        ids: tuple[int | None, ...],
        batch: GivenBatch,
        rows: np.ndarray | None,
    ) -> None:
        """``append`` of changes that were reserved: of ``rowids``, (n,) uint32, to what ``rows`` of a batch
        give, (n,) int64, None: all."""
        self._begin(ts)
        batch_stores.put_change_batch(self.points, ts, op, rowids, ids, batch, rows)
        if self.first_ts is None:
            self.first_ts = ts
        self.last_ts = ts

    def _begin(self, ts: int) -> None:
        """Before changes at ``ts`` are laid: whether they may be."""
        if self.frozen_at is not None:
            raise InternalError("a frozen store takes no changes")
        if ts < self.last_ts:
            raise InternalError(
                f"a change of {ts} after one of {self.last_ts}: changes arrive in the order of their times"
            )
        self._newest_ts = ts  # first: see ``limit``

    def _new_column(self, column_id: int, width: int) -> ColumnLog:
        log = ColumnLog(width)
        kernels = log.numbers.kernel, log.rowids.kernel, log.values.kernel
        self.points.add(column_id, *kernels, self._columns, log)
        return log

    def at(self, snapshot: int) -> MemoryDeltas:
        return MemoryDeltas(self, self.limit(snapshot))

    def moved(self, numbers: np.ndarray, rowids: np.ndarray) -> ChangeLog:
        """A new log with some of the changes, in their order, at other rowids.

        ``numbers`` (n,) ascending change numbers, ``rowids`` (n,) uint32 where they go.
        """
        columns = {}
        for column_id, log in self._columns.items():
            known = log.numbers.view()
            at = np.searchsorted(numbers, known)
            at[at == len(numbers)] = 0
            mine = np.flatnonzero(numbers[at] == known) if len(numbers) else at[:0]
            if len(mine):
                columns[column_id] = (at[mine].astype(np.uint32), log.values.read(0, len(known)).take(mine))
        timestamps, _, ops = self.changes(0, len(self))
        return ChangeLog.of(timestamps[numbers], rowids, ops[numbers], columns)

    @staticmethod
    def of(
        timestamps: np.ndarray,
        rowids: np.ndarray,
        ops: np.ndarray,
        columns: Mapping[int, tuple[np.ndarray, ColumnBuffers]],
    ) -> ChangeLog:
        """A log of changes in the order of their timestamps, (n,) uint64, uint32, uint8.

        ``columns``: by id the numbers of the changes that set the column (ascending), and the values.
        """
        out = ChangeLog()
        if not len(timestamps):
            return out
        assert bool((timestamps[1:] >= timestamps[:-1]).all()), "changes lie in timestamp order"
        rowids = np.ascontiguousarray(rowids, np.uint32)
        out._timestamps.append(timestamps)
        out._rowids.append(rowids)
        out._ops.append(ops)
        out._before.append(out._last.exchange(rowids, 0))
        out.points.count_liveness(int((ops >= REDO_DELETE).sum()))
        out.first_ts, out.last_ts = int(timestamps[0]), int(timestamps[-1])
        out._newest_ts = out.last_ts
        for column_id, (numbers, values) in columns.items():
            new = out._new_column(column_id, values.width)
            new.values.append(values)
            new.numbers.append(numbers)
            new.rowids.append(rowids[numbers])
        return out
