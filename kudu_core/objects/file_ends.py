"""What is fetched first of a file that is opened: in one wave more than its header, and its end, where what
says how it is laid out lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kudu_core.fs.missing import FileMissing

if TYPE_CHECKING:
    from kudu_core.objects.api import ObjectStore

HEAD_BYTES: Final = 64
TAIL_BYTES: Final = 16 << 10
"""Of a file of which nobody has said how much of its end is wanted."""
SMALL_BYTES: Final = 64 << 10
"""A file that is not larger is fetched whole."""

Ends: TypeAlias = list[tuple[int, bytes]]
"""(offset, bytes) of the beginning and the end of a file."""


def ends_of(store: ObjectStore, path: str, name: str, size: int, tail: int) -> Ends:
    """What is read first of a file."""
    if size <= SMALL_BYTES:
        wanted = [(0, size)]
    elif 0 < tail <= size:
        wanted = [(size - tail, tail)]
    else:
        wanted = [(0, HEAD_BYTES), (size - TAIL_BYTES, TAIL_BYTES)]
    found = fetched(store, path, name, wanted)
    return [(offset, data) for (offset, _), data in zip(wanted, found, strict=True)]


def fetched(store: ObjectStore, path: str, name: str, ranges: list[tuple[int, int]]) -> list[bytes]:
    try:
        return store.read_ranges(name, ranges)
    except FileNotFoundError:
        raise FileMissing(path) from None


__all__ = ["SMALL_BYTES", "TAIL_BYTES", "Ends", "ends_of", "fetched"]
