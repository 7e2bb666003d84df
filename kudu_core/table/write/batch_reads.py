"""What a batch reads: the rows with its own calls laid over them, and whether they are still so at its end.

A batch reads without holding anything.  At its end, under the mutexes of all tablets that it has read or will
change, the same rows are looked up once more; where one has changed, nothing is applied.  So batches that
succeed come to the same as if each had run alone, at the time of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core._ext.rules import decide as rules
from kudu_core.common.idempotence.fingerprint import U64Array, row_hashes
from kudu_core.common.rows.keys import encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.rows.shown import Seen, Shown, damage_in, picked
from kudu_core.common.run.locks import HeldLocks
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import Conflict
from kudu_core.table.calls.call import Call, fitted
from kudu_core.table.calls.decide import decide_net
from kudu_core.table.calls.prepared import Prepared
from kudu_core.table.opened.tablets import Tablets
from kudu_core.table.read.few_keys import FOUND
from kudu_core.table.read.looked.key_blocks import key_block
from kudu_core.table.read.looked.row_values import cell_value, shown_row
from kudu_core.table.read.points import newest_rows
from kudu_core.tablet.store.tablet import Tablet, newest_of
from kudu_core.tablet.view.view import KeyBatch

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

SHOWN_KEYS = 3


@dataclass(frozen=True, slots=True, eq=False)
class _ReadRows:
    """Rows that were read."""

    schema: Schema
    keys: KeyBatch
    block: RowBlock
    columns: tuple[StoredColumn, ...]
    hashes: U64Array
    """(n,) of the cells of these columns, and of whether the row was there."""


class ReadSet:
    """All that one batch has read."""

    def __init__(self, engine: Engine, clear: Callable[[Iterable[RowBlock]], None]) -> None:
        """``clear``: before keys are read, removes what has expired of them."""
        self._engine, self._clear = engine, clear
        self._reads: list[_ReadRows] = []
        self._hashes = np.empty(0, np.uint64)
        """Of the keys of the batch's calls, as many as were read over so far."""
        self._seen_calls = 0

    def __len__(self) -> int:
        return len(self._reads)

    def rows(self, keys: Any, columns: Sequence[str] | None, calls: Sequence[Call]) -> pa.Table:
        """As ``Table.get_many`` answers, with the calls of the batch laid over it."""
        return self._found(keys, columns, calls)[0]

    def values(
        self, keys: Any, columns: Sequence[str] | None, calls: Sequence[Call]
    ) -> list[tuple[bool, dict[str, Any]]]:
        """The same as ``Table.get`` answers: whether a row is there, and its values."""
        answer, found, stored, nested = self._found(keys, columns, calls)
        there = answer.columns[-1].to_pylist()
        if nested:  # fields of what is not there are NULL, and none of theirs is looked at
            return [(one, shown_row(answer, row)) for row, one in enumerate(there)]
        cells = _cells(stored, found)
        return [
            (one, {column.name: cell_value(column, cells[column.id], row) for column in stored})
            for row, one in enumerate(there)
        ]

    def _found(
        self, keys: Any, columns: Sequence[str] | None, calls: Sequence[Call]
    ) -> tuple[pa.Table, pa.RecordBatch, Sequence[StoredColumn], bool]:
        """The answer, the rows with at least what is stored of it, these columns, and whether they are more
        than what is shown."""
        engine = self._engine
        block, encoded = key_block(engine.schema, keys)  # columns of the key are the same in every state
        batch = KeyBatch(encoded)
        self._clear([block])
        found: pa.RecordBatch | None = None
        while found is None:
            schema = engine.schema
            stored, shown = picked(schema, columns)
            own = self._touching(schema, calls, batch)
            read = schema.columns if own else stored
            tablets = touched_by(engine.tablets, [block])
            with HeldLocks([tablet.mutex for tablet in tablets]):
                if engine.schema is schema:  # else ALTER was faster
                    found = newest_rows(engine, batch, block, read)
        engine.wait_visible(newest_of(tablets))
        cells = _cells(read, found)
        self._reads.append(_ReadRows(schema, batch, block, stored, _hashes(stored, cells, found)))
        if own:
            there = found.columns[-1].to_numpy(zero_copy_only=False)
            found = _laid_over(engine, schema, block, RowBlock(cells, len(batch)), there, own)
        with damage_in(engine.path):
            answer = _answer(schema, stored, shown, found)
        mine = found.select([*(column.name for column in stored), FOUND])
        return answer, mine, stored, bool(schema.nested)

    def _touching(self, schema: Schema, calls: Sequence[Call], wanted: KeyBatch) -> list[Call]:
        """The rows of the batch's calls that may be of the keys; other rows are left out as far as hashes
        tell."""
        new = [encode_keys(schema, call.block).hashes() for call in calls[self._seen_calls :]]
        if new:
            self._hashes = np.concatenate([self._hashes, *new])
            self._seen_calls = len(calls)
        near = np.flatnonzero(np.isin(self._hashes, wanted.hashes))
        if not len(near):
            return []
        ends = np.cumsum([call.rows for call in calls])
        which = np.searchsorted(ends, near, side="right")
        found = []
        for place in dict.fromkeys(which.tolist()):
            call = calls[place]
            found.append(call.take(near[which == place] - (int(ends[place]) - call.rows)))
        return list(fitted(schema, [replace(call, numbers=None, continues=False) for call in found]))

    def tablets(self) -> list[RowBlock]:
        """The keys that were read."""
        return [read.block for read in self._reads]

    def check(self) -> None:
        """``Conflict`` where a row has changed since it was read.  Under the mutexes of its tablets."""
        engine = self._engine
        for read in self._reads:
            if any(column.id not in engine.schema.by_id for column in read.columns):
                raise Conflict(f"{engine.path}: a column that the batch has read was dropped; try it again")
            if engine.schema.cells != read.schema.cells:
                raise Conflict(f"{engine.path}: a column that the batch has read has another type; try again")
            found = newest_rows(engine, read.keys, read.block, read.columns)
            changed = np.flatnonzero(_hashes(read.columns, _cells(read.columns, found), found) != read.hashes)
            if len(changed):
                names = read.schema.key_names
                some = read.block.take(changed[:SHOWN_KEYS])
                arrays = Shown(read.schema.key_columns).arrays(
                    [some.columns[c.id].to_arrow(c.type) for c in read.schema.key_columns]
                )
                told = pa.RecordBatch.from_arrays(arrays, names=list(names)).to_pylist()
                raise Conflict(
                    f"{len(changed)} rows have changed since the batch read them, among them "
                    f"{', '.join(map(str, told))}; nothing was applied: run the batch again"
                )


