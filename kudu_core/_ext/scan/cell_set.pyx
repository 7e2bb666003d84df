"""Sets of values of one column, as intervals of unsigned integers.

Each type of cells is laid on a line of unsigned integers on which the order of the cells is that of the
numbers, and a set is a list of closed intervals on that line.  So one comparison of unsigned words decides
all types.  NULL is no number: whether it belongs to a set is said apart.

Strings without a dictionary are not numbers: a set of them is a list of half-open intervals of strings.
A list of many single values has a filter of bits besides: a cell whose bit is not set is in none of them, and
only the others are looked for, numbers in a hash table.
``CellSet`` only checks and keeps what callers give; ``conditions.pxd`` tests cells with it.
"""
cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from kudu_core._ext.scan.column cimport MANY_WORDS

import numpy as np

cdef enum:
    FILTERED = 8                # intervals from which on a filter saves more than it costs


@cython.final
@cython.auto_pickle(False)
cdef class CellSet:
    """A set of values of one column, for ``Selection.test``.

    Parameters
    ----------
    kind
        How cells become unsigned numbers in the order of the cells: 0 as they are, 1 with the sign bit
        flipped, 2 floats (-NaN, -inf .. -0.0, 0.0 .. inf, NaN), 3 codes of a dictionary.
    width
        Bytes of a cell as stored.
    lows, highs : (n,) uint64; (n, 2) of 16-byte cells, the low word first
        Closed intervals, ascending and apart.
    nulls
        Whether NULL belongs to the set.
    words
        Of codes: how many there are.

    Of strings without a dictionary: ``CellSet.of_strings``.  ValueError for intervals that are none.
    """

    def __init__(self, int kind, int width, lows, highs, bint nulls, int64_t words=0):
        cdef:
            const uint64_t[::1] low = np.ascontiguousarray(lows, np.uint64).reshape(-1)
            const uint64_t[::1] high = np.ascontiguousarray(highs, np.uint64).reshape(-1)
            int64_t i, step = 2 if width == 16 else 1
            uint64_t values = 0     # beside the first one of each interval
        if not 0 <= kind <= CODE or width not in (1, 2, 4, 8, 16) or (kind == FLOAT and width not in (4, 8)):
            raise ValueError(f"kind {kind} of cells of {width} bytes")
        if width == 16 and kind != SIGNED:
            raise ValueError("cells of 16 bytes are signed")
        if kind == CODE and (width > 2 or not 1 <= words <= MANY_WORDS):
            raise ValueError(f"{words} words with codes of {width} bytes")
        if low.shape[0] != high.shape[0] or low.shape[0] % step:
            raise ValueError(f"{low.shape[0]} lower and {high.shape[0]} upper ends")
        self.c.kind = kind
        self.c.width = width
        self.c.nulls = nulls
        self.c.words = words
        self.c.n = low.shape[0] // step
        self.c.flip = TOP_BIT >> (64 - 8 * min(width, 8)) if kind == SIGNED else 0
        self.c.lows = <uint64_t*>PyMem_RawCalloc(2 * low.shape[0] + 1, 8)
        self.c.narrow_lows = <uint64_t*>PyMem_RawCalloc(2 * self.c.n + 1, 8)
        if self.c.lows == NULL or self.c.narrow_lows == NULL:
            raise MemoryError
        self.c.highs = self.c.lows + low.shape[0]
        self.c.narrow_highs = self.c.narrow_lows + self.c.n
        for i in range(low.shape[0]):
            self.c.lows[i] = low[i]
            self.c.highs[i] = high[i]
            if width < 8 and (high[i] >> (8 * width) or low[i] >> (8 * width)):
                raise ValueError(f"an end is wider than {width} bytes")
        for i in range(self.c.n):
            if not self._ascends(i, step):
                raise ValueError("intervals are not ascending and apart")
            if width == 16:
                self._narrow(i)
        if width <= 8 and self.c.n >= FILTERED:
            for i in range(self.c.n):
                values += self.c.highs[i] - self.c.lows[i]
                if values > 3 * <uint64_t>self.c.n:
                    return
            self._make_filter(self.c.n + <int64_t>values)
            self._make_table(self.c.n + <int64_t>values)
            self._filter_numbers()

    @staticmethod
    def of_strings(const uint8_t[::1] data not None, const int64_t[::1] offsets not None, bint open_end,
                   bint nulls):
        """A set of strings: half-open intervals, ascending and apart.

        ``offsets`` (2 n + 1,) into ``data``: lower end, upper end of each; with ``open_end`` the last
        one has no upper end (an empty one is given).
        """
        cdef:
            CellSet self = CellSet.__new__(CellSet)
            int64_t i, size
            uint64_t bit
        if offsets.shape[0] % 2 == 0 or offsets[0] < 0 or offsets[offsets.shape[0] - 1] > data.shape[0]:
            raise ValueError("ends of intervals leave the data")
        for i in range(offsets.shape[0] - 1):
            if offsets[i + 1] < offsets[i]:
                raise ValueError("offsets descend")
        self.c.kind = STRING
        self.c.nulls = nulls
        self.c.n = offsets.shape[0] // 2
        self.c.open_end = open_end and self.c.n
        self.c.offsets = &offsets[0]
        self.c.data = &data[0] if data.shape[0] else <const uint8_t*>&offsets[0]
        self.kept = (data, offsets)
        if self.c.n >= FILTERED and not self.c.open_end:
            for i in range(self.c.n):
                # A single string ends before itself with a byte 00 more.
                size = offsets[2 * i + 1] - offsets[2 * i]
                if offsets[2 * i + 2] - offsets[2 * i + 1] != size + 1 or memcmp(
                    self.c.data + offsets[2 * i], self.c.data + offsets[2 * i + 1], <size_t>size
                ) or self.c.data[offsets[2 * i + 2] - 1]:
                    return self
            self._make_filter(self.c.n)
            for i in range(self.c.n):
                size = offsets[2 * i + 1] - offsets[2 * i]
                bit = kc_filter_string(self.c.data + offsets[2 * i], size, self.c.filter_shift)
                self.c.filter[bit >> 6] |= <uint64_t>1 << (bit & 63)
        return self

    def __dealloc__(self):
        PyMem_RawFree(self.c.lows)
        PyMem_RawFree(self.c.narrow_lows)
        PyMem_RawFree(self.c.filter)
        PyMem_RawFree(self.c.table)

    cdef int _make_filter(self, int64_t values) except -1:
        """A filter without a bit set, of 16 bits or more for each of the values.

        Of a few values so many that next to no other cell passes: 4 KiB stay in the nearest cache.
        """
        cdef int bits = 15
        while (<int64_t>1 << bits) < 16 * values:
            bits += 1
        self.c.filter = <uint64_t*>PyMem_RawCalloc(<size_t>1 << (bits - 6), 8)
        if self.c.filter == NULL:
            raise MemoryError
        self.c.filter_shift = 64 - bits
        return 0

    cdef int _make_table(self, int64_t values) except -1:
        """A table without a number, of two places or more for each of the values."""
        cdef int64_t i, places = 1
        self.c.table_shift = 64
        while places < 2 * values:
            places *= 2
            self.c.table_shift -= 1
        self.c.table = <uint64_t*>PyMem_RawMalloc(<size_t>places * 8)
        if self.c.table == NULL:
            raise MemoryError
        for i in range(self.c.n):       # a number between two intervals
            self.c.filler = self.c.highs[i] + 1
            if self.c.filler != self.c.lows[(i + 1) % self.c.n]:
                break
        for i in range(places):
            self.c.table[i] = self.c.filler
        return 0

    cdef void _filter_numbers(self):
        cdef:
            int64_t i
            uint64_t number, bit, place, last = ~<uint64_t>0 >> self.c.table_shift
        for i in range(self.c.n):
            number = self.c.lows[i]
            while True:
                bit = kc_filter_bit(number, self.c.filter_shift)
                self.c.filter[bit >> 6] |= <uint64_t>1 << (bit & 63)
                place = kc_filter_bit(number, self.c.table_shift)
                while self.c.table[place] != self.c.filler:
                    place = (place + 1) & last
                self.c.table[place] = number
                if number == self.c.highs[i]:
                    break
                number += 1

    cdef bint _ascends(self, int64_t i, int64_t step):
        if step == 2:
            return not kc_wide_below(self.c.highs + 2 * i, self.c.lows + 2 * i) and (
                i == 0 or kc_wide_below(self.c.highs + 2 * i - 2, self.c.lows + 2 * i)
            )
        return self.c.lows[i] <= self.c.highs[i] and (i == 0 or self.c.highs[i - 1] < self.c.lows[i])

    cdef void _narrow(self, int64_t i):
        """What of a wide interval are sign-extended 8-byte numbers, their sign bit flipped."""
        cdef:
            uint64_t[2] least
            uint64_t[2] most
            uint64_t low, high
        # On the line with the flipped sign these are -2**63 and 2**63 - 1.
        least[0] = TOP_BIT
        least[1] = TOP_BIT - 1
        most[0] = TOP_BIT - 1
        most[1] = TOP_BIT
        if kc_wide_below(self.c.highs + 2 * i, least) or kc_wide_below(most, self.c.lows + 2 * i):
            return
        low = least[0] if kc_wide_below(self.c.lows + 2 * i, least) else self.c.lows[2 * i]
        high = most[0] if kc_wide_below(most, self.c.highs + 2 * i) else self.c.highs[2 * i]
        self.c.narrow_lows[self.c.narrow_n] = low ^ TOP_BIT
        self.c.narrow_highs[self.c.narrow_n] = high ^ TOP_BIT
        self.c.narrow_n += 1
