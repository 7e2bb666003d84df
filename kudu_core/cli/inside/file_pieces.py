"""A file as pieces that follow each other: where each lies, what it is, whether its checksum is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FilePiece:
    """``length`` bytes from ``offset``."""

    offset: int
    length: int
    what: str
    fields: dict[str, Any] = field(default_factory=dict)
    sound: bool | None = None
    """Whether the checksum is right; None where there is none."""

    @property
    def end(self) -> int:
        return self.offset + self.length


def whole(spans: Iterable[FilePiece], data: bytes) -> Iterator[FilePiece]:
    """The pieces in their order, and between them what no piece is: every byte of the file is in one."""
    at = 0
    for span in sorted(spans, key=lambda span: (span.offset, span.length)):
        if span.offset > at:
            yield _between(data, at, span.offset)
        yield span
        at = max(at, span.end)
    if at < len(data):
        yield _between(data, at, len(data))


def _between(data: bytes, begin: int, end: int) -> FilePiece:
    piece = data[begin:end]
    return FilePiece(begin, end - begin, "bytes that nothing names" if any(piece) else "zeros")


def hex_lines(data: bytes, offset: int) -> Iterator[str]:
    """Sixteen bytes a line: place, hexadecimal, text."""
    for at in range(0, len(data), 16):
        piece = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{offset + at:010x}  {piece.hex(' ', 8):<49}  {text}"
