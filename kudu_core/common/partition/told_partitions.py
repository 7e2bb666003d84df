"""One partition, and how partitions are told to people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kudu_core.common.partition.hash_dimension import HashDimension
from kudu_core.common.partition.ranges import Range, range_as_text
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types.keycodec import KeyCodec


@dataclass(frozen=True, slots=True)
class Partition:
    """One tablet's share of the keys."""

    ordinal: int
    buckets: tuple[int, ...]
    """Bucket in each hash dimension."""
    range: Range | None
    """None without a range dimension."""

    @property
    def dropped(self) -> bool:
        return self.range is not None and self.range.dropped


class ToldPartitions:
    """What a ``PartitionSchema`` says of itself."""

    hashes: tuple[HashDimension, ...]
    range_ids: tuple[int, ...]
    ranges: tuple[Range, ...]
    _columns: Mapping[int, StoredColumn]
    _range_codec: KeyCodec | None

    def describe(self, partition: Partition) -> str:
        """Such as ``hash(host) = 3 of 8, range(day) = ['2024-01-01', open)``."""
        hashed = zip(self.hashes, partition.buckets, strict=True)
        parts = [f"hash({self._names(h.column_ids)}) = {bucket} of {h.buckets}" for h, bucket in hashed]
        if partition.range is not None:
            gone = " (dropped)" if partition.range.dropped else ""
            parts.append(f"range({self._names(self.range_ids)}) = {self._show(partition.range)}{gone}")
        return ", ".join(parts) or "all rows"

    @property
    def told(self) -> str:
        """Such as ``hash(host) into 8, range(day) of 3``."""
        parts = [f"hash({self._names(h.column_ids)}) into {h.buckets}" for h in self.hashes]
        ranges = f"range({self._names(self.range_ids)}) of {sum(not r.dropped for r in self.ranges)}"
        return ", ".join([*parts, *([ranges] if self.range_ids else [])]) or "one partition"

    def __repr__(self) -> str:
        return f"<PartitionSchema {self.told}>"

    def bounds(self, partition: Partition) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
        """A partition's range as exact Python values of the range columns; None = open."""
        if partition.range is None or self._range_codec is None:
            return None, None
        lower, upper = partition.range.lower, partition.range.upper
        return (
            None if lower is None else self._range_codec.decode_prefix(lower),
            None if upper is None else self._range_codec.decode_prefix(upper),
        )

    def _names(self, column_ids: Iterable[int]) -> str:
        return ", ".join(self._columns[i].name for i in column_ids)

    def _show(self, held: Range) -> str:
        assert self._range_codec is not None
        return range_as_text(self._range_codec, held)


__all__ = ["Partition", "ToldPartitions"]
