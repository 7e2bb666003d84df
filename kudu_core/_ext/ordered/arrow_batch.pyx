"""An Arrow batch of which a kernel writes the columns, until somebody takes it over."""
cimport cython
from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from kudu_core._ext.base.arrow_array cimport ArrowArray, kc_batch_room, kc_release_batch, kc_release_column


@cython.final
@cython.auto_pickle(False)
cdef class ArrowBatch:
    """An Arrow array of structs, until somebody takes it over from ``address``."""

    def __dealloc__(self):
        if self._array.release != NULL:
            self._array.release(&self._array)

    @property
    def address(self):
        """Of the ``ArrowArray``, which goes with this object unless it is taken over before."""
        return <uintptr_t>&self._array

    cdef int begin(self, int64_t rows, Py_ssize_t columns, int64_t small=0) except -1:
        """Have room for so many columns, none of which is there yet, and for ``small`` bytes of buffers."""
        cdef:
            ArrowArray* top = &self._array
            ArrowArray* children
            kc_batch_room* room
            Py_ssize_t i, head = sizeof(kc_batch_room) + sizeof(void*)
        head += columns * <Py_ssize_t>(sizeof(ArrowArray) + 4 * sizeof(void*))
        head = (head + ROOM - 1) & ~(ROOM - 1)
        room = <kc_batch_room*>grown(NULL, head + small)
        memset(room, 0, <size_t>head)
        room.holders, room.next, room.end = 1, <uint8_t*>room + head, <uint8_t*>room + head + small
        children = <ArrowArray*>(room + 1)
        self._lists = <const void**>(children + columns)
        top.private_data = room
        top.children = <ArrowArray**>(self._lists + 3 * columns)
        top.buffers = <const void**>(top.children + columns)
        top.length, top.n_buffers, top.n_children = rows, 1, columns
        for i in range(columns):
            top.children[i] = &children[i]
        top.release = kc_release_batch
        return 0

    cdef ArrowArray* column(self, Py_ssize_t i, int buffers) noexcept:
        """Column i, which has so many buffers; they are to be filled."""
        cdef:
            ArrowArray* child = self._array.children[i]
            kc_batch_room* room = <kc_batch_room*>self._array.private_data
        child.length = self._array.length
        child.buffers = self._lists + 3 * i
        child.private_data = room
        child.release = kc_release_column
        child.n_buffers = buffers
        room.holders += 1       # nobody has the batch yet
        return child

    cdef uint8_t* buffer(self, int64_t size) except NULL:
        """Memory for a buffer of that size, which does not grow."""
        cdef:
            kc_batch_room* room = <kc_batch_room*>self._array.private_data
            uint8_t* found = room.next
            int64_t taken = padded(size)
        if taken > room.end - found:
            return <uint8_t*>grown(NULL, size)
        room.next += taken
        return found


cdef void* grown(void* room, int64_t size) except NULL:
    """Memory of that size, or what there was with as much; and room behind it."""
    cdef void* larger = PyMem_RawRealloc(room, <size_t>(size + ROOM))
    if larger == NULL:
        raise MemoryError
    return larger


cdef int put_null(ArrowArray* out, int64_t row) except -1:
    """A cell is null."""
    cdef uint8_t* bits = <uint8_t*>out.buffers[0]
    if bits == NULL:
        bits = <uint8_t*>grown(NULL, (out.length + 7) >> 3)
        memset(bits, 255, <size_t>((out.length + 7) >> 3))
        out.buffers[0] = bits
    bits[row >> 3] &= <uint8_t>~(1 << (row & 7))
    out.null_count += 1
    return 0
