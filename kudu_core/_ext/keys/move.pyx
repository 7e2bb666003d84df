"""Encoded keys moved about: taken by row, joined, interleaved from several parts.

Keys are ``(data, offsets)`` as in ``keys``; what comes out begins at 0.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kudu_core._ext.base.copy_cells cimport kc_copy_cell
from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.base.keybytes cimport key_count
from kudu_core._ext.base.variable cimport (
    Part,
    interleave_cells_int64,
    interleave_ends_int64,
    set_part,
    take_ends,
)

cdef enum:
    AHEAD = 16              # keys whose bytes are fetched before their turn


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
        Py_ssize_t n = rows.shape[0], count = offsets.shape[0] - 1
        int64_t bad, total = 0
        int64_t[::1] ends
        uint8_t[::1] out
    if count < 0:
        raise ValueError("offsets have at least one entry")
    if n == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    result_offsets = np.empty(n + 1, np.int64)
    ends = result_offsets
    with nogil:
        bad = take_ends(&offsets[0], count, data.shape[0], &rows[0], n, False, &ends[0], &total)
    if bad >= 0:
        if 0 <= rows[bad] < count:
            raise ValueError(f"offsets of key {rows[bad]} descend or lie outside the data")
        raise IndexError(f"no key {rows[bad]} (position {bad})")
    result = np.empty(total, np.uint8)
    if total:
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


def interleave(parts not None, const int32_t[::1] source not None, const int64_t[::1] position not None):
    """Key i is key ``position[i]`` of ``parts[source[i]] = (data, offsets)``, as new ``(data, offsets)``.

    IndexError for a key that does not exist, ValueError for one whose offsets descend or lie outside its
    data, and for another number of positions.  Keys that are not asked for are not looked at.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k
        int64_t bad, total = 0, part_count
        const uint8_t[::1] data
        const int64_t[::1] offsets
        uint8_t[::1] memory
        Part* at
        int64_t[::1] ends
        uint8_t[::1] out
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    held = [(memoryview(part_data), memoryview(part_offsets)) for part_data, part_offsets in parts]
    part_count = len(held)
    memory = np.empty((part_count + 1) * sizeof(Part), np.uint8)
    at = <Part*>&memory[0]
    for k in range(part_count):
        data, offsets = held[k]
        set_part(&at[k], data, offsets)
    if n == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    result_offsets = np.empty(n + 1, np.int64)
    ends = result_offsets
    with nogil:
        bad = interleave_ends_int64(&ends[0], at, part_count, &source[0], &position[0], n, False, &total)
    if bad >= 0:
        if 0 <= source[bad] < part_count and 0 <= position[bad] < at[source[bad]].count:
            raise ValueError(f"offsets of key {position[bad]} of part {source[bad]} lie outside its data")
        raise IndexError(f"no key {position[bad]} in part {source[bad]} (place {bad})")
    result = np.empty(total, np.uint8)
    if total:
        out = result
        with nogil:
            interleave_cells_int64(&out[0], &ends[0], at, &source[0], &position[0], n)
    return result, result_offsets
