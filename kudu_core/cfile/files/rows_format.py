"""What a ``.rows`` file is to others: its columns of our own, and what a manifest records of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kudu_core.cfile.columns.column_list import ColumnEntry
from kudu_core.cfile.columns.statistics import FileStatistics, StatisticsBlock, pack
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages.container import FileMeta

KEYS_ID = -1
INSERT_TIME_ID = -2


@dataclass(frozen=True, slots=True)
class RowsMeta:
    """What a manifest records of a ``.rows`` file.

    ``statistics``: of the columns, or where in the file they are.
    ``min_insert``, ``max_insert``: of the insert-time column, None where the file has none.
    """

    rows: int
    size: int
    footer_crc: int
    tail: int
    """See ``FileMeta``."""
    min_key: bytes
    max_key: bytes
    statistics: FileStatistics
    bloom_bytes: int
    key_bytes: int
    min_insert: int | None
    max_insert: int | None


def rows_meta(
    rows: int,
    inserts: Zone | None,
    file: FileMeta,
    bounds: tuple[bytes, bytes],
    statistics: FileStatistics,
    bloom_bytes: int,
    key_bytes: int,
) -> RowsMeta:
    """``inserts``: the zone of the insert times, where the file has them."""
    times: tuple[int | None, int | None] = (None, None)
    if inserts is not None and inserts.minimum is not None and inserts.maximum is not None:
        times = int.from_bytes(inserts.minimum, "little"), int.from_bytes(inserts.maximum, "little")
    return RowsMeta(
        rows,
        file.size,
        file.footer_crc,
        file.tail,
        *bounds,
        statistics,
        bloom_bytes,
        key_bytes,
        *times,
    )


def statistics_of(rows: int, entries: Iterable[ColumnEntry]) -> StatisticsBlock:
    """Of the columns that a schema knows."""
    return pack(rows, {entry.id: (entry.stored_bytes, entry.zone) for entry in entries if entry.id >= 0})
