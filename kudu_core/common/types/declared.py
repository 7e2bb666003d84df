"""Cells of a flat type between what a user declares and what is stored: both are the same so far."""

from __future__ import annotations

import pyarrow as pa

from kudu_core.common.types.types import ColumnType


def inward(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Cells of the declared type as those that are stored."""
    return array


def outward(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Stored cells as those of the declared type."""
    return array
