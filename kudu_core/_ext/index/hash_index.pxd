# Keys by ordinal and ordinals by key, for kernels that look for one key: hash_index.pyx.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.index.key_slots cimport Memory


cdef class Buffers:
    cdef object data, offsets, hashes, slots
    cdef Memory at
    cdef Py_ssize_t byte_room, row_room, slot_room


cdef class KeyTable:
    cdef Buffers _buffers
    cdef readonly Py_ssize_t count
    """How many keys there are: the next ordinal."""
    cdef int64_t find_key(self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t limit) noexcept
    cdef int reserve_key(self, Py_ssize_t size) except -1
    cdef Py_ssize_t put_key(self, bytes key, uint64_t key_hash) except -1
