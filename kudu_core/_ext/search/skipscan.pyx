"""Rows of a file in key order that lie in intervals of its key columns: exact, without reading the rest.

Within the rows that agree in the columns before it a key column ascends, so its intervals are found by
search: first among the first cells of the mini-blocks, then in one mini-block, cell by cell.  A column
that says nothing (or too little) is walked: one step for each value that it has there.  So a
range of the second column costs a few searches for each value of the first, however many rows there are.

Cells are numbers that compare as the cells do: the raw cell with the sign bit flipped, or the code of
a sorted dictionary.  Stored bytes are not
believed: a search ends and stays within its rows whatever they say.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from kudu_core._ext.pages.head cimport BLOCK_ROWS, CLASS_FIXED, Page, page_open
from kudu_core._ext.search.cells cimport NEED_PAGE, Cells, cell_number, cells_bound, open_cells
from kudu_core._ext.base.status cimport BAD_VALUE, raise_status

import numpy as np

cdef enum:
    MOST_COLUMNS = 32
    PAGE_BLOCKS = 16
    NO_MEMORY = -103
    PAGES_AT_ONCE = 64
    TRIAL_STEPS = 32            # steps before a walk is judged


cdef struct Column:
    int width
    uint64_t flip
    const uint64_t* firsts      # of each mini-block, the first cell
    const uint64_t* spans       # pairs: least and greatest of an interval, ascending; NULL: any value
    int64_t span_count
    Page* pages
    Cells* cells
    int64_t opened              # the mini-block that ``cells`` holds, -1 for none


cdef struct Level:
    # What is left to do with one column: rows that agree in the columns before it.
    int64_t row
    int64_t end
    int64_t span


cdef struct Search:
    int64_t rows
    int depth                   # columns that matter
    int level
    int64_t steps               # of walks, and searches below them
    int64_t walked              # rows passed by walks
    int64_t least_run
    int64_t stop                # from this row on ``depth`` was less, -1: nowhere
    Column columns[MOST_COLUMNS]
    Level levels[MOST_COLUMNS]
    int64_t* out
    int64_t count
    int64_t room
    int column                  # where it could not go on
    int64_t page
    int64_t at


cdef int _open(Search* s, int k, int64_t block) noexcept nogil:
    """Have the cells of a mini-block of column k at hand."""
    cdef:
        Column* column = &s.columns[k]
        int64_t rows = s.rows - block * BLOCK_ROWS
        int status
    if column.opened == block:
        return 0
    s.column = k
    s.page = block / PAGE_BLOCKS
    if column.pages[s.page].data == NULL:
        return NEED_PAGE
    column.opened = -1
    s.at = 0
    if block % PAGE_BLOCKS >= column.pages[s.page].blocks:
        return BAD_VALUE
    status = open_cells(
        &column.pages[s.page], block % PAGE_BLOCKS, column.width, column.flip, column.cells, &s.at
    )
    if status == 0 and column.cells.block.count != (BLOCK_ROWS if rows > BLOCK_ROWS else rows):
        status = BAD_VALUE
    if status == 0:
        column.opened = block
    return status


cdef int64_t _seek(Search* s, int k, int64_t row, int64_t end, uint64_t want, bint above) noexcept nogil:
    """The first of rows [row, end), which agree in the columns before k, that is not below ``want``
    (``above``: that is above it)."""
    cdef:
        const uint64_t* firsts = s.columns[k].firsts
        int64_t block = row >> 10, last = (end - 1) >> 10, lower, upper, middle, step = 1, found
        int status
    if row >= end:
        return end
    # Which mini-block: the last one that begins before the place.  Usually a near one.
    lower = block
    upper = block + 1
    while upper <= last and (firsts[upper] < want or (above and firsts[upper] == want)):
        lower = upper
        upper += step
        step <<= 1
    if upper > last + 1:
        upper = last + 1
    while lower + 1 < upper:
        middle = (lower + upper) >> 1
        if firsts[middle] < want or (above and firsts[middle] == want):
            lower = middle
        else:
            upper = middle
    block = lower
    status = _open(s, k, block)
    if status < 0:
        return status
    lower = 0 if row < block * BLOCK_ROWS else row - block * BLOCK_ROWS
    upper = BLOCK_ROWS if end > (block + 1) * BLOCK_ROWS else end - block * BLOCK_ROWS
    found = cells_bound(s.columns[k].cells, lower, upper, want, above)
    return found if found < 0 else block * BLOCK_ROWS + found


cdef int _emit(Search* s, int64_t row, int64_t end) noexcept nogil:
    cdef int64_t* grown
    if row >= end:
        return 0
    if s.count and s.out[2 * s.count - 1] == row:
        s.out[2 * s.count - 1] = end
        return 0
    if s.count == s.room:
        grown = <int64_t*>realloc(s.out, <size_t>(4 * s.room * sizeof(int64_t)))
        if grown == NULL:
            return NO_MEMORY
        s.out = grown
        s.room *= 2
    s.out[2 * s.count] = row
    s.out[2 * s.count + 1] = end
    s.count += 1
    return 0


cdef inline void _enter(Search* s, int64_t row, int64_t end) noexcept nogil:
    s.level += 1
    s.levels[s.level].row = row
    s.levels[s.level].end = end
    s.levels[s.level].span = 0


cdef int64_t _walk(Search* s, Level* level, Column* column, int k) noexcept nogil:
    """One step: to the next value of column k that an interval allows, and into its rows."""
    cdef:
        uint64_t word = 0
        int64_t row = level.row, found, span = level.span
        int status = _open(s, k, row >> 10)
    if status == 0:
        status = cell_number(column.cells, row & (BLOCK_ROWS - 1), &word)
    if status < 0:
        return status
    if column.spans != NULL:
        while span < column.span_count and column.spans[2 * span + 1] < word:
            span += 1
        if span == column.span_count:
            level.row = level.end
            return 0
        if word < column.spans[2 * span]:
            found = _seek(s, k, row, level.end, column.spans[2 * span], False)
            if found == row:
                return BAD_VALUE        # the cells do not ascend
            if found > row:
                level.row = found
                level.span = span
            return found if found < 0 else 0
    found = _seek(s, k, row, level.end, word, True)
    if found == row:
        return BAD_VALUE
    if found < 0:
        return found
    level.row = found
    level.span = span
    s.steps += 1
    s.walked += found - row
    _enter(s, row, found)
    return 0


cdef int64_t _run(Search* s) noexcept nogil:
    """Go on until all is found, 0, or a status; can be called again after NEED_PAGE."""
    cdef:
        Level* level
        Column* column
        int64_t row, end, status
        int k
    while s.level >= 0:
        k = s.level
        level = &s.levels[k]
        column = &s.columns[k]
        if level.row >= level.end or (column.spans != NULL and level.span >= column.span_count):
            s.level -= 1
            continue
        if k + 1 >= s.depth and column.spans == NULL:
            status = _emit(s, level.row, level.end)
            if status < 0:
                return status
            level.row = level.end
            continue
        if k + 1 < s.depth and (
            column.spans == NULL or column.spans[2 * level.span] != column.spans[2 * level.span + 1]
        ):
            if s.steps > TRIAL_STEPS and s.walked < s.steps * s.least_run:
                # Too many values for too few rows: the columns behind this one are left out from here.
                s.depth = k if column.spans == NULL else k + 1
                if s.stop < 0:
                    s.stop = level.row
                continue
            status = _walk(s, level, column, k)
            if status < 0:
                return status
            continue
        # One interval is one range of rows.
        row = _seek(s, k, level.row, level.end, column.spans[2 * level.span], False)
        if row < 0:
            return row
        end = _seek(s, k, row, level.end, column.spans[2 * level.span + 1], True)
        if end < 0:
            return end
        level.row = end
        level.span += 1
        s.steps += s.steps > 0
        if k + 1 >= s.depth:
            status = _emit(s, row, end)
            if status < 0:
                return status
        elif row < end:
            _enter(s, row, end)
    return 0


cdef int64_t _find(Search* s, const uint64_t* wants, int count, bint beyond, int64_t* found) noexcept nogil:
    """Set how many rows are below the cells; 0 or a status."""
    cdef:
        int64_t row = 0, end = s.rows, next_row
        int k
    for k in range(count):
        next_row = _seek(s, k, row, end, wants[k], beyond and k + 1 == count)
        if next_row < 0:
            return next_row
        if k + 1 < count:
            end = _seek(s, k, next_row, end, wants[k], True)
            if end < 0:
                return end
        row = next_row
        if row >= end:
            break
    found[0] = row
    return 0


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
                status = _find(&s, wants, count, beyond, &found)
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
                    status = _run(&s)
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
