"""Decodes payloads of pages of fixed width: ranges of rows, and single cells.

Layout: docs/format.md, "Page payload"; the forms of its mini-blocks: ``encode``.  All forms but
DELTA give a cell without decoding the block.  Payloads that are read are hostile: every count, size
and position is checked before it is used.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy
from kudu_core._ext.base.status cimport raise_status
from kudu_core._ext.pages.cell cimport Layout, fixed_cell, fixed_layout
from kudu_core._ext.pages.head cimport (
    BLOCK_ROWS,
    CLASS_FIXED,
    DELTA,
    Block,
    Page,
    block_open,
    block_rows,
    page_open,
    page_values,
)
from kudu_core._ext.base.nulls cimport kc_spread
from kudu_core._ext.pages.rows cimport stored_part, values_part

import numpy as np

cdef enum:
    BLOCK_BYTES = 16384         # the widest block: 1,024 values of 16 bytes
    NO_SUCH_ROW = -100          # the caller's fault, not the page's

cdef uint64_t SIGN_WORD = ~<uint64_t>0


cdef int _decode_rows(
    const Page* page, int width, uint8_t* out, int64_t first, int64_t count, int64_t* at
) noexcept nogil:
    """Write rows first .. first + count - 1, which the page has; null cells are zeros."""
    cdef:
        int64_t row = first, end = first + count
        int64_t index, begin, rows, stop, lower, n
        Block block
        Layout layout
        int status
        uint8_t values[BLOCK_BYTES]
        uint8_t work[BLOCK_BYTES]
    while row < end:
        index = row / BLOCK_ROWS
        begin = index * BLOCK_ROWS
        rows = block_rows(page, index)
        stop = begin + rows if begin + rows < end else end
        status = block_open(page, index, &block, at)
        if status == 0:
            status = fixed_layout(&block, width, &layout, at)
        if status < 0:
            return status
        if block.count == rows:
            status = values_part(&block, &layout, width, row - begin, stop - row, out, work, at)
        else:
            lower = page_values(page, begin, row - begin)
            n = page_values(page, row, stop - row)
            status = values_part(&block, &layout, width, lower, n, values, work, at)
            if status == 0:
                kc_spread(out, values, page.bits, row, stop - row, width)
        if status < 0:
            return status
        out += width * (stop - row)
        row = stop
    return 0


cdef int _check_width(int width) except -1:
    if width != 1 and width != 2 and width != 4 and width != 8 and width != 16:
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
    return 0


def decode_fixed(
    const uint8_t[::1] payload not None,
    int width,
    uint8_t[::1] out not None,
    uint8_t[::1] out_validity,
    Py_ssize_t first,
    Py_ssize_t count,
    Py_ssize_t out_bit=0,
):
    """Decode rows ``first .. first + count - 1`` to the start of ``out``; return how many are null.

    Whole mini-blocks are fastest; any range is allowed.  Null cells become zeros.  Bits
    ``out_bit .. out_bit + count - 1`` of ``out_validity`` are set to the rows' validity, where it
    is given; the other bits stay.

    Raises ``PageError`` where the payload breaks its format (``out`` is then undefined), IndexError
    for rows that the page has not, ValueError for a room that is too small (nothing is written).
    """
    cdef:
        Page page
        int64_t at = 0, nulls = 0
        int status
        const uint8_t* data = NULL
    _check_width(width)
    if payload.shape[0]:
        data = &payload[0]
    status = page_open(&page, data, payload.shape[0], CLASS_FIXED, width, &at)
    if status < 0:
        return raise_status(status, at)
    if first < 0 or count < 0 or first > page.rows or count > page.rows - first:
        raise IndexError(f"rows {first} .. {first + count} of a page of {page.rows}")
    if out.shape[0] < count * width:
        raise ValueError(f"{count} values of {width} bytes do not fit into {out.shape[0]}")
    if out_validity is not None and (out_bit < 0 or 8 * out_validity.shape[0] - out_bit < count):
        raise ValueError(f"bits {out_bit} .. {out_bit + count} of {out_validity.shape[0]} bytes")
    if count == 0:
        return 0
    with nogil:
        status = _decode_rows(&page, width, &out[0], first, count, &at)
        if status == 0:
            nulls = count - page_values(&page, first, count)
            if out_validity is not None:
                kc_bits_copy(&out_validity[0], out_bit, page.bits, first, count)
    if status < 0:
        return raise_status(status, at)
    return nulls


cdef int _decode_pages(
    const Page* pages,
    int width,
    uint8_t* out,
    uint8_t* validity,
    const int64_t[::1] firsts,
    const int64_t[::1] counts,
    int64_t* nulls,
    int64_t* at,
) noexcept nogil:
    cdef:
        int64_t k, bit = 0
        int status
    for k in range(firsts.shape[0]):
        if counts[k] == 0:
            continue
        status = _decode_rows(&pages[k], width, out, firsts[k], counts[k], at)
        if status < 0:
            return status
        nulls[0] += counts[k] - page_values(&pages[k], firsts[k], counts[k])
        if validity != NULL:
            kc_bits_copy(validity, bit, pages[k].bits, firsts[k], counts[k])
        bit += counts[k]
        out += counts[k] * width
    return 0


def decode_pages(
    payloads not None,
    int width,
    uint8_t[::1] out not None,
    uint8_t[::1] out_validity,
    const int64_t[::1] firsts not None,
    const int64_t[::1] counts not None,
):
    """``decode_fixed`` for several pages, one after the other, without the GIL in between.

    Of page k, rows ``firsts[k] .. firsts[k] + counts[k] - 1`` are written behind those of page k - 1,
    values and bits alike.  Returns how many cells are null.  Raises as ``decode_fixed`` does; the
    offset of a ``PageError`` is within the page at fault, the first that is.
    """
    cdef:
        Py_ssize_t n = firsts.shape[0], k
        int64_t at = 0, nulls = 0, total = 0
        int status = 0
        uint8_t* out_first = NULL
        uint8_t* validity = NULL
        uint8_t[::1] room
        const uint8_t[::1] payload
        Page* pages
    _check_width(width)
    held = [memoryview(payload) for payload in payloads]    # pinned while the GIL is released
    if len(held) != n or counts.shape[0] != n:
        raise ValueError(f"{len(held)} pages, {n} first rows, {counts.shape[0]} counts")
    room = np.empty((n + 1) * sizeof(Page), np.uint8)
    pages = <Page*>&room[0]
    for k in range(n):
        payload = held[k]
        status = page_open(
            &pages[k], &payload[0] if payload.shape[0] else NULL, payload.shape[0], CLASS_FIXED, width, &at
        )
        if status < 0:
            return raise_status(status, at)
        if firsts[k] < 0 or counts[k] < 0 or firsts[k] > pages[k].rows - counts[k]:
            raise IndexError(f"rows {firsts[k]} .. {firsts[k] + counts[k]} of a page of {pages[k].rows}")
        total += counts[k]
    if out.shape[0] < total * width:
        raise ValueError(f"{total} values of {width} bytes do not fit into {out.shape[0]}")
    if out_validity is not None and 8 * out_validity.shape[0] < total:
        raise ValueError(f"bits 0 .. {total} of {out_validity.shape[0]} bytes")
    if total == 0:
        return 0
    out_first = &out[0]
    if out_validity is not None:
        validity = &out_validity[0]
    with nogil:
        status = _decode_pages(pages, width, out_first, validity, firsts, counts, &nulls, &at)
    if status < 0:
        return raise_status(status, at)
    return nulls


# -------------------------------------------------------------------------------- single cells

cdef struct Cursor:
    # The mini-block that a gather is in; neighbouring rows often share it.
    int64_t index
    bint decoded
    Block block
    Layout layout
    uint8_t values[BLOCK_BYTES]         # of a DELTA block


cdef int _gather(
    const Page* page,
    int width,
    const int64_t[::1] rows,
    uint8_t* out,
    uint8_t* validity,
    int64_t bit,
    int64_t* at,
) noexcept nogil:
    cdef:
        int64_t k, row, i
        int status
        bint valid
        uint8_t cell[16]
        Cursor cursor
        Block* block = &cursor.block
        uint64_t high
    cursor.index = -1
    cursor.decoded = False
    for k in range(rows.shape[0]):
        row = rows[k]
        if row < 0 or row >= page.rows:
            at[0] = k
            return NO_SUCH_ROW
        if row >> 10 != cursor.index:
            cursor.index = row >> 10
            cursor.decoded = False
            status = block_open(page, cursor.index, block, at)
            if status == 0:
                status = fixed_layout(block, width, &cursor.layout, at)
            if status < 0:
                return status
        valid = page.bits == NULL or kc_bit(page.bits, row) != 0
        if validity != NULL:
            if valid:
                validity[(bit + k) >> 3] |= <uint8_t>(1 << ((bit + k) & 7))
            else:
                validity[(bit + k) >> 3] &= <uint8_t>~(1 << ((bit + k) & 7))
        if not valid:
            memset(out + k * width, 0, <size_t>width)
            continue
        i = row & (BLOCK_ROWS - 1)
        if page.bits != NULL:
            i = page_values(page, row - i, i)
        status = 0
        if block.kind == DELTA:
            if not cursor.decoded:
                status = stored_part(block, &cursor.layout, 0, block.count, cursor.values, cursor.values, at)
                cursor.decoded = True
            memcpy(cell, cursor.values + i * cursor.layout.width, <size_t>cursor.layout.width)
        else:
            status = fixed_cell(block, &cursor.layout, i, cell)
        if status < 0:
            return status
        if cursor.layout.width != width:
            high = SIGN_WORD if cell[7] & 0x80 else 0
            memcpy(cell + 8, &high, 8)
        memcpy(out + k * width, cell, <size_t>width)
    return 0


def cells_fixed(
    const uint8_t[::1] payload not None,
    int width,
    const int64_t[::1] rows not None,
    uint8_t[::1] out not None,
    uint8_t[::1] out_validity=None,
    Py_ssize_t out_bit=0,
):
    """Write cell ``rows[k]`` to place k of ``out``, without decoding mini-blocks (but DELTA ones).

    Rows are within the page, in any order.  Null cells become zeros.  Bits ``out_bit + k`` of
    ``out_validity`` are set to the cells' validity, where it is given.

    Raises ``PageError`` where the payload breaks its format (``out`` is then undefined), IndexError
    for a row that the page has not (the cells before it are written), ValueError for a room that
    is too small (nothing is written).
    """
    cdef:
        Page page
        int64_t at = 0
        int status
        const uint8_t* data = NULL
        uint8_t* validity = NULL
        Py_ssize_t count = rows.shape[0]
    _check_width(width)
    if payload.shape[0]:
        data = &payload[0]
    status = page_open(&page, data, payload.shape[0], CLASS_FIXED, width, &at)
    if status < 0:
        return raise_status(status, at)
    if out.shape[0] < count * width:
        raise ValueError(f"{count} values of {width} bytes do not fit into {out.shape[0]}")
    if out_validity is not None and (out_bit < 0 or 8 * out_validity.shape[0] - out_bit < count):
        raise ValueError(f"bits {out_bit} .. {out_bit + count} of {out_validity.shape[0]} bytes")
    if count == 0:
        return
    if out_validity is not None:
        validity = &out_validity[0]
    with nogil:
        status = _gather(&page, width, rows, &out[0], validity, out_bit, &at)
    if status == NO_SUCH_ROW:
        raise IndexError(f"no row {rows[at]} in a page of {page.rows} (position {at})")
    if status < 0:
        return raise_status(status, at)
