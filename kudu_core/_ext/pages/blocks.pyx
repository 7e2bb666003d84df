"""Payloads of pages of fixed width: up to 16,384 cells in mini-blocks of 1,024.

Layout: docs/format.md, "Page payload".  Each mini-block holds the cells that are not null, in the
form that is smallest for these values: a constant, a frame of reference (base + packed), deltas,
runs, planes of bits, or plain bytes, the first three with exceptions for what does not fit.  Floats
that are decimals are stored as integers: value = integer / 10**scale, a true division, hence bit
exact.  All forms but DELTA give a cell without decoding the block.

Values are little-endian, ``width`` (1, 2, 4, 8 or 16) bytes each.  ``kind`` says how integers
order and what may be a decimal: 0 unsigned, 1 signed, 2 float, 4 decimal, 5 bool.  It is not
stored: all arithmetic is modulo the width.  Payloads that are read are hostile: every count, size
and position is checked before it is used.  This module knows no frames, codecs, CRCs or files.

Sources: the layout of 1,024 values follows Afroozeh and Boncz, The FastLanes Compression Layout
(VLDB 2023), patched frames Zukowski et al., Super-Scalar RAM-CPU Cache Compression (ICDE 2006).

The names of ``strings``, ``dictionary`` and ``zones`` are given here too, so that one import serves.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy
from kudu_core._ext.base.bitpack cimport kc_pack, kc_packed_bytes
from kudu_core._ext.pages.cell cimport Layout, fixed_cell, fixed_layout
from kudu_core._ext.pages.head cimport (
    BITSHUFFLE,
    BLOCK_HEAD_BYTES,
    BLOCK_ROWS,
    CLASS_FIXED,
    CONSTANT,
    DELTA,
    FOR,
    NARROW,
    NO_SCALE,
    PAGE_ROWS,
    PLAIN,
    RLE,
    Block,
    Page,
    block_open,
    block_rows,
    directory_of,
    load64,
    padded,
    page_head_bytes,
    page_open,
    page_values,
    write_block_head,
    write_page_head,
)
from kudu_core._ext.pages.rows cimport load_cell, stored_part, values_part
from kudu_core._ext.pages.work cimport (
    kc_decimals,
    kc_deltas,
    kc_deltas_may_pay,
    kc_gather,
    kc_narrow,
    kc_outliers,
    kc_pick_scale,
    kc_runs,
    kc_shuffle,
    kc_shuffled_estimate,
    kc_spread,
    kc_widen,
    kc_window,
    kc_window_bytes,
)
from kudu_core._ext.base.status cimport raise_status

import numpy as np

from kudu_core._ext.pages.dictionary import dictionary_build, dictionary_expand
from kudu_core._ext.pages.strings import cells_binary, decode_binary, encode_binary
from kudu_core._ext.pages.zones import zone_binary, zone_fixed

__all__ = [
    "FORMS",
    "cells_binary",
    "cells_fixed",
    "decode_binary",
    "decode_fixed",
    "decode_pages",
    "describe",
    "dictionary_build",
    "dictionary_expand",
    "encode_binary",
    "encode_fixed",
    "zone_binary",
    "zone_fixed",
]

cdef enum:
    TYPE_UNSIGNED = 0
    TYPE_SIGNED = 1
    TYPE_FLOAT = 2
    TYPE_DECIMAL = 4
    TYPE_BOOL = 5

    BLOCK_BYTES = 16384         # the widest block: 1,024 values of 16 bytes
    NO_SUCH_ROW = -100          # the caller's fault, not the page's
    SCALE_UNKNOWN = -2
    SHUFFLE_FROM = 64           # planes of fewer values are mostly padding

    FORM_AUTO = 0               # what is smallest
    FORM_PLAIN = 1
    FORM_RLE = 2
    FORM_DELTA = 3
    FORM_BITSHUFFLE = 4

FORMS = ("auto", "plain", "rle", "delta", "bitshuffle")
"""What ``encode_fixed`` can be asked for; the order is that of its numbers."""

cdef:
    uint64_t SIGN = <uint64_t>1 << 63
    uint64_t SIGN_WORD = ~<uint64_t>0


# ------------------------------------------------------------------------------------ decoding

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


def describe(const uint8_t[::1] payload not None):
    """``(kind, bits, scale, count, exceptions, bytes)`` of each mini-block, heads included.

    Reads heads only.  Raises ``PageError`` where they break the format.
    """
    cdef:
        Page page
        Block block
        int64_t at = 0, index
        int status
        const uint8_t* data = NULL
    if payload.shape[0]:
        data = &payload[0]
    status = page_open(&page, data, payload.shape[0], -1, 0, &at)
    if status < 0:
        return raise_status(status, at)
    result = []
    for index in range(page.blocks):
        status = block_open(&page, index, &block, &at)
        if status < 0:
            return raise_status(status, at)
        result.append((
            block.kind, block.bits, block.scale, block.count, block.exceptions,
            block.size + BLOCK_HEAD_BYTES,
        ))
    return result


# ------------------------------------------------------------------------------------ encoding

cdef struct Work:
    # What the encoder of one page needs beside its output.
    int64_t integers[1024]
    int64_t deltas[1024]
    int64_t raws[1024]              # bits of floats
    uint8_t bad[1024]               # not a decimal
    uint16_t outside[1024]          # positions of exceptions: of the frame,
    uint16_t jumps[1024]            # of the deltas
    uint8_t values[BLOCK_BYTES]     # cells that are not null
    uint8_t planes[8 * 256]         # of a sample
    int scale                       # of the blocks so far, or SCALE_*


cdef struct Choice:
    int kind
    int bits
    int64_t exceptions
    int64_t base
    int64_t bytes                   # of the body


cdef int64_t _write_exceptions(
    uint8_t* out, const uint16_t* positions, int64_t count, const int64_t* raws, uint64_t flip, int width
) noexcept nogil:
    cdef:
        int64_t i, start = padded(2 * count), end = start + padded(count * width)
        uint64_t word
    if count == 0:
        return 0
    memset(out + start - 8, 0, 8)
    memset(out + end - 8, 0, 8)
    memcpy(out, positions, <size_t>(2 * count))
    for i in range(count):
        word = <uint64_t>raws[positions[i]] ^ flip
        memcpy(out + start + i * width, &word, <size_t>width)
    return end


cdef int64_t _write_plain(uint8_t* out, const uint8_t* values, int64_t n, int width) noexcept nogil:
    """Return the size of the block."""
    cdef int64_t size = padded(n * width)
    write_block_head(out, PLAIN, 0, NO_SCALE, 0, n, 0, 0)
    out += BLOCK_HEAD_BYTES
    if size:
        memset(out + size - 8, 0, 8)
        memcpy(out, values, <size_t>(n * width))
    return BLOCK_HEAD_BYTES + size


cdef int64_t _write_runs(
    uint8_t* out, const uint8_t* values, int64_t n, int width, int64_t runs, int flags
) noexcept nogil:
    """Runs of equal values, given as plain bytes."""
    cdef:
        int64_t i, run = 0, size = padded(2 * runs), end = size + padded(runs * width)
        uint16_t stop
        uint8_t* ends = out + BLOCK_HEAD_BYTES
    write_block_head(out, RLE, 0, NO_SCALE, flags, n, 0, <uint64_t>runs)
    memset(ends + size - 8, 0, 8)
    memset(ends + end - 8, 0, 8)
    for i in range(1, n + 1):
        if i < n and _same(values + i * width, values + (i - 1) * width, width):
            continue
        stop = <uint16_t>i
        memcpy(ends + 2 * run, &stop, 2)
        memcpy(ends + size + run * width, values + (i - 1) * width, <size_t>width)
        run += 1
    return BLOCK_HEAD_BYTES + end


cdef inline bint _same(const uint8_t* a, const uint8_t* b, int width) noexcept nogil:
    if width == 16:
        return load64(a) == load64(b) and load64(a + 8) == load64(b + 8)
    return load_cell(a, width) == load_cell(b, width)


cdef void _choose_frame(
    Choice* choice, uint16_t* positions, const int64_t* values, const uint8_t* bad, int64_t n, int width
) noexcept nogil:
    """The smallest frame of reference (of 0 bits: a constant), and its exceptions."""
    cdef int whole = 0
    choice.bits = kc_window(values, n, n, width, &choice.base, &whole)
    choice.exceptions = 0
    if bad != NULL or not whole:
        choice.exceptions = kc_outliers(positions, values, bad, n, choice.base, choice.bits)
    choice.kind = FOR if choice.bits else CONSTANT
    choice.bytes = kc_window_bytes(n, choice.bits, choice.exceptions, width)


cdef int64_t _write_frame(
    uint8_t* out,
    const Choice* choice,
    const uint16_t* positions,
    const int64_t* integers,
    const int64_t* raws,
    int64_t n,
    int width,
    uint64_t flip,
    int scale,
    int flags,
) noexcept nogil:
    """A FOR or CONSTANT block; ``raws`` holds the exceptions.  Return the size of the block."""
    cdef uint8_t* body = out + BLOCK_HEAD_BYTES
    write_block_head(
        out, choice.kind, choice.bits, scale, flags, n, choice.exceptions, <uint64_t>choice.base ^ flip
    )
    if choice.bits:
        kc_pack(body, integers, n, width, choice.bits, <uint64_t>choice.base)
        body += kc_packed_bytes(n, choice.bits)
    body += _write_exceptions(body, positions, choice.exceptions, raws, flip, width)
    return body - out


cdef void _choose_deltas(Choice* choice, Work* work, int64_t n, int width) noexcept nogil:
    cdef int whole = 0
    choice.kind = DELTA
    kc_deltas(work.deltas, work.integers, n, width)
    # The first delta is not one: it neither widens the window nor is an exception.
    choice.bits = kc_window(work.deltas + 1, n - 1, n, width, &choice.base, &whole)
    work.deltas[0] = choice.base
    choice.exceptions = 0
    if not whole:
        choice.exceptions = kc_outliers(work.jumps, work.deltas, NULL, n, choice.base, choice.bits)
    choice.bytes = 8 + kc_window_bytes(n, choice.bits, choice.exceptions, width)


cdef int64_t _write_deltas(
    uint8_t* out, const Choice* choice, const Work* work, int64_t n, int width, uint64_t flip, int flags
) noexcept nogil:
    cdef:
        uint8_t* body = out + BLOCK_HEAD_BYTES
        uint64_t least = <uint64_t>choice.base
    write_block_head(
        out, DELTA, choice.bits, NO_SCALE, flags, n, choice.exceptions, <uint64_t>work.integers[0] ^ flip
    )
    memcpy(body, &least, 8)
    body += 8
    if choice.bits:
        kc_pack(body, work.deltas, n, width, choice.bits, least)
        body += kc_packed_bytes(n, choice.bits)
    body += _write_exceptions(body, work.jumps, choice.exceptions, work.deltas, 0, width)
    return body - out


cdef int64_t _encode_integers(
    uint8_t* out, Work* work, const uint8_t* values, int64_t n, int width, uint64_t flip, bint allow_delta,
    int flags,
) noexcept nogil:
    """Write ``work.integers`` as the smallest block; ``values`` are the same as plain bytes.

    Return the size of the block, 0 where plain bytes are not larger (nothing is written).
    """
    cdef:
        Choice frame, deltas
        int64_t runs = 0, best, runs_bytes
        int kind
    _choose_frame(&frame, work.outside, work.integers, NULL, n, width)
    kind = frame.kind
    best = frame.bytes
    # A frame gives its cells with the least ado, then runs do: what follows must save a tenth.
    if best > 16:
        runs = kc_runs(work.integers, n)
        runs_bytes = padded(2 * runs) + padded(runs * width)
        if 10 * runs_bytes < 9 * best:
            kind = RLE
            best = runs_bytes
    if allow_delta and best > 16 and n > 2 and kc_deltas_may_pay(work.integers, n, frame.bits):
        _choose_deltas(&deltas, work, n, width)
        if 10 * deltas.bytes < 9 * best:
            kind = DELTA
            best = deltas.bytes
    if best >= padded(n * width):
        return 0
    if kind == RLE:
        return _write_runs(out, values, n, width, runs, flags)
    if kind == DELTA:
        return _write_deltas(out, &deltas, work, n, width, flip, flags)
    return _write_frame(
        out, &frame, work.outside, work.integers, work.integers, n, width, flip, NO_SCALE, flags
    )


cdef int64_t _encode_decimals(
    uint8_t* out, Work* work, const uint8_t* values, int64_t n, int width, int scale, int64_t limit
) noexcept nogil:
    """Write floats as integers / 10**scale; return 0 where that needs more than ``limit`` bytes."""
    cdef:
        Choice frame
        int64_t bad = kc_decimals(work.integers, work.bad, values, n, width, scale)
    if bad * (width + 2) > limit:
        return 0
    _choose_frame(&frame, work.outside, work.integers, work.bad if bad else NULL, n, width)
    if frame.bytes > limit:
        return 0
    return _write_frame(
        out, &frame, work.outside, work.integers, work.raws, n, width, 0, scale, 0
    )


cdef bint _planes_pay(
    Work* work, const uint8_t* values, int64_t n, int width, int64_t limit
) noexcept nogil:
    """Whether LZ4 would bring planes of bits below ``limit`` bytes, by the first values."""
    cdef:
        int64_t sample = n if n < 256 else 256
        int64_t size = 8 * width * ((sample + 7) >> 3)
    kc_shuffle(work.planes, values, sample, width)
    return kc_shuffled_estimate(work.planes, size) * n < limit * sample


cdef int64_t _encode_floats(
    uint8_t* out, Work* work, const uint8_t* values, int64_t n, int width
) noexcept nogil:
    """Runs, decimals, a frame of the values' bits, planes of bits, or plain bytes."""
    cdef:
        int64_t plain = padded(n * width), runs, runs_bytes, limit, size
        int scale, attempt
        Choice frame
    kc_widen(work.raws, values, n, width, 0 if width == 4 else 1)
    runs = kc_runs(work.raws, n)
    if runs == 1:
        frame.kind = CONSTANT
        frame.bits = 0
        frame.exceptions = 0
        frame.base = work.raws[0]
        return _write_frame(out, &frame, NULL, work.raws, work.raws, n, width, 0, NO_SCALE, 0)
    runs_bytes = padded(2 * runs) + padded(runs * width)
    limit = plain * 9 / 10
    for attempt in range(2):
        scale = work.scale
        if attempt or scale < 0:
            scale = kc_pick_scale(values, n, width)
            if scale < 0 or (attempt and scale == work.scale):
                break
        size = _encode_decimals(out, work, values, n, width, scale, limit)
        if size:
            work.scale = scale
            if 10 * runs_bytes < 9 * (size - BLOCK_HEAD_BYTES):
                return _write_runs(out, values, n, width, runs, 0)
            return size
        if work.scale < 0:
            break
    if runs_bytes < limit:
        return _write_runs(out, values, n, width, runs, 0)
    _choose_frame(&frame, work.outside, work.raws, NULL, n, width)
    if frame.bytes < limit:
        limit = frame.bytes
    if n >= SHUFFLE_FROM and _planes_pay(work, values, n, width, limit * 9 / 10):
        write_block_head(out, BITSHUFFLE, 0, NO_SCALE, 0, n, 0, 0)
        kc_shuffle(out + BLOCK_HEAD_BYTES, values, n, width)
        return BLOCK_HEAD_BYTES + 8 * width * ((n + 7) >> 3)
    if frame.bytes == limit:
        return _write_frame(out, &frame, work.outside, work.raws, work.raws, n, width, 0, NO_SCALE, 0)
    return 0


