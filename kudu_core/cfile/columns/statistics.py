"""What is known of the columns of a rows file without opening it: stored bytes and zone of each.

A *block* is packed binary (docs/format.md, "Column statistics"): whoever keeps ten thousand of them pays for
their bytes alone, and takes one column out when a predicate names it.  A manifest holds a small
block itself; a large one is a section of its file, and the manifest says where (``StatisticsRef``): so what
an open reads does not grow with the columns.

Statistics only ever save work: what cannot be taken apart says nothing, and rules nothing out.
"""

from __future__ import annotations

import base64
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages.container import (
    CRC_PLACE,
    HEADER,
    SECTION_FRAME,
    SECTION_STATISTICS,
)
from kudu_core.errors import Corruption
from kudu_core.fs.missing import FileMissing

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

HEAD = struct.Struct("<II")
# columns, rows
ENTRY = struct.Struct("<iIQIIBBBB")
# column id, where its bounds begin, stored bytes, nulls, NaNs, length of both bounds, flags, zero
assert HEAD.size == 8
assert ENTRY.size == 28

HAS_MIN = 1
HAS_MAX = 2
MIN_EXACT = 4
MAX_EXACT = 8

INLINE_BYTES = 2048
"""A block up to this size is in the manifest, a larger one in its file alone."""
MAX_BLOCK_BYTES = 64 << 20
"""Of a block in a file: a million columns.  A reference that promises more is no reference of ours."""


@dataclass(frozen=True, slots=True)
class StatisticsBlock:
    """The statistics of the columns of one file, packed."""

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) < HEAD.size or len(self.data) < HEAD.size + len(self) * ENTRY.size:
            raise ValueError(f"{len(self.data)} bytes are too few for the statistics of columns")

    def __len__(self) -> int:
        count: int = HEAD.unpack_from(self.data)[0]
        return count

    @property
    def column_ids(self) -> tuple[int, ...]:
        end = HEAD.size + len(self) * ENTRY.size
        return tuple(entry[0] for entry in ENTRY.iter_unpack(self.data[HEAD.size : end]))

    def stored_bytes(self, column_id: int) -> int:
        """What the column takes in the file; 0 if it is not there."""
        at = self._find(column_id)
        return 0 if at < 0 else int(ENTRY.unpack_from(self.data, at)[2])

    def zone(self, column_id: int) -> Zone | None:
        """Bounds and counts of a column; None: nothing is known of it."""
        at = self._find(column_id)
        if at < 0:
            return None
        _, begin, _, nulls, nans, low_bytes, high_bytes, flags, _ = ENTRY.unpack_from(self.data, at)
        begin += HEAD.size + len(self) * ENTRY.size
        end = begin + low_bytes + high_bytes
        if end > len(self.data):
            return None
        return Zone(
            self.data[begin : begin + low_bytes] if flags & HAS_MIN else None,
            self.data[begin + low_bytes : end] if flags & HAS_MAX else None,
            nulls,
            nans,
            HEAD.unpack_from(self.data)[1],
            bool(flags & MIN_EXACT),
            bool(flags & MAX_EXACT),
        )

    def _find(self, column_id: int) -> int:
        """Where the column's entry begins, -1 without one.  Entries ascend by id."""
        first, last = 0, len(self)
        while first < last:
            middle = (first + last) // 2
            at = HEAD.size + middle * ENTRY.size
            found: int = ENTRY.unpack_from(self.data, at)[0]
            if found == column_id:
                return at
            if found < column_id:
                first = middle + 1
            else:
                last = middle
        return -1


@dataclass(frozen=True, slots=True)
class StatisticsRef:
    """A block that is a section of its file."""

    offset: int
    """Of the section's frame."""
    length: int
    """With the frame."""
    crc: int
    """The frame's: a manifest's reference is to this section of this file and no other."""
    ids: tuple[tuple[int, int], ...]
    """The columns, as spans of ids: first, last."""

    @property
    def column_ids(self) -> tuple[int, ...]:
        return _expanded(self.ids)

    def has(self, column_id: int) -> bool:
        """Whether it is among ``column_ids``, which has all of a wide table."""
        span = bisect_right(self.ids, column_id, key=itemgetter(0)) - 1
        return span >= 0 and bool(column_id <= self.ids[span][1])


