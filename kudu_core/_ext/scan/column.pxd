# One stored column of a file as scans read it: the pages that are held, and its dictionary.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.pages.holder cimport Held, PageHolder

cdef enum:
    MANY_WORDS = 1 << 16        # no dictionary has more

cdef struct Words:
    # A sorted dictionary.
    int64_t count               # 0: there is none
    const int32_t* ends         # (count + 1,) offsets
    const uint8_t* data
    const uint32_t* sizes
    const uint8_t* slots        # each word in 16 bytes; NULL where one is longer

cdef class ScanColumn(Held):
    cdef:
        PageHolder file
        readonly int width      # of the cells as stored: of codes, where there is a dictionary; 0: strings
        readonly int64_t rows
        int64_t page_count
        readonly int page_bits  # a page has 1 << page_bits rows
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
    cdef int take_words(self, words) except -1
