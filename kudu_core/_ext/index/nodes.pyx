"""Memory of a B-tree's nodes: two arrays on cache lines, of leaves and of inner nodes, which grow."""
import numpy as np

from libc.stdint cimport uint8_t
from libc.string cimport memcpy


cdef class Array:
    """Bytes on cache lines.  It keeps its size; what outgrows it takes another one."""

    def __cinit__(self, Py_ssize_t nbytes):
        cdef uint8_t[::1] view
        self._memory = np.empty(nbytes + CACHE_LINE, np.uint8)
        self.nbytes = nbytes
        view = self._memory
        self.at = &view[0]
        self.at += -<Py_ssize_t><size_t>self.at & (CACHE_LINE - 1)


cdef Array _grown(Array old, Py_ssize_t used, Py_ssize_t nbytes):
    cdef Array new = Array(nbytes)
    memcpy(new.at, old.at, used)
    return new


cdef class Nodes:
    """The nodes of one tree.  Growing moves them, so nobody may use them meanwhile but who grows them."""

    def __cinit__(self, Py_ssize_t leaf_size, Py_ssize_t inner_size):
        """Room for a few nodes of these sizes in bytes."""
        self._leaf_size, self._inner_size = leaf_size, inner_size
        self._leaves = Array(2 * leaf_size)
        self._inners = Array(4 * inner_size)
        self._point()

    cdef void _point(self) noexcept:
        self.leaves, self.inners = self._leaves.at, self._inners.at
        self.leaf_room = <uint32_t>(self._leaves.nbytes // self._leaf_size)
        self.inner_room = <uint32_t>(self._inners.nbytes // self._inner_size)

    cdef int make_room(self, uint32_t leaves, uint32_t inners, int height) except -1:
        """Room for one more split of a tree that has so many nodes: it may split a node of every level."""
        if leaves == self.leaf_room:
            self._leaves = _grown(self._leaves, leaves * self._leaf_size, 2 * self._leaves.nbytes)
        if inners + <uint32_t>height + 1 > self.inner_room:
            self._inners = _grown(
                self._inners, inners * self._inner_size, 2 * self._inners.nbytes + 4 * self._inner_size
            )
        self._point()
        return 0

    cdef Py_ssize_t nbytes(self) noexcept:
        """Room for growth included."""
        return self._leaves.nbytes + self._inners.nbytes
