"""Encoded keys: columns to order-preserving byte strings and back, and moving those about.

*Encoded keys* of n rows are a pair ``(data, offsets)``: uint8 bytes and n + 1 int64 offsets into
them, which need not begin at 0.  Comparing two keys as bytes compares the tuples of their values:

* signed integers, dates, timestamps and decimals are big-endian with the sign bit flipped;
* unsigned integers are big-endian;
* strings and binary are as they are in the last column; elsewhere each byte 00 becomes 00 01, and
  00 00 ends the cell, so that what is shorter comes first and fewer columns encode to a prefix.

A column is ``(kind, width, values, offsets)``: UNSIGNED, SIGNED or DECIMAL with ``width`` (1, 2, 4,
8, 16) little-endian bytes a row in ``values`` and no offsets, or BINARY with int32 offsets.  Nulls
are unknown here.  What needs only the order of the keys, not their columns, lies in ``keyorder``
and is called through this module.

Source: Kudu common/key_encoder.h.
"""
import numpy as np

from kudu_core._ext.keys.order import group, lower_bound, order, repeats, same, sort

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memchr, memcpy

from kudu_core._ext.base.cells cimport kc_copy_cell
from kudu_core._ext.base.keybytes cimport (
    kc_be_store16, kc_be_store32, kc_be_store64, kc_be64, kc_fetch, key_bytes, key_count,
)
from kudu_core._ext.base.status cimport BAD_VALUE, OVERRUN, TRUNCATED, raise_status

__all__ = [
    "BINARY", "DECIMAL", "SIGNED", "UNSIGNED",
    "concat", "decode", "encode", "group", "interleave", "lower_bound", "order", "repeats", "same", "sort",
    "take",
]

cdef enum:
    TYPE_UNSIGNED = 0
    TYPE_SIGNED = 1
    TYPE_BINARY = 3
    TYPE_DECIMAL = 4
    AHEAD = 16              # keys whose bytes are fetched before their turn

UNSIGNED = TYPE_UNSIGNED
SIGNED = TYPE_SIGNED
BINARY = TYPE_BINARY
DECIMAL = TYPE_DECIMAL

# How a cell is written: its width in bytes when that is fixed, or one of these.
cdef enum:
    RAW = 0                 # the rest of the key
    PLAIN = 32              # no byte 00 in the whole column: copy, then 00 00
    ESCAPED = 33

cdef:
    uint64_t TOP_BIT = <uint64_t>1 << 63
    int64_t MAX_DATA_BYTES = 0x7FFFFFFF     # what an int32 offset can address


cdef struct Column:
    int shape                   # width of a fixed cell, RAW, PLAIN or ESCAPED
    uint64_t flip               # the sign bit at the top of a word; 0 for unsigned
    const uint8_t* values       # of a variable column the data bytes
    const uint8_t* end
    const int32_t* offsets
    uint8_t* out                # the rest for decoding only
    uint8_t* out_end
    int32_t* out_offsets


cdef bint _is_fixed(const Column* column) noexcept nogil:
    return RAW < column.shape < PLAIN


cdef int _fixed_column(Column* column, int kind, int width) except -1:
    if kind != TYPE_UNSIGNED and kind != TYPE_SIGNED and kind != TYPE_DECIMAL:
        raise ValueError(f"kind {kind} is no kind of a key column")
    if width != 1 and width != 2 and width != 4 and width != 8 and width != 16:
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
    column.shape = width
    column.flip = 0 if kind == TYPE_UNSIGNED else TOP_BIT
    return 0


# ------------------------------------------------------------------------------------- encoding

cdef int64_t _escaped_size(const uint8_t* cell, int64_t size) noexcept nogil:
    """Bytes of a cell that is not the last, with its end."""
    cdef int64_t i
    cdef int64_t zeros = 0
    for i in range(size):
        zeros += cell[i] == 0
    return size + zeros + 2


