"""Changes of one rowset chained by row, without a sort: each names the row's change before it.

Changes are numbered in an order in which those of one row ascend in time; those of different rows lie in any
order.  The last change of each row is kept in an array over the rows, so that a chain costs one look at it
for each change.
"""
from libc.stdint cimport int32_t, int64_t

import numpy as np

cdef int64_t MOST = 0x7FFFFFFF      # changes, as int32 numbers them


def chain(const int64_t[::1] rows not None, int64_t first_row, int64_t span):
    """``(before, last)``: for each change the number of the row's change before it, -1 for its first,
    (n,) int32; and for each of the rows ``[first_row, first_row + span)`` its last, -1 for none, int32.

    ValueError for a row outside, or for more changes than int32 counts.
    """
    cdef:
        int64_t i, row, n = rows.shape[0]
        int32_t[::1] before, last
    if n > MOST:
        raise ValueError(f"{n} changes are too many")
    if span < 0:
        raise ValueError(f"no {span} rows")
    before_out = np.empty(n, np.int32)
    last_out = np.full(span, -1, np.int32)
    before, last = before_out, last_out
    for i in range(n):
        row = rows[i] - first_row
        if row < 0 or row >= span:
            raise ValueError(f"change {i} is of row {rows[i]}, outside [{first_row}, {first_row + span})")
        before[i] = last[row]
        last[row] = <int32_t>i
    return before_out, last_out


def settled(const int32_t[::1] before not None, const int64_t[::1] known not None):
    """Where the value lies that a column has after each change, (n,) int64: what the change itself says
    (``known``, not negative), else what the row's change before it left; -1: no change says it.

    ValueError for lengths that differ, or where ``before`` does not lead back.
    """
    cdef:
        int64_t i, n = before.shape[0]
        int32_t at
        int64_t[::1] out
    if known.shape[0] != n:
        raise ValueError(f"{n} changes, {known.shape[0]} values")
    found = np.empty(n, np.int64)
    out = found
    for i in range(n):
        at = before[i]
        if at >= i or at < -1:
            raise ValueError(f"change {i} names {at} as the one before it")
        if known[i] >= 0:
            out[i] = known[i]
        else:
            out[i] = out[at] if at >= 0 else -1
    return found
