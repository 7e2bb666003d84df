# Which rows of a file a scan reads, as its kernels hand them on.
from libc.stdint cimport int64_t, uint8_t, uint16_t

from kudu_core._ext.pages.head cimport PAGE_BITS, Page
from kudu_core._ext.scan.cell_set cimport Set
from kudu_core._ext.scan.column cimport ScanColumn
from kudu_core._ext.scan.parts cimport PageMap
from kudu_core._ext.scan.pieces cimport Piece


cdef struct Tested:
    # The cells that a test looks at.
    int width
    int page_bits
    const PageMap* map
    const Page* pages           # of the map
    const uint8_t* states       # of all pages of the column, NULL: not known


cdef class Selection:
    cdef:
        readonly int64_t rows
        readonly int64_t file_rows
        int64_t chosen_rows     # -1: not counted since the choice changed
        Piece* pieces
        int64_t piece_count
        PageMap maps[PAGE_BITS + 1]     # by the power of two of a page's rows, made when first asked for
        uint8_t* mask           # (rows,), of pieces that are SOME
        uint16_t* picked        # (chosen_rows,) or NULL, of pieces that are SOME: rows in the mini-block
    cdef int count(self) except -1
    cdef int settle(self) except -1
    cdef int test_in_windows(
        self, ScanColumn column, const uint8_t* wanted, Page* pages, const Tested* cells, const Set* test,
        int64_t* at
    ) except? -1
    cdef int need_mask(self) except -1
    cdef const PageMap* map_of(self, int page_bits) except NULL
