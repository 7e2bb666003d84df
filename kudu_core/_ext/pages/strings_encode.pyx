"""Encodes payloads of pages of strings: up to 16,384 cells in mini-blocks of 1,024.

Layout: docs/format.md, "Page payload".  STRING_PLAIN is the cells' bytes behind their packed ends;
STRING_PREFIX leaves out what a cell shares with the one before it, starts afresh every 16 cells, and
is meant for sorted encoded keys.  Null cells are not held.
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.bitpack cimport kc_pack, kc_packed_bytes
from kudu_core._ext.base.loads cimport load64
from kudu_core._ext.pages.cell cimport END_WIDTH, RESTART
from kudu_core._ext.pages.head cimport (
    BLOCK_HEAD_BYTES,
    BLOCK_ROWS,
    CLASS_BINARY,
    MOST_PAGE_ROWS,
    NO_SCALE,
    STRING_PLAIN,
    STRING_PREFIX,
    Page,
    directory_of,
    padded,
    page_head_bytes,
    page_values,
    write_block_head,
    write_page_head,
)

cdef extern from "Python.h":
    PyObject* PyBytes_FromStringAndSize(const char* data, Py_ssize_t size) except NULL
    char* PyBytes_AS_STRING(PyObject* made)
    int _PyBytes_Resize(PyObject** made, Py_ssize_t size) except -1


cdef struct PresentCells:
    # The cells of a mini-block that are not null.
    const uint8_t* starts[1024]
    int64_t ends[1024]          # from the first cell's begin, all laid end to end
    int64_t count


cdef inline int64_t _length(const PresentCells* cells, int64_t i) noexcept nogil:
    return cells.ends[i] - (cells.ends[i - 1] if i else 0)


cdef inline int64_t _common(const uint8_t* a, const uint8_t* b, int64_t limit) noexcept nogil:
    """How many leading bytes are equal."""
    cdef int64_t i = 0
    while i + 8 <= limit and load64(a + i) == load64(b + i):
        i += 8
    while i < limit and a[i] == b[i]:
        i += 1
    return i


cdef inline uint8_t* _put_number(uint8_t* out, int64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t>(value | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef uint8_t* _pad(const uint8_t* origin, uint8_t* out) noexcept nogil:
    while (out - origin) & 7:
        out[0] = 0
        out += 1
    return out


cdef uint8_t* _write_plain(uint8_t* out, const PresentCells* cells, bint contiguous) noexcept nogil:
    cdef:
        int64_t i, n = cells.count, total = cells.ends[n - 1] if n else 0, length
        int bits = 0
        bint equal = True
        uint8_t* body = out + BLOCK_HEAD_BYTES
    for i in range(1, n):
        if _length(cells, i) != cells.ends[0]:
            equal = False
            break
    if not equal:
        while total >> bits:
            bits += 1
    write_block_head(out, STRING_PLAIN, bits, NO_SCALE, 0, n, 0, <uint64_t>total)
    if bits:
        kc_pack(body, cells.ends, n, END_WIDTH, bits, 0)
        body += kc_packed_bytes(n, bits)
    if contiguous and total:
        memcpy(body, cells.starts[0], <size_t>total)
        body += total
    else:
        for i in range(n):
            length = _length(cells, i)
            if length:
                memcpy(body, cells.starts[i], <size_t>length)
                body += length
    return _pad(out, body)


cdef uint8_t* _write_prefix(uint8_t* out, const PresentCells* cells) noexcept nogil:
    cdef:
        int64_t i, n = cells.count, shared, length, last = 0
        uint8_t* restarts = out + BLOCK_HEAD_BYTES
        uint8_t* entries = restarts + padded(4 * ((n + RESTART - 1) / RESTART))
        uint8_t* body = entries
        uint32_t start
    if n:
        memset(entries - 8, 0, 8)
    for i in range(n):
        length = _length(cells, i)
        shared = 0
        if i % RESTART == 0:
            start = <uint32_t>(body - entries)
            memcpy(restarts + 4 * (i / RESTART), &start, 4)
        else:
            shared = _common(cells.starts[i], cells.starts[i - 1], length if length < last else last)
        body = _put_number(body, shared)
        body = _put_number(body, length - shared)
        if length - shared:
            memcpy(body, cells.starts[i] + shared, <size_t>(length - shared))
            body += length - shared
        last = length
    write_block_head(out, STRING_PREFIX, 0, NO_SCALE, 0, n, 0, <uint64_t>(body - entries))
    return _pad(out, body)


cdef int64_t strings_bound(int64_t rows, int64_t cell_bytes, bint nulls) noexcept nogil:
    """Ends or restarts and lengths, never more than 14 bytes a cell; head and padding of a block."""
    return (
        page_head_bytes(rows, nulls) + cell_bytes + 14 * rows + 48 * ((rows + BLOCK_ROWS - 1) / BLOCK_ROWS)
    )


cdef int64_t encode_strings(
    uint8_t* out,
    const int32_t* offsets,
    int64_t rows,
    const uint8_t* data,
    const uint8_t* bits,
    bint prefix,
) noexcept nogil:
    cdef:
        int64_t row = 0, stop, index = 0, end, i
        uint8_t* to = out + page_head_bytes(rows, bits != NULL)
        uint8_t* directory = directory_of(out, rows, bits != NULL)
        uint32_t entry
        PresentCells cells
    write_page_head(out, rows, CLASS_BINARY, 0, bits)
    memset(to - 8, 0, 8)
    while row < rows:
        entry = <uint32_t>(to - out)
        memcpy(directory + 4 * index, &entry, 4)
        stop = row + BLOCK_ROWS if row + BLOCK_ROWS < rows else rows
        end = 0
        cells.count = 0
        for i in range(row, stop):
            if bits != NULL and not kc_bit(bits, i):
                continue
            end += offsets[i + 1] - offsets[i]
            cells.starts[cells.count] = data + offsets[i]
            cells.ends[cells.count] = end
            cells.count += 1
        if prefix:
            to = _write_prefix(to, &cells)
        else:
            to = _write_plain(to, &cells, cells.count == stop - row)
        row = stop
        index += 1
    entry = <uint32_t>(to - out)
    memcpy(directory + 4 * index, &entry, 4)
    return to - out


cdef int64_t bad_offset(const int32_t[::1] offsets, int64_t size) noexcept nogil:
    cdef int64_t i, last = offsets[0]
    if last < 0:
        return 0
    for i in range(1, offsets.shape[0]):
        if offsets[i] < last or offsets[i] > size:
            return i - 1
        last = offsets[i]
    return 0 if last > size else -1


def encode_binary(
    const int32_t[::1] offsets not None,
    const uint8_t[::1] data not None,
    const uint8_t[::1] validity=None,
    bint prefix=False,
):
    """Return the payload of up to 16,384 strings.

    ``offsets`` may start above 0; ``validity`` is a bitmap (1: not null) or None, and left out where
    it has no 0.  What null cells hold is lost.  ``prefix`` leaves out what a cell shares with the
    one before it: for sorted keys.

    Raises ValueError for offsets that descend or leave the data, too many rows, or a bitmap that
    is too short.
    """
    cdef:
        Py_ssize_t rows = offsets.shape[0] - 1, bound
        int64_t bad, size
        const uint8_t* bits = NULL
        const uint8_t* first = NULL
        Page page
        PyObject* made = NULL
        uint8_t* out
    if rows < 0:
        raise ValueError("offsets of a column have at least one entry")
    if rows > MOST_PAGE_ROWS:
        raise ValueError(f"{rows} rows in a page of {MOST_PAGE_ROWS}")
    if validity is not None and validity.shape[0] < (rows + 7) >> 3:
        raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
    with nogil:
        bad = bad_offset(offsets, data.shape[0])
    if bad >= 0:
        raise ValueError(f"offsets of row {bad} descend or lie outside the data")
    if data.shape[0]:
        first = &data[0]
    if rows and validity is not None:
        page.bits = &validity[0]
        if page_values(&page, 0, rows) < rows:
            bits = page.bits
    bound = strings_bound(rows, offsets[rows] - offsets[0], bits != NULL)
    # Written where it stays: a copy of large cells costs as much as all else.
    made = PyBytes_FromStringAndSize(NULL, bound)
    try:
        out = <uint8_t*>PyBytes_AS_STRING(made)
        with nogil:
            size = encode_strings(out, &offsets[0], rows, first, bits, prefix)
        assert size <= bound
        _PyBytes_Resize(&made, size)
        return <object>made
    finally:
        Py_XDECREF(made)
