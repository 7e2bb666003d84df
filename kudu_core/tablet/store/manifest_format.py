"""The bytes of a MANIFEST: header, frames, and what a power cut may leave at the end.

An edit is lines of JSON, cut into frames of bounded size; docs/format-table.md, "MANIFEST", has the fields.
A frame says where it lies, which edit it is part of and which edits were on disk when it was written, and
its payload holds no zero byte.  So three things that look alike are told apart: the end of the edits,
an append that a power cut tore, and damage.  After the last whole edit there may be

* nothing, or zeros: the append never reached the disk, or its length did;
* the beginning of a frame, where the file ends inside it;
* a frame with zeros where its bytes did not reach the disk,

and behind it frames that were appended before any fsync covered the missing one.  Everything else is
``Corruption``: above all a frame that is whole and does not match its checksum.

Knows nothing of what the lines mean.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.format.members import parsed
from kudu_core.errors import Corruption, NotSupported

MAGIC = b"KUDUMAN\x01"
VERSION = 1
HEADER = struct.Struct("<8sHHI16sI4x")
# magic, version, flags, tablet, table uuid, crc
FRAME_MAGIC = b"EDIT"
FRAME = struct.Struct("<4sIQQQIIII")
# magic, length, number, epoch, synced, part, parts, payload crc, header crc
PLACE = struct.Struct("<16sIQ")
# what both checksums of a frame cover first: table uuid, tablet, offset of the frame
assert HEADER.size == 40
assert FRAME.size == 48
assert PLACE.size == 28

ALIGNMENT = 8
MAX_FRAME_BYTES = 1 << 20
"""Of a frame's payload, for writer and reader.  A longer edit is several frames."""
MAX_LINE_BYTES = 64 << 20
"""Of one line, which is one rowset: the writer refuses it before anything is written."""
MAX_PARTS = 1 << 20
_CHUNK = 4 << 20
_PAGE_BYTES = 4096
"""What a power cut takes or leaves as a whole."""


class ManifestSource(Protocol):
    """What the bytes are read from: an open file."""

    def size(self) -> int: ...
    def pread(self, n: int, offset: int) -> bytes: ...


class BytesSource:
    """Bytes in memory as a ``ManifestSource``."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def size(self) -> int:
        return len(self._data)

    def pread(self, n: int, offset: int) -> bytes:
        return bytes(self._data[offset : offset + n])


@dataclass(frozen=True, slots=True)
class Header:
    table_uuid: bytes
    tablet_id: int

    def pack(self) -> bytes:
        head = HEADER.pack(MAGIC, VERSION, 0, self.tablet_id, self.table_uuid, 0)[:_HEADER_CRC_AT]
        return head + struct.pack("<I4x", crc32c(head))

    def place(self, offset: int) -> int:
        """What the checksums of a frame there begin with."""
        return crc32c(PLACE.pack(self.table_uuid, self.tablet_id, offset))


_HEADER_CRC_AT = HEADER.size - 8


@dataclass(frozen=True, slots=True)
class Frame:
    """The head of a frame whose own checksum is right."""

    offset: int
    length: int
    """Of the payload."""
    number: int
    epoch: int
    synced: int
    """The last edit that was known to be on disk when this one was written."""
    part: int
    parts: int
    payload_crc: int

    @property
    def end(self) -> int:
        return self.offset + FRAME.size + self.length


@dataclass(frozen=True, slots=True)
class StoredEdit:
    """One edit, whole: its lines are not taken apart yet."""

    offset: int
    end: int
    number: int
    epoch: int
    lines: list[dict[str, Any]]


def read_header(data: bytes, path: str) -> Header:
    """The header in the first bytes of a manifest.

    Its layout is the same in every version, so that a damaged version is damage, not a file from the future.
    """
    if len(data) < HEADER.size:
        raise Corruption(path, 0, f"{len(data)} bytes are too few for a manifest")
    magic, version, flags, tablet_id, uuid, crc = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corruption(path, 0, "not a manifest")
    if crc32c(data[:_HEADER_CRC_AT]) != crc or any(data[_HEADER_CRC_AT + 4 : HEADER.size]):
        raise Corruption(path, 0, "the manifest header does not match its CRC")
    if version > VERSION or flags:
        raise NotSupported(
            f"{path} has format version {version} (flags {flags}); this library reads up to {VERSION}"
        )
    return Header(uuid, tablet_id)


# ---- writing


def lines_of(values: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Each value as a line of JSON without a zero byte; ``NotSupported`` for one that no reader takes."""
    lines = []
    for value in values:
        line = json.dumps(value, separators=(",", ":")).encode()
        if len(line) >= MAX_LINE_BYTES:
            raise NotSupported(
                f"an entry of a manifest would take {len(line)} bytes, {MAX_LINE_BYTES} are the most: "
                "compact the table, so that a rowset has fewer delta files"
            )
        lines.append(line)
    return lines


