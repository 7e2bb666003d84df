"""Bytes of a table's files, from wherever they are near; and which of them are fetched first of one that is
opened: in one wave more than its header, and its end, where what says how it is laid out lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kudu_core.fs.missing import FileMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kudu_core.fs.piece_cache import PieceCache
    from kudu_core.objects.api import ObjectStore
    from kudu_core.objects.fetching import Range
    from kudu_core.objects.files.kept_pieces import KeptPieces

HEAD_BYTES: Final = 64
TAIL_BYTES: Final = 16 << 10
"""Of a file of which nobody has said how much of its end is wanted."""
SMALL_BYTES: Final = 64 << 10
"""A file that is not larger is fetched whole."""

Ends: TypeAlias = list[tuple[int, bytes]]
"""(offset, bytes) of the beginning and the end of a file."""


class Reads:
    """Ranges of a table's files: what an open has kept, else from the cache of this machine, if there is one,
    else from the store."""

    def __init__(
        self,
        store: ObjectStore,
        cache: PieceCache | None = None,
        group: str = "",
        kept: KeptPieces | None = None,
    ) -> None:
        """``group``: the table's, in the cache.  ``kept``: what the last open has read, and the next may."""
        self._store = store
        self._cache = cache
        self._group = group
        self._kept = kept
        self.opening = kept is not None
        """Whether the table is being opened: then what is read is kept, and what was kept is believed."""

    def ranges(
        self, path: str, name: str, size: int, ranges: Sequence[Range], *, opening: bool = False
    ) -> list[bytes]:
        """``FileMissing`` where the store has it no more.  ``size``: the file's.  ``opening``: whether it was
        asked for while the table was opened."""
        kept, group = self._kept, self._group
        if kept is None:
            return self._cached(path, name, size, ranges)
        if not opening:
            for wanted in ranges:
                kept.drop(group, name, wanted)
            return self._cached(path, name, size, ranges)
        found = [kept.find(group, name, wanted) for wanted in ranges]
        lacking = [wanted for wanted, data in zip(ranges, found, strict=True) if data is None]
        fetched = self._cached(path, name, size, lacking) if lacking else []
        for wanted, data in zip(lacking, fetched, strict=True):
            kept.keep(group, name, wanted, data)
        return _filled(found, fetched)

    def _cached(self, path: str, name: str, size: int, ranges: Sequence[Range]) -> list[bytes]:
        cache = self._cache
        if cache is None:
            return self._fetched(path, name, ranges)
        found = [cache.find(self._group, name, *wanted) for wanted in ranges]
        lacking = [wanted for wanted, data in zip(ranges, found, strict=True) if data is None]
        if not lacking:
            return [data for data in found if data is not None]
        fetched = self._fetched(path, name, lacking)
        for (offset, _), data in zip(lacking, fetched, strict=True):
            cache.keep(self._group, name, offset, data, 2 * size + SMALL_BYTES)
        return _filled(found, fetched)

    def ends(self, path: str, name: str, size: int, tail: int, *, opening: bool = False) -> Ends:
        """What is read first of a file.  ``tail``: how much of its end is wanted; 0: nobody has said.
        ``opening``: as of ``ranges``."""
        if size <= SMALL_BYTES:
            wanted = [(0, size)]
        elif 0 < tail <= size:
            wanted = [(size - tail, tail)]
        else:
            wanted = [(0, HEAD_BYTES), (size - TAIL_BYTES, TAIL_BYTES)]
        found = self.ranges(path, name, size, wanted, opening=opening)
        return [(offset, data) for (offset, _), data in zip(wanted, found, strict=True)]

    def _fetched(self, path: str, name: str, ranges: Sequence[Range]) -> list[bytes]:
        try:
            return self._store.read_ranges(name, ranges)
        except FileNotFoundError:
            raise FileMissing(path) from None


def _filled(found: Sequence[bytes | None], fetched: Sequence[bytes]) -> list[bytes]:
    """``found``, with what was lacking there."""
    new = iter(fetched)
    return [next(new) if data is None else data for data in found]


__all__ = ["SMALL_BYTES", "TAIL_BYTES", "Ends", "Reads"]
