"""How much of the files of a table was asked for and is not read yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from kudu_core.common.run.locks import mutex

if TYPE_CHECKING:
    from kudu_core.common.run.pool import Task

MOST_BYTES: Final = 256 << 20
"""Of all files of an open table.  A scan that ends early leaves what it has asked for."""

Piece: TypeAlias = tuple[int, int]
"""Offset, bytes."""
Pieces: TypeAlias = "dict[Piece, Task[bytes]]"
"""Of a file: what is on its way, or waits to be read.  Plain steps of a dict need no lock."""


class AskedPieces:
    """The pieces of all files.  The oldest make place for new ones, and are fetched when they are read."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._mutex = mutex()
        """Held for a moment."""
        self._held: dict[tuple[int, Piece], Pieces] = {}
        """By which file and which piece: the file's pieces."""
        self.bytes = 0

    def takes(self, size: int) -> bool:
        """Whether a piece is worth its place."""
        return size <= self._most_bytes // 4

    def note(self, pieces: Pieces, piece: Piece) -> None:
        """After a piece was put among those of a file."""
        with self._mutex:
            if (id(pieces), piece) not in self._held:
                self._held[id(pieces), piece] = pieces
                self.bytes += piece[1]
            while self.bytes > self._most_bytes:
                (file, oldest), of = next(iter(self._held.items()))
                self._drop(file, oldest)
                of.pop(oldest, None)

    def forget(self, pieces: Pieces, gone: Iterable[Piece]) -> None:
        """After these were read, or will not be."""
        with self._mutex:
            for piece in gone:
                self._drop(id(pieces), piece)

    def _drop(self, file: int, piece: Piece) -> None:
        if self._held.pop((file, piece), None) is not None:
            self.bytes -= piece[1]


__all__ = ["AskedPieces", "Piece", "Pieces"]
