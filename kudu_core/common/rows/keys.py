"""Encoded keys: the primary key as one byte string whose order is the order of the keys.

The bytes are described in ``common/types/keycodec.py``.  Here are many keys at once, in two buffers, and what
can be done with them without decoding: hash, sort, group, search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.keys import hashing
from kudu_core._ext.keys import keys as kernel
from kudu_core.common.rows.rowblock import ColumnBuffers, I32Array, I64Array, RowBlock, U8Array
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.keycodec import MAX_KEY_BYTES

U64Array = npt.NDArray[np.uint64]


@dataclass(slots=True, eq=False)
class EncodedKeys:
    """``n`` encoded keys one after the other."""

    data: U8Array
    offsets: I64Array
    """(n + 1,)"""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return self.data[int(self.offsets[row]) : int(self.offsets[row + 1])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        data, ends = self.data.tobytes(), self.offsets.tolist()
        for lower, upper in pairwise(ends):
            yield data[lower:upper]

    @property
    def data_bytes(self) -> int:
        """Of the keys, without their offsets."""
        return int(self.offsets[-1]) - int(self.offsets[0])

    @property
    def nbytes(self) -> int:
        return int(self.offsets[-1]) - int(self.offsets[0]) + self.offsets.nbytes

    @staticmethod
    def from_columns(columns: Sequence[tuple[StoredColumn, ColumnBuffers]], rows: int) -> EncodedKeys:
        """Encode columns in key order.  Null cells are encoded as whatever lies there."""
        parts = [(c.type.kind, c.type.width, buffers.values, buffers.offsets) for c, buffers in columns]
        data, offsets = kernel.encode(parts, rows)
        return EncodedKeys(data, offsets)

    @staticmethod
    def from_list(keys: Iterable[bytes]) -> EncodedKeys:
        keys = list(keys)
        offsets = np.zeros(len(keys) + 1, np.int64)
        np.cumsum([len(key) for key in keys], out=offsets[1:])
        data = np.frombuffer(b"".join(keys), np.uint8) if offsets[-1] else np.empty(0, np.uint8)
        return EncodedKeys(data, offsets)

    @staticmethod
    def concat(parts: Sequence[EncodedKeys]) -> EncodedKeys:
        """All keys of the parts, in order."""
        if len(parts) == 1:
            return parts[0]
        data, offsets = kernel.concat([(part.data, part.offsets) for part in parts])
        return EncodedKeys(data, offsets)

    @staticmethod
    def interleave(parts: Sequence[EncodedKeys], source: I32Array, position: I64Array) -> EncodedKeys:
        """Key i is key ``position[i]`` of ``parts[source[i]]``."""
        data, offsets = kernel.interleave([(part.data, part.offsets) for part in parts], source, position)
        return EncodedKeys(data, offsets)

    def slice(self, lower: int, upper: int) -> EncodedKeys:
        """Keys ``[lower, upper)``, a view."""
        return EncodedKeys(self.data, self.offsets[lower : upper + 1])

    def take(self, rows: npt.NDArray[Any]) -> EncodedKeys:
        data, offsets = kernel.take(self.data, self.offsets, np.ascontiguousarray(rows, np.int64))
        return EncodedKeys(data, offsets)

    def hashes(self) -> U64Array:
        """(n,) uint64: the low half of murmur3 x64-128, seed 0, of each key."""
        return hashing.murmur3(self.data, self.offsets)

    def sort(self) -> I64Array:
        """(n,) int64: the stable permutation that puts the keys in order."""
        return kernel.sort(self.data, self.offsets)

    def order(self) -> int:
        """2 strictly ascending, 1 never descending, 0 neither."""
        return kernel.order(self.data, self.offsets)

    def repeats(self, rows: I64Array) -> bool:
        """Whether two keys that follow each other in ``rows`` are equal: of sorted ones, whether any."""
        return kernel.repeats(self.data, self.offsets, rows)

    def group(self, hashes: U64Array) -> tuple[I32Array, I64Array]:
        """Equal keys: ``(group of each row, first row of each group)``, groups as they first appear."""
        return kernel.group(self.data, self.offsets, hashes)

    def lower_bound(self, probes: EncodedKeys, *, upper: bool = False) -> I64Array:
        """For each probe the number of these (sorted) keys below it; with ``upper``, not above it."""
        return kernel.lower_bound(self.data, self.offsets, probes.data, probes.offsets, upper)

    def too_large(self) -> npt.NDArray[np.bool_] | None:
        """(n,) bool: keys over 16 KiB, which no table takes; None when there are none."""
        if len(self) == 0 or int(self.offsets[-1]) - int(self.offsets[0]) <= MAX_KEY_BYTES:
            return None
        large = np.diff(self.offsets) > MAX_KEY_BYTES
        return large if large.any() else None


def encode_keys(schema: Schema, block: RowBlock) -> EncodedKeys:
    """The keys of all rows of a block that has every key column."""
    return EncodedKeys.from_columns([(c, block.columns[c.id]) for c in schema.key_columns], block.rows)


def decode_keys(schema: Schema, keys: EncodedKeys) -> RowBlock:
    """The key columns of encoded keys.  ``PageError`` when the bytes are no keys."""
    types = [(c.type.kind, c.type.width) for c in schema.key_columns]
    columns = {}
    for column, (cells, offsets) in zip(
        schema.key_columns, kernel.decode(keys.data, keys.offsets, types), strict=True
    ):
        columns[column.id] = ColumnBuffers(column.type.width, len(keys), cells, offsets)
    return RowBlock(columns, len(keys))


def encode_key(schema: Schema, key: Any) -> bytes:
    """One key from a scalar (one key column), a tuple in key order, or a dict by name.

    ``InvalidArgument`` names the column of a value that is missing, None or of a wrong type.
    """
    return schema.key_codec.encode(key)


def encode_prefix(schema: Schema, key: Any) -> bytes:
    """The first key columns from a scalar, tuple or dict: a bound for ``key_range``."""
    return schema.key_codec.encode_prefix(key)