def frames(
    header: Header, offset: int, number: int, epoch: int, synced: int, lines: Sequence[bytes]
) -> list[bytes]:
    """An edit as the frames that are appended at ``offset``."""
    text = b"\n".join(lines)
    text += b"\n" * (-len(text) % ALIGNMENT)
    parts = max(1, -(-len(text) // MAX_FRAME_BYTES))
    if parts > MAX_PARTS:
        raise NotSupported(f"an edit of a manifest would take {len(text)} bytes")
    made = []
    for part in range(parts):
        payload = text[part * MAX_FRAME_BYTES : (part + 1) * MAX_FRAME_BYTES]
        place = header.place(offset)
        crc = crc32c(payload, place)
        head = FRAME.pack(FRAME_MAGIC, len(payload), number, epoch, synced, part, parts, crc, 0)[:-4]
        made += [head + struct.pack("<I", crc32c(head, place)), payload]
        offset += FRAME.size + len(payload)
    return made


# ---- reading


class Window:
    """Pieces of a file that are read one after the other, without holding all of it."""

    def __init__(self, source: ManifestSource) -> None:
        self.source = source
        self.size = source.size()
        self._begin = 0
        self._data = b""

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes, fewer where the file ends."""
        length = max(0, min(length, self.size - offset))
        at = offset - self._begin
        if at < 0 or at + length > len(self._data):
            self._begin, at = offset, 0
            self._data = self.source.pread(max(length, min(_CHUNK, self.size - offset)), offset)
        return self._data[at : at + length]


def frame_at(window: Window, header: Header, offset: int) -> Frame | None:
    """The frame whose head lies there, sound by its own checksum; its payload may be anything."""
    head = window.read(offset, FRAME.size)
    if len(head) < FRAME.size or head[:4] != FRAME_MAGIC:
        return None
    _, length, number, epoch, synced, part, parts, payload_crc, crc = FRAME.unpack(head)
    if crc32c(head[:-4], header.place(offset)) != crc:
        return None
    if length > MAX_FRAME_BYTES or length % ALIGNMENT or not 0 <= part < parts <= MAX_PARTS:
        return None
    return Frame(offset, length, number, epoch, synced, part, parts, payload_crc)


def payload_of(window: Window, header: Header, frame: Frame) -> bytes | None:
    """The frame's payload; None where it does not match its checksum."""
    payload = window.read(frame.offset + FRAME.size, frame.length)
    if len(payload) < frame.length or crc32c(payload, header.place(frame.offset)) != frame.payload_crc:
        return None
    return payload


def edit_at(window: Window, header: Header, offset: int) -> tuple[Frame, Iterator[bytes], int] | None:
    """The whole edit that begins there: its first frame, its lines, where it ends; None without one.

    The lines are read when they are asked for.
    """
    first = at = None
    for part in range(MAX_PARTS):
        frame = frame_at(window, header, offset if at is None else at)
        if frame is None or payload_of(window, header, frame) is None:
            return None
        first = first or frame
        if (frame.part, frame.parts, frame.number, frame.epoch) != (
            part,
            first.parts,
            first.number,
            first.epoch,
        ):
            return None
        at = frame.end
        if part + 1 == frame.parts:
            return first, _lines(window, header, first.offset, at), at
    return None


def _lines(window: Window, header: Header, offset: int, end: int) -> Iterator[bytes]:
    """The lines of the frames between two offsets, which were sound when they were looked at."""
    rest = b""
    while offset < end:
        frame = frame_at(window, header, offset)
        payload = None if frame is None else payload_of(window, header, frame)
        if frame is None or payload is None:
            raise ValueError(f"byte {offset} changed while it was read")
        *whole, rest = (rest + payload).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        yield from filter(None, whole)
        offset = frame.end
    if rest:
        yield rest


def later_frames(window: Window, header: Header, offset: int) -> Iterator[Frame]:
    """Every sound head of a frame at or behind ``offset``, whatever lies between."""
    offset += -offset % ALIGNMENT
    probe = Window(window.source)
    while offset + FRAME.size <= window.size:
        data = window.source.pread(min(_CHUNK, window.size - offset), offset)
        at = data.find(FRAME_MAGIC)
        while at >= 0:
            if at % ALIGNMENT == 0:
                frame = frame_at(probe, header, offset + at)
                if frame is not None:
                    yield frame
            at = data.find(FRAME_MAGIC, at + 1)
        if len(data) < ALIGNMENT:
            return  # the file ends here
        offset += len(data) - len(data) % ALIGNMENT


def check_tail(window: Window, header: Header, path: str, offset: int, number: int, epoch: int) -> None:
    """``Corruption`` unless a power cut may have left what lies behind the last whole edit.

    ``number`` is the edit that is missing at ``offset``, ``epoch`` that of the edit before it.
    """
    if offset >= window.size:
        return
    said = f"edit {number} is damaged"
    for frame in later_frames(window, header, offset):
        if frame.epoch >= epoch and frame.synced >= number:
            reason = f"{said}: edit {frame.number} at byte {frame.offset} was written after its fsync"
            raise Corruption(path, offset, reason)
    while True:
        # Frames of the missing edit that are sound say nothing; the first that is not decides.
        frame_here = frame_at(window, header, offset)
        if frame_here is None or payload_of(window, header, frame_here) is None:
            break
        if frame_here.number != number or frame_here.end >= window.size:
            break
        offset = frame_here.end
    if frame_here is None:
        torn = _is_torn_head(window, offset)
    else:
        payload = window.read(offset + FRAME.size, frame_here.length)
        sound = payload_of(window, header, frame_here) is not None
        # A sound one is the part of an edit whose rest is not there, or of one that follows no edit.
        torn = len(payload) < frame_here.length or 0 in payload
        torn = torn or (sound and frame_here.number == number and frame_here.part + 1 < frame_here.parts)
    if not torn:
        raise Corruption(path, offset, f"{said}: its bytes are all there and do not match their CRC")


def _is_torn_head(window: Window, offset: int) -> bool:
    """Whether the head of a frame that is not sound may be what a power cut left of one.

    The first eight bytes of a head are never zeros, nor its checksums, nor the first of its payload, and one
    damaged bit cannot make them that; what did not reach the disk is.
    """
    head = window.read(offset, FRAME.size + 1)
    if len(head) <= FRAME.size:
        return True  # the file ends in it, or before its payload
    if not any(head[:ALIGNMENT]) or head[FRAME.size] == 0:
        return True
    border = -offset % _PAGE_BYTES
    return 0 < border < FRAME.size and not any(head[border : FRAME.size])


def scan_edits(
    data: bytes, header: Header | None = None, path: str = "MANIFEST"
) -> tuple[list[StoredEdit], list[tuple[int, int]]]:
    """Every edit of a manifest that is whole, and the ranges of bytes that belong to none: for whoever
    mends a damaged one.  Raises nothing.

    ``header``: what is known of the manifest, for one whose own header is damaged.
    """
    window = Window(BytesSource(data))
    bad: list[tuple[int, int]] = []
    try:
        found = read_header(data, path)
        header = header or found
        begin = HEADER.size
    except (Corruption, NotSupported):
        begin = min(HEADER.size, len(data))
        bad.append((0, begin))
    if header is None:
        return [], [(0, len(data))]
    edits: list[StoredEdit] = []
    at = begin
    for frame in later_frames(window, header, begin):
        if frame.offset < at:
            continue
        whole = edit_at(window, header, frame.offset)
        if whole is None:
            continue
        try:
            lines = [parsed(line) for line in whole[1]]
        except ValueError:
            continue
        if frame.offset > at:
            bad.append((at, frame.offset))
        edits.append(StoredEdit(frame.offset, whole[2], frame.number, frame.epoch, lines))
        at = whole[2]
    if at < len(data) and any(data[at:]):
        bad.append((at, len(data)))
    return edits, bad


__all__ = [
    "FRAME",
    "HEADER",
    "MAX_FRAME_BYTES",
    "MAX_LINE_BYTES",
    "BytesSource",
    "Frame",
    "Header",
    "StoredEdit",
    "Window",
    "check_tail",
    "edit_at",
    "frames",
    "lines_of",
    "read_header",
    "scan_edits",
]
