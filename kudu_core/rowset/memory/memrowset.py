"""The rows inserted since the last flush, in memory.

Append-only columns in timestamp order, so that the rows a snapshot sees are a prefix; a hash
index for exact keys; a B-tree of ordinals that is filled when somebody asks for key order.
Changes of these rows (UPDATE, DELETE, REINSERT) go to a ``ChangeLog`` addressed by ordinal.

Knows nothing of logs or files.  Source: Kudu's MemRowSet (tablet/memrowset.h), columnar here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kudu_core._ext.batch import batch_stores
from kudu_core._ext.columns.flags import AppendFlags
from kudu_core._ext.columns.growing import AppendColumn, data_limit
from kudu_core._ext.few import few_rows
from kudu_core._ext.index.btree import BTree
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.keys import keys as keys_kernel
from kudu_core._ext.row.view import MemoryPoints
from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_REINSERT
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InternalError
from kudu_core.rowset.memory import growing
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.rowset.memory.growing import GrowingColumn, GrowingNumbers, StoreFull
from kudu_core.rowset.rows.delta_view import DeltaView
from kudu_core.rowset.rows.rows_at import RowsAt

if TYPE_CHECKING:
    from kudu_core._ext.batch.given_batch import GivenBatch
    from kudu_core._ext.row.shape import Cell


class MemRowSet:
    """Rows by ordinal.  One writer at a time (the tablet's mutex), any number of readers."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._keys = KeyTable(int.from_bytes(os.urandom(8), "little") >> 1)
        self._cells = {c.id: AppendColumn(c.type.width) for c in schema.columns}
        """What holds the cells, by column id, in the order of the schema."""
        self._inserted = GrowingNumbers(np.uint64)
        self._live = AppendFlags()
        self._tree = BTree()
        self.logs: tuple[ChangeLog, ...] = (ChangeLog(),)
        """Changes of its rows, oldest first.  It begins with one; another one follows when that is full and
        the MemRowSet is frozen, and holds changes after the cut alone."""
        self.points = MemoryPoints(
            self._keys,
            self._inserted.kernel,
            self._cells,
            self.changes.points,
            self._live,
            schema.version,
        )
        """The same rows, for reads of one key."""
        self.frozen_at: int | None = None
        """The cut at which it stopped taking inserts; None while active."""

    def __len__(self) -> int:
        return len(self._inserted)

    @cached_property
    def _columns(self) -> dict[int, GrowingColumn]:
        """The columns by their ids, made when they are first asked for: a reader of a wide table has a
        MemRowSet in which nothing ever lies."""
        return {column_id: GrowingColumn(cells.width, cells) for column_id, cells in self._cells.items()}

    @cached_property
    def _kernels(self) -> list[AppendColumn]:
        """What holds the cells, in the order of the schema."""
        return list(self._cells.values())

    @property
    def changes(self) -> ChangeLog:
        """The log that takes changes."""
        return self.logs[-1]

    @property
    def nbytes(self) -> int:
        return (
            self._keys.nbytes
            + sum(column.nbytes for column in self._columns.values())
            + self._inserted.nbytes
            + self._live.nbytes
            + self._tree.nbytes
            + sum(log.nbytes for log in self.logs)
        )

    @property
    def allocated(self) -> int:
        """Bytes of its buffers, with the room in them: the same before and after what was reserved."""
        return (
            self._keys.nbytes
            + sum(column.allocated for column in self._columns.values())
            + self._inserted.allocated
            + self._live.nbytes
            + sum(log.allocated for log in self.logs)
        )

    @property
    def key_bytes(self) -> int:
        """Of the encoded keys alone."""
        return int(self._keys.key_bytes)

    def column_bytes(self, column_id: int) -> int:
        """Of the cells of one column."""
        return self._columns[column_id].nbytes

    @property
    def first_ts(self) -> int | None:
        """Timestamp of the oldest insert, which no change is older than; None when empty."""
        return int(self._inserted.view(0, 1)[0]) if len(self._inserted) else None

    # ---- writing, under the tablet's mutex ----

    def reserve(self, block: RowBlock | None, key_bytes: int, changes: Sequence[Change]) -> None:
        """Make room for the rows of a block, with keys of so many bytes together, and for changes, so that
        laying them in allocates nothing and is not refused.

        ``StoreFull``: it cannot take them.  As after MemoryError, it holds what it held.
        """
        if self.frozen_at is None:
            self._check_columns(block, changes)
        if block is not None:
            if len(self) + block.rows > growing.MAX_ROWS:
                raise StoreFull(f"{len(self)} rows and {block.rows} more", empty=not len(self))
            self._keys.reserve(block.rows, key_bytes)
            for column_id, column in self._columns.items():
                column.reserve(block.rows, _data_bytes(block.columns[column_id]))
            self._live.reserve(block.rows)
            self._inserted.reserve(block.rows)
        self.changes.reserve(changes)

    def _check_columns(self, block: RowBlock | None, changes: Sequence[Change]) -> None:
        """A flush reads a column together with its changes: both must fit into one."""
        for column_id, column in self._columns.items():
            if column.width:
                continue
            held = column.data_bytes + self.changes.data_bytes(column_id)
            more = 0 if block is None else _data_bytes(block.columns[column_id])
            more += sum(_data_bytes(c.columns[column_id]) for c in changes if column_id in c.columns)
            if held + more > data_limit():
                raise StoreFull(f"column {column_id}: {held} bytes and {more} more", empty=not len(self))

    def continue_changes(self) -> None:
        """Of a frozen one whose log is full: changes to come go to another log."""
        assert self.frozen_at is not None, "an active MemRowSet is frozen first"
        log = ChangeLog()
        self.points.continue_in(log.points)
        self.logs = (*self.logs, log)

    def insert(
        self,
        ts: int,
        block: RowBlock,
        keys: EncodedKeys,
        hashes: np.ndarray,
        times: np.ndarray | None = None,
    ) -> None:
        """Append rows whose keys are in no entry yet.  ``block`` has every column of the schema.

        ``times``: (n,) uint64, ascending to ``ts``, where the rows are of several records.
        """
        if self.frozen_at is not None:
            raise InternalError("a frozen MemRowSet takes no inserts")
        count = block.rows
        self.points.begin_insert(ts)  # first: see ``rows_at``
        self._keys.append(keys.data, keys.offsets, hashes)
        for column_id, column in self._columns.items():
            column.append(block.columns[column_id])
        self._live.append(count, True)
        # Last: a reader finds rows by their timestamp.
        if times is None:
            self._inserted.append_equal(ts, count)
        else:
            self._inserted.append(times)

    def change(self, ts: int, change: Change) -> None:
        """Update, delete or revive rows by ordinal."""
        if self.frozen_at is not None and change.op == REDO_REINSERT:
            raise InternalError("a frozen MemRowSet revives no row")
        self.changes.append(ts, change)
        if change.op in (REDO_DELETE, REDO_REINSERT):
            self._live.flags[change.rowids] = change.op == REDO_REINSERT

    def reserve_change_one(
        self, op: int, ids: tuple[int | None, ...], widths: Sequence[int], cells: list[Cell]
    ) -> None:
        """``reserve`` for ``change_one``; see ``ChangeLog.reserve_one``."""
        self.changes.reserve_one(ids, widths, cells)

    def change_one(
        self, ts: int, op: int, rowid: int, ids: tuple[int | None, ...], cells: list[Cell]
    ) -> None:
        """``change`` of one row: UPDATE or DELETE; see ``ChangeLog.append_one``."""
        assert op != REDO_REINSERT
        self.changes.append_one(ts, op, rowid, ids, cells)
        if op == REDO_DELETE:
            self._live.clear([rowid])

    def reserve_insert_few(self, keys: list[bytes], rows: list[list[Cell]]) -> None:
        """``reserve`` for ``insert_few``; ``OverflowError``: a column is more than half full."""
        self._live.reserve(len(keys))
        few_rows.reserve_inserts(self._keys, self._inserted.kernel, self._kernels, keys, rows)

    def reserve_change_few(
        self, op: int, ids: tuple[int | None, ...], widths: Sequence[int], rows: list[list[Cell]]
    ) -> None:
        """``reserve`` for ``change_few``; see ``ChangeLog.reserve_few``."""
        self.changes.reserve_few(ids, widths, rows)

    def insert_few(self, ts: int, keys: list[bytes], rows: list[list[Cell]]) -> None:
        """``insert`` of a few rows, each with its cells in the order of the schema's columns."""
        if self.frozen_at is not None:
            raise InternalError("a frozen MemRowSet takes no inserts")
        self.points.begin_insert(ts)
        self._live.append(len(keys), True)
        few_rows.put_inserts(self._keys, self._inserted.kernel, self._kernels, ts, keys, rows)

    def change_few(
        self, ts: int, op: int, rowids: list[int], ids: tuple[int | None, ...], rows: list[list[Cell]]
    ) -> None:
        """``change`` of a few rows: UPDATE or DELETE; see ``ChangeLog.append_few``."""
        assert op != REDO_REINSERT
        self.changes.append_few(ts, op, rowids, ids, rows)
        if op == REDO_DELETE:
            self._live.clear(rowids)

    def reserve_insert_batch(self, batch: GivenBatch, rows: np.ndarray | None) -> None:
        """``reserve`` for ``insert_batch``; ``OverflowError``: a column is more than half full."""
        self._live.reserve(batch.rows if rows is None else len(rows))
        batch_stores.reserve_insert_batch(self._keys, self._inserted.kernel, self._kernels, batch, rows)

    def reserve_change_batch(
        self,
        op: int,
        ids: tuple[int | None, ...],
        widths: Sequence[int],
        batch: GivenBatch,
        rows: np.ndarray | None,
    ) -> None:
        """``reserve`` for ``change_batch``; see ``ChangeLog.reserve_batch``."""
        self.changes.reserve_batch(ids, widths, batch, rows)

    def insert_batch(self, ts: int, batch: GivenBatch, rows: np.ndarray | None) -> None:
        """``insert`` of rows of a batch, (n,) int64, None: all of them."""
        if self.frozen_at is not None:
            raise InternalError("a frozen MemRowSet takes no inserts")
        self.points.begin_insert(ts)
        self._live.append(batch.rows if rows is None else len(rows), True)
        batch_stores.put_insert_batch(self._keys, self._inserted.kernel, self._kernels, ts, batch, rows)

    def change_batch(
        self,
        ts: int,
        op: int,
        rowids: np.ndarray,
        ids: tuple[int | None, ...],
        batch: GivenBatch,
        rows: np.ndarray | None,
    ) -> None:
        """``change`` by rows of a batch: UPDATE or DELETE; see ``ChangeLog.append_batch``."""
        assert op != REDO_REINSERT
        self.changes.append_batch(ts, op, rowids, ids, batch, rows)
        if op == REDO_DELETE:
            self._live.flags[rowids] = 0

    def lives(self, ordinal: int) -> bool:
        """``is_live`` of one row."""
        return self._live.is_set(ordinal)

    def locate(self, keys: EncodedKeys, hashes: np.ndarray) -> np.ndarray:
        """Ordinal of each key's entry, live or dead, (n,) int64, -1 where there is none."""
        return self._keys.lookup(keys.data, keys.offsets, hashes, len(self._inserted))

    def is_live(self, ordinals: np.ndarray) -> np.ndarray:
        """Whether the newest state of these rows is present, (n,) bool."""
        live: np.ndarray = self._live.flags[ordinals] != 0
        return live

    # ---- reading ----

    def rows_at(self, snapshot: int) -> int:
        # In this order: whoever sees a row of a later insert sees that insert's timestamp too.
        rows = len(self._inserted)
        if self.points.last_insert_ts <= snapshot:
            return rows
        return int(np.searchsorted(self._inserted.view(), np.uint64(snapshot), side="right"))

    def at(self, snapshot: int) -> MemRowsAt:
        return MemRowsAt(self, self.rows_at(snapshot), self.changes_at(snapshot))

    def changes_at(self, snapshot: int) -> tuple[DeltaView, ...]:
        """What a snapshot sees of the changes, oldest first."""
        return tuple(log.at(snapshot) for log in self.logs)

    def count_changes(self, since: int, until: int) -> int:
        """How many changes there are in ``(since, until]``."""
        return sum(log.limit(until) - log.limit(since) for log in self.logs)

    def locate_at(self, keys: EncodedKeys, hashes: np.ndarray, rows: int) -> np.ndarray:
        return self._keys.lookup(keys.data, keys.offsets, hashes, rows)

    def inserted(self, lower: int, upper: int) -> np.ndarray:
        """Insert timestamps of rows ``[lower, upper)``, a view."""
        return self._inserted.view(lower, upper)

    def read(self, column_id: int, lower: int, upper: int) -> ColumnBuffers | None:
        column = self._columns.get(column_id)
        return None if column is None else column.read(lower, upper)

    def hashes(self, rows: int) -> np.ndarray:
        return self._keys.hashes(0, rows)

    def inserted_hashes(self, lower: int, upper: int) -> np.ndarray:
        return self._keys.hashes(lower, upper)

    def keys(self, rows: int) -> EncodedKeys:
        data, offsets = self._keys.keys(0, rows)
        return EncodedKeys(data, offsets)

    @property
    def _in_tree(self) -> int:
        """How many rows the tree holds.  Its own count: an interrupt may come right after it is filled."""
        return int(self._tree.count)

    def ordered(
        self, lower: bytes | None, upper: bytes | None, rows: int, most: int | None = None
    ) -> np.ndarray:
        """Ordinals below ``rows`` with ``lower <= key < upper``, in key order, uint32: all, or the first
        ``most`` of them."""
        data, offsets = self._keys.keys(0, rows)
        with self._tree.lock:
            first = self._in_tree
            if first < rows:
                order = keys_kernel.sort(data, offsets[first : rows + 1])
                self._tree.insert_sorted(data, offsets, (order + first).astype(np.uint32))
            # The tree may hold newer ordinals than this reader's: the arena must cover them.
            data, offsets = self._keys.keys(0, max(rows, self._in_tree))
            return self._tree.range(data, offsets, lower, upper, rows, most)

    def first_keys(
        self, lower: bytes | None, upper: bytes | None, rows: int, most: int
    ) -> tuple[np.ndarray, EncodedKeys]:
        """The first ``most`` of ``ordered``, int64, with their keys."""
        ordinals = self.ordered(lower, upper, rows, most).astype(np.int64)
        return ordinals, self.keys(rows).take(ordinals)


def _data_bytes(column: ColumnBuffers) -> int:
    """Of the cells of a column of any length."""
    return 0 if column.offsets is None else int(column.offsets[-1]) - int(column.offsets[0])


class MemRowsAt(RowsAt):
    """A MemRowSet as one snapshot sees it: rows ``0 .. rows``, by ordinal."""

    in_key_order = False

    def __init__(self, store: MemRowSet, rows: int, views: tuple[DeltaView, ...]) -> None:
        super().__init__(rows, views)
        self.store = store

    def base(self, column_id: int, lower: int, upper: int) -> tuple[ColumnBuffers | None, bool]:
        return self.store.read(column_id, lower, upper), False

    def base_cells(self, column_id: int, rows: np.ndarray) -> ColumnBuffers | None:
        column = self.store.read(column_id, 0, self.rows)
        return None if column is None else column.take(rows)

    def has(self, column_id: int) -> bool:
        return column_id in self.store.schema.by_id

    def stored_bytes(self, column_id: int) -> float:
        return self.store.column_bytes(column_id) / max(1, len(self.store)) if self.has(column_id) else 0.0

    def inserted_later(self, lower: int, upper: int) -> np.ndarray | None:
        return None  # the prefix ends at the snapshot

    def inserted_later_cells(self, rows: np.ndarray) -> np.ndarray | None:
        return None

    def find(self, keys: EncodedKeys, hashes: np.ndarray) -> np.ndarray:
        return self.store.locate_at(keys, hashes, self.rows)
