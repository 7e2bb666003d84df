"""The hash that Spark's ``xxhash64`` computes over columns, so that Spark can route rows itself.

XXH64 of the first column with a seed (Spark's is 42), whose result is the seed of the next column.
Source: Spark catalyst/expressions/hash.scala (HashExpression, XxHash64).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.keys import hashing
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import TYPE_BINARY, TYPE_DECIMAL, TYPE_SIGNED, TYPE_UNSIGNED, ColumnType

# Decimals of up to 18 digits are hashed as their unscaled 64-bit integer.
_LONG_DECIMAL_DIGITS = 18


def xxhash64(
    columns: Sequence[tuple[ColumnType, ColumnBuffers]], rows: int, seed: int
) -> npt.NDArray[np.uint64]:
    """(rows,) uint64: bits of Spark's signed hash over columns without nulls."""
    hashes = np.full(rows, seed, np.uint64)
    for type_, column in columns:
        kind, width, values, offsets = _as_spark(type_, column)
        hashing.xxh64_column(kind, width, values, offsets, hashes)
    return hashes


def is_long_decimal(type_: ColumnType) -> bool:
    """Whether Spark hashes the type's cells as bytes of a big integer and not as 64 bits."""
    return type_.kind == TYPE_DECIMAL and type_.arrow.precision > _LONG_DECIMAL_DIGITS


def _as_spark(type_: ColumnType, column: ColumnBuffers) -> tuple[int, int, Any, Any]:
    """``(kind, width, values, offsets)`` with the widths that Spark hashes.

    Spark hashes integers of up to 32 bits and dates as 4 bytes, longer ones and timestamps as 8,
    decimals of up to 18 digits as 8 bytes, longer ones as the shortest big-endian bytes of the
    unscaled integer.  It has no unsigned types: the next wider one holds them, decimal(20) in the end.
    """
    if type_.kind == TYPE_BINARY:
        return TYPE_BINARY, 0, column.values, column.offsets
    if type_.kind == TYPE_DECIMAL:
        if is_long_decimal(type_):
            return TYPE_DECIMAL, 16, column.values, None
        low = np.ascontiguousarray(column.values.reshape(-1, 16)[:, :8])
        return TYPE_SIGNED, 8, low.reshape(-1), None
    numbers = column.values.view(type_.dtype)
    if type_.width == 8 and type_.kind == TYPE_UNSIGNED:
        wide = np.zeros((column.length, 2), np.uint64)
        wide[:, 0] = numbers
        return TYPE_DECIMAL, 16, wide.view(np.uint8).reshape(-1), None
    if type_.width == 4 and type_.kind == TYPE_UNSIGNED:
        return TYPE_SIGNED, 8, numbers.astype(np.int64).view(np.uint8), None
    if type_.width < 4:
        return TYPE_SIGNED, 4, numbers.astype(np.int32).view(np.uint8), None
    return TYPE_SIGNED, type_.width, column.values, None
