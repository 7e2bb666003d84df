"""What can be known of calls without the tablets (protocol W1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.cached import cached_property
from kudu_core.common.run.pool import Pool
from kudu_core.common.schema.schema import Schema
from kudu_core.table.calls.call import Call, no_rows, oversized_rows
from kudu_core.table.calls.refused import DUPLICATE_IN_BATCH, NO_PARTITION, TOO_LARGE
from kudu_core.tablet.view.view import KeyBatch

SORTED_ROWS = 1 << 16
"""Calls of so many rows are looked through for repeated keys in key order."""


class Prepared:
    """The rows of all calls of one batch, encoded, grouped by key and routed."""

    def __init__(
        self,
        schema: Schema,
        partitions: PartitionSchema,
        calls: Sequence[Call],
        pool: Pool | None = None,
        *,
        distinct: KeyBatch | None = None,
    ) -> None:
        """``pool``: for what can be done beside the calling thread.  ``distinct``: the keys of the rows,
        where the caller knows that none repeats."""
        self.schema = schema
        self.partitions = partitions
        calls = calls or (no_rows(schema),)
        self.calls = calls
        self.rows = sum(call.rows for call in calls)
        self.key_block = RowBlock.concat([call.block.select(schema.key_ids) for call in calls])
        self.groups: int
        """Distinct keys."""
        self.batch: KeyBatch
        """The distinct keys, in the order in which they first appear."""
        ordered = distinct
        if ordered is None:
            all_keys = encode_keys(schema, self.key_block)
            ordered = self._in_order(all_keys, pool) if self.rows >= SORTED_ROWS else None
        if ordered is not None:
            self.group = np.arange(self.rows, dtype=np.int32)
            self.groups, self.repeats = self.rows, False
            self.batch = ordered
            first_keys = self.key_block
        else:
            hashes = all_keys.hashes()
            self.group, first = all_keys.group(hashes)
            self.groups = len(first)
            self.repeats = self.groups < self.rows
            if self.repeats:
                self.batch = KeyBatch(all_keys.take(first), hashes[first])
            else:
                self.batch = KeyBatch(all_keys, hashes)
            first_keys = self.key_block.take(first) if self.repeats else self.key_block
        self.route = partitions.route(first_keys)
        """(groups,) int32: ordinal of the partition, -1 where no partition takes the key."""
        self.status = self._refused()

    @staticmethod
    def _in_order(keys: EncodedKeys, pool: Pool | None) -> KeyBatch | None:
        """Many keys as a batch with its order, which the ingest needs anyway; None if any repeats.

        Neighbours in the order show repeats at a fraction of the cost of grouping by hash.
        """
        hashing = None if pool is None or pool.threads == 1 else pool.submit(keys.hashes)
        order = None
        known = keys.order()
        unique = known == 2
        if known == 0:
            order = keys.sort()
            unique = not keys.repeats(order)
        hashes = keys.hashes() if hashing is None else hashing.result()
        return KeyBatch(keys, hashes, order) if unique else None

    def _refused(self) -> np.ndarray | None:
        """(rows,) uint8: why a row is refused whatever the table holds; None: no row is."""
        status: np.ndarray | None = None

        def mark(rows: np.ndarray, code: int) -> None:
            nonlocal status
            if status is None:
                status = np.zeros(self.rows, np.uint8)
            status[rows & (status == 0)] = code

        first = 0
        for call in self.calls:
            if call.status is not None and call.status.any():
                if status is None:
                    status = np.zeros(self.rows, np.uint8)
                status[first : first + call.rows] = call.status
            first += call.rows
        if self.repeats and any(call.alone for call in self.calls):
            alone = self._alone()
            again = alone[np.bincount(self.group[alone])[self.group[alone]] > 1]
            if len(again):
                status = np.zeros(self.rows, np.uint8) if status is None else status
                status[again] = DUPLICATE_IN_BATCH  # whatever else is wrong with them
        outside = self.route < 0
        if outside.any():
            mark(outside[self.group], NO_PARTITION)
        large = self.batch.keys.too_large()
        if large is not None:
            mark(large[self.group], TOO_LARGE)
        first = 0
        for call in self.calls:
            oversized = oversized_rows(call.block)
            if oversized is not None:
                mine = np.zeros(self.rows, bool)
                mine[first : first + call.rows] = oversized
                mark(mine, TOO_LARGE)
            if call.unique and self.repeats:
                mine = np.zeros(self.rows, bool)
                keyed = first + _with_key(self.schema, call)
                mine[keyed] = _repeated(self.group[keyed])
                mark(mine, DUPLICATE_IN_BATCH)
            first += call.rows
        return status

    def _alone(self) -> np.ndarray:
        """(n,) int64: the rows, none with a NULL in the key, of calls that are to be alone with theirs."""
        found, first = [], 0
        for call in self.calls:
            if call.alone:
                found.append(first + _with_key(self.schema, call))
            first += call.rows
        return np.concatenate(found)

    @property
    def nbytes(self) -> int:
        return sum(call.block.nbytes for call in self.calls)

    @cached_property
    def pools(self) -> dict[int, ColumnBuffers]:
        """Values of every non-key column over all calls; a call that lacks one has NULLs there."""
        pools: dict[int, ColumnBuffers] = {}
        for column in self.schema.value_columns:
            parts = [call.block.columns.get(column.id) for call in self.calls]
            if len(parts) == 1:
                if parts[0] is not None:
                    pools[column.id] = parts[0]
            elif any(part is not None for part in parts):
                pools[column.id] = ColumnBuffers.concat(
                    [
                        ColumnBuffers.nulls(column.type, call.rows) if part is None else part
                        for part, call in zip(parts, self.calls, strict=True)
                    ]
                )
        return pools


def _with_key(schema: Schema, call: Call) -> np.ndarray:
    """(n,) int64: the rows of a call without a NULL in the key, which is encoded as if it were a value."""
    keyed = np.ones(call.rows, bool)
    for column_id in schema.key_ids:
        column = call.block.columns[column_id]
        if column.validity is not None:
            keyed &= column.valid_mask()
    return np.flatnonzero(keyed)


def _repeated(group: np.ndarray) -> np.ndarray:
    """(n,) bool: rows whose group came before in the array."""
    again = np.ones(len(group), bool)
    again[np.unique(group, return_index=True)[1]] = False
    return again


__all__ = ["SORTED_ROWS", "Prepared"]
