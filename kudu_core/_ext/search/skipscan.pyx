"""Rows of a file in key order that lie in intervals of its key columns: exact, without reading the rest.

Within the rows that agree in the columns before it a key column ascends, so its intervals are found by
search: first among the first cells of the mini-blocks, then in one mini-block, cell by cell.  A column
that says nothing (or too little) is walked: one step for each value that it has there.  So a
range of the second column costs a few searches for each value of the first, however many rows there are.
``walk.pxd`` has the steps; here searches are set up, run, and given the pages that they need.

Cells are numbers that compare as the cells do: the raw cell with the sign bit flipped, or the code of
a sorted dictionary.  Stored bytes are not believed: a search ends and stays within its rows whatever they
say.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from kudu_core._ext.pages.head cimport BLOCK_ROWS, CLASS_FIXED, Page, page_open
from kudu_core._ext.search.cells cimport Cells
from kudu_core._ext.search.outcomes cimport NEED_PAGE
from kudu_core._ext.search.key_walk cimport (
    MOST_COLUMNS,
    NO_MEMORY,
    PAGE_BLOCKS,
    Search,
    find_bound,
    run_search,
)
from kudu_core._ext.base.status cimport raise_status

import numpy as np

cdef enum:
    PAGES_AT_ONCE = 64          # loaded for a walk that goes through all


cdef int _set_up(Search* s, list firsts, list spans, int64_t lower, int64_t upper) except -1:
    """Check what one search is about."""
    cdef:
        const uint64_t[::1] numbers
        const uint64_t[:, ::1] pairs
        int64_t i
        int k
    s.depth = 0
    for k in range(len(spans)):
        s.columns[k].opened = -1
        s.columns[k].spans = NULL
        s.columns[k].span_count = 0
        numbers = firsts[k]
        s.columns[k].firsts = &numbers[0]
        if spans[k] is None:
            continue
        pairs = spans[k]
        if pairs.shape[1] != 2:
            raise ValueError("an interval is a pair")
        for i in range(pairs.shape[0]):
            if pairs[i, 0] > pairs[i, 1] or (i and pairs[i, 0] <= pairs[i - 1, 1]):
                raise ValueError("intervals are ascending and apart")
        s.depth = k + 1
        s.columns[k].span_count = pairs.shape[0]
        # An address in any case: NULL would mean any value.
        s.columns[k].spans = &pairs[0, 0] if pairs.shape[0] else &numbers[0]
    s.level = s.steps = s.walked = s.count = 0
    s.stop = -1
    s.levels[0].row = lower
    s.levels[0].end = upper
    s.levels[0].span = 0
    return 0


cdef class KeyOrder:
    """The key columns of one file for such searches.  Immutable; any number of threads.

    Parameters
    ----------
    rows
        In the file, at least one.
    columns : [(width, flip, firsts)]
        In key order: bytes of a stored cell (1, 2, 4, 8), the bit that is flipped for its order, and of every
        mini-block the first cell, flipped, as (blocks,) uint64.
    """

    cdef:
        readonly int64_t rows
        readonly int64_t page_count
        list _widths
        list _flips
        list _firsts

    def __init__(self, int64_t rows, columns not None):
        self.rows = rows
        if rows < 1 or not 1 <= len(columns) <= MOST_COLUMNS:
            raise ValueError(f"{rows} rows, {len(columns)} key columns")
        blocks = (rows + BLOCK_ROWS - 1) // BLOCK_ROWS
        self.page_count = (blocks + PAGE_BLOCKS - 1) // PAGE_BLOCKS
        self._widths = []
        self._flips = []
        self._firsts = []
        for width, flip, firsts in columns:
            if width not in (1, 2, 4, 8) or len(firsts) != blocks:
                raise ValueError(f"cells of {width} bytes, {len(firsts)} first cells of {blocks} mini-blocks")
            self._widths.append(width)
            self._flips.append(flip)
            self._firsts.append(np.ascontiguousarray(firsts, np.uint64))

    @property
    def columns(self):
        """How many key columns there are."""
        return len(self._widths)

    def seek(self, const uint64_t[::1] cells not None, bint beyond, load not None):
        """How many rows have a smaller key than these first cells, in key order.

        ``beyond``: how many have no greater one.  ``load`` and errors as for ``ranges``.
        """
        cdef:
            Search s
            int64_t status = 0, found = 0
            int count = <int>cells.shape[0]
            const uint64_t* wants = NULL
        if cells.shape[0] > len(self._widths):
            raise ValueError(f"{cells.shape[0]} cells of {len(self._widths)} columns")
        if count:
            wants = &cells[0]
        held = [self._room(&s, count)]
        _set_up(&s, self._firsts, [None] * count, 0, self.rows)
        while True:
            with nogil:
                status = find_bound(&s, wants, count, beyond, &found)
            if status != NEED_PAGE:
                break
            self._load(&s, s.page + 1, load, held)
        if status < 0:
            raise_status(status, s.at)
        return found

    def ranges(self, int64_t lower, int64_t upper, spans not None, load not None, int64_t least_run=0):
        """Which of the rows [lower, upper) have every cell in an interval of its column.

        Returns ``(ranges, stop)``: (m, 2) int64, half-open, ascending, apart; and None, or the row from which
        on only the first columns' intervals were regarded, because a walk found fewer than
        ``least_run`` rows for each of its steps.

        Parameters
        ----------
        spans : [(n, 2) uint64 or None]
            By column, no more than there are: intervals, both ends included, ascending and apart; None:
            any value.  At least one is not None.
        load : (column, first, last) -> [payload]
            The checked payloads of its pages [first, last).

        Raises ``PageError`` where stored bytes break their format or cells do not ascend.
        """
        cdef:
            Search s
            int64_t status, last_page
            int count
        if not 0 <= lower <= upper <= self.rows:
            raise ValueError(f"rows {lower}..{upper} of {self.rows}")
        spans = list(spans)
        while spans and spans[len(spans) - 1] is None:
            spans.pop()
        count = len(spans)
        if not 1 <= count <= len(self._widths):
            raise ValueError(f"intervals of {count} columns, of which there are {len(self._widths)}")
        spans = [None if one is None else np.ascontiguousarray(one, np.uint64) for one in spans]
        _set_up(&s, self._firsts, spans, lower, upper)
        held = [self._room(&s, count)]
        s.least_run = least_run
        s.room = 16
        s.out = <int64_t*>malloc(2 * 16 * sizeof(int64_t))
        try:
            if s.out == NULL:
                raise MemoryError
            while True:
                with nogil:
                    status = run_search(&s)
                if status != NEED_PAGE:
                    break
                # A walk goes through all pages; the ends of one range lie where they lie.
                last_page = s.page + 1
                if s.steps or s.columns[0].spans == NULL:
                    last_page = min((upper - 1) // (BLOCK_ROWS * PAGE_BLOCKS) + 1, s.page + PAGES_AT_ONCE)
                self._load(&s, last_page, load, held)
            if status == NO_MEMORY:
                raise MemoryError
            if status < 0:
                raise_status(status, s.at)
            result = np.empty((s.count, 2), np.int64)
            _copy(&s, result)
            return result, (None if s.stop < 0 else s.stop)
        finally:
            free(s.out)

    cdef object _room(self, Search* s, int count):
        """Memory for the pages and cells of the first ``count`` columns; return what keeps it."""
        cdef:
            uint8_t[::1] pages, cells
            int k
        page_room = np.zeros(count * self.page_count * sizeof(Page) + 1, np.uint8)
        cell_room = np.empty(count * sizeof(Cells) + 1, np.uint8)
        pages = page_room
        cells = cell_room
        s.rows = self.rows
        for k in range(count):
            s.columns[k].width = self._widths[k]
            s.columns[k].flip = self._flips[k]
            s.columns[k].pages = <Page*>&pages[0] + k * self.page_count
            s.columns[k].cells = <Cells*>&cells[0] + k
        return page_room, cell_room

    cdef int _load(self, Search* s, int64_t last, load, list held) except -1:
        """Have the pages from the one that lacks to ``last``; ``held`` keeps them."""
        cdef:
            const uint8_t[::1] payload
            Page* page
            int64_t number = s.page
            int status
        payloads = load(s.column, s.page, last)
        if len(payloads) != last - s.page:
            raise ValueError(f"{len(payloads)} pages of {last - s.page}")
        held.append(payloads)
        for payload in payloads:
            page = &s.columns[s.column].pages[number]
            status = page_open(
                page, &payload[0] if payload.shape[0] else NULL, payload.shape[0],
                CLASS_FIXED, s.columns[s.column].width, &s.at,
            )
            if status < 0:
                raise_status(status, s.at)
            number += 1
        return 0


cdef int _copy(Search* s, int64_t[:, ::1] out) except -1:
    cdef int64_t i
    for i in range(s.count):
        out[i, 0] = s.out[2 * i]
        out[i, 1] = s.out[2 * i + 1]
    return 0
