"""A hash dimension: which bucket a row is in, and which buckets may hold what a scan looks for.

The hash is Spark's ``xxhash64`` (``spark_hash.py``), so ``pmod(xxhash64(cols), lit(buckets))`` in
Spark is the bucket here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kudu_core._ext.keys import hashing
from kudu_core.common.partition.declared import HashPartition
from kudu_core.common.partition.dimension import Columns, I32Array, column_ids
from kudu_core.common.partition.spark_hash import xxhash64
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import ColumnType
from kudu_core.common.types.values import Physical, pack
from kudu_core.common.where.analysis import Term
from kudu_core.common.where.listed import Listed
from kudu_core.errors import InvalidArgument, shown

MIN_BUCKETS, MAX_BUCKETS = 2, 4096
# More combinations of values than this are not worth hashing to skip some buckets.
_MAX_ENUMERATED = 65_536


@dataclass(frozen=True, slots=True)
class HashDimension:
    column_ids: tuple[int, ...]
    buckets: int
    seed: int


def hash_dimension(schema: Schema, declared: HashPartition) -> HashDimension:
    """What ``create_table`` was given, checked."""
    ids = column_ids(schema, declared.columns, "hash")
    buckets, seed = declared.buckets, declared.seed
    if isinstance(buckets, bool) or not isinstance(buckets, int) or not MIN_BUCKETS <= buckets <= MAX_BUCKETS:
        raise InvalidArgument(
            f"buckets is a whole number of {MIN_BUCKETS} to {MAX_BUCKETS:,}, not {shown(buckets)}"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise InvalidArgument(f"seed is a whole number of 0 to 2**64 - 1, not {shown(seed)}")
    return HashDimension(ids, buckets, seed)


def bucket_of(dimension: HashDimension, columns: Columns, keys: RowBlock) -> I32Array:
    """(n,) int32: bucket of each row."""
    hashed = [(columns[i].type, keys.columns[i]) for i in dimension.column_ids]
    hashes = xxhash64(hashed, keys.rows, dimension.seed)
    return hashing.bucket(hashes, dimension.buckets)


def bucket_choices(
    dimension: HashDimension,
    columns: Columns,
    terms: Sequence[Term],
    fixed: Mapping[int, Physical],
) -> frozenset[int] | None:
    """Buckets that may hold a match; None = any, when a column is free or the lists are long.

    ``fixed``: the values of key columns that the bounds of a scan leave no choice of.
    """
    listed: dict[int, ColumnBuffers] = {}
    for column_id in dimension.column_ids:
        candidates = [_listed(t) for t in terms if t.column_id == column_id and t.op in ("eq", "in")]
        if column_id in fixed:
            candidates.append(_column_of(columns[column_id].type, [fixed[column_id]]))
        if not candidates:
            return None
        listed[column_id] = min(candidates, key=lambda cells: cells.length)
    counts = [cells.length for cells in listed.values()]
    if prod(counts) > _MAX_ENUMERATED:
        return None
    places = np.indices(counts).reshape(len(counts), -1)  # of each combination
    block = RowBlock({i: listed[i].take(at) for i, at in zip(listed, places, strict=True)}, prod(counts))
    return frozenset(bucket_of(dimension, columns, block).tolist())


def _listed(term: Term) -> ColumnBuffers:
    """The values that a term leaves, as a column."""
    return term.value.cells if isinstance(term.value, Listed) else _column_of(term.type, term.physical())


def _column_of(type_: ColumnType, cells: Sequence[Physical]) -> ColumnBuffers:
    raw = [pack(type_, cell) for cell in cells]
    values = np.frombuffer(b"".join(raw), np.uint8) if raw else np.empty(0, np.uint8)
    if type_.width:
        return ColumnBuffers(type_.width, len(raw), values)
    offsets = np.zeros(len(raw) + 1, np.int32)
    np.cumsum([len(cell) for cell in raw], out=offsets[1:])
    return ColumnBuffers(0, len(raw), values, offsets)
