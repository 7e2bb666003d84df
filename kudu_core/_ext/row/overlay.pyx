"""What the stores of a rowset make of one row at one snapshot, collected from one store after the other.

The stores are asked newest first; the first that names a column, or says whether the row lives, is right.  So
an ``Overlay`` only takes what it does not have yet.  A ``Store`` is one of them: a change log in memory
(``change_log``) or a delta file (``delta_file``).

All of this runs with the GIL: what is seen of a store in memory is what the writer had finished between two
steps.
"""
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from kudu_core._ext.row.shape cimport RowShape

cdef object _unset = object()


cdef class Overlay:
    """What the stores asked so far, newest first, make of one row."""

    cdef Py_ssize_t place(self, object column_id) except -2:
        """The column's position if it still needs a value, else -1."""
        cdef:
            PyObject* found = PyDict_GetItem(self.shape.places, column_id)
            Py_ssize_t i
        if found == NULL:
            return -1
        i = <object>found
        return i if self.values[i] is _unset else -1

    cdef int put(self, Py_ssize_t i, object value) except -1:
        self.values[i] = value
        self.left -= 1
        return 0

    cdef bint has(self, Py_ssize_t i) noexcept:
        """Whether some store names the column."""
        return self.values[i] is not _unset

    cdef bint settled(self) noexcept:
        """Whether older stores have nothing to add."""
        return self.lives == 0 or (self.left == 0 and self.lives == 1)

    cdef tuple said(self):
        """What the stores said: (lives or None, {column position: value})."""
        return (
            None if self.lives == UNKNOWN else bool(self.lives),
            {i: value for i, value in enumerate(self.values) if value is not _unset},
        )


cdef Overlay overlay_of(RowShape shape, uint64_t snapshot):
    cdef Overlay out = Overlay.__new__(Overlay)
    out.shape = shape
    out.snapshot = snapshot
    out.values = [_unset] * shape.count
    out.left = shape.count
    out.lives = UNKNOWN
    return out


cdef class Store:
    """Changes of the rows of one rowset."""

    def let_go(self):
        """Hold no file any longer."""

    cdef int collect(self, int64_t row, Overlay overlay) except -1:
        """Add what the store says of a row to what newer ones said."""
        raise NotImplementedError
