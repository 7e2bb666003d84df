"""What a ``.rows`` file is to others: its columns of our own, and what a manifest records of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kudu_core.cfile.columns.statistics import FileStatistics
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
    min_key: bytes
    max_key: bytes
    statistics: FileStatistics
    bloom_bytes: int
    key_bytes: int
    min_insert: int | None
    max_insert: int | None


def rows_meta(
    rows: int,
    entries: Sequence[dict[str, Any]],
    file: FileMeta,
    bounds: tuple[bytes, bytes],
    statistics: FileStatistics,
    bloom_bytes: int,
    key_bytes: int,
) -> RowsMeta:
    """By the footer's list of columns, and what the file has besides them."""
    inserts = next((entry["zone"] for entry in entries if entry["role"] == "insert_time"), None)
    times: tuple[int | None, int | None] = (None, None)
    if inserts is not None and rows:
        first, last = (int.from_bytes(bytes.fromhex(inserts[end]), "little") for end in ("min", "max"))
        times = first, last
    return RowsMeta(
        rows,
        file.size,
        file.footer_crc,
        *bounds,
        statistics,
        bloom_bytes,
        key_bytes,
        *times,
    )
