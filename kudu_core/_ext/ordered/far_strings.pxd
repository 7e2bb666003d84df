# Strings of many rows, of pages that nobody holds.
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.base.arrow_array cimport ArrowArray
from kudu_core._ext.files.page_fetcher cimport BriefPage, PageFetcher
from kudu_core._ext.ordered.packed cimport FoundRow
from kudu_core._ext.pages.holder cimport PageHolder
from kudu_core._ext.row.cells cimport Span
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.search.cells cimport Cells


cdef class FarStrings:
    cdef:
        list kept               # what spans point into
        PointColumn _column
        bytes _run              # adjacent pages that were read together, from ``_begin`` of the file on
        int64_t _begin
        BriefPage* _brief       # NULL until one is read
    cdef int find(
        self, PageHolder file, PointColumn column, const FoundRow* found, Py_ssize_t first, Py_ssize_t end,
        Span* spans, Cells* cells, ArrowArray* out,
    ) except -1
    cdef Py_ssize_t read(
        self, PageHolder file, PointColumn column, const FoundRow* found, Py_ssize_t k, Py_ssize_t end,
        Span* spans, ArrowArray* out,
    ) except -1
    cdef bint _of_page(
        self, object payload, const FoundRow* found, Py_ssize_t k, Py_ssize_t last, Span* spans,
        ArrowArray* out,
    ) except -1
    cdef bint _of_file(
        self, PageFetcher fetcher, int64_t number, const FoundRow* found, Py_ssize_t k, Py_ssize_t last,
        Py_ssize_t end, Span* spans, ArrowArray* out,
    ) except -1
    cdef bytes _fetched(
        self, PageFetcher fetcher, int64_t number, const FoundRow* found, Py_ssize_t last, Py_ssize_t end
    )