cdef int64_t _encode_wide(
    uint8_t* out, Work* work, const uint8_t* values, int64_t n, bint allow_delta
) noexcept nogil:
    """16-byte values: as 8-byte integers where they fit, else as runs or plain bytes."""
    cdef int64_t runs = 1, i, size
    if kc_narrow(work.integers, values, n):
        memcpy(work.raws, work.integers, <size_t>(8 * n))
        size = _encode_integers(out, work, <const uint8_t*>work.raws, n, 8, 0, allow_delta, NARROW)
        if size:
            return size
        size = _write_plain(out, <const uint8_t*>work.raws, n, 8)
        out[3] = NARROW
        return size
    for i in range(1, n):
        runs += not _same(values + 16 * i, values + 16 * (i - 1), 16)
    if 10 * (padded(2 * runs) + 16 * runs) < 9 * 16 * n:
        return _write_runs(out, values, n, 16, runs, 0)
    return 0


cdef int64_t _encode_asked(
    uint8_t* out, Work* work, const uint8_t* values, int64_t n, int width, int kind, int form
) noexcept nogil:
    """Write the form that was asked for; return 0 where plain bytes are not larger, or it has no place."""
    cdef:
        int64_t runs = 1, i, plain = padded(n * width)
        int flags = 0, stored = width
        uint64_t flip = 0
        Choice deltas
    if form == FORM_RLE:
        for i in range(1, n):
            runs += not _same(values + i * width, values + (i - 1) * width, width)
        if padded(2 * runs) + padded(runs * width) >= plain:
            return 0
        return _write_runs(out, values, n, width, runs, 0)
    if form == FORM_BITSHUFFLE:
        if n < SHUFFLE_FROM or (width != 4 and width != 8):
            return 0
        write_block_head(out, BITSHUFFLE, 0, NO_SCALE, 0, n, 0, 0)
        kc_shuffle(out + BLOCK_HEAD_BYTES, values, n, width)
        return BLOCK_HEAD_BYTES + 8 * width * ((n + 7) >> 3)
    if n < 2:
        return 0
    if width == 16:
        if not kc_narrow(work.integers, values, n):
            return 0
        flags = NARROW
        stored = 8
    else:
        kc_widen(work.integers, values, n, width, kind == TYPE_SIGNED or kind == TYPE_DECIMAL)
        if width == 8 and kind == TYPE_UNSIGNED:
            flip = SIGN
    _choose_deltas(&deltas, work, n, stored)
    if deltas.bytes >= plain:
        return 0
    return _write_deltas(out, &deltas, work, n, stored, flip, flags)


