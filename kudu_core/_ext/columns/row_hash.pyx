"""Hashes of whole rows, column by column, and their sums: what the fingerprint of a write is made of.

A row's hash so far seeds that of its next cell, so each column is one pass over its cells and one array of
hashes.  The sums do not depend on the order of the rows.  docs/format-log.md, "Row fingerprint", has the
definition that these kernels follow.
"""
from libc.stdint cimport int32_t, uint8_t, uint64_t

from kudu_core._ext.base.hashes cimport xxh64_bytes, xxh64_int, xxh64_long
from kudu_core._ext.base.loads cimport load32, load64
from kudu_core._ext.base.keybytes cimport key_bytes


cdef inline bint _is_null(const uint8_t* bits, Py_ssize_t row) noexcept nogil:
    return bits != NULL and not (bits[row >> 3] >> (row & 7)) & 1


cdef void _fixed(
    int width, const uint8_t* values, const uint8_t* bits, uint64_t tag, uint64_t[::1] hashes
) noexcept nogil:
    cdef:
        Py_ssize_t n = hashes.shape[0]
        Py_ssize_t i
        uint64_t seed
    if width == 8 and bits == NULL:
        for i in range(n):
            hashes[i] = xxh64_long(load64(values + 8 * i), hashes[i] + tag)
        return
    if width == 4 and bits == NULL:
        for i in range(n):
            hashes[i] = xxh64_int(load32(values + 4 * i), hashes[i] + tag)
        return
    for i in range(n):
        seed = hashes[i] + tag
        if _is_null(bits, i):
            hashes[i] = xxh64_bytes(values, 0, seed + 1)
        elif width == 8:
            hashes[i] = xxh64_long(load64(values + 8 * i), seed)
        elif width == 4:
            hashes[i] = xxh64_int(load32(values + 4 * i), seed)
        elif width == 1:
            hashes[i] = xxh64_bytes(values + i, 1, seed)
        elif width == 2:
            hashes[i] = xxh64_bytes(values + 2 * i, 2, seed)
        else:
            hashes[i] = xxh64_bytes(values + 16 * i, 16, seed)


cdef Py_ssize_t _variable(
    const uint8_t* data,
    Py_ssize_t size,
    const int32_t[::1] offsets,
    const uint8_t* bits,
    uint64_t tag,
    uint64_t[::1] hashes,
) noexcept nogil:
    """Return -1, or the first row whose offsets leave the data or descend."""
    cdef:
        Py_ssize_t i
        int32_t first, last
        uint64_t seed
    for i in range(hashes.shape[0]):
        first = offsets[i]
        last = offsets[i + 1]
        if first < 0 or last < first or last > size:
            return i
        seed = hashes[i] + tag
        if _is_null(bits, i):
            hashes[i] = xxh64_bytes(data, 0, seed + 1)
        else:
            hashes[i] = xxh64_bytes(data + first, <size_t>(last - first), seed)
    return -1


def chain_column(
    column_id,
    int width,
    const uint8_t[::1] values not None,
    const int32_t[::1] offsets,
    const uint8_t[::1] validity,
    uint64_t[::1] hashes not None,
):
    """Chain the cells of one column into ``hashes``, in place.

    Parameters
    ----------
    column_id : int, 0 <= column_id < 2**32
    width : 1, 2, 4, 8, 16, or 0 for a column with ``offsets``
    values : (n * width,) bytes, or the data that the offsets point into
    offsets : (n + 1,) int32, of a column of width 0; else None
    validity : bitmap, least significant bit first, 1 = not null; None: no cell is null
    hashes : (n,) uint64, written

    Raises
    ------
    ValueError
        Widths and lengths do not fit together (nothing is written), or a row's offsets descend or leave the
        data (the rows before it are written).
    """
    cdef:
        Py_ssize_t n = hashes.shape[0]
        Py_ssize_t bad
        uint64_t tag
        const uint8_t* first = key_bytes(values)
        const uint8_t* bits = NULL
    if not 0 <= column_id < 1 << 32:
        raise ValueError(f"column id {column_id}")
    tag = 2 * <uint64_t>column_id
    if validity is not None:
        if validity.shape[0] * 8 < n:
            raise ValueError(f"{validity.shape[0]} bytes of validity for {n} rows")
        bits = key_bytes(validity)
    if width == 0:
        if offsets is None or offsets.shape[0] != n + 1:
            raise ValueError(f"a column of variable width and {n} rows needs {n + 1} offsets")
        with nogil:
            bad = _variable(first, values.shape[0], offsets, bits, tag, hashes)
        if bad >= 0:
            raise ValueError(f"offsets of row {bad} descend or leave the {values.shape[0]} bytes of data")
        return
    if width not in (1, 2, 4, 8, 16) or offsets is not None:
        reason = "no cells" if offsets is None else "offsets of cells"
        raise ValueError(f"{reason} of width {width}")
    if values.shape[0] < n * width:
        raise ValueError(f"{values.shape[0]} bytes are not {n} cells of {width} bytes")
    with nogil:
        _fixed(width, first, bits, tag, hashes)


def sums(const uint64_t[::1] hashes not None):
    """(sum of the hashes, sum of the XXH64 of each hash's 8 bytes), both modulo 2**64."""
    cdef:
        Py_ssize_t i
        uint64_t plain = 0
        uint64_t mixed = 0
    with nogil:
        for i in range(hashes.shape[0]):
            plain += hashes[i]
            mixed += xxh64_long(hashes[i], 0)
    return plain, mixed
