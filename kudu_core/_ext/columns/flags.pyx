"""Flags that one writer appends and changes in place, such as which rows of a store in memory live."""
cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

import numpy as np

cdef enum:
    FIRST_ROOM = 1024


@cython.final
@cython.auto_pickle(False)
cdef class AppendFlags:
    """One byte for each row, 0 or 1.  Readers beside the writer do not use it."""

    def __init__(self):
        self._count = 0
        self._replace(FIRST_ROOM)

    cdef int _replace(self, int64_t room) except -1:
        """Flags move to an array of ``room``; what is beyond their count is 0."""
        cdef uint8_t[::1] view
        flags = np.zeros(room, np.uint8)
        if self._count:
            flags[:self._count] = self._flags[:self._count]
        view = flags
        self._flags, self._at, self._room = flags, &view[0], room
        return 0

    def __len__(self):
        return self._count

    @property
    def nbytes(self):
        return self._room

    @property
    def flags(self):
        """All of them: a view, which may be written."""
        return self._flags[:self._count]

    cpdef reserve(self, int64_t count):
        """Make room, so that appending so many allocates nothing."""
        if count < 0:
            raise ValueError(f"room for {count} flags")
        if self._count + count > self._room:
            self._replace(max(self._count + count, 2 * self._room))

    cpdef append(self, int64_t count, bint flag):
        """The same flag, so many times."""
        self.reserve(count)
        memset(self._at + self._count, flag, <size_t>count)
        self._count += count

    def is_set(self, int64_t row):
        """One flag."""
        if not 0 <= row < self._count:
            raise IndexError(f"no flag {row} of {self._count}")
        return self._at[row] != 0

    def clear(self, list rows not None):
        """Set the flags of these rows to 0."""
        cdef int64_t row
        for row in rows:
            if not 0 <= row < self._count:
                raise IndexError(f"no flag {row} of {self._count}")
            self._at[row] = 0