cdef int64_t _encode_block(
    uint8_t* out,
    Work* work,
    const uint8_t* values,
    int64_t n,
    int width,
    int kind,
    bint allow_delta,
    int form,
) noexcept nogil:
    cdef:
        int64_t size = 0
        bint is_signed = kind == TYPE_SIGNED or kind == TYPE_DECIMAL
    if n == 0:
        write_block_head(out, CONSTANT, 0, NO_SCALE, NARROW if width == 16 else 0, 0, 0, 0)
        return BLOCK_HEAD_BYTES
    if form == FORM_AUTO:
        if width == 16:
            size = _encode_wide(out, work, values, n, allow_delta)
        elif kind == TYPE_FLOAT:
            size = _encode_floats(out, work, values, n, width)
        else:
            kc_widen(work.integers, values, n, width, is_signed)
            size = _encode_integers(
                out, work, values, n, width, SIGN if width == 8 and not is_signed else 0, allow_delta, 0
            )
    elif form != FORM_PLAIN:
        size = _encode_asked(out, work, values, n, width, kind, form)
    return size if size else _write_plain(out, values, n, width)


cdef int64_t _encode(
    uint8_t* out,
    const uint8_t* values,
    int64_t rows,
    int width,
    int kind,
    const uint8_t* bits,
    bint allow_delta,
    int form,
) noexcept nogil:
    """Write a whole payload; return its size."""
    cdef:
        Work work
        Page page
        int64_t at = page_head_bytes(rows, bits != NULL), index = 0, row = 0, n
        uint32_t entry
        uint8_t* directory = directory_of(out, rows, bits != NULL)
    write_page_head(out, rows, CLASS_FIXED, width, bits)
    memset(out + at - 8, 0, 8)
    page.bits = bits
    work.scale = SCALE_UNKNOWN
    while row < rows:
        entry = <uint32_t>at
        memcpy(directory + 4 * index, &entry, 4)
        n = rows - row if rows - row < BLOCK_ROWS else BLOCK_ROWS
        if page_values(&page, row, n) == n:
            at += _encode_block(
                out + at, &work, values + row * width, n, width, kind, allow_delta, form
            )
        else:
            kc_gather(work.values, values + row * width, bits, row, n, width)
            at += _encode_block(
                out + at, &work, work.values, page_values(&page, row, n), width, kind, allow_delta, form
            )
        row += n
        index += 1
    entry = <uint32_t>at
    memcpy(directory + 4 * index, &entry, 4)
    return at


