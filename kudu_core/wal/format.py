"""The bytes of the log: names, headers, slots, and how each is checked.

``docs/format.md`` has the same as tables, and a test compares the two.  Nothing here touches a
file.  All integers are little-endian; a timestamp is hybrid time (microseconds << 12 | counter).

A record's CRC covers, in this order, the payload with its padding, then the table, epoch and
sequence of its segment, then the header's fields after the CRC.  So what an earlier life of a
recycled segment left behind, or what another table wrote, never reads as a record; and as the
length counts the header, neither does a run of zeros.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.format.members import LIMIT
from kudu_core.errors import NotSupported

Buffer: TypeAlias = bytes | bytearray | memoryview

RECORD_KIND_WRITE: Final = 1
RECORD_KIND_INGEST: Final = 2
RECORD_KIND_ALTER: Final = 3
RECORD_KIND_CHECKPOINT: Final = 4
RECORD_KIND_EDIT: Final = 5
RECORD_KINDS: Final = frozenset(
    (RECORD_KIND_WRITE, RECORD_KIND_INGEST, RECORD_KIND_ALTER, RECORD_KIND_CHECKPOINT)
)

SEGMENT_MAGIC: Final = b"KUDUWAL\n"
SEGMENT_VERSION: Final = 1

# magic, version, crc, table uuid, epoch, seq, prev_ts, prev_lsn
SEGMENT_HEADER: Final = struct.Struct("<8sII16sQQQQ")
# length (header + payload, without padding), crc, lsn, ts, synced_lsn, schema version, kind
RECORD_HEADER: Final = struct.Struct("<IIQQQIB3x")
# counter, ts (the committed watermark W), lsn, epoch, crc
COMMITTED_SLOT: Final = struct.Struct("<QQQQI4x")
# through, number of entries; then the entries
CHECKPOINT_HEAD: Final = struct.Struct("<QII")
# tablet id, number of the tablet's last durable edit, the largest mark that its edits name
CHECKPOINT_ENTRY: Final = struct.Struct("<QQQ")
# what of a segment goes under its records' CRC
_SALT: Final = struct.Struct("<16sQQ")

assert SEGMENT_HEADER.size == 64
assert RECORD_HEADER.size == 40
assert COMMITTED_SLOT.size == 40
assert CHECKPOINT_HEAD.size == 16
assert CHECKPOINT_ENTRY.size == 24

ALIGNMENT: Final = 8
MAX_RECORD: Final = (1 << 32) - ALIGNMENT

COMMITTED_NAME: Final = "COMMITTED"
COMMITTED_STRIDE: Final = 512
"""Distance of the two slots: a sector each, so that tearing one leaves the other."""

PADDING: Final = tuple(bytes(n) for n in range(ALIGNMENT))
_SEGMENT_NAME: Final = re.compile(r"(\d{8,})-(\d{10,})\.log")
_SPARE_NAME: Final = re.compile(r"spare-(\d+)\.seg")


def segment_name(epoch: int, seq: int) -> str:
    """The file name of a segment inside ``wal/``."""
    return f"{epoch:08d}-{seq:010d}.log"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """``(epoch, seq)`` of a segment's file name; None for anything else."""
    match = _SEGMENT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def spare_name(number: int) -> str:
    """The file name under which an obsolete segment waits to be recycled."""
    return f"spare-{number}.seg"


def parse_spare_name(name: str) -> int | None:
    """The number of a spare's file name; None for anything else."""
    match = _SPARE_NAME.fullmatch(name)
    return int(match[1]) if match else None


def is_log_name(name: str) -> bool:
    """Whether a file in ``wal/`` may be the log's: a segment, also an unfinished copy, a spare, COMMITTED."""
    segment = parse_segment_name(name.removesuffix(".tmp")) is not None
    return segment or parse_spare_name(name) is not None or name == COMMITTED_NAME


def padded(length: int) -> int:
    """The bytes that a record of ``length`` takes in its segment."""
    return (length + 7) & ~7


@dataclass(slots=True)
class Segment:
    """One file of the log.  ``end``: where its records end; ``size``: of the file.

    ``last_ts`` and ``last_lsn`` are of its last record, or of the last one before it.  ``request_bytes``: how
    many bytes could be read in the time that it takes to ask for it.
    """

    path: str
    epoch: int
    seq: int
    end: int
    size: int
    last_ts: int
    last_lsn: int
    request_bytes: int = 0

    @property
    def replay_bytes(self) -> int:
        """What a replay of it costs."""
        return self.end + self.request_bytes


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """``prev_ts`` and ``prev_lsn`` are of the last record before this segment, 0 without one."""

    table_uuid: bytes
    epoch: int
    seq: int
    prev_ts: int
    prev_lsn: int

    def pack(self) -> bytes:
        return self._pack(SEGMENT_VERSION, crc32c(self._pack(SEGMENT_VERSION, 0)))

    def _pack(self, version: int, crc: int) -> bytes:
        return SEGMENT_HEADER.pack(
            SEGMENT_MAGIC, version, crc, self.table_uuid, self.epoch, self.seq, self.prev_ts, self.prev_lsn
        )

    def salt(self) -> bytes:
        """What the CRC of each record of this segment covers beside the record."""
        return segment_salt(self.table_uuid, self.epoch, self.seq)


def segment_salt(table_uuid: bytes, epoch: int, seq: int) -> bytes:
    """32 bytes that tie a record to its table and to one life of one segment."""
    return _SALT.pack(table_uuid, epoch, seq)


