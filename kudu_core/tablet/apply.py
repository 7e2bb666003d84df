"""Net changes of one record, laid into a tablet's stores (PROTOCOL W6).

Used by writes, which already know where each key lives, and by replay, which looks it up by the
rule of PROTOCOL O5.
"""

from __future__ import annotations

import numpy as np

from kudu_core.common.keys import EncodedKeys
from kudu_core.common.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema import Schema
from kudu_core.rowset.changelog import Change
from kudu_core.rowset.deltas import DELETE, REINSERT, UPDATE
from kudu_core.rowset.diskrowset import DiskRowSet
from kudu_core.tablet.tablet import Tablet
from kudu_core.tablet.view import KeyBatch


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


def apply_inserts(tablet: Tablet, ts: int, block: RowBlock, batch: KeyBatch, ghost: np.ndarray) -> None:
    """New rows: into the active MemRowSet, as REINSERT where a dead entry holds the key."""
    memory = tablet.view.active
    block = complete(memory.schema, block)
    revived = ghost >= 0
    if not revived.any():
        memory.insert(ts, block, batch.keys, batch.hashes)
        return
    old, new = np.flatnonzero(revived), np.flatnonzero(~revived)
    if len(new):
        some = batch.take(new)
        memory.insert(ts, block.take(new), some.keys, some.hashes)
    keys = set(memory.schema.key_ids)
    values = {i: c.take(old) for i, c in block.columns.items() if i not in keys}
    memory.change(ts, Change(REINSERT, ghost[old].astype(np.uint32), values))


def apply_changes(
    tablet: Tablet, ts: int, op: int, store: np.ndarray, row: np.ndarray, columns: dict[int, ColumnBuffers]
) -> None:
    """Updates or deletes, each to the one store that holds the row live.

    ``store`` counts in ``tablet.view.stores``; ``columns`` are the new values (no key columns).
    """
    assert op in (UPDATE, DELETE)
    homes = np.unique(store).tolist()
    untouched = [
        home.with_active()
        for home in map(tablet.view.stores.__getitem__, homes)
        if isinstance(home, DiskRowSet) and home.active is None
    ]
    if untouched:
        tablet.view = tablet.view.with_changed(untouched)
    for index in homes:
        mine = np.flatnonzero(store == index)
        whole = len(mine) == len(store)
        rowids = row[mine].astype(np.uint32)
        values = columns if whole else {i: c.take(mine) for i, c in columns.items()}
        tablet.view.stores[index].change(ts, Change(op, rowids, values))


def key_batch(schema: Schema, block: RowBlock) -> KeyBatch:
    """Encoded keys and hashes of rows that have the key columns."""
    return KeyBatch(
        EncodedKeys.from_columns([(schema.by_id[i], block.columns[i]) for i in schema.key_ids], block.rows)
    )


def values_only(schema: Schema, block: RowBlock) -> dict[int, ColumnBuffers]:
    keys = set(schema.key_ids)
    return {i: c for i, c in block.columns.items() if i not in keys}
