"""Encoded keys: columns to order-preserving byte strings, and back.

*Encoded keys* of n rows are a pair ``(data, offsets)``: uint8 bytes and n + 1 int64 offsets into
them, which need not begin at 0.  Comparing two keys as bytes compares the tuples of their values:

* signed integers, dates, timestamps and decimals are big-endian with the sign bit flipped;
* unsigned integers are big-endian;
* strings and binary are as they are in the last column; elsewhere each byte 00 becomes 00 01, and
  00 00 ends the cell, so that what is shorter comes first and fewer columns encode to a prefix.

A column is ``(kind, width, values, offsets)``: UNSIGNED, SIGNED or DECIMAL with ``width`` (1, 2, 4,
8, 16) little-endian bytes a row in ``values`` and no offsets, or BINARY with int32 offsets.  Nulls
are unknown here.

What knows no columns is in other modules, whose functions are given here too, so that one import
serves: ``sort``, ``order`` (compares, searches, groups) and ``move`` (takes, joins, interleaves).

Source: Kudu common/key_encoder.h.
"""
import numpy as np

from kudu_core._ext.keys.move import concat, interleave, take
from kudu_core._ext.keys.order import group, lower_bound, order, repeats, same
from kudu_core._ext.keys.sort import sort

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from kudu_core._ext.base.copy_cells cimport kc_copy_cell
from kudu_core._ext.base.keybytes cimport key_bytes, key_count
from kudu_core._ext.base.status cimport OVERRUN, TRUNCATED, raise_status
from kudu_core._ext.keys.key_cells cimport (
    ESCAPED, PLAIN, RAW, EncodedColumn, cell_end, escaped_size, is_fixed, read_fixed, write_escaped,
    write_fixed,
)

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

UNSIGNED = TYPE_UNSIGNED
SIGNED = TYPE_SIGNED
BINARY = TYPE_BINARY
DECIMAL = TYPE_DECIMAL

cdef:
    uint64_t TOP_BIT = <uint64_t>1 << 63
    int64_t MAX_DATA_BYTES = 0x7FFFFFFF     # what an int32 offset can address


cdef int _fixed_column(EncodedColumn* column, int kind, int width) except -1:
    if kind != TYPE_UNSIGNED and kind != TYPE_SIGNED and kind != TYPE_DECIMAL:
        raise ValueError(f"kind {kind} is no kind of a key column")
    if width != 1 and width != 2 and width != 4 and width != 8 and width != 16:
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
    column.shape = width
    column.flip = 0 if kind == TYPE_UNSIGNED else TOP_BIT
    return 0


# ------------------------------------------------------------------------------------- encoding

cdef void _encode_fixed(
    const EncodedColumn* columns, int count, int64_t n, int64_t stride, uint8_t* out
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
                write_fixed(out + i * stride, cell + i * 8, 8, flip)
        elif width == 4:
            for i in range(n):
                write_fixed(out + i * stride, cell + i * 4, 4, flip)
        else:
            for i in range(n):
                write_fixed(out + i * stride, cell + i * width, width, flip)
        out += width


cdef void _measure(const EncodedColumn* columns, int count, int64_t n, int64_t* offsets) noexcept nogil:
    """Write where each key begins and ends."""
    cdef:
        int64_t fixed = 0
        int64_t end = 0
        int64_t i, size
        int c
        const EncodedColumn* column
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
                size += escaped_size(
                    column.values + column.offsets[i], column.offsets[i + 1] - column.offsets[i]
                )
        end += size
        offsets[i + 1] = end


cdef void _encode_mixed(
    const EncodedColumn* columns, int count, int64_t n, const int64_t* offsets, uint8_t* out
) noexcept nogil:
    cdef:
        uint8_t* end = out + offsets[n]
        const uint8_t* cell
        const EncodedColumn* column
        int64_t i, size
        int c
    # Row by row from the first byte on: a short copy may write past its cell (kc_copy_cell).
    for i in range(n):
        for c in range(count):
            column = &columns[c]
            if is_fixed(column):
                out = write_fixed(out, column.values + i * column.shape, column.shape, column.flip)
                continue
            cell = column.values + column.offsets[i]
            size = column.offsets[i + 1] - column.offsets[i]
            if column.shape == ESCAPED:
                out = write_escaped(out, cell, size)
                continue
            kc_copy_cell(out, end, cell, column.end, size)
            out += size
            if column.shape == PLAIN:
                out[0] = 0
                out[1] = 0
                out += 2


cdef int _binary_column(
    EncodedColumn* column, const uint8_t[::1] data, const int32_t[::1] offsets, Py_ssize_t n, bint last
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
        EncodedColumn* plan
    if count == 0 or n < 0:
        raise ValueError(f"a key of {count} columns, {n} rows")
    scratch = np.zeros(count * sizeof(EncodedColumn), np.uint8)
    plan = <EncodedColumn*>&scratch[0]
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

cdef int64_t _measure_cells(
    const uint8_t* data, const int64_t* offsets, int64_t n, EncodedColumn* columns, int count, int64_t* where
) noexcept nogil:
    """Check every key and fill the offsets of variable columns; 0, or a status with ``where`` set."""
    cdef:
        int64_t i, end, size, stop
        int64_t at = 0
        int64_t zeros = 0
        int c
        EncodedColumn* column
    for i in range(n):
        at = offsets[i]
        end = offsets[i + 1]
        for c in range(count):
            column = &columns[c]
            where[0] = at
            if is_fixed(column):
                at += column.shape
                if at > end:
                    return TRUNCATED
                continue
            if column.shape == RAW:
                size = end - at
                at = end
            else:
                stop = cell_end(data, where, end, &zeros)
                if stop < 0:
                    return stop
                size = stop - at - zeros
                at = stop + 2
            column.out_offsets[i + 1] = <int32_t>(column.out_offsets[i] + size)
        if at != end:
            where[0] = at
            return OVERRUN
    return 0


cdef void _decode_fixed(
    const uint8_t* data, int64_t n, int64_t stride, const EncodedColumn* columns, int count
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
                read_fixed(out + i * 8, data + i * stride, 8, flip)
        elif width == 4:
            for i in range(n):
                read_fixed(out + i * 4, data + i * stride, 4, flip)
        else:
            for i in range(n):
                read_fixed(out + i * width, data + i * stride, width, flip)
        data += width


cdef void _decode_mixed(
    const uint8_t* data, const int64_t* offsets, int64_t n, const EncodedColumn* columns, int count
) noexcept nogil:
    """Keys that ``_measure_cells`` has checked."""
    cdef:
        const uint8_t* at
        const uint8_t* data_end = data + offsets[n]
        const EncodedColumn* column
        uint8_t* out
        int64_t i, size
        int c
    for i in range(n):
        at = data + offsets[i]
        for c in range(count):
            column = &columns[c]
            if is_fixed(column):
                read_fixed(column.out + i * column.shape, at, column.shape, column.flip)
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
        EncodedColumn* plan
    if count == 0:
        raise ValueError("a key has at least one column")
    scratch = np.zeros(count * sizeof(EncodedColumn), np.uint8)
    plan = <EncodedColumn*>&scratch[0]
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
        values = np.empty(n * plan[c].shape if is_fixed(&plan[c]) else plan[c].out_offsets[n], np.uint8)
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
