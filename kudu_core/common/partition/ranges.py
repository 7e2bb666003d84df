"""The ranges of a range dimension: their bounds as encoded keys, stored and shown, where they cut the keys.

Ranges are numbered as they were added.  Not known here: hash dimensions, and what a range's partitions are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kudu_core.common.format.members import flag
from kudu_core.common.partition.dimension import I32Array
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.types.keycodec import MAX_KEY_BYTES, KeyCodec
from kudu_core.errors import InvalidArgument, shown

MAX_RANGES_BYTES = 32 << 20
"""What the bounds of all ranges take as JSON."""


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

    def to_json(self) -> list[Any]:
        return [_hex(self.lower), _hex(self.upper), self.dropped]

    @staticmethod
    def from_json(stored: Any) -> Range:
        """Raises ``TypeError`` or ``ValueError`` for what ``to_json`` never writes."""
        lower, upper, dropped = stored
        return Range(_unhex(lower), _unhex(upper), flag(dropped))


def range_of(codec: KeyCodec, bounds: Any) -> Range:
    """A caller's bounds, encoded and checked."""
    if isinstance(bounds, str | bytes | Mapping) or not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise InvalidArgument(f"a range is (lower, upper), None for an open end, not {shown(bounds)}")
    lower, upper = (None if bound is None else codec.encode_prefix(bound) for bound in bounds)
    made = Range(lower, upper)
    for bound in (lower, upper):
        if bound is not None and len(bound) > MAX_KEY_BYTES:
            raise InvalidArgument(
                f"a bound of a range has {len(bound):,} bytes as a key; a key has at most {MAX_KEY_BYTES:,}"
            )
    check_not_empty(codec, made)
    return made


def check_not_empty(codec: KeyCodec, held: Range) -> None:
    """``InvalidArgument`` for a range that takes no key: its bounds are equal, or the wrong way round."""
    if held.upper is not None and (held.lower or b"") >= held.upper:
        raise InvalidArgument(f"range {range_as_text(codec, held)} is empty")


def range_as_text(codec: KeyCodec, held: Range) -> str:
    """Such as ``['2024-01-01', open)``."""
    lower = "(open" if held.lower is None else f"[{codec.show(held.lower)}"
    return f"{lower}, {codec.show(held.upper)})"


def in_order(ranges: Iterable[Range]) -> list[Range]:
    """By the keys that they hold."""
    return sorted(ranges, key=lambda held: (held.lower is not None, held.lower or b""))


def check_apart(codec: KeyCodec, ranges: Sequence[Range]) -> None:
    """``InvalidArgument`` where two ranges that are there overlap."""
    place = {id(held): number for number, held in enumerate(ranges)}
    for one, other in itertools.pairwise(in_order(held for held in ranges if not held.dropped)):
        if one.overlaps(other):
            new, old = (one, other) if place[id(one)] > place[id(other)] else (other, one)
            raise InvalidArgument(f"range {range_as_text(codec, new)} overlaps {range_as_text(codec, old)}")


def check_bytes(ranges: Sequence[Range]) -> None:
    """``InvalidArgument`` for longer bounds than TABLE and the log take."""
    size = sum(2 * len(held.lower or b"") + 2 * len(held.upper or b"") + 20 for held in ranges)
    if size > MAX_RANGES_BYTES:
        raise InvalidArgument(
            f"the bounds of {len(ranges):,} ranges take {size:,} bytes; at most "
            f"{MAX_RANGES_BYTES:,} are stored: make fewer ranges, or give shorter bounds"
        )


def cuts_of(ranges: Sequence[Range]) -> tuple[EncodedKeys, I32Array]:
    """All bounds in order, and the range (or -1) that owns what lies before, between and after."""
    live = [(r, i) for i, r in enumerate(ranges) if not r.dropped]
    cuts = sorted({b for r, _ in live for b in (r.lower, r.upper) if b is not None})
    owner = np.full(len(cuts) + 1, -1, np.int32)
    place = {cut: at for at, cut in enumerate(cuts)}
    for held, number in live:
        first = 0 if held.lower is None else place[held.lower] + 1
        last = len(cuts) if held.upper is None else place[held.upper]
        owner[first : last + 1] = number
    return EncodedKeys.from_list(cuts), owner


def _hex(bound: bytes | None) -> str | None:
    return None if bound is None else bound.hex()


def _unhex(stored: str | None) -> bytes | None:
    bound = None if stored is None else bytes.fromhex(stored)
    if bound is not None and len(bound) > MAX_KEY_BYTES:
        raise ValueError(f"a bound of {len(bound)} bytes; keys have at most {MAX_KEY_BYTES}")
    return bound
