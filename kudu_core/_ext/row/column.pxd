# One stored column for point reads, and who holds the pages: pointcolumn.pyx.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.pages.cell cimport Layout
from kudu_core._ext.pages.head cimport Block, Page
from kudu_core._ext.search.cells cimport Cells, Sorted, open_block

cdef extern from *:
    """
    static inline int kc_is_known(const int *known) { return __atomic_load_n(known, __ATOMIC_ACQUIRE); }
    static inline void kc_now_known(int *known) { __atomic_store_n(known, 1, __ATOMIC_RELEASE); }
    """
    bint kc_is_known(const int* known) noexcept nogil
    void kc_now_known(int* known) noexcept nogil


cdef struct Opened:
    # A mini-block of a page that is held, its head checked.  The head lies among the values, in memory that
    # is as far away as they are: kept here, a cell costs one look there and not three.
    int known                   # the rest is written: once, or by several threads alike
    bint steps
    Block block
    Layout layout


cdef struct Column:
    Page* pages                 # .data is NULL where the page is not held
    Opened* opened              # of each page 16
    uint8_t* touched
    int64_t page_count
    int width                   # as stored: of the codes, where there is a dictionary; 0: strings
    Sorted words                # the dictionary; count is 0 where there is none
    int order                   # of a key column
    int key_width
    uint64_t flip


cdef struct Need:
    # The page that a look-up lacks.
    int column
    int64_t page


cdef inline int open_known(
    const Column* column, const Page* page, int64_t block, Cells* cells, int64_t* at
) noexcept nogil:
    """Mini-block ``block`` of the column, which lies in ``page``: a status, or 0."""
    cdef:
        Opened* opened = &column.opened[block]
        int status
    if kc_is_known(&opened.known):
        cells.block = opened.block
        cells.layout = opened.layout
        cells.steps = opened.steps
        cells.decoded = False
        return 0
    status = open_block(page, block & 15, column.width, cells, at)
    if status == 0:
        opened.block = cells.block
        opened.layout = cells.layout
        opened.steps = cells.steps
        kc_now_known(&opened.known)
    return status


cdef class Held:
    cdef int used(self, Py_ssize_t number) except -1
    cdef int let_go(self, Py_ssize_t number) except -1


cdef class PageHolder:
    cdef:
        dict _places            # place in the cache: (Held, number)
        readonly bint closed
        int _busy
        list _leaving           # pages dropped while a look-up runs without the GIL
    cdef int hold(self, object place, Held who, Py_ssize_t number) except -1
    cdef int idle(self) except -1
    cdef int drop(self, Held who, Py_ssize_t number) except -1


cdef class PointColumn(Held):
    cdef:
        Column c
        object _room
        object _opened
        object _touched
        list _payloads
        object _load
        object _remember
        PageHolder _holder
        object _words
        list _texts             # words as Python values, made when first asked for
    cdef const Page* page(self, PageHolder holder, int64_t number) except NULL
    cdef void _publish(self, int64_t number, const Page* page) noexcept
    cdef object value(self, PageHolder holder, int64_t row, int tag, object decode)
    cdef tuple cells(self, PageHolder holder, const int64_t[::1] rows)
