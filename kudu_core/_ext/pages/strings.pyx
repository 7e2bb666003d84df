"""Decodes payloads of pages of strings: ranges of rows, and single cells.

Layout: docs/format.md, "Page payload".  STRING_PLAIN is the cells' bytes behind their packed ends,
so a cell costs two loads; STRING_PREFIX leaves out what a cell shares with the one before it.  Null
cells are not held.

Payloads that are read are hostile: every count, size and position is checked before it is used.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy
from kudu_core._ext.base.bitpack cimport kc_packed_cell, kc_unpack
from kudu_core._ext.base.status cimport BAD_VALUE, OVERRUN, raise_status
from kudu_core._ext.pages.cell cimport (
    END_WIDTH,
    RESTART,
    Strings,
    strings_entry,
    strings_group,
    strings_open,
)
from kudu_core._ext.pages.dictionary cimport room_of
from kudu_core._ext.pages.head cimport (
    BLOCK_ROWS,
    CLASS_BINARY,
    STRING_PLAIN,
    STRING_PREFIX,
    Page,
    block_rows,
    page_open,
    page_values,
)
from kudu_core._ext.pages.prefix cimport StringsPiece, build_prefix_cell, copy_prefix, measure_prefix

import numpy as np

cdef enum:
    NO_SUCH_ROW = -100          # the caller's fault, not the page's

cdef int64_t MAX_DATA_BYTES = 0x7FFFFFFF    # what an int32 offset can address


cdef int _ends(const Strings* part, uint32_t* ends, int64_t* at) noexcept nogil:
    """Write the end of every cell of a STRING_PLAIN block; they ascend to the size of its data."""
    cdef:
        int64_t i
        uint32_t last = 0, end = 0
        bint descends = False
    if part.count == 0:
        return 0
    if part.bits == 0:
        for i in range(part.count):
            ends[i] = <uint32_t>((i + 1) * part.length)
        return 0
    kc_unpack(<uint8_t*>ends, part.ends, part.count, END_WIDTH, part.bits, 0)
    for i in range(part.count):
        end = ends[i]
        descends |= end < last
        last = end
    if descends or last != part.size:
        at[0] = part.ends - part.data + part.offset
        return BAD_VALUE
    return 0


cdef int _measure_piece(StringsPiece* piece, uint32_t* lengths, int64_t* at) noexcept nogil:
    """Write the length of each value of the piece."""
    cdef:
        uint32_t ends[1024]
        uint32_t begin
        int64_t i
        int status
    if piece.part.kind == STRING_PREFIX:
        return measure_prefix(piece, lengths, at)
    status = _ends(&piece.part, ends, at)
    if status < 0 or piece.lower == piece.upper:
        piece.bytes = 0
        return status
    begin = ends[piece.lower - 1] if piece.lower else 0
    piece.source = piece.part.data + begin
    piece.bytes = ends[piece.upper - 1] - begin
    for i in range(piece.lower, piece.upper):
        lengths[i - piece.lower] = ends[i] - begin
        begin = ends[i]
    return 0


cdef int64_t _measure(
    const Page* page, int64_t first, int64_t count, int32_t* offsets, StringsPiece* pieces, int64_t* at
) noexcept nogil:
    """Write the offsets of rows first .. first + count - 1; return their bytes or a status."""
    cdef:
        int64_t row = first, end = first + count, index, begin, stop, i, v, total = 0
        StringsPiece* piece = pieces
        uint32_t lengths[1024]
        int status
    offsets[0] = 0
    while row < end:
        index = row / BLOCK_ROWS
        begin = index * BLOCK_ROWS
        stop = begin + block_rows(page, index)
        if stop > end:
            stop = end
        status = strings_open(page, index, &piece.part, at)
        if status < 0:
            return status
        piece.lower = page_values(page, begin, row - begin)
        piece.upper = piece.lower + page_values(page, row, stop - row)
        status = _measure_piece(piece, lengths, at)
        if status < 0:
            return status
        v = 0
        if page.bits == NULL:
            for i in range(row, stop):
                total += lengths[i - row]
                offsets[i - first + 1] = <int32_t>total     # wraps only where the total is refused
        else:
            for i in range(row, stop):
                if kc_bit(page.bits, i):
                    total += lengths[v]
                    v += 1
                offsets[i - first + 1] = <int32_t>total
        if total > MAX_DATA_BYTES:
            return OVERRUN
        piece += 1
        row = stop
    return total


cdef void _copy(const StringsPiece* pieces, int64_t count, uint8_t* out) noexcept nogil:
    cdef int64_t k
    for k in range(count):
        if pieces[k].part.kind == STRING_PREFIX:
            out = copy_prefix(&pieces[k], out)
        elif pieces[k].bytes:
            memcpy(out, pieces[k].source, <size_t>pieces[k].bytes)
            out += pieces[k].bytes


def decode_binary(
    const uint8_t[::1] payload not None, Py_ssize_t first, Py_ssize_t count, allocate=None
):
    """Decode rows ``first .. first + count - 1``; return ``(offsets, data, validity)``.

    ``offsets`` is int32 (count + 1) from 0 on, null cells are empty, ``validity`` is a bitmap or
    None where no cell of the page is null.  ``allocate(size)`` gives the uint8 array for the data.

    Raises ``PageError`` where the payload breaks its format, IndexError for rows the page has not.
    """
    cdef:
        Page page
        StringsPiece pieces[17]
        int64_t at = 0, total
        int status
        const uint8_t* data = NULL
        int32_t[::1] offsets
        uint8_t[::1] out
        uint8_t[::1] bits
    if payload.shape[0]:
        data = &payload[0]
    status = page_open(&page, data, payload.shape[0], CLASS_BINARY, 0, &at)
    if status < 0:
        return raise_status(status, at)
    if first < 0 or count < 0 or first > page.rows or count > page.rows - first:
        raise IndexError(f"rows {first} .. {first + count} of a page of {page.rows}")
    result_offsets = np.empty(count + 1, np.int32)
    offsets = result_offsets
    with nogil:
        total = _measure(&page, first, count, &offsets[0], pieces, &at)
    if total < 0:
        return raise_status(total, at)
    out = room_of(allocate, total)
    validity = None
    if page.bits != NULL:
        validity = np.zeros((count + 7) >> 3, np.uint8)
        bits = validity
        if count:
            kc_bits_copy(&bits[0], 0, page.bits, first, count)
    if total:
        with nogil:
            _copy(
                pieces, (first + count + BLOCK_ROWS - 1) // BLOCK_ROWS - first // BLOCK_ROWS, &out[0]
            )
    return result_offsets, np.asarray(out), validity


# ---------------------------------------------------------------------------------- single cells

cdef struct Cell:
    int64_t source              # of its bytes, or of its group, in the payload
    int64_t index               # of its block
    int64_t value               # its number in the block; -1: empty, nothing to copy


cdef int _locate_cell(
    const Page* page, const Strings* part, int64_t i, Cell* cell, int64_t* length, int64_t* at
) noexcept nogil:
    cdef:
        int64_t begin = 0, end, pos = 0, k, shared = 0
        int status
    cell.value = i
    if part.kind == STRING_PLAIN:
        if part.bits:
            end = <int64_t>kc_packed_cell(part.ends, part.count, END_WIDTH, part.bits, i)
            if i:
                begin = <int64_t>kc_packed_cell(part.ends, part.count, END_WIDTH, part.bits, i - 1)
            at[0] = part.offset
            if begin > end or end > part.size:
                return BAD_VALUE
        else:
            begin = i * part.length
            end = begin + part.length
        cell.source = part.offset + begin
        length[0] = end - begin
        return 0
    status = strings_group(part, i, &pos, at)
    if status < 0:
        return status
    cell.source = pos
    length[0] = 0
    for k in range(i - i % RESTART, i + 1):
        status = strings_entry(part, k, &pos, length, &shared, at)
        if status < 0:
            return status
        pos += length[0] - shared
    return 0


cdef int64_t _locate(
    const Page* page, const int64_t[::1] rows, int32_t* offsets, Cell* cells, uint8_t* validity, int64_t* at
) noexcept nogil:
    """Write where each cell lies and the offsets of the result; return its bytes or a status."""
    cdef:
        int64_t k, row, i, total = 0, index = -1, length = 0
        Strings part
        int status
    memset(&part, 0, sizeof(part))      # compilers do not see that the first row opens a block
    offsets[0] = 0
    for k in range(rows.shape[0]):
        row = rows[k]
        if row < 0 or row >= page.rows:
            at[0] = k
            return NO_SUCH_ROW
        if row >> 10 != index:
            index = row >> 10
            status = strings_open(page, index, &part, at)
            if status < 0:
                return status
        cells[k].index = index
        cells[k].value = -1
        if page.bits == NULL or kc_bit(page.bits, row):
            i = row & (BLOCK_ROWS - 1)
            if page.bits != NULL:
                i = page_values(page, row - i, i)
                validity[k >> 3] |= <uint8_t>(1 << (k & 7))
            status = _locate_cell(page, &part, i, &cells[k], &length, at)
            if status < 0:
                return status
            total += length
            if total > MAX_DATA_BYTES:
                return OVERRUN
        offsets[k + 1] = <int32_t>total
    return total


cdef void _copy_cells(
    const Page* page, const Cell* cells, const int32_t[::1] offsets, uint8_t* out
) noexcept nogil:
    cdef:
        int64_t k, index = -1, at = 0, length
        Strings part
    memset(&part, 0, sizeof(part))
    for k in range(offsets.shape[0] - 1):
        length = offsets[k + 1] - offsets[k]
        if cells[k].value < 0 or length == 0:
            continue
        if cells[k].index != index:
            index = cells[k].index
            if strings_open(page, index, &part, &at) < 0:
                return      # cannot be: it was opened before
        if part.kind == STRING_PLAIN:
            memcpy(out + offsets[k], page.data + cells[k].source, <size_t>length)
        else:
            build_prefix_cell(&part, cells[k].value, cells[k].source, out + offsets[k], length)


def cells_binary(const uint8_t[::1] payload not None, const int64_t[::1] rows not None):
    """Gather single cells without decoding mini-blocks: ``(offsets, data, validity)``.

    Rows are within the page, in any order; a cell of a prefix block costs up to 16 entries.  The
    result is as of ``decode_binary``.

    Raises ``PageError`` where the payload breaks its format, IndexError for a row the page has not.
    """
    cdef:
        Page page
        int64_t at = 0, total
        int status
        const uint8_t* data = NULL
        Py_ssize_t count = rows.shape[0]
        int32_t[::1] offsets
        uint8_t[::1] out
        uint8_t[::1] found
        uint8_t[::1] bits
        uint8_t* first_bits = NULL
        Cell* cells
    if payload.shape[0]:
        data = &payload[0]
    status = page_open(&page, data, payload.shape[0], CLASS_BINARY, 0, &at)
    if status < 0:
        return raise_status(status, at)
    result_offsets = np.empty(count + 1, np.int32)
    offsets = result_offsets
    found = np.empty((count + 1) * sizeof(Cell), np.uint8)
    cells = <Cell*>&found[0]
    validity = None
    if page.bits != NULL:
        validity = np.zeros((count + 7) >> 3, np.uint8)
        bits = validity
        if count:
            first_bits = &bits[0]
    with nogil:
        total = _locate(&page, rows, &offsets[0], cells, first_bits, &at)
    if total == NO_SUCH_ROW:
        raise IndexError(f"no row {rows[at]} in a page of {page.rows} (position {at})")
    if total < 0:
        return raise_status(total, at)
    result = np.empty(total, np.uint8)
    if total:
        out = result
        with nogil:
            _copy_cells(&page, cells, offsets, &out[0])
    return result_offsets, result, validity
