"""Which partitions may hold rows that are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from kudu_core.common.partition.hash_dimension import bucket_choices
from kudu_core.common.partition.ranges import Range
from kudu_core.common.partition.told_partitions import ToldPartitions
from kudu_core.common.types.keycodec import KeyCodec
from kudu_core.common.where import keybounds
from kudu_core.common.where.analysis import Term
from kudu_core.common.where.keybounds import Bounds


class PrunablePartitions(ToldPartitions):
    """What a ``PartitionSchema`` says of a predicate."""

    first: int
    former: Sequence[PrunablePartitions]
    key_ids: tuple[int, ...]
    _key_codec: KeyCodec

    @property
    def _buckets(self) -> int:
        """Partitions of each range."""
        return prod(h.buckets for h in self.hashes)

    def prune(
        self,
        terms: Iterable[Term] = (),
        lower: bytes | None = None,
        upper: bytes | None = None,
        *,
        dropped: bool = False,
    ) -> list[int]:
        """Ordinals of the partitions that may hold rows which satisfy all of the terms.

        ``lower`` and ``upper`` are encoded bounds of whole keys, half-open.  Dropped ranges, and the
        partitions of before, count only with ``dropped``: a snapshot from before may need them.
        """
        terms = tuple(terms)
        found = self._pruned(terms, lower, upper, dropped)
        for some in self.former if dropped else ():
            found += some._pruned(terms, lower, upper, dropped)
        return found

    def _pruned(
        self, terms: Sequence[Term], lower: bytes | None, upper: bytes | None, dropped: bool
    ) -> list[int]:
        if not self.hashes and not self.range_ids:
            return [] if keybounds.is_empty((lower, upper)) else [self.first]
        bounds = keybounds.intersect(
            (lower, upper), keybounds.bounds_of(self._key_codec, self.key_ids, terms)
        )
        if keybounds.is_empty(bounds):
            return []
        shared = keybounds.equal_prefix(self._key_codec, bounds)
        fixed = dict(zip(self.key_ids, shared, strict=False))
        choices = [bucket_choices(h, self._columns, terms, fixed) for h in self.hashes]
        places: Sequence[int] = range(self._buckets)
        if any(choice is not None for choice in choices):
            places = [0]
            for dimension, choice in zip(self.hashes, choices, strict=True):
                chosen = range(dimension.buckets) if choice is None else sorted(choice)
                places = [place * dimension.buckets + bucket for place in places for bucket in chosen]
        each = self._buckets
        return [
            self.first + number * each + place
            for number in self._range_choices(terms, bounds, dropped)
            for place in places
        ]

    def _range_choices(self, terms: Sequence[Term], bounds: Bounds, dropped: bool) -> list[int]:
        """Numbers of the ranges that may hold a match."""
        codec = self._range_codec
        if codec is None:
            return [0]
        known = keybounds.lifted(self._key_codec, self.key_ids, bounds)
        wanted = keybounds.bounds_of(codec, self.range_ids, terms, known)
        if self.key_ids[: len(self.range_ids)] == self.range_ids:
            wanted = keybounds.intersect(wanted, keybounds.projected(self._key_codec, codec, bounds))
        if keybounds.is_empty(wanted):
            return []
        sought = Range(*wanted)
        return [i for i, r in enumerate(self.ranges) if r.overlaps(sought) and (dropped or not r.dropped)]


__all__ = ["PrunablePartitions"]
