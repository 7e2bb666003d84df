# Memory of a B-tree's nodes, and what the nodes of all trees have in common: nodes.pyx.
from libc.stdint cimport uint8_t, uint32_t

from kudu_core._ext.base.loads cimport kc_fetch

cdef extern from *:
    """
    #define KC_NO_NODE 0xFFFFFFFFu
    """
    const uint32_t NO_NODE "KC_NO_NODE"         # no node, or no key

cdef enum:
    SLOTS = 64
    HALF = 32
    CACHE_LINE = 64
    MAX_HEIGHT = 16         # 2**32 keys need 7 levels when every node is half full


cdef class Array:
    cdef object _memory
    cdef Py_ssize_t nbytes
    cdef uint8_t* at


cdef class Nodes:
    cdef:
        Array _leaves
        Array _inners
        Py_ssize_t _leaf_size
        Py_ssize_t _inner_size
        # Of this moment: they change when the nodes grow.
        uint8_t* leaves
        uint8_t* inners
        uint32_t leaf_room
        uint32_t inner_room
    cdef void _point(self) noexcept
    cdef int make_room(self, uint32_t leaves, uint32_t inners, int height) except -1
    cdef Py_ssize_t nbytes(self) noexcept


cdef inline void fetch_node(const void* node) noexcept nogil:
    """Its head and what is searched in it; of the rest a search needs one line at most."""
    cdef:
        const uint8_t* line = <const uint8_t*>node
        int i
    for i in range(9):
        kc_fetch(line + i * CACHE_LINE)
