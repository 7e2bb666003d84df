"""What a reader has read of a table's files while it was opened, for when it is opened again.

A refresh replays the log over the same files, whose names are used once: it asks for the same ends of them
and the same pages of keys, and for those of the new records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kudu_core.common.run.locks import mutex

if TYPE_CHECKING:
    from kudu_core.objects.fetching import Range

MOST_BYTES: Final = 32 << 20
LARGEST_BYTES: Final = 1 << 20
"""Of a piece: a larger one takes the place of too many."""


class KeptPieces:
    """The newest pieces; those that were not asked for the longest time make place.  Thread safe."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._mutex = mutex()
        """Held for a moment."""
        self._held: dict[tuple[str, str, Range], bytes] = {}
        """By the table, the name of the object and the range; the one that was asked for last is the last."""
        self.bytes = 0

    def find(self, group: str, name: str, wanted: Range) -> bytes | None:
        place = (group, name, wanted)
        with self._mutex:
            data = self._held.pop(place, None)
            if data is not None:
                self._held[place] = data
        return data

    def keep(self, group: str, name: str, wanted: Range, data: bytes) -> None:
        if len(data) > LARGEST_BYTES:
            return
        place = (group, name, wanted)
        with self._mutex:
            self._drop(place)
            self._held[place] = data
            self.bytes += len(data)
            while self.bytes > self._most_bytes:
                self._drop(next(iter(self._held)))

    def drop(self, group: str, name: str, wanted: Range) -> None:
        """Whoever asks for it again may have found that it is not what it should be."""
        with self._mutex:
            self._drop((group, name, wanted))

    def _drop(self, place: tuple[str, str, Range]) -> None:
        data = self._held.pop(place, None)
        if data is not None:
            self.bytes -= len(data)


__all__ = ["KeptPieces"]
