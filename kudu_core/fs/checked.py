"""Small files that are known by their length and checksum, which whoever wrote them tells whoever reads them.

Tasks of distributed writes and merges leave such files in ``staging/``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.errors import Corruption

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


def write_checked(fs: FileSystem, path: str, pieces: Iterable[Any]) -> tuple[int, int]:
    """Make a file of buffers of bytes, one after another, durable but for its name; its (bytes, CRC-32C)."""
    size = crc = 0
    file = fs.create(path)
    try:
        for piece in pieces:
            file.append(piece)
            size, crc = size + memoryview(piece).nbytes, crc32c(piece, crc)
        file.sync()
    finally:
        file.close()
    return size, crc


def read_checked(fs: FileSystem, path: str, size: int, crc: int, most_bytes: int) -> bytes:
    """The contents of a file; ``Corruption`` where it is missing, or another one than its writer told of.

    ``most_bytes``: no more are read, whatever lies there.
    """
    try:
        data = fs.read_bytes(path, most_bytes)
    except FileNotFoundError:
        raise Corruption(path, 0, "the staged file is missing") from None
    if len(data) != size or crc32c(data) != crc:
        raise Corruption(path, 0, "the staged file is not the one that its writer told of")
    return data


__all__ = ["read_checked", "write_checked"]
