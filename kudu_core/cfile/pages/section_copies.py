"""Sections of a file once more, in one piece before its footer, of files in which each read is a request.

Sections lie where they are written, behind their columns, so that a repair finds them without a footer.  Who
reads from a store would ask for each of them; here he has the header and the small ones together with the
footer, by one request whose size the manifest knows.

Layout: docs/format.md, "Copies".
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Sequence
from typing import Any, Final

COPIES_HEAD = struct.Struct("<40sII")
# the file's header, how many copies, zero
COPY_ENTRY = struct.Struct("<QQ")
# offset and length of the section, frame included
assert COPIES_HEAD.size == 48
assert COPY_ENTRY.size == 16

LEAST_FILE_BYTES: Final = 64 << 10
"""Of a smaller file nothing is copied: who reads from a store fetches it whole."""
FILE_PARTS: Final = 32
"""Copies take at most this part of a file, or ``MOST_OF_SMALL`` bytes: who reads one column of many gets the
copies of all of them."""
MOST_OF_SMALL: Final = 64 << 10
MOST_BYTES: Final = 256 << 10
"""Of all copies of a file."""


class SectionCopies:
    """Gathers sections while a file is written."""

    def __init__(self) -> None:
        self._sections: list[tuple[int, int, bytes]] = []
        """(length, offset, frame and payload), ascending."""
        self._bytes = 0

    def add(self, offset: int, pieces: Sequence[Any]) -> None:
        length = sum(map(len, pieces))
        if length > MOST_BYTES:
            return
        insort(self._sections, (length, offset, b"".join(map(bytes, pieces))))
        self._bytes += length
        while self._bytes > MOST_BYTES:
            self._bytes -= self._sections.pop()[0]

    def payload(self, header: bytes, file_bytes: int) -> bytes | None:
        """The smallest sections, as many as there is place for; None: not worth a section."""
        place = min(max(MOST_OF_SMALL, file_bytes // FILE_PARTS), MOST_BYTES)
        chosen = []
        for section in self._sections:
            place -= section[0] + COPY_ENTRY.size
            if place < 0:
                break
            chosen.append(section)
        if not chosen or file_bytes < LEAST_FILE_BYTES:
            return None
        head = COPIES_HEAD.pack(header, len(chosen), 0)
        entries = (COPY_ENTRY.pack(offset, length) for length, offset, _ in chosen)
        return b"".join((head, *entries, *(data for _, _, data in chosen)))


def header_in(payload: memoryview) -> bytes:
    """The file's header, of a payload in which there are sections."""
    return bytes(COPIES_HEAD.unpack_from(payload)[0])


def sections_in(payload: memoryview) -> dict[int, bytes]:
    """By the offset of what they are copies of; ``ValueError`` where they do not fill the payload."""
    if len(payload) < COPIES_HEAD.size:
        raise ValueError(f"copies in {len(payload)} bytes")
    _, count, zero = COPIES_HEAD.unpack_from(payload)
    at = COPIES_HEAD.size + count * COPY_ENTRY.size
    if at > len(payload) or zero:
        raise ValueError(f"{count} copies in {len(payload)} bytes")
    found = {}
    for offset, length in COPY_ENTRY.iter_unpack(payload[COPIES_HEAD.size : at]):
        if length > len(payload) - at:
            raise ValueError(f"a copy of {length} bytes")
        found[offset] = bytes(payload[at : at + length])
        at += length
    if at != len(payload) or len(found) != count:
        raise ValueError("copies that are double, or end before their section")
    return found


__all__ = ["LEAST_FILE_BYTES", "SectionCopies", "header_in", "sections_in"]
