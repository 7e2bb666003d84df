"""Which rows of a file a scan reads, and which of them its predicate leaves: tests on what is stored.

A ``Selection`` is a list of ranges of rows of one file, cut into *pieces* that lie in one mini-block each
(``pieces.pxd``).  ``test`` narrows it by a set of values of one column: by the state of the page, which a
zone map gives and the caller knows, and where that leaves it open, by what is stored (``conditions.pxd``).
``_ext.scan.read`` reads columns of the rows that are left.

What is read is hostile: a broken page raises ``PageError``, a form that is not tested here
``NeedsGeneralPath``; the caller then asks the general path, whose answer or error stands.  A test that fails
half way has removed only rows that it was right to remove.
"""
cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memset

from kudu_core._ext.pages.head cimport BLOCK_BITS, PAGE_BITS, Page
from kudu_core._ext.scan.cell_set cimport CODE, STRING, CellSet, Set
from kudu_core._ext.scan.conditions cimport TestScratch, test_fixed, test_strings
from kudu_core._ext.scan.column cimport ScanColumn
from kudu_core._ext.scan.parts cimport PageMap, count_pages, map_pages, next_part, want_pages
from kudu_core._ext.scan.pieces cimport (
    ALL,
    NONE,
    SOME,
    Piece,
    count_chosen,
    count_pieces,
    cut_pieces,
    kc_fill_set_bits,
    kc_to_mask,
    keep_passed,
    narrow_piece,
    pick_rows,
    write_rowids,
)
from kudu_core._ext.search.outcomes cimport NEEDS_GENERAL_PATH
from kudu_core._ext.base.status cimport raise_status

import numpy as np

from kudu_core._ext.base.status import NeedsGeneralPath

cdef enum:
    MOST_ROWS = 1 << 28
    FIRST_PAGES = 16            # of a test of strings that are pinned at a time; then as many as have
    PINNED_BYTES = 16 << 20     # so many bytes, about

kc_fill_set_bits()


cdef int _test_piece(
    const Piece* piece, int64_t first_page, const uint8_t* mask, const Tested* cells, const Set* test,
    TestScratch* s, int64_t* at,
) noexcept nogil:
    """The state of the rows of a piece, in ``s.rows`` where it is SOME; or a status.

    ``mask``: of its rows, where the piece is SOME.
    """
    cdef:
        Piece part
        const Page* page
        int64_t begin
        int state = NONE
    part.rows = -1
    while next_part(piece, cells.page_bits, first_page, NULL, &part):
        page = &cells.pages[part.page]
        begin = part.at - piece.at
        state = SOME if cells.states == NULL else cells.states[cells.map.numbers[part.page]]
        if state == SOME and page.data == NULL:
            state = NONE        # no row of it is left
        elif state == SOME and test.kind == STRING:
            state = test_strings(
                test, page, &part, mask + begin if piece.state == SOME else NULL, s, s.rows + begin, at
            )
        elif state == SOME:
            state = test_fixed(test, page, &part, cells.width, s, at)
        if state < 0 or cells.page_bits >= BLOCK_BITS:
            return state
        if state != SOME:
            memset(s.rows + begin, state == ALL, <size_t>part.rows)
    return SOME


cdef int _test(
    Piece* pieces, int64_t n, uint8_t* mask, const Tested* cells, const Set* test, int64_t* at
) noexcept nogil:
    """Leave of the rows of each piece those that belong to the set; 0 or a status."""
    cdef:
        TestScratch s
        int64_t k
        Piece* piece
        int state
    for k in range(n):
        piece = &pieces[k]
        if piece.state == NONE:
            continue
        state = _test_piece(piece, cells.map.firsts[k], mask + piece.at, cells, test, &s, at)
        if state < 0:
            return state
        narrow_piece(piece, mask + piece.at, s.rows, state)
    return 0


cdef int _test_window(
    const Piece* pieces, int64_t n, const uint8_t* mask, const Tested* cells, const Set* test,
    int64_t first, int64_t end, uint8_t* passed, int64_t* at
) noexcept nogil:
    """Set in ``passed`` the rows that belong, of pages [first, end) of the map; 0 or a status.

    Pages are of fewer rows than a mini-block, of strings.
    """
    cdef:
        TestScratch s
        int64_t k
        Piece part
        const Page* page
        int state
    for k in range(n):
        if pieces[k].state == NONE or cells.map.firsts[k] >= end:
            continue
        part.rows = -1
        while next_part(&pieces[k], cells.page_bits, cells.map.firsts[k], NULL, &part):
            if not first <= part.page < end:
                continue
            page = &cells.pages[part.page]
            state = SOME if cells.states == NULL else cells.states[cells.map.numbers[part.page]]
            if state == SOME and page.data == NULL:
                state = NONE        # no row of it is left
            elif state == SOME:
                state = test_strings(
                    test, page, &part, mask + part.at if part.state == SOME else NULL, &s,
                    passed + part.at, at,
                )
            if state < 0:
                return state
            if state != SOME:
                memset(passed + part.at, state == ALL, <size_t>part.rows)
    return 0


