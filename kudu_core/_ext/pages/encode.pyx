"""Encodes payloads of pages of fixed width: up to 16,384 cells in mini-blocks of 1,024.

Layout: docs/format.md, "Page payload".  Each mini-block holds the cells that are not null, in the
form that is smallest for these values: a constant, a frame of reference (base + packed), deltas,
runs, planes of bits, or plain bytes, the first three with exceptions for what does not fit.  Floats
that are decimals are stored as integers: value = integer / 10**scale, a true division, hence bit
exact.

Values are little-endian, ``width`` (1, 2, 4, 8 or 16) bytes each.  ``kind`` says how integers
order and what may be a decimal: 0 unsigned, 1 signed, 2 float, 4 decimal, 5 bool.  It is not
stored: all arithmetic is modulo the width.

Sources: the layout of 1,024 values follows Afroozeh and Boncz, The FastLanes Compression Layout
(VLDB 2023), patched frames Zukowski et al., Super-Scalar RAM-CPU Cache Compression (ICDE 2006).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.pages.forms cimport (
    Choice,
    Work,
    choose_deltas,
    choose_frame,
    planes_pay,
    same_value,
    write_deltas,
    write_frame,
    write_plain,
)
from kudu_core._ext.pages.head cimport (
    BITSHUFFLE,
    BLOCK_HEAD_BYTES,
    BLOCK_ROWS,
    CLASS_FIXED,
    CONSTANT,
    DELTA,
    MOST_PAGE_ROWS,
    NARROW,
    NO_SCALE,
    RLE,
    Page,
    directory_of,
    padded,
    page_head_bytes,
    page_values,
    write_block_head,
    write_page_head,
)
from kudu_core._ext.base.decimals cimport kc_decimals, kc_pick_scale
from kudu_core._ext.base.integers cimport kc_narrow, kc_runs, kc_widen
from kudu_core._ext.base.nulls cimport kc_gather
from kudu_core._ext.base.planes cimport kc_shuffle
from kudu_core._ext.pages.windows cimport kc_deltas_may_pay

import numpy as np

cdef enum:
    TYPE_UNSIGNED = 0
    TYPE_SIGNED = 1
    TYPE_FLOAT = 2
    TYPE_DECIMAL = 4
    TYPE_BOOL = 5

    SCALE_UNKNOWN = -2
    SHUFFLE_FROM = 64           # planes of fewer values are mostly padding

    FORM_AUTO = 0               # what is smallest
    FORM_PLAIN = 1
    FORM_RLE = 2
    FORM_DELTA = 3
    FORM_BITSHUFFLE = 4

FORMS = ("auto", "plain", "rle", "delta", "bitshuffle")
"""What ``encode_fixed`` can be asked for; the order is that of its numbers."""

cdef uint64_t SIGN = <uint64_t>1 << 63


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
        if i < n and same_value(values + i * width, values + (i - 1) * width, width):
            continue
        stop = <uint16_t>i
        memcpy(ends + 2 * run, &stop, 2)
        memcpy(ends + size + run * width, values + (i - 1) * width, <size_t>width)
        run += 1
    return BLOCK_HEAD_BYTES + end


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
    choose_frame(&frame, work.outside, work.integers, NULL, n, width)
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
        choose_deltas(&deltas, work, n, width)
        if 10 * deltas.bytes < 9 * best:
            kind = DELTA
            best = deltas.bytes
    if best >= padded(n * width):
        return 0
    if kind == RLE:
        return _write_runs(out, values, n, width, runs, flags)
    if kind == DELTA:
        return write_deltas(out, &deltas, work, n, width, flip, flags)
    return write_frame(
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
    choose_frame(&frame, work.outside, work.integers, work.bad if bad else NULL, n, width)
    if frame.bytes > limit:
        return 0
    return write_frame(
        out, &frame, work.outside, work.integers, work.raws, n, width, 0, scale, 0
    )


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
        return write_frame(out, &frame, work.outside, work.raws, work.raws, n, width, 0, NO_SCALE, 0)
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
    choose_frame(&frame, work.outside, work.raws, NULL, n, width)
    if frame.bytes < limit:
        limit = frame.bytes
    if n >= SHUFFLE_FROM and planes_pay(work, values, n, width, limit * 9 / 10):
        write_block_head(out, BITSHUFFLE, 0, NO_SCALE, 0, n, 0, 0)
        kc_shuffle(out + BLOCK_HEAD_BYTES, values, n, width)
        return BLOCK_HEAD_BYTES + 8 * width * ((n + 7) >> 3)
    if frame.bytes == limit:
        return write_frame(out, &frame, work.outside, work.raws, work.raws, n, width, 0, NO_SCALE, 0)
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
        size = write_plain(out, <const uint8_t*>work.raws, n, 8)
        out[3] = NARROW
        return size
    for i in range(1, n):
        runs += not same_value(values + 16 * i, values + 16 * (i - 1), 16)
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
            runs += not same_value(values + i * width, values + (i - 1) * width, width)
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
    choose_deltas(&deltas, work, n, stored)
    if deltas.bytes >= plain:
        return 0
    return write_deltas(out, &deltas, work, n, stored, flip, flags)


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
    return size if size else write_plain(out, values, n, width)


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
    if width != 1 and width != 2 and width != 4 and width != 8 and width != 16:
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
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
    if rows > MOST_PAGE_ROWS:
        raise ValueError(f"{rows} rows in a page of {MOST_PAGE_ROWS}")
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
