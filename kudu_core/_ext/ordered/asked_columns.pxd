# Columns of an Arrow batch that are made of what the caller has: those of the keys that were asked for.
from libc.stdint cimport uint8_t

from kudu_core._ext.base.arrow_array cimport ArrowArray


cdef int as_bits(ArrowArray* out, const uint8_t* cells) except -1
cdef int asked_column(ArrowArray* out, int width, bint bits, values, offsets) except -1
cdef int check_places(Py_ssize_t rows, tuple places, list keys) except -1
