"""What a caller says of how a table is to be partitioned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kudu_core.errors import InvalidArgument, shown

DEFAULT_SEED = 42


@dataclass(frozen=True, slots=True)
class HashPartition:
    """Rows by the hash of key columns.

    ``columns`` is a name or names, ``buckets`` 2 to 4,096.  Another ``seed`` than 42 keeps a second
    dimension from following the first, but only Spark's own seed lets Spark route rows natively.

    >>> made = kc.create_table(path, stock.schema, "id", partition_by=kc.HashPartition("id", 4))
    >>> len(made.partitions.partitions)
    4
    """

    columns: str | Sequence[str]
    buckets: int
    seed: int = DEFAULT_SEED


@dataclass(frozen=True, slots=True)
class RangePartition:
    """Rows by ranges of key columns.

    ``bounds`` lists half-open ranges ``(lower, upper)``; a bound is a scalar, a tuple of the first
    of the columns' values, or None for an open end.  Ranges must not overlap and need not cover: a
    row outside them all is a row error.

    >>> halves = kc.RangePartition("id", [(None, 100), (100, None)])
    >>> len(kc.create_table(path, stock.schema, "id", partition_by=halves).partitions.partitions)
    2
    """

    columns: str | Sequence[str]
    bounds: Sequence[tuple[Any, Any]]


def declared_dimensions(partition_by: Any) -> list[Any]:
    """Each that was given; what they are is checked where they are used."""
    if isinstance(partition_by, HashPartition | RangePartition):
        return [partition_by]
    if not isinstance(partition_by, Iterable):
        raise InvalidArgument(f"partition_by is a partition or a list of them, not {shown(partition_by)}")
    return list(partition_by)
