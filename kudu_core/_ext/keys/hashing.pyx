"""Hashes of encoded keys and of cells of columns.

murmur3 x64-128 (Austin Appleby, public domain algorithm), its low 64 bits (h1) with seed 0, is the
one hash of a key for hash index and bloom.  XXH64 (Yann Collet's specification) routes rows to hash
partitions as Spark's ``xxhash64`` does: the result of a column is the seed of the next.

Source: Spark catalyst/expressions/hash.scala (XxHash64Function) for what is fed to XXH64.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.base.hashes cimport (
    murmur3_bytes,
    xxh64_big,
    xxh64_bytes,
    xxh64_int,
    xxh64_long,
)
from kudu_core._ext.base.loads cimport load16, load32, load64
from kudu_core._ext.base.keybytes cimport key_bytes, key_count

cdef enum:
    TYPE_UNSIGNED = 0
    TYPE_SIGNED = 1
    TYPE_BINARY = 3
    TYPE_DECIMAL = 4

UNSIGNED = TYPE_UNSIGNED
SIGNED = TYPE_SIGNED
BINARY = TYPE_BINARY
DECIMAL = TYPE_DECIMAL


def murmur3(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """The hash of each encoded key, uint64.  ValueError for offsets outside ``data``."""
    cdef:
        Py_ssize_t n = key_count(data, offsets)
        Py_ssize_t i
        uint64_t[::1] out
        const uint8_t* first = key_bytes(data)
    result = np.empty(n, np.uint64)
    out = result
    with nogil:
        for i in range(n):
            out[i] = murmur3_bytes(first + offsets[i], <size_t>(offsets[i + 1] - offsets[i]))
    return result


def murmur3_one(const uint8_t[::1] key not None):
    """The same hash of one key, as int."""
    return murmur3_bytes(key_bytes(key), <size_t>key.shape[0])


cdef void _chain_fixed(
    int kind, int width, const uint8_t* values, Py_ssize_t n, uint64_t[::1] hashes
) noexcept nogil:
    cdef Py_ssize_t i
    if width == 1:
        for i in range(n):
            hashes[i] = xxh64_int(
                <uint32_t><int32_t>(<signed char>values[i]) if kind == TYPE_SIGNED else values[i], hashes[i]
            )
    elif width == 2:
        for i in range(n):
            hashes[i] = xxh64_int(
                <uint32_t><int32_t><short>load16(values + 2 * i) if kind == TYPE_SIGNED
                else load16(values + 2 * i), hashes[i]
            )
    elif width == 4 and kind == TYPE_SIGNED:
        for i in range(n):
            hashes[i] = xxh64_int(load32(values + 4 * i), hashes[i])
    elif width == 4:
        for i in range(n):
            hashes[i] = xxh64_long(load32(values + 4 * i), hashes[i])
    elif width == 8 and kind == TYPE_SIGNED:
        for i in range(n):
            hashes[i] = xxh64_long(load64(values + 8 * i), hashes[i])
    elif width == 8:
        for i in range(n):
            hashes[i] = xxh64_big(load64(values + 8 * i), 0, hashes[i])
    elif kind == TYPE_SIGNED:
        for i in range(n):
            hashes[i] = xxh64_long(load64(values + 16 * i), hashes[i])
    else:
        for i in range(n):
            hashes[i] = xxh64_big(
                load64(values + 16 * i), <int64_t>load64(values + 16 * i + 8), hashes[i]
            )


cdef void _chain_binary(
    const uint8_t* data, const int32_t[::1] offsets, uint64_t[::1] hashes
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(hashes.shape[0]):
        hashes[i] = xxh64_bytes(data + offsets[i], <size_t>(offsets[i + 1] - offsets[i]), hashes[i])


def xxh64_column(
    int kind,
    int width,
    const uint8_t[::1] values not None,
    const int32_t[::1] offsets,
    uint64_t[::1] hashes not None,
):
    """Chain one column into ``hashes``, in place, as Spark's ``xxhash64``: a row's hash so far seeds
    that of its cell.

    ``kind`` and ``width`` say what is hashed:

    * SIGNED 1, 2, 4: the value as 32 bits (also dates); SIGNED 8: as 64 bits (also timestamps);
    * SIGNED 16: the low 64 bits, which is what a decimal of up to 18 digits is to Spark;
    * DECIMAL 16: a decimal of more digits, its shortest big-endian two's complement bytes;
    * UNSIGNED: Spark has none, so as the next wider type: 1 and 2 as 32 bits, 4 as 64 bits, 8 as a
      decimal of 20 digits;
    * BINARY: the bytes between int32 ``offsets``; these are None for all others.

    ValueError when kind, width and lengths do not fit together; nothing is written then.
    """
    cdef:
        Py_ssize_t n = hashes.shape[0]
        Py_ssize_t i
        const uint8_t* first = key_bytes(values)
    if kind == TYPE_BINARY:
        if offsets is None or offsets.shape[0] != n + 1:
            raise ValueError(f"a binary column of {n} rows needs {n + 1} offsets")
        for i in range(n):
            if offsets[i + 1] < offsets[i]:
                raise ValueError(f"offsets of row {i} descend")
        if offsets[0] < 0 or offsets[n] > values.shape[0]:
            raise ValueError(f"offsets lie outside the {values.shape[0]} bytes of data")
        with nogil:
            _chain_binary(first, offsets, hashes)
        return
    if not (
        (kind == TYPE_SIGNED and width in (1, 2, 4, 8, 16))
        or (kind == TYPE_UNSIGNED and width in (1, 2, 4, 8))
        or (kind == TYPE_DECIMAL and width == 16)
    ):
        raise ValueError(f"no hash for kind {kind} of width {width}")
    if values.shape[0] != n * width:
        raise ValueError(f"{values.shape[0]} bytes are not {n} rows of {width} bytes")
    with nogil:
        _chain_fixed(kind, width, first, n, hashes)


def bucket(const uint64_t[::1] hashes not None, buckets):
    """``pmod(hash, buckets)`` of the hashes as signed integers, int32: what Spark gives."""
    cdef:
        int64_t count = buckets
        int64_t rest
        Py_ssize_t i
        int32_t[::1] out
    if not 1 <= count <= 0x7FFFFFFF:
        raise ValueError(f"{buckets} buckets")
    result = np.empty(hashes.shape[0], np.int32)
    out = result
    with nogil:
        for i in range(hashes.shape[0]):
            rest = <int64_t>hashes[i] % count
            out[i] = <int32_t>(rest + count if rest < 0 else rest)
    return result
