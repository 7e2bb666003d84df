"""Columns of an Arrow batch that are made of what the caller has: those of the keys that were asked for.

They are copied, so that the batch is one piece with one owner, whatever becomes of the caller's memory.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.arrow_array cimport ArrowArray
from kudu_core._ext.ordered.arrow_batch cimport grown


cdef int as_bits(ArrowArray* out, const uint8_t* cells) except -1:
    """Write the values of a column of bools: of a byte for each row, whether it is 0."""
    cdef:
        int64_t row, size = (out.length + 7) >> 3
        uint8_t* values = <uint8_t*>grown(NULL, size)
    out.buffers[1] = values
    memset(values, 0, <size_t>size)
    for row in range(out.length):
        values[row >> 3] |= <uint8_t>((cells[row] != 0) << (row & 7))
    return 0


cdef int asked_column(ArrowArray* out, int width, bint bits, values, offsets) except -1:
    """Write a column of cells without nulls: of ``width`` bytes, or of strings with their ``offsets``.

    ValueError for fewer cells than the batch has rows, for more bytes, and for offsets that do not ascend.
    """
    cdef:
        const uint8_t[::1] data = values
        const int32_t[::1] given
        int64_t row, rows = out.length, size = data.shape[0]
        int32_t* ends
        int32_t first
    if width:
        if offsets is not None or size != rows * width or (bits and width != 1):
            raise ValueError(f"{size} bytes in {rows} cells of {width}")
        if bits:
            return as_bits(out, &data[0] if size else NULL)
        out.buffers[1] = grown(NULL, size)
    else:
        given = offsets
        if given.shape[0] != rows + 1 or given[0] < 0 or given[rows] > size:
            raise ValueError(f"{given.shape[0]} offsets of {rows} strings in {size} bytes")
        out.buffers[1] = ends = <int32_t*>grown(NULL, 4 * (rows + 1))
        first = given[0]
        for row in range(rows):
            if given[row + 1] < given[row]:
                raise ValueError(f"offsets descend at string {row}")
        for row in range(rows + 1):
            ends[row] = given[row] - first
        size = ends[rows]
        out.buffers[2] = grown(NULL, size)
        if size:
            memcpy(<void*>out.buffers[2], &data[first], <size_t>size)
        return 0
    if size:
        memcpy(<void*>out.buffers[1], &data[0], <size_t>size)
    return 0


cdef int check_places(Py_ssize_t count, tuple places, list keys) except -1:
    """ValueError unless ``count`` columns with ``places`` and those of ``keys`` have a place each."""
    if len(places) != count:
        raise ValueError(f"{len(places)} places of {count} columns")
    if sorted([*places, *[key[0] for key in keys]]) != list(range(count + len(keys))):
        raise ValueError(f"places {places} and {[key[0] for key in keys]} of {count + len(keys)} columns")
    return 0
