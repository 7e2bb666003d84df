"""Payloads of pages of strings: up to 16,384 cells in mini-blocks of 1,024.

Layout: docs/format.md, "Page payload".  STRING_PLAIN is the cells' bytes behind their packed ends,
so a cell costs two loads; STRING_PREFIX leaves out what a cell shares with the one before it, starts
afresh every 16 cells, and is meant for sorted encoded keys.  Null cells are not held.

Payloads that are read are hostile: every count, size and position is checked before it is used.
A cell of a prefix block is at most the bytes of its group of 16, so what a payload expands to is
bounded by 16 times its size.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy
from kudu_core._ext.base.bitpack cimport kc_pack, kc_packed_bytes, kc_packed_cell, kc_unpack
from kudu_core._ext.pages.cell cimport (
    END_WIDTH,
    RESTART,
    Strings,
    strings_entry,
    strings_group,
    strings_open,
)
from kudu_core._ext.pages.head cimport (
    BLOCK_HEAD_BYTES,
    BLOCK_ROWS,
    CLASS_BINARY,
    NO_SCALE,
    PAGE_ROWS,
    STRING_PLAIN,
    STRING_PREFIX,
    Page,
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
from kudu_core._ext.base.status cimport BAD_VALUE, OVERRUN, raise_status

import numpy as np

cdef enum:
    NO_SUCH_ROW = -100          # the caller's fault, not the page's

cdef int64_t MAX_DATA_BYTES = 0x7FFFFFFF    # what an int32 offset can address


cdef uint8_t[::1] _room(allocate, Py_ssize_t size):
    """``size`` bytes to write to, from the caller's pool where it has one."""
    if allocate is None:
        return np.empty(size, np.uint8)
    room = allocate(size)
    if len(room) != size:
        raise ValueError(f"{len(room)} bytes allocated where {size} were asked for")
    return room


# -------------------------------------------------------------------------- parts of a mini-block

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


# ------------------------------------------------------------------------------- decoding a range

cdef struct Piece:
    # The cells of one mini-block that a range of rows needs.
    Strings part
    int64_t lower               # first value
    int64_t upper
    const uint8_t* source       # STRING_PLAIN: their bytes
    int64_t bytes
    int64_t pos                 # STRING_PREFIX: where the group of the first one begins


cdef int _measure_prefix(Piece* piece, uint32_t* lengths, int64_t* at) noexcept nogil:
    cdef:
        const Strings* part = &piece.part
        int64_t i = piece.lower - piece.lower % RESTART
        int64_t pos = 0, length = 0, shared = 0, group = 0
        int status
    if piece.lower == piece.upper:
        return 0
    status = strings_group(part, i, &pos, at)
    piece.pos = pos
    while status == 0 and i < piece.upper:
        if i % RESTART == 0:
            # The entries lie one after the other, so a cell finds its group where a scan does.
            status = strings_group(part, i, &group, at)
            if status == 0 and group != pos:
                status = BAD_VALUE
            if status < 0:
                return status
            length = 0
        status = strings_entry(part, i, &pos, &length, &shared, at)
        pos += length - shared
        if i >= piece.lower:
            lengths[i - piece.lower] = <uint32_t>length
        i += 1
    return status


cdef int _measure_piece(Piece* piece, uint32_t* lengths, int64_t* at) noexcept nogil:
    """Write the length of each value of the piece."""
    cdef:
        uint32_t ends[1024]
        uint32_t begin
        int64_t i
        int status
    if piece.part.kind == STRING_PREFIX:
        return _measure_prefix(piece, lengths, at)
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
    const Page* page, int64_t first, int64_t count, int32_t* offsets, Piece* pieces, int64_t* at
) noexcept nogil:
    """Write the offsets of rows first .. first + count - 1; return their bytes or a status."""
    cdef:
        int64_t row = first, end = first + count, index, begin, stop, i, v, total = 0
        Piece* piece = pieces
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


cdef uint8_t* _copy_prefix(const Piece* piece, uint8_t* out) noexcept nogil:
    """Write the cells of a measured piece; return the end of what was written."""
    cdef:
        const Strings* part = &piece.part
        int64_t i = piece.lower - piece.lower % RESTART
        int64_t pos = piece.pos, length = 0, shared = 0, at = 0, before = 0
        uint8_t* last = out         # where the entry before lies, once there is one to keep
        int64_t kept = 0            # of its bytes
    # What precedes the first cell in its group is built in that cell's place, clipped to its size.
    if piece.lower == piece.upper:
        return out
    if i < piece.lower:
        length = _cell_length(part, piece.lower, piece.pos)
        _build(part, piece.lower, piece.pos, out, length)
        while i <= piece.lower:
            if strings_entry(part, i, &pos, &before, &shared, &at) < 0:
                return out
            pos += before - shared
            i += 1
        out += length
        kept = length
    while i < piece.upper:
        if i % RESTART == 0:
            kept = 0
        length = kept
        if strings_entry(part, i, &pos, &length, &shared, &at) < 0:
            return out
        if shared:
            memcpy(out, last, <size_t>shared)
        if length - shared:
            memcpy(out + shared, part.data + pos, <size_t>(length - shared))
        pos += length - shared
        last = out
        kept = length
        out += length
        i += 1
    return out


