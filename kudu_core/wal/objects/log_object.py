"""The bytes of a log object: a header, and records without anything behind the last.

docs/protocol-objects.md, "Log object", has the same as a table.  All integers are little-endian.  The salt
of the records' CRCs has the object's number in the place of a segment's sequence.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.format.members import LIMIT
from kudu_core.errors import Corruption, NotSupported
from kudu_core.wal.find_records import Record
from kudu_core.wal.format import (
    RECORD_HEADER,
    RECORD_KIND_ALTER,
    RECORD_KIND_EDIT,
    RECORD_KIND_INGEST,
    RECORD_KIND_WRITE,
    SEGMENT_MAGIC,
    padded,
    record_is_sound,
    segment_salt,
)

FOLDER: Final = "log"
VERSION: Final = 2
PUT_ID_BYTES: Final = 16
NO_ID: Final = bytes(PUT_ID_BYTES)
# magic, version, crc, table uuid, epoch, n, prev_ts, prev_lsn, put id, put id of object n - 1
OBJECT_HEADER: Final = struct.Struct("<8sII16sQQQQ16s16s")
assert OBJECT_HEADER.size == 96
KINDS: Final = frozenset((RECORD_KIND_WRITE, RECORD_KIND_INGEST, RECORD_KIND_ALTER, RECORD_KIND_EDIT))
_PUT_ID_AT: Final = 64
_NAME: Final = re.compile(r"log/([0-9]{20})")


def log_name(n: int) -> str:
    """The name of object ``n``, from the table's root."""
    return f"{FOLDER}/{n:020d}"


def parse_log_name(name: str) -> int | None:
    """The number of a log object's name; None for anything else."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def log_put_id(data: bytes) -> bytes | None:
    """The put id of a log object; None where these bytes are none."""
    if len(data) < OBJECT_HEADER.size or data[:8] != SEGMENT_MAGIC:
        return None
    return data[_PUT_ID_AT : _PUT_ID_AT + PUT_ID_BYTES]


class LogEnd(NamedTuple):
    """What an object that follows must name: the put id of the one before it, and its last record."""

    put_id: bytes = NO_ID
    ts: int = 0
    lsn: int = 0


class LogPlace(NamedTuple):
    """Where a log begins."""

    first: int
    """The number of its first object."""
    prev: LogEnd
    """Of the object before that."""
    through: int
    """Replay needs no record of rows with a timestamp at or below it."""


@dataclass(frozen=True, slots=True)
class ObjectHeader:
    """The first 96 bytes of a log object."""

    table_uuid: bytes
    epoch: int
    n: int
    prev: LogEnd
    put_id: bytes

    def pack(self) -> bytes:
        return self._pack(VERSION, crc32c(self._pack(VERSION, 0)))

    def _pack(self, version: int, crc: int) -> bytes:
        prev_id, ts, lsn = self.prev
        names = (self.table_uuid, self.epoch, self.n, ts, lsn, self.put_id, prev_id)
        return OBJECT_HEADER.pack(SEGMENT_MAGIC, version, crc, *names)

    def salt(self) -> bytes:
        """What the CRC of each record covers beside the record."""
        return segment_salt(self.table_uuid, self.epoch, self.n)

    @staticmethod
    def unpack(data: bytes, path: str, table_uuid: bytes, n: int) -> ObjectHeader:
        """That of object ``n`` of a table.

        Raises
        ------
        NotSupported
            A sound header of another version of the format.
        Corruption
            Anything else that is not this object's header.
        """
        if len(data) < OBJECT_HEADER.size:
            raise Corruption(path, 0, f"{len(data)} bytes are too few for a log object")
        magic, version, crc, uuid, epoch, found, ts, lsn, put_id, prev_id = OBJECT_HEADER.unpack_from(data)
        header = ObjectHeader(uuid, epoch, found, LogEnd(prev_id, ts, lsn), put_id)
        if magic != SEGMENT_MAGIC or crc != crc32c(header._pack(version, 0)):
            raise Corruption(path, 0, "not the header of a log object, or not as it was written")
        if version != VERSION:
            raise NotSupported(f"{path} is a log object of version {version}; this release reads {VERSION}")
        if uuid != table_uuid:
            raise Corruption(path, 16, "a log object of another table")
        if found != n:
            raise Corruption(path, 40, f"log object {found} under the name of {n}")
        if max(epoch, ts, lsn) >= LIMIT:
            raise Corruption(path, 32, "a number that is too large")
        return header


def records_of(header: ObjectHeader, data: bytes, path: str) -> Iterator[tuple[int, Record]]:
    """The records of a log object with their offsets; ``Corruption`` for anything that is not one (protocol
    B2)."""
    salt, view = header.salt(), memoryview(data)
    at, lsn, last_ts = OBJECT_HEADER.size, header.prev.lsn, header.prev.ts
    while at < len(data):
        if at + RECORD_HEADER.size > len(data):
            raise Corruption(path, at, "the object ends inside a record")
        length, _, found, ts, synced, version, kind = RECORD_HEADER.unpack_from(data, at)
        end = at + padded(length)
        if length < RECORD_HEADER.size or end > len(data):
            raise Corruption(path, at, f"a record of {length} bytes does not fit into the object")
        if not record_is_sound(salt, view[at:end]):
            raise Corruption(path, at, "a record does not match its checksum")
        if found != lsn + 1 or not last_ts < ts < LIMIT or kind not in KINDS:
            raise Corruption(
                path, at, f"record {found} of kind {kind} at {ts} follows record {lsn} at {last_ts}"
            )
        lsn, last_ts = found, ts
        yield at, Record(lsn, ts, kind, version, view[at + RECORD_HEADER.size : at + length], synced)
        at = end


__all__ = [
    "FOLDER",
    "NO_ID",
    "OBJECT_HEADER",
    "LogEnd",
    "LogPlace",
    "ObjectHeader",
    "log_name",
    "log_put_id",
    "parse_log_name",
    "records_of",
]