cdef int _check_test(ScanColumn column, CellSet test) except -1:
    """The set is one of cells as the column has them."""
    if (
        (test.c.kind == STRING) != (column.width == 0)
        or (test.c.kind == CODE) != (column.words.count > 0)
        or (column.width and test.c.width != column.width)
        or (test.c.kind == CODE and test.c.words != column.words.count)
    ):
        raise ValueError("a test of other cells than the column has")
    return 0


@cython.final
@cython.auto_pickle(False)
cdef class Selection:
    """Rows of a file of ``file_rows`` rows: those of the ranges, then those that tests leave of them.

    ``ranges`` (m, 2) int64: half-open, ascending, without overlap; ``live`` (rows of the ranges,) uint8: 0
    for rows that are not there, or None.  One thread at a time.  Raises ValueError for other ranges.
    """

    def __init__(
        self, const int64_t[:, ::1] ranges not None, int64_t file_rows, const uint8_t[::1] live=None
    ):
        cdef:
            const int64_t* ends = NULL
            int64_t pieces, n = ranges.shape[0], rows = 0
        if ranges.shape[1] != 2:
            raise ValueError("ranges are (m, 2)")
        if n:
            ends = &ranges[0, 0]
        with nogil:
            pieces = count_pieces(ends, n, file_rows, &rows)
        if pieces < 0 or rows > MOST_ROWS:
            raise ValueError(f"ranges that are none of a file of {file_rows} rows")
        if live is not None and live.shape[0] != rows:
            raise ValueError(f"{live.shape[0]} flags of {rows} rows")
        self.file_rows = file_rows
        self.rows = rows
        self.piece_count = pieces
        self.chosen_rows = -1
        self.pieces = <Piece*>PyMem_RawMalloc((pieces + 1) * sizeof(Piece))
        if self.pieces == NULL:
            raise MemoryError
        if live is not None and rows:
            self.need_mask()
            with nogil:
                kc_to_mask(self.mask, &live[0], rows)
        with nogil:
            cut_pieces(ends, n, self.pieces, self.mask)

    def __dealloc__(self):
        cdef int i
        PyMem_RawFree(self.pieces)
        for i in range(PAGE_BITS + 1):
            PyMem_RawFree(self.maps[i].numbers)
            PyMem_RawFree(self.maps[i].firsts)
        PyMem_RawFree(self.mask)
        PyMem_RawFree(self.picked)

    cdef int need_mask(self) except -1:
        """Have room for a mask."""
        if self.mask == NULL:
            self.mask = <uint8_t*>PyMem_RawMalloc(self.rows + 16)
            if self.mask == NULL:
                raise MemoryError
        return 0

    cdef const PageMap* map_of(self, int page_bits) except NULL:
        """Which pages of ``1 << page_bits`` rows the pieces lie in."""
        cdef:
            PageMap* map = &self.maps[page_bits]
            int64_t room
        if map.numbers == NULL:
            with nogil:
                room = count_pages(self.pieces, self.piece_count, page_bits)
            if map.firsts == NULL:
                map.firsts = <int32_t*>PyMem_RawMalloc((self.piece_count + 1) * sizeof(int32_t))
            map.numbers = <int64_t*>PyMem_RawMalloc((room + 1) * sizeof(int64_t))
            if map.numbers == NULL or map.firsts == NULL:
                PyMem_RawFree(map.numbers)
                map.numbers = NULL
                raise MemoryError
            with nogil:
                map_pages(self.pieces, self.piece_count, page_bits, map)
        return map

    cdef int count(self) except -1:
        """Count the chosen rows."""
        if self.chosen_rows < 0:
            with nogil:
                self.chosen_rows = count_chosen(self.pieces, self.piece_count, self.mask)
            PyMem_RawFree(self.picked)
            self.picked = NULL
        return 0

    cdef int settle(self) except -1:
        """Count the chosen rows and list their places."""
        self.count()
        if self.mask != NULL and self.picked == NULL:
            self.picked = <uint16_t*>PyMem_RawMalloc((self.chosen_rows + 8) * sizeof(uint16_t))
            if self.picked == NULL:
                raise MemoryError
            with nogil:
                pick_rows(self.pieces, self.piece_count, self.mask, self.picked)
        return 0

    @property
    def chosen(self):
        """How many rows are left."""
        self.count()
        return self.chosen_rows

    def test(self, ScanColumn column not None, CellSet test not None, const uint8_t[::1] states=None):
        """Leave the rows whose cell belongs to the set.

        ``states``: for each page of the column what its zone map says, 0: no row of it belongs, 1: every row
        does, 2: look; only such pages are read.  Raises ``PageError``, ``NeedsGeneralPath``, and what
        ``load`` does; rows that are gone by then do not belong.
        """
        cdef:
            uint8_t* wanted
            Page* pages = NULL
            Tested cells
            int64_t at = 0
            int status
            list held = []
        if column.rows != self.file_rows:
            raise ValueError(f"a column of {column.rows} rows, a selection of {self.file_rows}")
        _check_test(column, test)
        if states is not None:
            if states.shape[0] != column.page_count:
                raise ValueError(f"{states.shape[0]} states of {column.page_count} pages")
        cells.states = &states[0] if states is not None and column.page_count else NULL
        cells.width = column.width
        cells.page_bits = column.page_bits
        cells.map = self.map_of(column.page_bits)
        self.chosen_rows = -1
        self.need_mask()
        wanted = <uint8_t*>PyMem_RawCalloc(cells.map.count + 1, 1)
        cells.pages = pages = <Page*>PyMem_RawMalloc((cells.map.count + 1) * sizeof(Page))
        try:
            if wanted == NULL or pages == NULL:
                raise MemoryError
            with nogil:
                want_pages(
                    self.pieces, self.piece_count, self.mask, cells.map, cells.page_bits, cells.states, wanted
                )
            if cells.page_bits < BLOCK_BITS and cells.map.count > FIRST_PAGES:
                status = self.test_in_windows(column, wanted, pages, &cells, &test.c, &at)
            else:
                column.pin(cells.map.numbers, wanted, cells.map.count, pages, held)
                with nogil:
                    status = _test(self.pieces, self.piece_count, self.mask, &cells, &test.c, &at)
            if status == NEEDS_GENERAL_PATH:
                raise NeedsGeneralPath
            if status < 0:
                raise_status(status, at)
        finally:
            PyMem_RawFree(wanted)
            PyMem_RawFree(pages)

    cdef int test_in_windows(
        self, ScanColumn column, const uint8_t* wanted, Page* pages, const Tested* cells, const Set* test,
        int64_t* at
    ) except? -1:
        """``test`` of strings, some pages at a time: all of them may be more than memory has room for."""
        cdef:
            uint8_t* passed = <uint8_t*>PyMem_RawCalloc(self.rows + 64, 1)
            int64_t k, first, end = 0, pinned, most = FIRST_PAGES, size, at_row
            int status = 0
            list held
        if passed == NULL:
            raise MemoryError
        try:
            while end < cells.map.count and status == 0:
                first, pinned = end, 0
                while end < cells.map.count and pinned < most:
                    pinned += wanted[end]
                    end += 1
                held = []
                column.pin(cells.map.numbers + first, wanted + first, end - first, pages + first, held)
                with nogil:
                    status = _test_window(
                        self.pieces, self.piece_count, self.mask, cells, test, first, end, passed, at
                    )
                size = 1
                for k in range(first, end):
                    size += pages[k].size if pages[k].data != NULL else 0
                most = max(1, min(pinned * PINNED_BYTES // size, 2 * most))
            if status == 0:
                with nogil:
                    for k in range(self.piece_count):
                        if self.pieces[k].state != NONE:
                            at_row = self.pieces[k].at
                            narrow_piece(&self.pieces[k], self.mask + at_row, passed + at_row, SOME)
            return status
        finally:
            PyMem_RawFree(passed)

    def keep(self, const uint8_t[::1] passed not None):
        """Leave of the chosen rows those whose byte is not 0."""
        self.count()
        if passed.shape[0] != self.chosen_rows:
            raise ValueError(f"{passed.shape[0]} flags of {self.chosen_rows} rows")
        self.need_mask()
        self.chosen_rows = -1
        if passed.shape[0]:
            with nogil:
                keep_passed(self.pieces, self.piece_count, self.mask, &passed[0])

    def rowids(self):
        """The rows that are left, (chosen,) int64, ascending."""
        cdef int64_t[::1] out
        self.settle()
        result = np.empty(self.chosen_rows, np.int64)
        out = result
        if self.chosen_rows:
            with nogil:
                write_rowids(self.pieces, self.piece_count, self.picked, &out[0])
        return result