cdef int64_t _cell_length(const Strings* part, int64_t i, int64_t pos) noexcept nogil:
    """Length of entry i of a checked block, given where its group begins."""
    cdef int64_t k, length = 0, shared = 0, at = 0
    for k in range(i - i % RESTART, i + 1):
        if strings_entry(part, k, &pos, &length, &shared, &at) < 0:
            return 0
        pos += length - shared
    return length


cdef void _build(const Strings* part, int64_t i, int64_t pos, uint8_t* out, int64_t size) noexcept nogil:
    """Write entry i of a checked block, ``size`` bytes long, given where its group begins.

    The entries before it are written over each other, as far as it reaches.
    """
    cdef int64_t k, length = 0, shared = 0, at = 0, end
    for k in range(i - i % RESTART, i + 1):
        if strings_entry(part, k, &pos, &length, &shared, &at) < 0:
            return
        end = length if length < size else size
        if shared < end:
            memcpy(out + shared, part.data + pos, <size_t>(end - shared))
        pos += length - shared


cdef void _copy(const Piece* pieces, int64_t count, uint8_t* out) noexcept nogil:
    cdef int64_t k
    for k in range(count):
        if pieces[k].part.kind == STRING_PREFIX:
            out = _copy_prefix(&pieces[k], out)
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
        Piece pieces[17]
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
    out = _room(allocate, total)
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
            _build(&part, cells[k].value, cells[k].source, out + offsets[k], length)


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


# -------------------------------------------------------------------------------------- encoding

cdef struct Cells:
    # The cells of a mini-block that are not null.
    const uint8_t* starts[1024]
    int64_t ends[1024]          # from the first cell's begin, all laid end to end
    int64_t count


cdef inline int64_t _length(const Cells* cells, int64_t i) noexcept nogil:
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


cdef uint8_t* _write_plain(uint8_t* out, const Cells* cells, bint contiguous) noexcept nogil:
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


cdef uint8_t* _write_prefix(uint8_t* out, const Cells* cells) noexcept nogil:
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


cdef int64_t _encode(
    uint8_t* out,
    const int32_t[::1] offsets,
    const uint8_t* data,
    const uint8_t* bits,
    bint prefix,
) noexcept nogil:
    """Write a whole payload; return its size."""
    cdef:
        int64_t rows = offsets.shape[0] - 1, row = 0, stop, index = 0, end, i
        uint8_t* to = out + page_head_bytes(rows, bits != NULL)
        uint8_t* directory = directory_of(out, rows, bits != NULL)
        uint32_t entry
        Cells cells
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


cdef int64_t _bad_offset(const int32_t[::1] offsets, int64_t size) noexcept nogil:
    """The first row whose offsets descend or leave the data, or -1."""
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
        uint8_t[::1] out
    if rows < 0:
        raise ValueError("offsets of a column have at least one entry")
    if rows > PAGE_ROWS:
        raise ValueError(f"{rows} rows in a page of {PAGE_ROWS}")
    if validity is not None and validity.shape[0] < (rows + 7) >> 3:
        raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
    with nogil:
        bad = _bad_offset(offsets, data.shape[0])
    if bad >= 0:
        raise ValueError(f"offsets of row {bad} descend or lie outside the data")
    if data.shape[0]:
        first = &data[0]
    if rows and validity is not None:
        page.bits = &validity[0]
        if page_values(&page, 0, rows) < rows:
            bits = page.bits
    # Ends or restarts and lengths, never more than 14 bytes a cell; head and padding of a block.
    bound = (
        page_head_bytes(rows, bits != NULL)
        + (offsets[rows] - offsets[0])
        + 14 * rows
        + 48 * ((rows + BLOCK_ROWS - 1) // BLOCK_ROWS)
    )
    scratch = np.empty(bound, np.uint8)
    out = scratch
    with nogil:
        size = _encode(&out[0], offsets, first, bits, prefix)
    assert size <= bound
    return PyBytes_FromStringAndSize(<const char*>&out[0], size)
