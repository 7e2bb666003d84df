# Searches and walks over the key columns of a file: which rows have every cell in an interval of its column.
#
# The state of one such search, and its steps.  ``skipscan.pyx`` sets a search up, and loads the pages for
# which it stops.
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport realloc

from kudu_core._ext.pages.head cimport BLOCK_ROWS, Page
from kudu_core._ext.search.cells cimport Cells, cell_number, cells_bound, open_cells
from kudu_core._ext.search.outcomes cimport NEED_PAGE
from kudu_core._ext.base.status cimport BAD_VALUE

cdef enum:
    MOST_COLUMNS = 32
    PAGE_BLOCKS = 16
    NO_MEMORY = -103
    TRIAL_STEPS = 32            # steps before a walk is judged


cdef struct KeyColumn:
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
    KeyColumn columns[MOST_COLUMNS]
    Level levels[MOST_COLUMNS]
    int64_t* out
    int64_t count
    int64_t room
    int column                  # where it could not go on
    int64_t page
    int64_t at


cdef inline int _open(Search* s, int k, int64_t block) noexcept nogil:
    """Have the cells of a mini-block of column k at hand."""
    cdef:
        KeyColumn* column = &s.columns[k]
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


cdef inline int64_t _seek(
    Search* s, int k, int64_t row, int64_t end, uint64_t want, bint above
) noexcept nogil:
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


cdef inline int _emit(Search* s, int64_t row, int64_t end) noexcept nogil:
    """Add rows to what was found."""
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
    """Go on with the next column, in rows that agree in those before it."""
    s.level += 1
    s.levels[s.level].row = row
    s.levels[s.level].end = end
    s.levels[s.level].span = 0


cdef inline int64_t _walk(Search* s, Level* level, KeyColumn* column, int k) noexcept nogil:
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


cdef inline int64_t run_search(Search* s) noexcept nogil:
    """Go on until all is found, 0, or a status; can be called again after NEED_PAGE."""
    cdef:
        Level* level
        KeyColumn* column
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


cdef inline int64_t find_bound(
    Search* s, const uint64_t* wants, int count, bint beyond, int64_t* found
) noexcept nogil:
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
