"""One of the sources whose rows are put in the order of keys: where it stands, and the key of the row there.

``in_order`` goes from one to the other.
"""
cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kudu_core._ext.base.keybytes cimport key_bytes, key_count
from kudu_core._ext.ordered.file_keys cimport FileKeys


@cython.final
@cython.no_gc                    # no cycle leads through one: what it holds, nobody else holds it by
@cython.freelist(64)
@cython.auto_pickle(False)
cdef class Source:
    """Where one source stands, and the key of the row there."""

    def __dealloc__(self):
        PyMem_RawFree(self.room)

    cdef int take(self, FileKeys keys) except -1:
        """Stand on the row whose key was read."""
        cdef:
            uint8_t* grown
            uint8_t* to = &self.few[0]
        if keys.size > <int64_t>sizeof(self.few):
            if keys.size > self.room_bytes:
                grown = <uint8_t*>PyMem_RawRealloc(self.room, <size_t>(2 * keys.size))
                if grown == NULL:
                    raise MemoryError
                self.room, self.room_bytes = grown, 2 * keys.size
            to = self.room
        if keys.size:
            memcpy(to, keys.key, <size_t>keys.size)
        self.key, self.size = to, keys.size
        return 0

    cdef bint next_list(self) except -1:
        """Stand on the first row of the next list; False: there is none."""
        cdef:
            const int64_t[::1] rows, ends
            const uint8_t[::1] data
        while True:
            found = next(self.lists, None)
            if found is None:
                return False
            rows, data, ends = found
            self.count = key_count(data, ends)
            if rows.shape[0] != self.count:
                raise ValueError(f"{rows.shape[0]} rows of {self.count} keys")
            if self.count:
                break
        self.kept = rows, data, ends
        self.rows, self.ends, self.data = &rows[0], &ends[0], key_bytes(data)
        self.at = 0
        self.stand()
        return True

    cdef void stand(self) noexcept:
        """The row and key of the current place of a list."""
        self.row = self.rows[self.at]
        self.key = self.data + self.ends[self.at]
        self.size = self.ends[self.at + 1] - self.ends[self.at]