FileStatistics: TypeAlias = StatisticsBlock | StatisticsRef


def pack(rows: int, entries: Mapping[int, tuple[int, Zone]]) -> StatisticsBlock:
    """A block from (stored bytes, zone) by column id."""
    heads, bounds = [HEAD.pack(len(entries), rows)], []
    begin = 0
    for column_id, (stored_bytes, zone) in sorted(entries.items()):
        low, high = zone.minimum, zone.maximum
        flags = (
            (low is not None) * HAS_MIN
            | (high is not None) * HAS_MAX
            | zone.minimum_exact * MIN_EXACT
            | zone.maximum_exact * MAX_EXACT
        )
        low, high = low or b"", high or b""
        counts = zone.null_count, zone.nan_count, len(low), len(high)
        heads.append(ENTRY.pack(column_id, begin, stored_bytes, *counts, flags, 0))
        bounds += [low, high]
        begin += len(low) + len(high)
    return StatisticsBlock(b"".join((*heads, *bounds)))


def spans_of(ids: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ids as spans of neighbours: (first, last)."""
    spans: list[tuple[int, int]] = []
    for column_id in sorted(ids):
        if spans and spans[-1][1] == column_id - 1:
            spans[-1] = spans[-1][0], column_id
        else:
            spans.append((column_id, column_id))
    return tuple(spans)


@lru_cache(64)
def _expanded(spans: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """The rowsets of a table have the same few lists of columns."""
    return tuple(column_id for first, last in spans for column_id in range(first, last + 1))


def read_statistics(
    fs: FileSystem, path: str, ref: StatisticsRef, size: int | None = None
) -> StatisticsBlock:
    """The block of a file that is not open: two reads, neither of them the footer.

    ``size``: the file's, where it is known.

    Raises
    ------
    Corruption
        The file is not there, or the section is not the one that the manifest names.
    """
    try:
        file = fs.open_read(path, size)
    except FileNotFoundError:
        raise FileMissing(path) from None
    try:
        head = file.pread(HEADER.size, 0)
        section = file.pread(ref.length, ref.offset)
    finally:
        file.close()
    if len(head) != HEADER.size or len(section) != ref.length:
        raise Corruption(path, ref.offset, "the file ends before the statistics of its columns")
    return checked_section(path, head[20:36], section, ref)


def checked_section(path: str, file_id: bytes, section: bytes, ref: StatisticsRef) -> StatisticsBlock:
    """The block in the bytes of a section, frame included, that must be what ``ref`` says."""
    crc, kind, reserved, length = SECTION_FRAME.unpack_from(section)
    place = crc32c(CRC_PLACE.pack(ref.offset, SECTION_STATISTICS), crc32c(file_id, 0))
    if crc != ref.crc or crc32c(section[4:], place) != crc:
        raise Corruption(path, ref.offset, "the statistics of columns do not match their CRC")
    if (kind, reserved, length) != (SECTION_STATISTICS, 0, ref.length - SECTION_FRAME.size):
        raise Corruption(path, ref.offset, "no section of statistics where the manifest names one")
    try:
        return StatisticsBlock(section[SECTION_FRAME.size :])
    except ValueError as exc:
        raise Corruption(path, ref.offset, str(exc)) from exc


def to_json(statistics: FileStatistics | None) -> Any:
    """For a manifest: base64 of a small block, else where it is."""
    if isinstance(statistics, StatisticsBlock):
        return base64.b64encode(statistics.data).decode()
    if statistics is None:
        return None
    return [statistics.offset, statistics.length, statistics.crc, [list(span) for span in statistics.ids]]


__all__ = [
    "FileStatistics",
    "StatisticsBlock",
    "StatisticsRef",
    "pack",
    "read_statistics",
    "spans_of",
    "to_json",
]
