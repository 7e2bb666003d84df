"""Of which rows changes are told, where keys are asked for: found by bounds, bloom filters and key indexes.

A key has one row in a store at most, dead ones included, and its history lies in all stores that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core.common.rows.keys import EncodedKeys, encode_key
from kudu_core.common.run.ordering import distinct
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.read.looked.key_blocks import key_block
from kudu_core.tablet.view.view import KeyBatch, View

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.changes.change_blocks import Store

_ROUTED = 256
"""Keys of which each is routed to its partitions; of more, all partitions are asked."""


def keys_of(schema: Schema, key: Any) -> KeyBatch:
    """One key, as ``Table.get`` takes it (a scalar, a tuple in key order, a dict), or several, in a list, an
    Arrow array or anything with columns.  ``InvalidArgument`` names the column that does not fit."""
    if _is_one(key):
        return KeyBatch(EncodedKeys.from_list([encode_key(schema, key)]))
    return KeyBatch(key_block(schema, key)[1])


def _is_one(key: Any) -> bool:
    """Whether it is one key: a list or what has columns or elements is several, and a tuple one of several
    columns.  An array of no dimension is its one element."""
    if isinstance(key, str | bytes | bytearray | memoryview | tuple | dict):
        return True
    if getattr(key, "shape", None) == ():
        return True
    return not (isinstance(key, list) or hasattr(key, "__iter__") or hasattr(key, "__arrow_c_stream__"))


def holders(partitions: PartitionSchema, batch: KeyBatch) -> set[int] | None:
    """Ordinals of the partitions, also of dropped ranges, that may have had one of the keys; None: any."""
    if len(batch) > _ROUTED:
        return None
    found: set[int] = set()
    for key in batch.keys:
        found.update(partitions.prune((), key, key + b"\0", dropped=True))
    return found


def asked(view: View, batch: KeyBatch | None) -> Iterable[tuple[Store, KeyBatch | None]]:
    """The stores of a tablet that may have some of the keys, by their bounds, and these; None: all stores."""
    return ((store, None) for store in view.stores) if batch is None else _candidates(view, batch)


def _candidates(view: View, batch: KeyBatch) -> Iterator[tuple[Store, KeyBatch]]:
    for memory in (view.active, *view.frozen):
        if len(memory):
            yield memory, batch
    if view.rowsets:
        keys, hashes = batch.in_order
        for index, lower, upper in view.tree.batch(keys):
            yield view.rowsets[index], KeyBatch(keys.slice(lower, upper), hashes[lower:upper])


def rows_in(store: Store, batch: KeyBatch, until: int) -> np.ndarray:
    """The rows of a store that have one of the keys, live or dead, inserted by a time or later: (n,) int64,
    ascending strictly."""
    if isinstance(store, MemRowSet):
        rows = store.locate_at(batch.keys, batch.hashes, store.rows_at(until))
    else:
        rows = store.locate(batch.keys, batch.hashes)
    found: np.ndarray = distinct(rows[rows >= 0])
    return found


__all__ = ["asked", "holders", "keys_of", "rows_in"]
