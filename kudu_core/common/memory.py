"""Memory beside the stores: what operations hold while they run, and what allocators keep after them.

A flush or a merge works on copies of rows.  They are counted, so that ``memory_limit_bytes`` covers them too;
and once they are gone, what the allocators have kept of them is given back.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

RELEASE_BYTES = 8 << 20
"""An operation that held less leaves the allocators alone: looking through them costs some milliseconds."""


class WorkingMemory:
    """Bytes that operations under way hold beside the stores, as they estimate them.  Thread safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @contextmanager
    def hold(self, nbytes: int) -> Iterator[None]:
        """Count so many bytes until the block ends, however it ends; then, of much, free what is free."""
        with self._mutex:
            self._held_bytes += nbytes
        try:
            yield
        finally:
            with self._mutex:
                self._held_bytes -= nbytes


def release_free(nbytes: int) -> bool:
    """Give memory that nobody holds back to the system, where an operation has just let go of ``nbytes``;
    whether it was worth it.

    Of glibc's allocator and of Arrow's pool: the first keeps the pages of freed arrays in the arena of the
    thread that made them, the second in the heap of that thread.
    """
    if nbytes < RELEASE_BYTES:
        return False
    if _trim is not None:
        _trim(0)
    pa.default_memory_pool().release_unused()
    return True


def _find_trim() -> ctypes._NamedFuncPointer | None:
    """glibc's ``malloc_trim``; other C libraries have none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    return trim


_trim = _find_trim()

__all__ = ["RELEASE_BYTES", "WorkingMemory", "release_free"]
