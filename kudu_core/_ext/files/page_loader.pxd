# Pages of a stored column, from the cache or from the file.
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kudu_core._ext.files.cached_pages cimport Reader
from kudu_core._ext.files.page_fetcher cimport PageFetcher


cdef class PageLoader:
    cdef:
        object _column
        object _holds
        Reader _reader
        list _places            # of the pages; None: not asked for yet
    cdef object place(self, int64_t number)
    cdef PyObject** known_place(self, int64_t number) noexcept
    cdef PyObject* entry(self, PyObject** place) noexcept
    cdef object payload(self, int64_t number, object place)
    cdef object look(self, object place)
    cdef object fetched(self, int64_t number)
    cdef PageFetcher passing(self, int64_t number, object place, bint many)
    cdef object ask(self, int64_t number, bint if_cold)
    cdef bint remember(self, object place, object payload) except -1