cdef uint8_t* _write_escaped(uint8_t* out, const uint8_t* cell, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        out[0] = cell[i]
        out += 1
        if cell[i] == 0:
            out[0] = 1
            out += 1
    out[0] = 0
    out[1] = 0
    return out + 2


cdef inline uint8_t* _write_fixed(
    uint8_t* out, const uint8_t* cell, int width, uint64_t flip
) noexcept nogil:
    cdef:
        uint64_t word
        uint32_t half
        uint16_t quarter
    if width == 8:
        memcpy(&word, cell, 8)
        kc_be_store64(out, word ^ flip)
    elif width == 4:
        memcpy(&half, cell, 4)
        kc_be_store32(out, half ^ <uint32_t>(flip >> 32))
    elif width == 1:
        out[0] = cell[0] ^ <uint8_t>(flip >> 56)
    elif width == 2:
        memcpy(&quarter, cell, 2)
        kc_be_store16(out, quarter ^ <uint16_t>(flip >> 48))
    else:
        memcpy(&word, cell + 8, 8)
        kc_be_store64(out, word ^ flip)
        memcpy(&word, cell, 8)
        kc_be_store64(out + 8, word)
    return out + width


cdef void _encode_fixed(
    const Column* columns, int count, int64_t n, int64_t stride, uint8_t* out
) noexcept nogil:
    """Keys that all have ``stride`` bytes: one column after the other."""
    cdef:
        const uint8_t* cell
        uint64_t flip
        int64_t i
        int c, width
    for c in range(count):
        cell = columns[c].values
        width = columns[c].shape
        flip = columns[c].flip
        # A loop for each width that is worth it, in which the width is a constant.
        if width == 8:
            for i in range(n):
                _write_fixed(out + i * stride, cell + i * 8, 8, flip)
        elif width == 4:
            for i in range(n):
                _write_fixed(out + i * stride, cell + i * 4, 4, flip)
        else:
            for i in range(n):
                _write_fixed(out + i * stride, cell + i * width, width, flip)
        out += width


cdef void _measure(const Column* columns, int count, int64_t n, int64_t* offsets) noexcept nogil:
    """Write where each key begins and ends."""
    cdef:
        int64_t fixed = 0
        int64_t end = 0
        int64_t i, size
        int c
        const Column* column
    for c in range(count):
        if columns[c].shape == PLAIN:
            fixed += 2
        elif columns[c].shape < PLAIN:
            fixed += columns[c].shape
    offsets[0] = 0
    for i in range(n):
        size = fixed
        for c in range(count):
            column = &columns[c]
            if column.shape == RAW or column.shape == PLAIN:
                size += column.offsets[i + 1] - column.offsets[i]
            elif column.shape == ESCAPED:
                size += _escaped_size(
                    column.values + column.offsets[i], column.offsets[i + 1] - column.offsets[i]
                )
        end += size
        offsets[i + 1] = end


cdef void _encode_mixed(
    const Column* columns, int count, int64_t n, const int64_t* offsets, uint8_t* out
) noexcept nogil:
    cdef:
        uint8_t* end = out + offsets[n]
        const uint8_t* cell
        const Column* column
        int64_t i, size
        int c
    # Row by row from the first byte on: a short copy may write past its cell (kc_copy_cell).
    for i in range(n):
        for c in range(count):
            column = &columns[c]
            if _is_fixed(column):
                out = _write_fixed(out, column.values + i * column.shape, column.shape, column.flip)
                continue
            cell = column.values + column.offsets[i]
            size = column.offsets[i + 1] - column.offsets[i]
            if column.shape == ESCAPED:
                out = _write_escaped(out, cell, size)
                continue
            kc_copy_cell(out, end, cell, column.end, size)
            out += size
            if column.shape == PLAIN:
                out[0] = 0
                out[1] = 0
                out += 2


cdef int _binary_column(
    Column* column, const uint8_t[::1] data, const int32_t[::1] offsets, Py_ssize_t n, bint last
) except -1:
    cdef Py_ssize_t i
    if offsets is None or offsets.shape[0] != n + 1:
        raise ValueError(f"a binary key column of {n} rows needs {n + 1} offsets")
    for i in range(n):
        if offsets[i + 1] < offsets[i]:
            raise ValueError(f"offsets of row {i} descend")
    if offsets[0] < 0 or offsets[n] > data.shape[0]:
        raise ValueError(f"offsets lie outside the {data.shape[0]} bytes of data")
    column.offsets = &offsets[0]
    column.values = key_bytes(data)
    column.end = column.values + data.shape[0]
    if last:
        column.shape = RAW
    elif offsets[n] > offsets[0] and memchr(column.values + offsets[0], 0, offsets[n] - offsets[0]):
        column.shape = ESCAPED
    else:
        column.shape = PLAIN
    return 0


def encode(columns not None, Py_ssize_t n):
    """Encode the keys of ``n`` rows, columns in key order.

    Returns ``(data, offsets)``.  ValueError for a kind or width that no key has, and for buffers
    that are not those of n rows.
    """
    cdef:
        Py_ssize_t stride = 0
        int count = len(columns)
        int c = 0
        bint fixed = True
        const uint8_t[::1] values
        uint8_t[::1] scratch
        int64_t[::1] ends
        uint8_t[::1] out
        Column* plan
    if count == 0 or n < 0:
        raise ValueError(f"a key of {count} columns, {n} rows")
    scratch = np.zeros(count * sizeof(Column), np.uint8)
    plan = <Column*>&scratch[0]
    # Held so that nobody resizes a buffer while the loops know only its address.
    held = []
    for kind, width, cells, cell_offsets in columns:
        values = cells
        held.append((memoryview(cells), cell_offsets))
        if kind == TYPE_BINARY:
            _binary_column(&plan[c], values, cell_offsets, n, c == count - 1)
            fixed = False
        else:
            _fixed_column(&plan[c], kind, width)
            if values.shape[0] != n * plan[c].shape:
                raise ValueError(f"{values.shape[0]} bytes are not {n} rows of {width} bytes")
            plan[c].values = key_bytes(values)
            stride += plan[c].shape
        c += 1
    if fixed:
        data = np.empty(n * stride, np.uint8)
        if n:
            out = data
            with nogil:
                _encode_fixed(plan, count, n, stride, &out[0])
        return data, np.arange(0, (n + 1) * stride, stride, np.int64)
    offsets = np.empty(n + 1, np.int64)
    ends = offsets
    with nogil:
        _measure(plan, count, n, &ends[0])
    data = np.empty(ends[n], np.uint8)
    if ends[n]:
        out = data
        with nogil:
            _encode_mixed(plan, count, n, &ends[0], &out[0])
    return data, offsets


# ------------------------------------------------------------------------------------- decoding

cdef int64_t _cell_end(const uint8_t* data, int64_t* at, int64_t end, int64_t* zeros) noexcept nogil:
    """Where the cell at ``at`` ends (its 00 00), or a status with ``at`` where; ``zeros``: escapes."""
    cdef:
        const uint8_t* found
        int64_t place = at[0]
    zeros[0] = 0
    while True:
        found = NULL
        if place < end:
            found = <const uint8_t*>memchr(data + place, 0, end - place)
        if found is NULL or found + 1 == data + end:
            return TRUNCATED
        place = found - data
        if data[place + 1] == 0:
            return place
        if data[place + 1] != 1:
            at[0] = place
            return BAD_VALUE
        zeros[0] += 1
        place += 2


cdef int64_t _measure_cells(
    const uint8_t* data, const int64_t* offsets, int64_t n, Column* columns, int count, int64_t* where
) noexcept nogil:
    """Check every key and fill the offsets of variable columns; 0, or a status with ``where`` set."""
    cdef:
        int64_t i, end, size, stop
        int64_t at = 0
        int64_t zeros = 0
        int c
        Column* column
    for i in range(n):
        at = offsets[i]
        end = offsets[i + 1]
        for c in range(count):
            column = &columns[c]
            where[0] = at
            if _is_fixed(column):
                at += column.shape
                if at > end:
                    return TRUNCATED
                continue
            if column.shape == RAW:
                size = end - at
                at = end
            else:
                stop = _cell_end(data, where, end, &zeros)
                if stop < 0:
                    return stop
                size = stop - at - zeros
                at = stop + 2
            column.out_offsets[i + 1] = <int32_t>(column.out_offsets[i] + size)
        if at != end:
            where[0] = at
            return OVERRUN
    return 0


cdef inline void _read_fixed(uint8_t* out, const uint8_t* cell, int width, uint64_t flip) noexcept nogil:
    cdef:
        uint64_t word
        int i
    if width == 8:
        word = kc_be64(cell) ^ flip
        memcpy(out, &word, 8)
    elif width == 16:
        word = kc_be64(cell) ^ flip
        memcpy(out + 8, &word, 8)
        word = kc_be64(cell + 8)
        memcpy(out, &word, 8)
    else:
        for i in range(width):
            out[i] = cell[width - 1 - i]
        out[width - 1] ^= <uint8_t>(flip >> 56)


cdef void _decode_fixed(
    const uint8_t* data, int64_t n, int64_t stride, const Column* columns, int count
) noexcept nogil:
    cdef:
        uint8_t* out
        uint64_t flip
        int64_t i
        int c, width
    for c in range(count):
        width = columns[c].shape
        flip = columns[c].flip
        out = columns[c].out
        if width == 8:
            for i in range(n):
                _read_fixed(out + i * 8, data + i * stride, 8, flip)
        elif width == 4:
            for i in range(n):
                _read_fixed(out + i * 4, data + i * stride, 4, flip)
        else:
            for i in range(n):
                _read_fixed(out + i * width, data + i * stride, width, flip)
        data += width


cdef void _decode_mixed(
    const uint8_t* data, const int64_t* offsets, int64_t n, const Column* columns, int count
) noexcept nogil:
    """Keys that ``_measure_cells`` has checked."""
    cdef:
        const uint8_t* at
        const uint8_t* data_end = data + offsets[n]
        const Column* column
        uint8_t* out
        int64_t i, size
        int c
    for i in range(n):
        at = data + offsets[i]
        for c in range(count):
            column = &columns[c]
            if _is_fixed(column):
                _read_fixed(column.out + i * column.shape, at, column.shape, column.flip)
                at += column.shape
                continue
            out = column.out + column.out_offsets[i]
            size = column.out_offsets[i + 1] - column.out_offsets[i]
            if column.shape == PLAIN and memchr(at, 0, size):
                while size:
                    out[0] = at[0]
                    out += 1
                    at += 1 if at[0] else 2
                    size -= 1
            else:
                kc_copy_cell(out, column.out_end, at, data_end, size)
                at += size
            if column.shape == PLAIN:
                at += 2


cdef bint _all_of_size(const int64_t[::1] offsets, int64_t size) noexcept nogil:
    cdef:
        Py_ssize_t i
        int64_t wrong = 0
    for i in range(offsets.shape[0] - 1):
        wrong |= (offsets[i + 1] - offsets[i]) ^ size
    return wrong == 0


def decode(const uint8_t[::1] data not None, const int64_t[::1] offsets not None, types not None):
    """The columns of encoded keys; ``types`` is ``(kind, width)`` of each column, in key order.

    Returns a list of ``(values, offsets)``: ``values`` is uint8, ``offsets`` None for a fixed
    column and int32 for a variable one.  Raises ``PageError`` with the place in ``data`` where the
    bytes are no key of these columns, ValueError for offsets outside ``data``, OverflowError when
    strings exceed what int32 offsets address.
    """
    cdef:
        Py_ssize_t n = key_count(data, offsets)
        int64_t stride = 0
        int64_t status = 0
        int64_t where = 0
        int count = len(types)
        int c = 0
        bint fixed = True
        bint regular
        uint8_t[::1] scratch
        uint8_t[::1] out
        int32_t[::1] cells
        const uint8_t* first = key_bytes(data)
        Column* plan
    if count == 0:
        raise ValueError("a key has at least one column")
    scratch = np.zeros(count * sizeof(Column), np.uint8)
    plan = <Column*>&scratch[0]
    cell_offsets = []
    for kind, width in types:
        if kind == TYPE_BINARY:
            plan[c].shape = RAW if c == count - 1 else PLAIN
            cell_offsets.append(np.zeros(n + 1, np.int32))
            cells = cell_offsets[c]
            plan[c].out_offsets = &cells[0]
            fixed = False
        else:
            _fixed_column(&plan[c], kind, width)
            cell_offsets.append(None)
            stride += plan[c].shape
        c += 1
    if not fixed and offsets[n] - offsets[0] > MAX_DATA_BYTES:
        raise OverflowError(f"{offsets[n] - offsets[0]} bytes of keys with strings at once")
    with nogil:
        regular = fixed and _all_of_size(offsets, stride)
        if not regular:
            status = _measure_cells(first, &offsets[0], n, plan, count, &where)
    if status < 0:
        raise_status(status, where)
    result = []
    for c in range(count):
        values = np.empty(n * plan[c].shape if _is_fixed(&plan[c]) else plan[c].out_offsets[n], np.uint8)
        result.append((values, cell_offsets[c]))
        out = values
        if out.shape[0]:
            plan[c].out = &out[0]
            plan[c].out_end = plan[c].out + out.shape[0]
    if n:
        with nogil:
            if fixed:
                _decode_fixed(first + offsets[0], n, stride, plan, count)
            else:
                _decode_mixed(first, &offsets[0], n, plan, count)
    return result


# ------------------------------------------------------------------------------- moving keys about

cdef int64_t _take_offsets(
    const int64_t[::1] offsets, const int64_t[::1] rows, int64_t size, int64_t* out
) noexcept nogil:
    """Return -1, or the position of a row that does not exist or lies outside the data."""
    cdef:
        uint64_t n = <uint64_t>(offsets.shape[0] - 1)
        int64_t end = 0
        int64_t i, lower, upper
    out[0] = 0
    for i in range(rows.shape[0]):
        if <uint64_t>rows[i] >= n:
            return i
        lower = offsets[rows[i]]
        upper = offsets[rows[i] + 1]
        if lower < 0 or upper < lower or upper > size:
            return i
        end += upper - lower
        out[i + 1] = end
    return -1


cdef void _take_bytes(
    const uint8_t* data, const uint8_t* data_end, const int64_t[::1] offsets, const int64_t[::1] rows,
    const int64_t* ends, uint8_t* out,
) noexcept nogil:
    cdef:
        int64_t i
        int64_t n = rows.shape[0]
        uint8_t* out_end = out + ends[n]
    for i in range(n):
        if i + AHEAD < n:
            kc_fetch(data + offsets[rows[i + AHEAD]])
        kc_copy_cell(out + ends[i], out_end, data + offsets[rows[i]], data_end, ends[i + 1] - ends[i])


def take(
    const uint8_t[::1] data not None, const int64_t[::1] offsets not None, const int64_t[::1] rows not None
):
    """The keys of ``rows``, in that order, as new ``(data, offsets)`` that begin at 0.

    IndexError for a row that does not exist, ValueError for one whose offsets descend or lie
    outside ``data``.  Keys that are not taken are not looked at.
    """
    cdef:
        int64_t bad
        int64_t[::1] ends
        uint8_t[::1] out
    if offsets.shape[0] == 0:
        raise ValueError("offsets have at least one entry")
    result_offsets = np.empty(rows.shape[0] + 1, np.int64)
    ends = result_offsets
    with nogil:
        bad = _take_offsets(offsets, rows, data.shape[0], &ends[0])
    if bad >= 0:
        if 0 <= rows[bad] < offsets.shape[0] - 1:
            raise ValueError(f"offsets of key {rows[bad]} descend or lie outside the data")
        raise IndexError(f"no key {rows[bad]} (position {bad})")
    result = np.empty(ends[rows.shape[0]], np.uint8)
    if ends[rows.shape[0]]:
        out = result
        with nogil:
            _take_bytes(&data[0], &data[0] + data.shape[0], offsets, rows, &ends[0], &out[0])
    return result, result_offsets


def concat(parts not None):
    """All keys of ``[(data, offsets), ...]`` as one new ``(data, offsets)`` that begins at 0."""
    cdef:
        const uint8_t[::1] data
        const int64_t[::1] offsets
        int64_t[::1] ends
        uint8_t[::1] out
        int64_t row = 0
        int64_t at = 0
        int64_t n, i, shift
    parts = list(parts)
    rows = 0
    size = 0
    for data, offsets in parts:
        n = key_count(data, offsets)
        rows += n
        size += offsets[n] - offsets[0]
    result = np.empty(size, np.uint8)
    result_offsets = np.empty(rows + 1, np.int64)
    out = result
    ends = result_offsets
    ends[0] = 0
    for data, offsets in parts:
        n = offsets.shape[0] - 1
        shift = at - offsets[0]
        with nogil:
            for i in range(n):
                ends[row + i + 1] = offsets[i + 1] + shift
            row += n
            if offsets[n] > offsets[0]:
                memcpy(&out[at], &data[offsets[0]], offsets[n] - offsets[0])
            at += offsets[n] - offsets[0]
    return result, result_offsets


cdef int64_t _interleave_offsets(
    const uintptr_t[::1] offsets,
    const int64_t[::1] counts,
    const int64_t[::1] sizes,
    const int32_t[::1] source,
    const int64_t[::1] position,
    int64_t* out,
) noexcept nogil:
    """Return -1, or the first place that asks for a key that does not exist or lies outside its data."""
    cdef:
        int64_t end = 0
        int64_t i, row, lower, upper
        const int64_t* part
        uint64_t parts = <uint64_t>counts.shape[0]
    out[0] = 0
    for i in range(source.shape[0]):
        row = position[i]
        if <uint64_t><int64_t>source[i] >= parts or <uint64_t>row >= <uint64_t>counts[source[i]]:
            return i
        part = <const int64_t*>offsets[source[i]]
        lower = part[row]
        upper = part[row + 1]
        if lower < 0 or upper < lower or upper > sizes[source[i]]:
            return i
        end += upper - lower
        out[i + 1] = end
    return -1


cdef void _interleave_bytes(
    const uintptr_t[::1] data,
    const uintptr_t[::1] offsets,
    const int64_t[::1] sizes,
    const int32_t[::1] source,
    const int64_t[::1] position,
    const int64_t* ends,
    uint8_t* out,
) noexcept nogil:
    cdef:
        int64_t i, k
        int64_t n = source.shape[0]
        const uint8_t* part
        uint8_t* out_end = out + ends[n]
    for i in range(n):
        k = source[i]
        if ends[i + 1] > ends[i]:       # so the part has data
            part = <const uint8_t*>data[k]
            kc_copy_cell(
                out + ends[i], out_end, part + (<const int64_t*>offsets[k])[position[i]], part + sizes[k],
                ends[i + 1] - ends[i],
            )


def interleave(parts not None, const int32_t[::1] source not None, const int64_t[::1] position not None):
    """Key i is key ``position[i]`` of ``parts[source[i]] = (data, offsets)``, as new ``(data, offsets)``.

    IndexError for a key that does not exist, ValueError for one whose offsets descend or lie outside its
    data, and for another number of positions.  Keys that are not asked for are not looked at.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k, part_count
        int64_t bad
        const uint8_t[::1] data
        const int64_t[::1] offsets
        uintptr_t[::1] data_at, offsets_at
        int64_t[::1] counts, sizes, ends
        uint8_t[::1] out
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    held = [(memoryview(part_data), memoryview(part_offsets)) for part_data, part_offsets in parts]
    part_count = len(held)
    data_at = np.zeros(part_count, np.uintp)
    offsets_at = np.zeros(part_count, np.uintp)
    counts = np.zeros(part_count, np.int64)
    sizes = np.zeros(part_count, np.int64)
    for k in range(part_count):
        data, offsets = held[k]
        if offsets.shape[0] == 0:
            raise ValueError("offsets have at least one entry")
        offsets_at[k] = <uintptr_t>&offsets[0]
        counts[k] = offsets.shape[0] - 1
        sizes[k] = data.shape[0]
        if data.shape[0]:
            data_at[k] = <uintptr_t>&data[0]
    result_offsets = np.empty(n + 1, np.int64)
    ends = result_offsets
    with nogil:
        bad = _interleave_offsets(offsets_at, counts, sizes, source, position, &ends[0])
    if bad >= 0:
        if 0 <= source[bad] < part_count and 0 <= position[bad] < counts[source[bad]]:
            raise ValueError(f"offsets of key {position[bad]} of part {source[bad]} lie outside its data")
        raise IndexError(f"no key {position[bad]} in part {source[bad]} (place {bad})")
    result = np.empty(ends[n], np.uint8)
    if ends[n]:
        out = result
        with nogil:
            _interleave_bytes(data_at, offsets_at, sizes, source, position, &ends[0], &out[0])
    return result, result_offsets
