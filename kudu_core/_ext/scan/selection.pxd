# What a scan reads of one file: pages that are held, pieces of rows, and which of them are chosen.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kudu_core._ext.pages.head cimport Page

cdef enum State:
    NONE = 0                    # of the rows of a piece, or of a page by its zone map
    ALL = 1
    SOME = 2                    # the mask says which

cdef struct Piece:
    # Rows that lie in one mini-block.
    int32_t page                # its place among the pages of the selection
    int32_t block
    int32_t first               # row in the mini-block
    int32_t rows
    int32_t state
    int32_t chosen
    int64_t at                  # rows of the selection before
    int64_t out                 # chosen rows before

cdef struct Words:
    # A sorted dictionary.
    int64_t count               # 0: there is none
    const int32_t* ends         # (count + 1,) offsets
    const uint8_t* data
    const uint32_t* sizes
    const uint8_t* slots        # each word in 16 bytes; NULL where one is longer

cdef class ScanFile:
    cdef:
        dict places             # place in the cache: (column, page)
        readonly bint closed
        object __weakref__

cdef class ScanColumn:
    cdef:
        ScanFile file
        readonly int width      # of the cells as stored: of codes, where there is a dictionary; 0: strings
        readonly int64_t rows
        int64_t page_count
        Words words
        Page* pages             # .data is NULL where the page is not held
        uint8_t* touched
        list payloads
        object load
        object remember
        tuple kept
    cdef int pin(
        self, const int64_t* numbers, const uint8_t* wanted, int64_t n, Page* pages, list held
    ) except -1
    cdef int hold(self, int64_t number, payload, place, Page* page) except -1

cdef class Selection:
    cdef:
        readonly int64_t rows
        readonly int64_t file_rows
        int64_t chosen_rows     # -1: not counted since the choice changed
        Piece* pieces
        int64_t piece_count
        int64_t* numbers        # of the pages, ascending
        int64_t page_count
        uint8_t* mask           # (rows,), of pieces that are SOME
        uint16_t* picked        # (chosen_rows,) or NULL, of pieces that are SOME: rows in the mini-block
    cdef int count(self) except -1
    cdef int settle(self) except -1
    cdef int need_mask(self) except -1
