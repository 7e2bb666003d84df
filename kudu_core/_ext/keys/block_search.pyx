"""Search for tuples of numbers in blocks of ascending tuples, column by column.

The key columns of some mini-blocks lie decoded one after the other, all but the last equally long;
each probe knows its block.  Probes are independent: the processor overlaps the
cache misses of several.
"""
import numpy as np

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    MAX_COLUMNS = 64        # ``schema.MAX_KEY_COLUMNS``


cdef struct NumberColumn:
    const uint8_t* cells
    const uint8_t* wanted
    int width
    bint is_signed


cdef inline uint64_t _load(const uint8_t* p, int64_t i, int width, bint is_signed) noexcept nogil:
    """A cell as a number whose unsigned order is that of the cells."""
    cdef uint64_t value
    if width == 8:
        value = (<const uint64_t*>p)[i]
        return value ^ (<uint64_t>1 << 63) if is_signed else value
    if width == 4:
        if is_signed:
            return <uint64_t><int64_t>(<const int32_t*>p)[i] ^ (<uint64_t>1 << 63)
        return (<const uint32_t*>p)[i]
    if width == 2:
        if is_signed:
            return <uint64_t><int64_t>(<const int16_t*>p)[i] ^ (<uint64_t>1 << 63)
        return (<const uint16_t*>p)[i]
    if is_signed:
        return <uint64_t><int64_t>(<const int8_t*>p)[i] ^ (<uint64_t>1 << 63)
    return p[i]


cdef inline int _compare(
    const NumberColumn* columns, int count, int64_t cell, const uint64_t* want
) noexcept nogil:
    cdef:
        int c
        uint64_t have
    for c in range(count):
        have = _load(columns[c].cells, cell, columns[c].width, columns[c].is_signed)
        if have != want[c]:
            return -1 if have < want[c] else 1
    return 0


cdef int64_t _bisect(
    const NumberColumn* columns, int count, const int64_t* block, int64_t probes, int64_t block_rows,
    int64_t rows, int64_t* out
) noexcept nogil:
    """Return -1, or a probe whose block does not exist."""
    cdef:
        int64_t i, low, high, middle
        int c, order
        uint64_t want[MAX_COLUMNS]
    for i in range(probes):
        if rows == 0 or block[i] < 0 or block[i] > (rows - 1) // block_rows:
            return i
        for c in range(count):
            want[c] = _load(columns[c].wanted, i, columns[c].width, columns[c].is_signed)
        low = block[i] * block_rows
        high = low + block_rows
        if high > rows:
            high = rows
        out[i] = -1
        while low < high:
            middle = (low + high) >> 1
            order = _compare(columns, count, middle, want)
            if order == 0:
                out[i] = middle
                break
            if order < 0:
                low = middle + 1
            else:
                high = middle
    return -1


def find(columns, const int64_t[::1] block not None, int64_t block_rows):
    """The cell that equals each probe, (n,) int64, -1 where its block has none.

    ``columns``: for each, in the order in which they compare, (cells, probes' values, width in bytes:
    1, 2, 4 or 8, whether signed); cells and values as bytes, little-endian.  ``block``: (n,) the block
    of each probe; a block has ``block_rows`` cells, the last one what is left, in ascending order
    without repeats.

    ValueError for columns of other lengths or widths, IndexError for a block that does not exist.
    """
    cdef:
        NumberColumn column[MAX_COLUMNS]
        const uint8_t[::1] cells
        const uint8_t[::1] wanted
        int64_t[::1] out
        int64_t rows = -1
        int64_t probes = block.shape[0]
        int64_t wrong
        int count = 0
        list kept = []
    if not 0 < len(columns) <= MAX_COLUMNS or block_rows <= 0:
        raise ValueError(f"{len(columns)} columns in blocks of {block_rows}")
    for cells, wanted, width, is_signed in columns:
        if width not in (1, 2, 4, 8) or cells.shape[0] % width or wanted.shape[0] != probes * width:
            raise ValueError(f"{wanted.shape[0]} bytes of {probes} probes of {width} bytes each")
        if rows >= 0 and cells.shape[0] // width != rows:
            raise ValueError(f"{cells.shape[0] // width} cells beside {rows}")
        rows = cells.shape[0] // width
        column[count].cells = &cells[0] if rows else NULL
        column[count].wanted = &wanted[0] if probes else NULL
        column[count].width = width
        column[count].is_signed = is_signed
        kept.append((cells, wanted))
        count += 1
    result = np.empty(probes, np.int64)
    if not probes:
        return result
    out = result
    with nogil:
        wrong = _bisect(column, count, &block[0], probes, block_rows, rows, &out[0])
    if wrong >= 0:
        raise IndexError(f"block {block[wrong]} of {rows} cells in blocks of {block_rows}")
    return result
