"""Net changes of one record, laid into a tablet's stores (protocol W5, W6).

In two steps, with the log record between them: ``Laying.reserve`` finds room in the very structures that
take the rows, and closes a store that is full; ``Laying.lay`` puts them there, and neither reads, nor
allocates what grows with the rows, nor is refused.  So what is in the log can be applied.  What may still
fail is what any statement may: an interrupt, or memory for a handful of small objects.  With the debug
switch each write asserts that no buffer grew after its record.

Used by writes and ingests, which know where each key lives, and by replay, which looks it up by the rule
of protocol O5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_REINSERT, REDO_UPDATE
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.ordering import distinct
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InternalError
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import Change
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.tablet.store.tablet import Tablet, freeze_memrowset
from kudu_core.tablet.view.view import KeyBatch, View

ROW_BYTES = 48
"""What a row of a MemRowSet takes beside key and cells: offset and hash of the key, its slot in the index,
insert time, flag."""

CHANGE_BYTES = 40
"""What a change takes beside the new values: time, rowid, operation, the one before, its slot in the map."""


class Moved(Exception):
    """A full MemRowSet was closed: where the keys live must be looked up again.  Nothing was laid."""


class Laying:
    """Net changes of one record in one tablet.  Under the tablet's mutex, from the look-up of the keys on."""

    def __init__(self, tablet: Tablet) -> None:
        self._tablet = tablet
        self._view = tablet.view
        self._block: RowBlock | None = None
        self._batch: KeyBatch | None = None
        self._times: np.ndarray | None = None
        self._changes: dict[int, list[Change]] = {}
        """By place in ``view.stores``."""
        self._allocated: int | None = None

    def insert_group(self, block: RowBlock, batch: KeyBatch, times: np.ndarray) -> None:
        """New rows of several records, at their times, (n,) uint64, ascending; no entry holds their keys."""
        assert self._block is None
        memory = self._fitting(block)
        self._block = block.select([column.id for column in memory.schema.columns])
        self._batch, self._times = batch, times

    def inserted(self, batch: KeyBatch) -> np.ndarray | None:
        """The ordinals that rows of ``insert_group`` with these keys will have, (n,) int64; None where one is
        not among them."""
        if self._batch is None:
            return None
        order = np.argsort(self._batch.hashes)
        place = np.searchsorted(self._batch.hashes, batch.hashes, sorter=order)
        if (place == len(order)).any():
            return None
        at = order[place]
        mine, keys = self._batch.keys.take(at), batch.keys
        if not (np.array_equal(mine.data, keys.data) and np.array_equal(mine.offsets, keys.offsets)):
            return None
        return at + len(self._view.active)

    def insert(self, block: RowBlock, batch: KeyBatch, ghost: np.ndarray) -> None:
        """New rows: into the active MemRowSet, as REINSERT where a dead entry holds the key.

        ``Moved``: the MemRowSet had other columns.  Rows that a replayed record inserted before a column was
        added lie in one without it, and have its default without holding it.
        """
        memory = self._fitting(block)
        block = block.select([column.id for column in memory.schema.columns])
        revived = ghost >= 0
        if revived.any():
            old, new = np.flatnonzero(revived), np.flatnonzero(~revived)
            keys = set(memory.schema.key_ids)
            values = {i: c.take(old) for i, c in block.columns.items() if i not in keys}
            self._changes.setdefault(0, []).append(
                Change(REDO_REINSERT, ghost[old].astype(np.uint32), values)
            )
            if not len(new):
                return
            block, batch = block.take(new), batch.take(new)
        if self._block is not None:  # a record has one section of inserts; whoever writes two is heard
            assert self._batch is not None
            block = RowBlock.concat([self._block, block])
            keys_too = EncodedKeys.concat([self._batch.keys, batch.keys])
            batch = KeyBatch(keys_too, np.concatenate([self._batch.hashes, batch.hashes]))
        self._block, self._batch = block, batch

    def _fitting(self, block: RowBlock) -> MemRowSet:
        """The active MemRowSet, if its columns are those of the block that are the table's."""
        tablet = self._tablet
        columns = tuple(c for c in tablet.context.schema().columns if c.id in block.columns)
        memory = self._view.active
        if [c.id for c in memory.schema.columns] == [c.id for c in columns]:
            return memory
        freeze_memrowset(tablet)
        schema = replace(tablet.context.schema(), columns=columns)
        tablet.view = replace(tablet.view, active=MemRowSet(schema))
        raise Moved

    def change(
        self,
        op: int,
        store: np.ndarray,
        row: np.ndarray,
        columns: Mapping[int, ColumnBuffers],
        times: np.ndarray | None = None,
    ) -> None:
        """Updates or deletes, each to the one store that holds the row live.

        ``store`` counts in ``tablet.view.stores``; ``columns`` are the new values (no key columns).
        ``times``: as of ``Change``.
        """
        for index in distinct(store).tolist():
            mine = np.flatnonzero(store == index)
            whole = len(mine) == len(store)
            self.change_one_store(
                op,
                index,
                row[mine],
                columns if whole else {i: c.take(mine) for i, c in columns.items()},
                None if times is None else times[mine],
            )

    def change_one_store(
        self,
        op: int,
        index: int,
        row: np.ndarray,
        columns: Mapping[int, ColumnBuffers],
        times: np.ndarray | None = None,
    ) -> None:
        """``change`` of rows that live in one store."""
        assert op in (REDO_UPDATE, REDO_DELETE)
        if index == 0 and not columns.keys() <= self._view.active.schema.by_id.keys():
            # Of a replayed record: a column came after these rows, and their MemRowSet was frozen then.
            freeze_memrowset(self._tablet)
            raise Moved
        change = Change(op, row.astype(np.uint32), dict(columns), times)
        self._changes.setdefault(index, []).append(change)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the rows will take."""
        total = 0
        if self._block is not None:
            assert self._batch is not None
            total += self._block.nbytes + self._batch.keys.nbytes + ROW_BYTES * self._block.rows
        for changes in self._changes.values():
            for change in changes:
                total += CHANGE_BYTES * len(change.rowids)
                total += sum(c.nbytes + 8 * c.length for c in change.columns.values())
        return total

    # ---- before the record ----

    def reserve(self) -> bool:
        """Make room; whether a store was closed for it, which somebody should flush.

        Raises
        ------
        Moved
            The active MemRowSet was full, and another one is in its place.
        StoreFull
            Even an empty store cannot take the rows.
        MemoryError
            As after the others, nothing of the record is anywhere.
        """
        tablet = self._tablet
        if tablet.view is not self._view:
            raise InternalError("the view of a tablet changed after the keys were looked up in it")
        closed = False
        while True:
            # A store without a change says nothing: it may stay if the record is never written.
            self._view = tablet.view = self._with_active(tablet.view)
            try:
                self._reserve(self._view)
                break
            except _Full as full:
                if full.empty:
                    raise StoreFull(str(full), empty=True) from full
                if full.store is tablet.view.active:
                    freeze_memrowset(tablet)
                    raise Moved from full
                _close(tablet, full.store)
                closed = True
        if tablet.context.check is not None:
            self._allocated = self._measured()
        return closed

    def _with_active(self, view: View) -> View:
        """The view in which every rowset on disk that changes has a store to take that."""
        homes = [view.stores[index] for index in self._changes]
        untouched = [h.with_active() for h in homes if isinstance(h, DiskRowSet) and h.active is None]
        return view.with_changed(untouched) if untouched else view

    def _reserve(self, view: View) -> None:
        if self._block is not None or 0 in self._changes:
            key_bytes = 0 if self._batch is None else self._batch.keys.data_bytes
            try:
                view.active.reserve(self._block, key_bytes, self._changes.get(0, ()))
            except StoreFull as full:
                raise _Full(full, view.active) from full
        for index, changes in self._changes.items():
            store = view.stores[index]
            try:
                if isinstance(store, DiskRowSet):
                    store.reserve(changes)
                elif index:
                    store.reserve(None, 0, changes)
            except StoreFull as full:
                raise _Full(full, store) from full

    # ---- after it ----

    def lay(self, ts: int) -> None:
        """Put the rows where room was made for them, at the record's timestamp (protocol W6).

        Rows of several records have times of their own, up to it.
        """
        if self._block is not None:
            assert self._batch is not None
            last_ts = ts if self._times is None else int(self._times[-1])
            self._view.active.insert(
                last_ts, self._block, self._batch.keys, self._batch.hashes, self._times
            )
        for index, changes in self._changes.items():
            for change in changes:
                last_ts = ts if change.times is None else int(change.times[-1])
                self._view.stores[index].change(last_ts, change)
        if self._allocated is not None:
            if self._measured() != self._allocated:
                raise InternalError("laying a record took more than was reserved for it")
        self._tablet.newest_applied = ts

    def _measured(self) -> int:
        """Bytes of the buffers of all stores concerned, room included."""
        stores = {id(s): s for s in (self._view.active, *(self._view.stores[i] for i in self._changes))}
        return sum(store.allocated for store in stores.values())


class _Full(StoreFull):
    """Which store it is that is full."""

    def __init__(self, full: StoreFull, store: MemRowSet | DiskRowSet) -> None:
        super().__init__(str(full), empty=full.empty)
        self.store = store


def _close(tablet: Tablet, store: MemRowSet | DiskRowSet) -> None:
    """Under the mutex: changes to come go to another log, which ``tablet.view`` gets when it is needed."""
    if isinstance(store, MemRowSet):
        store.continue_changes()
        return
    for log in store.memory_stores:
        if log.frozen_at is None:
            log.frozen_at = tablet.context.cut()


def renew_active(tablet: Tablet) -> None:
    """After a replay: new rows go to a MemRowSet of all columns of today."""
    with tablet.mutex:
        schema = tablet.context.schema()
        if [c.id for c in tablet.view.active.schema.columns] != [c.id for c in schema.columns]:
            freeze_memrowset(tablet)
            tablet.view = replace(tablet.view, active=MemRowSet(schema))


def complete(schema: Schema, block: RowBlock) -> RowBlock:
    """A row of every column of the schema; those that the block lacks take the read default."""
    if len(block.columns) == len(schema.columns) and all(c.id in block.columns for c in schema.columns):
        return block
    return RowBlock(
        {
            c.id: block.columns[c.id]
            if c.id in block.columns
            else ColumnBuffers.constant(c.type, c.read_default, block.rows)
            for c in schema.columns
        },
        block.rows,
    )


def key_batch(schema: Schema, block: RowBlock) -> KeyBatch:
    """Encoded keys and hashes of rows that have the key columns."""
    return KeyBatch(
        EncodedKeys.from_columns([(schema.by_id[i], block.columns[i]) for i in schema.key_ids], block.rows)
    )


def values_only(schema: Schema, block: RowBlock) -> dict[int, ColumnBuffers]:
    keys = set(schema.key_ids)
    return {i: c for i, c in block.columns.items() if i not in keys}
