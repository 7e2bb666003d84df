"""What lies around the JSON of a file that is always written whole: TABLE, and the manifest of a backup.

A header of 24 bytes, magic, version, flags, length and CRC-32C, then the JSON.  Layout: docs/format-table.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.errors import Corruption, NotSupported

HEADER = struct.Struct("<8sHHIII")
"""Magic, version, flags, bytes of JSON, CRC-32C of everything else, zero."""
assert HEADER.size == 24


@dataclass(frozen=True, slots=True)
class Envelope:
    """The header of one kind of file."""

    magic: bytes
    version: int
    """The newest one, which is written."""
    other: str
    """What is said of bytes that do not begin with ``magic``."""
    flags: int = 0
    """Bits that a file may have: things in it that a reader must know."""

    def around(self, body: bytes, flags: int = 0) -> bytes:
        """The contents of a file."""
        crc = self.crc(self.version, flags, body)
        return HEADER.pack(self.magic, self.version, flags, len(body), crc, 0) + body

    def body(self, path: str, data: bytes) -> bytes:
        """The JSON in the contents of a file; ``Corruption``, or ``NotSupported`` for a later version."""
        if len(data) < HEADER.size or data[: len(self.magic)] != self.magic:
            raise Corruption(path, 0, self.other)
        _, version, flags, length, crc, zero = HEADER.unpack_from(data)
        body = data[HEADER.size :]
        if len(body) != length or self.crc(version, flags, body) != crc or zero:
            raise Corruption(path, 8, "the checksum or the length does not match")
        if version > self.version or flags & ~self.flags:
            raise NotSupported(
                f"{path} has format version {version} (flags {flags}); "
                f"this library reads up to {self.version}"
            )
        return body

    def crc(self, version: int, flags: int, body: bytes) -> int:
        """Over everything but the checksum itself."""
        return crc32c(body, crc32c(HEADER.pack(self.magic, version, flags, len(body), 0, 0)))


__all__ = ["HEADER", "Envelope"]
