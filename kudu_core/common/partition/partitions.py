"""Which tablet a key belongs to.

Any number of hash dimensions and at most one range dimension cut a table into partitions.  A
partition's *ordinal* never changes: ranges are numbered as they were added, and a dropped one keeps
its number.

The hash is Spark's ``xxhash64`` (``spark_hash.py``), so ``pmod(xxhash64(cols), lit(buckets))`` in
Spark is the bucket here.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.keys import hashing
from kudu_core._ext.row.route import KeyRouter
from kudu_core.common.format.members import flag, integer
from kudu_core.common.partition.spark_hash import is_long_decimal, xxhash64
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.keycodec import MAX_KEY_BYTES, KeyCodec
from kudu_core.common.types.types import ColumnType
from kudu_core.common.types.values import Physical, pack
from kudu_core.common.where import keybounds
from kudu_core.common.where.keybounds import Bounds
from kudu_core.common.where.terms import Term
from kudu_core.errors import InvalidArgument, shown

I32Array = npt.NDArray[np.int32]

DEFAULT_SEED = 42
MIN_BUCKETS, MAX_BUCKETS = 2, 4096
MAX_PARTITIONS = 65_536
"""With those of ranges that were dropped, whose ordinals are not used again."""
MAX_RANGES_BYTES = 32 << 20
"""What the bounds of all ranges take as JSON."""
RANGES_SHOWN = 100
MAX_ROUTED_COLUMNS = 32
# More combinations of values than this are not worth hashing to skip some buckets.
_MAX_ENUMERATED = 65_536


@dataclass(frozen=True, slots=True)
class HashPartition:
    """Rows by the hash of key columns.

    ``columns`` is a name or names, ``buckets`` 2 to 4,096.  Another ``seed`` than 42 keeps a second
    dimension from following the first, but only Spark's own seed lets Spark route rows natively.
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
    """

    columns: str | Sequence[str]
    bounds: Sequence[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class HashDimension:
    column_ids: tuple[int, ...]
    buckets: int
    seed: int


@dataclass(frozen=True, slots=True)
class Range:
    """Encoded values of the range columns, half-open, None = open."""

    lower: bytes | None
    upper: bytes | None
    dropped: bool = False

    def overlaps(self, other: Range) -> bool:
        above = self.upper is None or other.lower is None or other.lower < self.upper
        below = other.upper is None or self.lower is None or self.lower < other.upper
        return above and below


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


class PartitionSchema:
    """How a table is partitioned.  Immutable."""

    def __init__(
        self,
        schema: Schema,
        hashes: tuple[HashDimension, ...] = (),
        range_ids: tuple[int, ...] = (),
        ranges: tuple[Range, ...] = (),
    ) -> None:
        self.hashes = hashes
        self.range_ids = range_ids
        self.ranges = ranges
        self._key_ids = schema.key_ids
        self._key_codec = schema.key_codec
        self._columns: dict[int, StoredColumn] = {c.id: c for c in schema.key_columns}
        self._range_codec = self._codec(range_ids) if range_ids else None

    # ---- declaring, storing, changing

    @staticmethod
    def make(schema: Schema, partition_by: Any = ()) -> PartitionSchema:
        """Check what ``create_table`` was given; nothing given makes one partition of all rows."""
        if isinstance(partition_by, HashPartition | RangePartition):
            partition_by = (partition_by,)
        hashes: list[HashDimension] = []
        declared: RangePartition | None = None
        hashed: set[int] = set()
        for dimension in partition_by:
            if isinstance(dimension, HashPartition):
                made = _hash_dimension(schema, dimension)
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
            ids = _column_ids(schema, declared.columns, "range")
            result = PartitionSchema(schema, tuple(hashes), ids)
            given = declared.bounds
            bounds = (
                [] if isinstance(given, str | Mapping) or not isinstance(given, Iterable) else list(given)
            )
            if not bounds:
                raise InvalidArgument("a range dimension has at least one range: bounds=[(None, None)]")
            result = result._with_ranges(schema, bounds)
            # In order of keys at first, whatever order they were written in.
            result = PartitionSchema(schema, result.hashes, ids, tuple(_in_order(result.ranges)))
        result._check_size()
        return result

    def with_range(self, schema: Schema, bounds: tuple[Any, Any]) -> PartitionSchema:
        """With one more range, whose partitions are numbered after all others."""
        return self._with_ranges(schema, (bounds,))

    def _with_ranges(self, schema: Schema, bounds: Iterable[tuple[Any, Any]]) -> PartitionSchema:
        new = [self._range_of(some) for some in bounds]
        result = PartitionSchema(schema, self.hashes, self.range_ids, (*self.ranges, *new))
        result._check_apart()
        result._check_size()
        return result

    def without_range(self, schema: Schema, bounds: tuple[Any, Any]) -> PartitionSchema:
        """With a range, given by its exact bounds, dropped; its ordinals are not used again."""
        return self.altered(schema, drop=(bounds,))

    def altered(
        self,
        schema: Schema,
        *,
        drop: Iterable[tuple[Any, Any]] = (),
        add: Iterable[tuple[Any, Any]] = (),
    ) -> PartitionSchema:
        """With ranges dropped, then others added: a range in both lists becomes a new, empty one."""
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
        result = PartitionSchema(schema, self.hashes, self.range_ids, tuple(ranges))
        result = result._with_ranges(schema, add)
        if all(r.dropped for r in result.ranges):
            raise InvalidArgument("a table keeps at least one range")
        return result

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
        return {
            "hash": [
                {"columns": list(h.column_ids), "buckets": h.buckets, "seed": h.seed} for h in self.hashes
            ],
            "range": list(self.range_ids),
            "ranges": [[_hex(r.lower), _hex(r.upper), r.dropped] for r in self.ranges],
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
        ranges = tuple(Range(_unhex(lo), _unhex(hi), flag(gone)) for lo, hi, gone in stored["ranges"])
        range_ids = tuple(map(integer, stored["range"]))
        for column_id in itertools.chain(range_ids, *(h.column_ids for h in hashes)):
            if column_id not in schema.key_ids:
                raise ValueError(f"partition column {column_id} is not in the key")
        if bool(range_ids) != bool(ranges):
            raise ValueError("range columns without ranges, or ranges without columns")
        if any(not h.column_ids for h in hashes):
            raise ValueError("a hash dimension without columns")
        made = PartitionSchema(schema, hashes, range_ids, ranges)
        made._check_apart()
        made._check_size()
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSchema) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.hashes, self.range_ids, self.ranges))

    # ---- the partitions

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions by ordinal, also the dropped ones: range by range, then bucket by bucket."""
        ranges: Sequence[Range | None] = self.ranges if self.range_ids else (None,)
        buckets = list(itertools.product(*(range(h.buckets) for h in self.hashes)))
        cells = itertools.product(ranges, buckets)
        return tuple(Partition(ordinal, b, r) for ordinal, (r, b) in enumerate(cells))

    @property
    def first_ordinals(self) -> range:
        """Of each range, in their order."""
        return range(0, len(self.ranges) * self._buckets, self._buckets)

    @property
    def _buckets(self) -> int:
        """Partitions of each range."""
        return prod(h.buckets for h in self.hashes)

    def route(self, keys: RowBlock) -> I32Array:
        """(n,) int32: ordinal of each row's partition, -1 where no range takes it.

        ``keys`` has at least the partition columns, without nulls.
        """
        if not self.hashes and not self.range_ids:
            return np.zeros(keys.rows, np.int32)
        ordinal = np.zeros(keys.rows, np.int32)
        for dimension in self.hashes:
            ordinal *= np.int32(dimension.buckets)
            ordinal += self._bucket_of(dimension, keys)
        if self.range_ids:
            place = self._range_of_rows(keys)
            ordinal += place * np.int32(self._buckets)
            ordinal[place < 0] = -1
        return ordinal

    @cached_property
    def router(self) -> KeyRouter | None:
        """``route`` of one encoded key; None where the key has too many columns for it."""
        if len(self._key_ids) > MAX_ROUTED_COLUMNS:
            return None
        place = {column_id: i for i, column_id in enumerate(self._key_ids)}
        types = [self._columns[i].type for i in self._key_ids]
        cuts, owner = self._cuts
        ends = cuts.offsets.tolist()
        return KeyRouter(
            [(t.kind, t.width, is_long_decimal(t)) for t in types],
            [([place[i] for i in h.column_ids], h.buckets, h.seed) for h in self.hashes],
            [place[i] for i in self.range_ids],
            [cuts.data[lo:hi].tobytes() for lo, hi in itertools.pairwise(ends)],
            owner.tolist(),
        )

    def bucket_of(self, dimension: int, keys: RowBlock) -> I32Array:
        """(n,) int32: bucket in one hash dimension."""
        return self._bucket_of(self.hashes[dimension], keys)

    def _bucket_of(self, dimension: HashDimension, keys: RowBlock) -> I32Array:
        columns = [(self._columns[i].type, keys.columns[i]) for i in dimension.column_ids]
        hashes = xxhash64(columns, keys.rows, dimension.seed)
        return hashing.bucket(hashes, dimension.buckets)

    def _range_of_rows(self, keys: RowBlock) -> I32Array:
        columns = [(self._columns[i], keys.columns[i]) for i in self.range_ids]
        encoded = EncodedKeys.from_columns(columns, keys.rows)
        cuts, owner = self._cuts
        return owner[cuts.lower_bound(encoded, upper=True)]

    @cached_property
    def _cuts(self) -> tuple[EncodedKeys, I32Array]:
        """All bounds in order, and the range (or -1) that owns what lies before, between and after."""
        live = [(r, i) for i, r in enumerate(self.ranges) if not r.dropped]
        cuts = sorted({b for r, _ in live for b in (r.lower, r.upper) if b is not None})
        owner = np.full(len(cuts) + 1, -1, np.int32)
        place = {cut: at for at, cut in enumerate(cuts)}
        for held, number in live:
            first = 0 if held.lower is None else place[held.lower] + 1
            last = len(cuts) if held.upper is None else place[held.upper]
            owner[first : last + 1] = number
        return EncodedKeys.from_list(cuts), owner

    # ---- pruning

    def prune(
        self,
        terms: Iterable[Term] = (),
        lower: bytes | None = None,
        upper: bytes | None = None,
        *,
        dropped: bool = False,
    ) -> list[int]:
        """Ordinals of the partitions that may hold rows which satisfy all of the terms.

        ``lower`` and ``upper`` are encoded bounds of whole keys, half-open.  Dropped ranges count
        only with ``dropped``: a snapshot from before may need them.
        """
        if not self.hashes and not self.range_ids:
            return [] if keybounds.is_empty((lower, upper)) else [0]
        terms = tuple(terms)
        bounds = keybounds.intersect(
            (lower, upper), keybounds.bounds_of(self._key_codec, self._key_ids, terms)
        )
        if keybounds.is_empty(bounds):
            return []
        shared = keybounds.equal_prefix(self._key_codec, bounds)
        fixed = dict(zip(self._key_ids, shared, strict=False))
        choices = [self._bucket_choices(h, terms, fixed) for h in self.hashes]
        buckets = [
            range(h.buckets) if choice is None else sorted(choice)
            for h, choice in zip(self.hashes, choices, strict=True)
        ]
        places = [0]
        for dimension, chosen in zip(self.hashes, buckets, strict=True):
            places = [place * dimension.buckets + bucket for place in places for bucket in chosen]
        return [
            number * self._buckets + place
            for number in self._range_choices(terms, bounds, dropped)
            for place in places
        ]

    def _bucket_choices(
        self, dimension: HashDimension, terms: Sequence[Term], fixed: Mapping[int, Physical]
    ) -> frozenset[int] | None:
        """Buckets that may hold a match; None = any, when a column is free or the lists are long."""
        listed: list[list[Physical]] = []
        for column_id in dimension.column_ids:
            candidates = [t.physical() for t in terms if t.column_id == column_id and t.op in ("eq", "in")]
            if column_id in fixed:
                candidates.append([fixed[column_id]])
            if not candidates:
                return None
            listed.append(min(candidates, key=len))
        if prod(map(len, listed)) > _MAX_ENUMERATED:
            return None
        combinations = list(itertools.product(*listed))
        block = RowBlock({}, len(combinations))
        for place, column_id in enumerate(dimension.column_ids):
            cells = [combination[place] for combination in combinations]
            block.columns[column_id] = _column_of(self._columns[column_id].type, cells)
        return frozenset(self._bucket_of(dimension, block).tolist())

    def _range_choices(self, terms: Sequence[Term], bounds: Bounds, dropped: bool) -> list[int]:
        """Numbers of the ranges that may hold a match."""
        codec = self._range_codec
        if codec is None:
            return [0]
        known = keybounds.lifted(self._key_codec, self._key_ids, bounds)
        wanted = keybounds.bounds_of(codec, self.range_ids, terms, known)
        if self._key_ids[: len(self.range_ids)] == self.range_ids:
            wanted = keybounds.intersect(wanted, keybounds.projected(self._key_codec, codec, bounds))
        if keybounds.is_empty(wanted):
            return []
        sought = Range(*wanted)
        return [i for i, r in enumerate(self.ranges) if r.overlaps(sought) and (dropped or not r.dropped)]

    # ---- for people

    def describe(self, partition: Partition) -> str:
        """Such as ``hash(host) = 3 of 8, range(day) = ['2024-01-01', open)``."""
        parts = [
            f"hash({self._names(h.column_ids)}) = {bucket} of {h.buckets}"
            for h, bucket in zip(self.hashes, partition.buckets, strict=True)
        ]
        if partition.range is not None:
            gone = " (dropped)" if partition.range.dropped else ""
            parts.append(f"range({self._names(self.range_ids)}) = {self._show(partition.range)}{gone}")
        return ", ".join(parts) or "all rows"

    def bounds(self, partition: Partition) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
        """A partition's range as exact Python values of the range columns; None = open."""
        if partition.range is None or self._range_codec is None:
            return None, None
        lower, upper = partition.range.lower, partition.range.upper
        return (
            None if lower is None else self._range_codec.decode_prefix(lower),
            None if upper is None else self._range_codec.decode_prefix(upper),
        )

    def _show(self, shown: Range) -> str:
        assert self._range_codec is not None
        lower = "(open" if shown.lower is None else f"[{self._range_codec.show(shown.lower)}"
        return f"{lower}, {self._range_codec.show(shown.upper)})"

    def _names(self, column_ids: Iterable[int]) -> str:
        return ", ".join(self._columns[i].name for i in column_ids)

    # ---- helpers

    def _codec(self, column_ids: Iterable[int]) -> KeyCodec:
        return KeyCodec([(self._columns[i].name, self._columns[i].type) for i in column_ids])

    def _range_of(self, bounds: Any) -> Range:
        """A caller's bounds, encoded and checked."""
        if self._range_codec is None:
            raise InvalidArgument("the table has no range dimension")
        if isinstance(bounds, str | bytes | Mapping) or not isinstance(bounds, Sequence) or len(bounds) != 2:
            raise InvalidArgument(f"a range is (lower, upper), None for an open end, not {shown(bounds)}")
        lower, upper = (None if bound is None else self._range_codec.encode_prefix(bound) for bound in bounds)
        made = Range(lower, upper)
        for bound in (lower, upper):
            if bound is not None and len(bound) > MAX_KEY_BYTES:
                raise InvalidArgument(
                    f"a bound of a range has {len(bound):,} bytes as a key; a key has at most "
                    f"{MAX_KEY_BYTES:,}"
                )
        if upper is not None and (lower or b"") >= upper:
            raise InvalidArgument(f"range {self._show(made)} is empty")
        return made

    def _check_apart(self) -> None:
        """``InvalidArgument`` where two ranges that are there overlap."""
        place = {id(held): number for number, held in enumerate(self.ranges)}
        for one, other in itertools.pairwise(_in_order(held for held in self.ranges if not held.dropped)):
            if one.overlaps(other):
                new, old = (one, other) if place[id(one)] > place[id(other)] else (other, one)
                raise InvalidArgument(f"range {self._show(new)} overlaps {self._show(old)}")

    def _check_size(self) -> None:
        """``InvalidArgument`` for more than TABLE and the log take."""
        count = self._buckets * max(1, len(self.ranges))
        if count > MAX_PARTITIONS:
            raise InvalidArgument(
                f"{count:,} partitions; a table has at most {MAX_PARTITIONS:,}, dropped ones counted"
            )
        size = sum(2 * len(held.lower or b"") + 2 * len(held.upper or b"") + 20 for held in self.ranges)
        if size > MAX_RANGES_BYTES:
            raise InvalidArgument(
                f"the bounds of {len(self.ranges):,} ranges take {size:,} bytes; at most "
                f"{MAX_RANGES_BYTES:,} are stored: make fewer ranges, or give shorter bounds"
            )


