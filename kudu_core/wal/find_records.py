"""Finding records among a segment's bytes: one after the other, or anywhere behind a place.

Knows nothing of which segments are the log's, nor of what may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kudu_core.common.format.members import LIMIT
from kudu_core.wal.format import RECORD_HEADER, padded, record_is_sound

if TYPE_CHECKING:
    from kudu_core.fs.api import ReadFile

CHUNK: Final = 1 << 20
SEARCH_CHUNK: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """One log record.  ``payload`` is a read-only view that stays valid."""

    lsn: int
    ts: int
    kind: int
    schema_version: int
    payload: memoryview
    synced_lsn: int


def sound_records(
    file: ReadFile, salt: bytes, start: int, lsn: int, end: int | None = None
) -> Iterator[tuple[int, Record]]:
    """The sound records of a segment with their offsets, from ``start``, the first of them ``lsn``, to
    ``end`` or an unsound one."""
    size = file.size() if end is None else end
    need = CHUNK
    while start + RECORD_HEADER.size <= size:
        data = file.pread(min(need, size - start), start)
        view = memoryview(data)
        need = CHUNK
        at = 0
        while at + RECORD_HEADER.size <= len(data):
            length, _, found, ts, synced, version, kind = RECORD_HEADER.unpack_from(data, at)
            extent = padded(length)
            if length < RECORD_HEADER.size or found != lsn or start + at + extent > size:
                return
            if at + extent > len(data):
                need = max(CHUNK, extent)
                break
            if not record_is_sound(salt, view[at : at + extent]):
                return
            payload = view[at + RECORD_HEADER.size : at + length]
            yield start + at, Record(lsn, ts, kind, version, payload, synced)
            lsn += 1
            at += extent
        if not at and need == CHUNK:
            return  # a short read: the file ends here
        start += at


def find_record(
    file: ReadFile, salt: bytes, start: int, above_lsn: int, synced_lsn: int, below_lsn: int = LIMIT
) -> int | None:
    """Where the first sound record is, from ``start`` on, with ``above_lsn`` < lsn < ``below_lsn`` and
    synced_lsn >= ``synced_lsn``."""
    size = file.size()
    while start + RECORD_HEADER.size <= size:
        data = file.pread(min(SEARCH_CHUNK, size - start), start)
        words = np.frombuffer(data, "<u8", len(data) // 8)
        count = len(words) - RECORD_HEADER.size // 8 + 1
        if count <= 0:
            return None
        lsn, synced = words[1 : count + 1], words[3 : count + 3]
        length = words[:count] & 0xFFFFFFFF
        likely = (lsn > above_lsn) & (lsn < below_lsn) & (length >= RECORD_HEADER.size)
        likely &= (synced >= synced_lsn) & (synced < lsn)
        for index in np.flatnonzero(likely).tolist():
            at = start + 8 * index
            extent = padded(int(length[index]))
            if at + extent <= size and record_is_sound(salt, memoryview(file.pread(extent, at))):
                return at
        start += 8 * count
    return None


__all__ = ["Record", "find_record", "sound_records"]