def touched_by(tablets: Tablets, blocks: Sequence[RowBlock]) -> Sequence[Tablet]:
    """The tablets of keys, in the order in which mutexes are taken; one where there is none."""
    if len(tablets) == 1:
        return tablets
    found: set[int] = set()
    for block in blocks:
        route = tablets.partitions.route(block)
        found.update(np.flatnonzero(np.bincount(route[route >= 0])).tolist())
    some = [tablets.of_ordinal(ordinal) for ordinal in found]
    return sorted(some, key=lambda tablet: tablet.id) or tablets[:1]


def _cells(columns: Sequence[StoredColumn], found: pa.RecordBatch) -> dict[int, ColumnBuffers]:
    return {
        column.id: ColumnBuffers.from_arrow(array, column.type, column.name)
        for column, array in zip(columns, found.columns[:-1], strict=True)
    }


def _hashes(
    columns: Sequence[StoredColumn], cells: dict[int, ColumnBuffers], found: pa.RecordBatch
) -> U64Array:
    there = found.columns[-1].to_numpy(zero_copy_only=False).astype(np.int64)
    return row_hashes(there, {column.id: cells[column.id] for column in columns}, found.num_rows)


def _laid_over(
    engine: Engine, schema: Schema, block: RowBlock, rows: RowBlock, there: np.ndarray, calls: Sequence[Call]
) -> pa.RecordBatch:
    """Rows of keys after calls: the row rules are asked as if all of it were one batch for an empty table."""
    every = Call(rules.CALL_DELETE_IGNORE, block)  # so that the first groups are the keys
    known = Call(rules.CALL_INSERT, rows.take(np.flatnonzero(there)))
    prepared = Prepared(schema, engine.partitions, [every, known, *calls])
    _, net = decide_net(prepared, np.zeros(prepared.groups, bool))
    place = np.full(prepared.groups, net.inserts.rows, np.int64)
    place[net.insert_groups] = np.arange(net.inserts.rows)
    mine = place[prepared.group[: block.rows]]
    arrays = []
    for column in schema.columns:
        if column.id in schema.key_ids:
            cells = block.columns[column.id]
        else:
            parts = [ColumnBuffers.nulls(column.type, 1)]
            if net.inserts.rows:
                parts.insert(0, net.inserts.columns[column.id])
            cells = ColumnBuffers.concat(parts).take(mine)
        arrays.append(cells.to_arrow(column.type))
    arrays.append(pa.array(mine < net.inserts.rows))
    return pa.RecordBatch.from_arrays(arrays, names=[*(c.name for c in schema.columns), FOUND])


def _answer(
    schema: Schema, stored: Sequence[StoredColumn], seen: Sequence[Seen], found: pa.RecordBatch
) -> pa.Table:
    """Rows as users see them."""
    shown = Shown(stored, seen if schema.nested else None)
    there = found.columns[-1]
    absent = ~there.to_numpy(zero_copy_only=False)
    arrays = shown.arrays([found.column(column.name) for column in stored], absent)
    fields = [field.with_nullable(True) for field in shown.arrow]
    return pa.table([*arrays, there], schema=pa.schema([*fields, pa.field(FOUND, pa.bool_(), False)]))


__all__ = ["ReadSet", "touched_by"]
