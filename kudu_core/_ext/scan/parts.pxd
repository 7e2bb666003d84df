# Which pages of a column the pieces of a selection lie in.
#
# Columns of a file have different numbers of rows in a page, each a power of two, so there is one map for
# each power.  A *part* of a piece is what of it lies in one page: the whole piece, but for columns of
# strings with pages of fewer rows than a mini-block, which then are mini-blocks of their own.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from kudu_core._ext.pages.head cimport BLOCK_BITS, BLOCK_ROWS
from kudu_core._ext.scan.pieces cimport ALL, NONE, SOME, Piece

cdef struct PageMap:
    int64_t* numbers            # of the pages, ascending
    int64_t count
    int32_t* firsts             # of each piece, where its first page is among these; others follow it


cdef inline int64_t first_row(const Piece* piece) noexcept nogil:
    """The row of the file at which a piece of the selection begins."""
    return <int64_t>piece.block * BLOCK_ROWS + piece.first


cdef inline int64_t count_pages(const Piece* pieces, int64_t n, int page_bits) noexcept nogil:
    """No fewer pages than the pieces lie in."""
    cdef int64_t k, row, pages = 0
    if page_bits >= BLOCK_BITS:
        return n
    for k in range(n):
        row = first_row(&pieces[k])
        pages += ((row + pieces[k].rows - 1) >> page_bits) - (row >> page_bits) + 1
    return pages


cdef inline void map_pages(const Piece* pieces, int64_t n, int page_bits, PageMap* map) noexcept nogil:
    """Fill a map that has room for ``count_pages``."""
    cdef int64_t k, row, number
    map.count = 0
    for k in range(n):
        row = first_row(&pieces[k])
        number = row >> page_bits
        if map.count and map.numbers[map.count - 1] == number:
            map.firsts[k] = <int32_t>(map.count - 1)
            number += 1
        else:
            map.firsts[k] = <int32_t>map.count
        while number <= (row + pieces[k].rows - 1) >> page_bits:
            map.numbers[map.count] = number
            map.count += 1
            number += 1


cdef inline bint next_part(
    const Piece* piece, int page_bits, int64_t first_page, const uint16_t* picked, Piece* part
) noexcept nogil:
    """Set ``part`` to what of the piece lies in its next page; False where there is no more.

    ``part.rows`` is -1 before the first call.  ``picked``: of the piece, NULL while it is not settled: then
    ``chosen`` and ``out`` mean something only where all rows are chosen.
    """
    cdef int64_t row, size, stop, after, out
    if page_bits >= BLOCK_BITS:
        if part.rows >= 0:
            return False
        part[0] = piece[0]
        part.page = <int32_t>first_page
        part.block = <int32_t>(piece.block & ((1 << (page_bits - BLOCK_BITS)) - 1))
        return True
    if part.rows < 0:
        part.page = <int32_t>first_page
        row = piece.first
        out = piece.out
    else:
        part.page += 1
        row = part.skip + part.first + part.rows
        out = part.out + part.chosen
    stop = piece.first + piece.rows
    if row >= stop:
        return False
    size = <int64_t>1 << page_bits
    part.block = 0
    part.skip = <int32_t>(row & ~(size - 1))
    part.first = <int32_t>(row - part.skip)
    part.rows = <int32_t>((size if part.skip + size < stop else stop - part.skip) - part.first)
    part.state = piece.state
    part.at = piece.at + row - piece.first
    part.out = out
    after = out - piece.out
    if piece.state == ALL:
        after += part.rows
    elif piece.state == SOME and picked != NULL:
        while after < piece.chosen and picked[after] < row + part.rows:
            after += 1
    part.chosen = <int32_t>(piece.out + after - out)
    return True


cdef inline bint _is_any(const uint8_t* mask, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if mask[i]:
            return True
    return False


cdef inline void want_pages(
    const Piece* pieces, int64_t n, const uint8_t* mask, const PageMap* map, int page_bits,
    const uint8_t* states, uint8_t* wanted
) noexcept nogil:
    """Set a byte for each page of the map that has a chosen row, and whose state is SOME or not known."""
    cdef:
        int64_t k
        Piece part
    for k in range(n):
        if pieces[k].state == NONE:
            continue
        part.rows = -1
        while next_part(&pieces[k], page_bits, map.firsts[k], NULL, &part):
            if states != NULL and states[map.numbers[part.page]] != SOME:
                continue
            if page_bits >= BLOCK_BITS or part.state == ALL or _is_any(mask + part.at, part.rows):
                wanted[part.page] = 1
