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
from libc.stdint cimport int64_t, uint8_t, uint16_t

from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.scan.cell_set cimport CODE, STRING, CellSet, Set
from kudu_core._ext.scan.conditions cimport Scratch, test_fixed, test_strings
from kudu_core._ext.scan.column cimport ScanColumn
from kudu_core._ext.scan.pieces cimport (
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

kc_fill_set_bits()


cdef int _test(
    Piece* pieces, int64_t n, uint8_t* mask, const Page* pages, const int64_t* numbers,
    const uint8_t* states, const Set* test, int width, int64_t* at,
) noexcept nogil:
    """Leave of the rows of each piece those that belong to the set; 0 or a status."""
    cdef:
        Scratch s
        int64_t k
        Piece* piece
        int state
    for k in range(n):
        piece = &pieces[k]
        if piece.state == NONE:
            continue
        state = SOME if states == NULL else states[numbers[piece.page]]
        if state == SOME:
            if test.kind == STRING:
                state = test_strings(
                    test, &pages[piece.page], piece, mask + piece.at if piece.state == SOME else NULL, &s, at
                )
            else:
                state = test_fixed(test, &pages[piece.page], piece, width, &s, at)
            if state < 0:
                return state
        narrow_piece(piece, mask + piece.at, s.rows, state)
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
        self.numbers = <int64_t*>PyMem_RawMalloc((pieces + 1) * sizeof(int64_t))
        if self.pieces == NULL or self.numbers == NULL:
            raise MemoryError
        if live is not None and rows:
            self.need_mask()
            with nogil:
                kc_to_mask(self.mask, &live[0], rows)
        with nogil:
            self.page_count = cut_pieces(ends, n, self.pieces, self.numbers, self.mask)

    def __dealloc__(self):
        PyMem_RawFree(self.pieces)
        PyMem_RawFree(self.numbers)
        PyMem_RawFree(self.mask)
        PyMem_RawFree(self.picked)

    cdef int need_mask(self) except -1:
        """Have room for a mask."""
        if self.mask == NULL:
            self.mask = <uint8_t*>PyMem_RawMalloc(self.rows + 16)
            if self.mask == NULL:
                raise MemoryError
        return 0

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
            const uint8_t* by_page = NULL
            int64_t k, at = 0
            int status
            list held = []
        if column.rows != self.file_rows:
            raise ValueError(f"a column of {column.rows} rows, a selection of {self.file_rows}")
        _check_test(column, test)
        if states is not None:
            if states.shape[0] != column.page_count:
                raise ValueError(f"{states.shape[0]} states of {column.page_count} pages")
            if column.page_count:
                by_page = &states[0]
        self.chosen_rows = -1
        self.need_mask()
        wanted = <uint8_t*>PyMem_RawCalloc(self.page_count + 1, 1)
        pages = <Page*>PyMem_RawMalloc((self.page_count + 1) * sizeof(Page))
        try:
            if wanted == NULL or pages == NULL:
                raise MemoryError
            for k in range(self.piece_count):
                if self.pieces[k].state != NONE:
                    wanted[self.pieces[k].page] = (
                        by_page == NULL or by_page[self.numbers[self.pieces[k].page]] == SOME
                    )
            column.pin(self.numbers, wanted, self.page_count, pages, held)
            with nogil:
                status = _test(
                    self.pieces, self.piece_count, self.mask, pages, self.numbers, by_page, &test.c,
                    column.width, &at,
                )
            if status == NEEDS_GENERAL_PATH:
                raise NeedsGeneralPath
            if status < 0:
                raise_status(status, at)
        finally:
            PyMem_RawFree(wanted)
            PyMem_RawFree(pages)

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
                write_rowids(self.pieces, self.piece_count, self.numbers, self.picked, &out[0])
        return result