def encode_fixed(
    const uint8_t[::1] values not None,
    int width,
    int kind,
    const uint8_t[::1] validity=None,
    *,
    bint allow_delta=True,
    str form="auto",
):
    """Return the payload of up to 16,384 cells of ``width`` bytes.

    ``validity`` is a bitmap (1: not null) or None; a bitmap without a 0 is left out.  What null
    cells hold is lost.  ``allow_delta`` false keeps to forms that give a cell without decoding its
    block.

    ``form`` "auto" takes the smallest for each mini-block.  "rle", "delta" (integers) and "bitshuffle" (4 or
    8 bytes) are taken where they need less than plain bytes; bitshuffle always, for a codec after it.
    "plain" stores the bytes as they are.

    Raises ValueError for a width, kind or form that is none or does not go with the others, floats that
    are not 4 or 8 bytes wide, too many rows, or a bitmap that is too short.
    """
    cdef:
        Py_ssize_t rows, bound
        int64_t size
        const uint8_t* bits = NULL
        const uint8_t* first = NULL
        Page page
        uint8_t[::1] out
        int number
    _check_width(width)
    if form not in FORMS:
        raise ValueError(f"form {form!r} is not one of {', '.join(FORMS)}")
    number = FORMS.index(form)
    if kind not in (TYPE_UNSIGNED, TYPE_SIGNED, TYPE_FLOAT, TYPE_DECIMAL, TYPE_BOOL):
        raise ValueError(f"kind {kind} is not one of a fixed column")
    if kind == TYPE_FLOAT and width != 4 and width != 8:
        raise ValueError(f"floats of {width} bytes")
    if number == FORM_DELTA and (kind == TYPE_FLOAT or not allow_delta):
        raise ValueError("deltas of floats, or where cells must be read singly")
    if number == FORM_BITSHUFFLE and width != 4 and width != 8:
        raise ValueError(f"planes of bits of {width} bytes")
    if values.shape[0] % width:
        raise ValueError(f"{values.shape[0]} bytes are no whole number of cells of {width} bytes")
    rows = values.shape[0] // width
    if rows > PAGE_ROWS:
        raise ValueError(f"{rows} rows in a page of {PAGE_ROWS}")
    if validity is not None and validity.shape[0] < (rows + 7) >> 3:
        raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
    if rows:
        first = &values[0]
        if validity is not None:
            page.bits = &validity[0]
            if page_values(&page, 0, rows) < rows:
                bits = page.bits
    # No block is larger than plain bytes, but for planes of bits, up to 7 values.
    bound = (
        page_head_bytes(rows, bits != NULL)
        + rows * width
        + (BLOCK_HEAD_BYTES + 8 + 7 * 8) * ((rows + BLOCK_ROWS - 1) // BLOCK_ROWS)
    )
    scratch = np.empty(bound, np.uint8)
    out = scratch
    with nogil:
        size = _encode(&out[0], first, rows, width, kind, bits, allow_delta, number)
    assert size <= bound
    return PyBytes_FromStringAndSize(<const char*>&out[0], size)
