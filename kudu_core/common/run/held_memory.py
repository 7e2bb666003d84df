"""Memory beside the stores: what operations hold while they run, and what allocators keep after them.

A flush or a merge works on copies of rows.  They are counted, so that ``memory_limit_bytes`` covers them too;
and once they are gone, what the allocators have kept of them is given back.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa

from kudu_core.common.run.locks import Claim

RELEASE_BYTES = 8 << 20
"""An operation that held less leaves the allocators alone: looking through them costs some milliseconds."""


class WorkingMemory:
    """Bytes that operations under way hold beside the stores, as they estimate them.  Thread safe."""

    def __init__(self) -> None:
        self._held: set[tuple[object, int]] = set()
        """An object of its own for each operation, and its bytes."""

    @property
    def held_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self._held.copy())

    def hold(self, nbytes: int) -> Claim:
        """Count so many bytes until the block of its ``with`` ends, however it ends."""
        return Claim(self._held, (object(), nbytes))


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
