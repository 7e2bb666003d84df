"""Which tablet a key belongs to.

Any number of hash dimensions and at most one range dimension cut a table into partitions.  A
partition's *ordinal* never changes: ranges are numbered as they were added, and a dropped one keeps
its number.  A table that got other partitions numbers these behind those of before, which it keeps for
past states.  What one dimension does is in ``hash_dimension`` and ``ranges``.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kudu_core._ext.row.route import KeyRouter
from kudu_core.common.format.members import integer
from kudu_core.common.partition.declared import HashPartition, RangePartition, declared_dimensions
from kudu_core.common.partition.dimension import I32Array, column_ids
from kudu_core.common.partition.hash_dimension import (
    MAX_BUCKETS,
    MIN_BUCKETS,
    HashDimension,
    bucket_of,
    hash_dimension,
)
from kudu_core.common.partition.prunable_partitions import PrunablePartitions
from kudu_core.common.partition.ranges import (
    Range,
    check_apart,
    check_bytes,
    check_not_empty,
    cuts_of,
    in_order,
    range_of,
)
from kudu_core.common.partition.spark_hash import is_long_decimal
from kudu_core.common.partition.told_partitions import Partition
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.keycodec import KeyCodec
from kudu_core.errors import InvalidArgument, shown

MAX_PARTITIONS = 65_536
"""With those of ranges that were dropped, whose ordinals are not used again."""
RANGES_SHOWN = 100
MAX_ROUTED_COLUMNS = 32
_LAST_ORDINAL = 1 << 30


class PartitionSchema(PrunablePartitions):
    """How a table is partitioned.  Immutable.

    >>> len(stock.partitions.partitions)
    1
    """

    former: tuple[PartitionSchema, ...]
    """Those that the table had before, oldest first, as far as there are tablets of them."""

    def __init__(
        self,
        schema: Schema,
        hashes: tuple[HashDimension, ...] = (),
        range_ids: tuple[int, ...] = (),
        ranges: tuple[Range, ...] = (),
        *,
        first: int = 0,
        former: tuple[PartitionSchema, ...] = (),
    ) -> None:
        """``first``: the ordinal of the first partition, a multiple of the buckets of a range."""
        self.hashes = hashes
        self.range_ids = range_ids
        self.ranges = ranges
        self.first = first
        self.former = former
        self.key_ids = schema.key_ids
        self._key_codec = schema.key_codec
        self._columns: dict[int, StoredColumn] = {c.id: c for c in schema.key_columns}
        self._range_codec = self._codec(range_ids) if range_ids else None

    # ---- declaring, storing, changing

    @staticmethod
    def make(schema: Schema, partition_by: Any = ()) -> PartitionSchema:
        """Check what ``create_table`` was given; nothing given makes one partition of all rows."""
        hashes: list[HashDimension] = []
        declared: RangePartition | None = None
        hashed: set[int] = set()
        for dimension in declared_dimensions(partition_by):
            if isinstance(dimension, HashPartition):
                made = hash_dimension(schema, dimension)
                for column_id in made.column_ids:
                    if column_id in hashed:
                        name = schema.by_id[column_id].name
                        raise InvalidArgument(f"column {name!r} is in two hash dimensions")
                hashed.update(made.column_ids)
                hashes.append(made)
            elif not isinstance(dimension, RangePartition):
                raise InvalidArgument(
                    f"partition_by takes HashPartition and RangePartition, not {shown(dimension)}"
                )
            elif declared is not None:
                raise InvalidArgument("a table has at most one range dimension")
            else:
                declared = dimension
        result = PartitionSchema(schema, tuple(hashes))
        if declared is not None:
            ids = column_ids(schema, declared.columns, "range")
            result = PartitionSchema(schema, tuple(hashes), ids)
            given = declared.bounds
            bounds = (
                [] if isinstance(given, str | Mapping) or not isinstance(given, Iterable) else list(given)
            )
            if not bounds:
                raise InvalidArgument("a range dimension has at least one range: bounds=[(None, None)]")
            result = result._with_ranges(schema, bounds)
            # In order of keys at first, whatever order they were written in.
            result = PartitionSchema(schema, result.hashes, ids, tuple(in_order(result.ranges)))
        result._check_size()
        return result

    def _with_ranges(self, schema: Schema, bounds: Iterable[tuple[Any, Any]]) -> PartitionSchema:
        """With more ranges, whose partitions are numbered after all others."""
        new = [self._range_of(some) for some in bounds]
        result = self._with(schema, (*self.ranges, *new))
        result._check()
        return result

    def altered(
        self,
        schema: Schema,
        *,
        drop: Iterable[tuple[Any, Any]] = (),
        add: Iterable[tuple[Any, Any]] = (),
    ) -> PartitionSchema:
        """With ranges, given by their exact bounds, dropped, then others added: a range in both lists becomes
        a new, empty one.  Ordinals are not used again."""
        ranges = list(self.ranges)
        live = {held: place for place, held in enumerate(ranges) if not held.dropped}
        for bounds in drop:
            gone = self._range_of(bounds)
            place = live.pop(gone, None)
            if place is None:
                there = ", ".join(self._show(held) for held in itertools.islice(live, RANGES_SHOWN))
                more = ", ..." if len(live) > RANGES_SHOWN else ""
                raise InvalidArgument(f"no range {self._show(gone)}; there are {there}{more}")
            ranges[place] = replace(gone, dropped=True)
        result = self._with(schema, tuple(ranges))
        result = result._with_ranges(schema, add)
        if all(r.dropped for r in result.ranges):
            raise InvalidArgument("a table keeps at least one range")
        return result

    def _with(self, schema: Schema, ranges: tuple[Range, ...]) -> PartitionSchema:
        former = tuple(some.over(schema) for some in self.former)
        return PartitionSchema(schema, self.hashes, self.range_ids, ranges, first=self.first, former=former)

    def over(self, schema: Schema) -> PartitionSchema:
        """The same partitions of the same table, some of whose columns have other names or types."""
        return self._with(schema, self.ranges)

    def followed_by(self, schema: Schema, other: PartitionSchema) -> PartitionSchema:
        """Other partitions in the place of these, which are kept; ``other`` as ``make`` gives it."""
        mine = self.over(schema)
        first = -(-(mine.first + mine._count) // other._buckets) * other._buckets
        if first > _LAST_ORDINAL - 2 * MAX_PARTITIONS:
            raise InvalidArgument(f"the table has had {first:,} partitions: there are no numbers for others")
        former = (*mine.former, mine.alone)
        made = PartitionSchema(
            schema, other.hashes, other.range_ids, other.ranges, first=first, former=former
        )  # fmt: skip
        made._check_size()
        return made

    def kept_for(self, ordinals: Iterable[int]) -> PartitionSchema:
        """Without what it was before of which no tablet is left; ``ordinals``: of those that are."""
        firsts = {self.scheme_of(ordinal).first for ordinal in ordinals}
        former = tuple(some for some in self.former if some.first in firsts)
        if len(former) == len(self.former):
            return self
        other = copy.copy(self)
        other.former = former
        return other

    @property
    def alone(self) -> PartitionSchema:
        """These without those of before."""
        return self.kept_for(())

    def with_live(self, live: Sequence[bool]) -> PartitionSchema:
        """The same ranges, of which these are there: as they were at another time."""
        ranges = tuple(replace(r, dropped=not there) for r, there in zip(self.ranges, live, strict=True))
        other = copy.copy(self)
        other.ranges = ranges
        for derived in ("partitions", "router", "_cuts"):
            other.__dict__.pop(derived, None)
        return other

    def is_cut_as(self, other: PartitionSchema) -> bool:
        """Whether both route every row alike, whatever ranges they have had before."""
        mine, theirs = ({r for r in p.ranges if not r.dropped} for p in (self, other))
        return (self.hashes, self.range_ids, mine) == (other.hashes, other.range_ids, theirs)

    def to_json(self) -> dict[str, Any]:
        """As TABLE has it."""
        return {
            "hash": [
                {"columns": list(h.column_ids), "buckets": h.buckets, "seed": h.seed} for h in self.hashes
            ],
            "range": list(self.range_ids),
            "ranges": [r.to_json() for r in self.ranges],
            **({"first": self.first} if self.first else {}),
            **({"former": [some.to_json() for some in self.former]} if self.former else {}),
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any], schema: Schema) -> PartitionSchema:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what ``to_json`` never writes."""
        hashes = tuple(
            HashDimension(
                tuple(map(integer, h["columns"])),
                integer(h["buckets"], MIN_BUCKETS, MAX_BUCKETS + 1),
                integer(h["seed"], 0, 1 << 64),
            )
            for h in stored["hash"]
        )
        ranges = tuple(map(Range.from_json, stored["ranges"]))
        range_ids = tuple(map(integer, stored["range"]))
        for column_id in itertools.chain(range_ids, *(h.column_ids for h in hashes)):
            if column_id not in schema.key_ids:
                raise ValueError(f"partition column {column_id} is not in the key")
        if bool(range_ids) != bool(ranges):
            raise ValueError("range columns without ranges, or ranges without columns")
        if any(not h.column_ids for h in hashes):
            raise ValueError("a hash dimension without columns")
        former = tuple(PartitionSchema.from_json(some, schema) for some in stored.get("former", ()))
        first = integer(stored.get("first", 0), 0, _LAST_ORDINAL)
        made = PartitionSchema(schema, hashes, range_ids, ranges, first=first, former=former)
        made._check()
        ends = [0, *(some.first + some._count for some in former)]
        firsts = [*(some.first for some in former), first]
        if first % made._buckets or any(a > b for a, b in zip(ends, firsts, strict=True)):
            raise ValueError(f"partitions from {first} on do not follow those of before, {ends}")
        if any(some.former for some in former):
            raise ValueError("what partitions were before has none of its own")
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSchema) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.hashes, self.range_ids, self.ranges, self.first))

    # ---- the partitions

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions in order, also the dropped ones: range by range, then bucket by bucket."""
        ranges: Sequence[Range | None] = self.ranges if self.range_ids else (None,)
        buckets = list(itertools.product(*(range(h.buckets) for h in self.hashes)))
        cells = itertools.product(ranges, buckets)
        return tuple(Partition(ordinal, b, r) for ordinal, (r, b) in enumerate(cells, self.first))

    @property
    def first_ordinals(self) -> range:
        """Of each range, in their order."""
        return range(self.first, self.first + len(self.ranges) * self._buckets, self._buckets)

    @property
    def _count(self) -> int:
        return self._buckets * max(1, len(self.ranges))

    @property
    def every_count(self) -> int:
        """How many partitions there are, with the dropped ones and those of before."""
        return self._count + sum(some._count for some in self.former)

    def scheme_of(self, ordinal: int) -> PartitionSchema:
        """The partitions, these or those of before, among which one has this ordinal; ``IndexError``."""
        for some in (self, *self.former):
            if 0 <= ordinal - some.first < some._count:
                return some
        raise IndexError(f"no partition {ordinal}")

    def partition_of(self, ordinal: int) -> Partition:
        """The partition of an ordinal, also of those of before; ``IndexError``."""
        some = self.scheme_of(ordinal)
        return some.partitions[ordinal - some.first]

    def route(self, keys: RowBlock) -> I32Array:
        """(n,) int32: ordinal of each row's partition, -1 where no range takes it.

        ``keys`` has at least the partition columns, without nulls.
        """
        if not self.hashes and not self.range_ids:
            return np.full(keys.rows, self.first, np.int32)
        ordinal = np.zeros(keys.rows, np.int32)
        for dimension in self.hashes:
            ordinal *= np.int32(dimension.buckets)
            ordinal += bucket_of(dimension, self._columns, keys)
        if self.range_ids:
            place = self._range_of_rows(keys)
            ordinal += place * np.int32(self._buckets)
            ordinal += np.int32(self.first)
            ordinal[place < 0] = -1
        else:
            ordinal += np.int32(self.first)
        return ordinal

    @cached_property
    def router(self) -> KeyRouter | None:
        """``route`` of one encoded key; None where the key has too many columns for it."""
        if len(self.key_ids) > MAX_ROUTED_COLUMNS:
            return None
        place = {column_id: i for i, column_id in enumerate(self.key_ids)}
        types = [self._columns[i].type for i in self.key_ids]
        cuts, owner = self._cuts
        ranged, owners = [place[i] for i in self.range_ids], owner.tolist()
        if self.first:  # as if other ranges came before; without ranges as of one that takes every key
            ranged = ranged or [0]
            before = self.first // self._buckets
            owners = [before + max(0, o) if o >= 0 or not self.range_ids else -1 for o in owners]
        ends = cuts.offsets.tolist()
        return KeyRouter(
            [(t.kind, t.width, is_long_decimal(t)) for t in types],
            [([place[i] for i in h.column_ids], h.buckets, h.seed) for h in self.hashes],
            ranged,
            [cuts.data[lo:hi].tobytes() for lo, hi in itertools.pairwise(ends)],
            owners,
        )

    def _range_of_rows(self, keys: RowBlock) -> I32Array:
        columns = [(self._columns[i], keys.columns[i]) for i in self.range_ids]
        encoded = EncodedKeys.from_columns(columns, keys.rows)
        cuts, owner = self._cuts
        return owner[cuts.lower_bound(encoded, upper=True)]

    @cached_property
    def _cuts(self) -> tuple[EncodedKeys, I32Array]:
        return cuts_of(self.ranges)

    # ---- helpers

    def _codec(self, column_ids: Iterable[int]) -> KeyCodec:
        return KeyCodec([(self._columns[i].name, self._columns[i].type) for i in column_ids])

    def _range_of(self, bounds: Any) -> Range:
        if self._range_codec is None:
            raise InvalidArgument("the table has no range dimension")
        return range_of(self._range_codec, bounds)

    def _check(self) -> None:
        """``InvalidArgument`` for an empty range, for two that overlap, and as ``_check_size``."""
        if self._range_codec is not None:
            for held in self.ranges:
                check_not_empty(self._range_codec, held)
            check_apart(self._range_codec, self.ranges)
        self._check_size()

    def _check_size(self) -> None:
        """``InvalidArgument`` for more than TABLE and the log take."""
        count = self._buckets * max(1, len(self.ranges))
        if count > MAX_PARTITIONS:
            raise InvalidArgument(
                f"{count:,} partitions; a table has at most {MAX_PARTITIONS:,}, dropped ones counted"
            )
        check_bytes([*self.ranges, *(held for some in self.former for held in some.ranges)])