def unpack_segment_header(data: Buffer) -> SegmentHeader | None:
    """The header in the first bytes of a segment; None if they are not a whole, sound header.

    Raises ``NotSupported`` for a sound header of another version of the format.
    """
    if len(data) < SEGMENT_HEADER.size:
        return None
    magic, version, crc, uuid, epoch, seq, prev_ts, prev_lsn = SEGMENT_HEADER.unpack_from(data)
    header = SegmentHeader(uuid, epoch, seq, prev_ts, prev_lsn)
    if magic != SEGMENT_MAGIC or crc != crc32c(header._pack(version, 0)):
        return None
    if max(epoch, seq, prev_ts, prev_lsn) >= LIMIT:
        return None
    if version != SEGMENT_VERSION:
        raise NotSupported(f"log segment of format version {version}; this release reads {SEGMENT_VERSION}")
    return header


def payload_crc(parts: Iterable[Buffer]) -> int:
    """CRC of a payload and its padding, the first stage of ``record_header``'s."""
    value = 0
    for part in parts:
        value = crc32c(part, value)
    return value


def record_header(
    salt: bytes,
    body_crc: int,
    length: int,
    lsn: int,
    ts: int,
    synced_lsn: int,
    schema_version: int,
    kind: int,
) -> bytes:
    """The packed header of a record whose payload has the CRC ``body_crc``."""
    plain = RECORD_HEADER.pack(length, 0, lsn, ts, synced_lsn, schema_version, kind)
    crc = crc32c(salt + plain, body_crc)
    return plain[:4] + crc.to_bytes(4, "little") + plain[8:]


def record_is_sound(salt: bytes, record: memoryview) -> bool:
    """Whether ``record`` (header, payload and padding, whole) has the CRC that it names."""
    header = bytes(record[: RECORD_HEADER.size])
    plain = header[:4] + b"\0\0\0\0" + header[8:]
    crc = crc32c(salt + plain, crc32c(record[RECORD_HEADER.size :], 0))
    return crc == int.from_bytes(header[4:8], "little")


@dataclass(frozen=True, slots=True)
class Committed:
    """What a slot of ``wal/COMMITTED`` says: every record <= ``ts`` is applied and durable, and
    every record <= ``lsn`` is durable."""

    counter: int
    ts: int
    lsn: int
    epoch: int

    def pack(self, table_uuid: bytes) -> bytes:
        plain = COMMITTED_SLOT.pack(self.counter, self.ts, self.lsn, self.epoch, 0)[:32]
        return COMMITTED_SLOT.pack(self.counter, self.ts, self.lsn, self.epoch, crc32c(table_uuid + plain))

    def offset(self) -> int:
        """Where this slot goes: odd and even counters alternate."""
        return (self.counter & 1) * COMMITTED_STRIDE


NOTHING_COMMITTED: Final = Committed(0, 0, 0, 0)


def unpack_committed(data: Buffer, table_uuid: bytes) -> Committed:
    """The newer sound slot of a COMMITTED file, by epoch and counter; ``NOTHING_COMMITTED`` if none is.

    The file is never fsynced: after a power cut either slot may hold anything.
    """
    newest = NOTHING_COMMITTED
    for offset in (0, COMMITTED_STRIDE):
        if len(data) < offset + COMMITTED_SLOT.size:
            continue
        counter, ts, lsn, epoch, crc = COMMITTED_SLOT.unpack_from(data, offset)
        sound = crc == crc32c(table_uuid + bytes(data[offset : offset + 32])) and counter < LIMIT
        if sound and (epoch, counter) > (newest.epoch, newest.counter):
            newest = Committed(counter, ts, lsn, epoch)
    return newest


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a CHECKPOINT record says: replay needs no record <= ``through``; what was on disk by then of each
    tablet's MANIFEST, by its id: the number of the last edit, and the largest mark."""

    through: int = 0
    edits: Mapping[int, int] = field(default_factory=dict)
    marks: Mapping[int, int] = field(default_factory=dict)

    def pack(self) -> bytes:
        entries = [
            CHECKPOINT_ENTRY.pack(tablet, edit, self.marks.get(tablet, 0))
            for tablet, edit in sorted(self.edits.items())
        ]
        return CHECKPOINT_HEAD.pack(self.through, len(entries), 0) + b"".join(entries)


def unpack_checkpoint(payload: Buffer) -> Checkpoint | None:
    """What a CHECKPOINT's payload says; None if its sizes do not fit."""
    if len(payload) < CHECKPOINT_HEAD.size:
        return None
    through, count, _ = CHECKPOINT_HEAD.unpack_from(payload)
    if len(payload) != CHECKPOINT_HEAD.size + count * CHECKPOINT_ENTRY.size:
        return None
    entries = list(CHECKPOINT_ENTRY.iter_unpack(payload[CHECKPOINT_HEAD.size :]))
    return Checkpoint(through, {t: edit for t, edit, _ in entries}, {t: mark for t, _, mark in entries})


def as_bytes(parts: Sequence[Buffer]) -> list[Buffer]:
    """The parts as buffers of single bytes, empty ones left out."""
    buffers: list[Buffer] = []
    for part in parts:
        if not isinstance(part, bytes):
            part = memoryview(part)
            if part.nbytes and (part.itemsize != 1 or part.ndim != 1):
                part = part.cast("B")
            if not part.nbytes:
                continue
        buffers.append(part)
    return buffers


def total_size(parts: Sequence[Buffer]) -> int:
    """The bytes of the buffers together, whatever their item size."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)