def _hash_dimension(schema: Schema, declared: HashPartition) -> HashDimension:
    ids = _column_ids(schema, declared.columns, "hash")
    buckets, seed = declared.buckets, declared.seed
    if isinstance(buckets, bool) or not isinstance(buckets, int) or not MIN_BUCKETS <= buckets <= MAX_BUCKETS:
        raise InvalidArgument(
            f"buckets is a whole number of {MIN_BUCKETS} to {MAX_BUCKETS:,}, not {shown(buckets)}"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise InvalidArgument(f"seed is a whole number of 0 to 2**64 - 1, not {shown(seed)}")
    return HashDimension(ids, buckets, seed)


def _column_ids(schema: Schema, columns: str | Sequence[str], dimension: str) -> tuple[int, ...]:
    if not isinstance(columns, Iterable):
        raise InvalidArgument(f"a {dimension} dimension names columns, not {shown(columns)}")
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names:
        raise InvalidArgument(f"a {dimension} dimension has at least one column")
    ids = []
    for name in names:
        column = schema.column(name)
        if column.id not in schema.key_ids:
            raise InvalidArgument(f"column {name!r} is not in the primary key; only key columns partition")
        if column.id in ids:
            raise InvalidArgument(f"column {name!r} is twice in a {dimension} dimension")
        ids.append(column.id)
    return tuple(ids)


def _column_of(type_: ColumnType, cells: Sequence[Physical]) -> ColumnBuffers:
    raw = [pack(type_, cell) for cell in cells]
    values = np.frombuffer(b"".join(raw), np.uint8) if raw else np.empty(0, np.uint8)
    if type_.width:
        return ColumnBuffers(type_.width, len(raw), values)
    offsets = np.zeros(len(raw) + 1, np.int32)
    np.cumsum([len(cell) for cell in raw], out=offsets[1:])
    return ColumnBuffers(0, len(raw), values, offsets)


def _hex(bound: bytes | None) -> str | None:
    return None if bound is None else bound.hex()


def _unhex(stored: str | None) -> bytes | None:
    bound = None if stored is None else bytes.fromhex(stored)
    if bound is not None and len(bound) > MAX_KEY_BYTES:
        raise ValueError(f"a bound of {len(bound)} bytes; keys have at most {MAX_KEY_BYTES}")
    return bound


def _in_order(ranges: Iterable[Range]) -> list[Range]:
    """By the keys that they hold."""
    return sorted(ranges, key=lambda held: (held.lower is not None, held.lower or b""))
