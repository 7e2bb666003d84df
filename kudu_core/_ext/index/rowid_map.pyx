"""A hash map from rowid to the number of the row's last change.

Open addressing over u64 slots (rowid in the low half, change number + 1 in the high half), so
that a slot is read and written in one piece: one writer may add while readers without the GIL
look up.  Growth fills a new table and swaps the reference; whoever holds the old one keeps it.
"""
import numpy as np

from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    """
    static inline unsigned long long kc_slot_load(const unsigned long long *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static inline void kc_slot_store(unsigned long long *p, unsigned long long v) {
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
    }
    """
    unsigned long long kc_slot_load(const unsigned long long *p) noexcept nogil
    void kc_slot_store(unsigned long long *p, unsigned long long v) noexcept nogil

NONE = 0xFFFFFFFF
"""Stands for "this row has no change"."""

cdef uint32_t _NONE = 0xFFFFFFFF


cdef inline uint64_t _home(uint32_t rowid, int shift) noexcept nogil:
    # Fibonacci hashing: neighbouring rowids spread over the table.
    return (<uint64_t>rowid * <uint64_t>0x9E3779B97F4A7C15) >> shift


cdef Py_ssize_t _exchange(
    unsigned long long[::1] slots, int shift, const uint32_t[::1] rowids, uint32_t first, uint32_t[::1] before
) noexcept nogil:
    """Store ``first + i`` for rowid i, write what was there; return how many rowids were new."""
    cdef:
        uint64_t mask = <uint64_t>slots.shape[0] - 1
        uint64_t at, slot
        Py_ssize_t i, added = 0
        uint32_t rowid
    for i in range(rowids.shape[0]):
        rowid = rowids[i]
        at = _home(rowid, shift)
        while True:
            slot = slots[at]
            if slot == 0:
                before[i] = _NONE
                added += 1
                break
            if <uint32_t>slot == rowid:
                before[i] = <uint32_t>(slot >> 32) - 1
                break
            at = (at + 1) & mask
        kc_slot_store(&slots[at], (<uint64_t>(first + <uint32_t>i + 1) << 32) | rowid)
    return added


cdef void _find(
    const unsigned long long[::1] slots, int shift, const uint32_t[::1] rowids, uint32_t[::1] out
) noexcept nogil:
    cdef:
        uint64_t mask = <uint64_t>slots.shape[0] - 1
        uint64_t at, slot
        Py_ssize_t i
    for i in range(rowids.shape[0]):
        at = _home(rowids[i], shift)
        while True:
            slot = kc_slot_load(&slots[at])
            if slot == 0:
                out[i] = _NONE
                break
            if <uint32_t>slot == rowids[i]:
                out[i] = <uint32_t>(slot >> 32) - 1
                break
            at = (at + 1) & mask


cdef void _rehash(const unsigned long long[::1] old, unsigned long long[::1] new, int shift) noexcept nogil:
    cdef:
        uint64_t mask = <uint64_t>new.shape[0] - 1
        uint64_t at
        Py_ssize_t i
    for i in range(old.shape[0]):
        if old[i] != 0:
            at = _home(<uint32_t>old[i], shift)
            while new[at] != 0:
                at = (at + 1) & mask
            new[at] = old[i]


cdef class RowidSlots:
    """One generation of the table: replaced as one."""

    def __cinit__(self, array, int shift):
        cdef unsigned long long[::1] view = array
        self.array = array
        self.at = &view[0]
        self.mask = <uint64_t>view.shape[0] - 1
        self.shift = shift


cdef class RowidMap:
    """Rowid -> number of its last change.  One writer, any number of readers."""

    def __init__(self):
        self._table = RowidSlots(np.zeros(64, np.uint64), 64 - 6)
        self.count = 0

    @property
    def nbytes(self):
        return self._table.array.nbytes

    def reserve(self, extra):
        """Make room for ``extra`` new rowids, so that the next ``exchange`` cannot fail."""
        cdef:
            Py_ssize_t need = (self.count + <Py_ssize_t>extra) * 5 // 3 + 1
            unsigned long long[::1] new
            const unsigned long long[::1] old
            int shift
        slots = self._table.array
        if need <= len(slots):
            return
        bits = max(int(need - 1).bit_length(), 6)
        grown = np.zeros(1 << bits, np.uint64)
        new = grown
        old = slots
        shift = 64 - bits
        with nogil:
            _rehash(old, new, shift)
        self._table = RowidSlots(grown, shift)

    def exchange(self, const uint32_t[::1] rowids not None, first):
        """Note change ``first + i`` as the last one of ``rowids[i]``; return the ones before.

        Parameters
        ----------
        rowids : (n,) uint32
        first : int
            Number of the first of these changes; ``first + n`` must stay below 2**32 - 1.

        Returns
        -------
        (n,) uint32, ``NONE`` where the row had no change.
        """
        cdef:
            Py_ssize_t added
            uint32_t number = first
            unsigned long long[::1] slots
            int shift
            uint32_t[::1] before
        if <uint64_t>number + <uint64_t>rowids.shape[0] >= _NONE:
            raise ValueError("a store takes fewer than 2**32 - 1 changes")
        self.reserve(rowids.shape[0])
        out = np.empty(rowids.shape[0], np.uint32)
        before = out
        cdef RowidSlots table = self._table
        slots = table.array
        shift = table.shift
        with nogil:
            added = _exchange(slots, shift, rowids, number, before)
        self.count += added
        return out

    cdef int reserve_rowids(self, int64_t extra) except -1:
        if (self.count + extra) * 5 // 3 + 1 > <int64_t>self._table.mask + 1:
            self.reserve(extra)
        return 0

    cdef void last_of_rows(self, const uint32_t* rowids, int64_t n, uint32_t* out) noexcept nogil:
        """``find``, by the writer."""
        cdef int64_t i
        for i in range(n):
            out[i] = self.last_of(rowids[i])

    cdef void put_rows(self, const uint32_t* rowids, uint32_t first, int64_t n) noexcept nogil:
        """``exchange`` where there is room, but for what was there."""
        cdef:
            unsigned long long* slots = self._table.at
            uint64_t mask = self._table.mask
            uint64_t at, slot
            int64_t i
        for i in range(n):
            at = _home(rowids[i], self._table.shift)
            while True:
                slot = slots[at]
                if slot == 0:
                    self.count += 1
                    break
                if <uint32_t>slot == rowids[i]:
                    break
                at = (at + 1) & mask
            kc_slot_store(&slots[at], (<uint64_t>(first + <uint32_t>i + 1) << 32) | rowids[i])

    def find(self, const uint32_t[::1] rowids not None):
        """Return the last change of each rowid, (n,) uint32, ``NONE`` where there is none."""
        cdef:
            const unsigned long long[::1] slots
            int shift
            uint32_t[::1] view
        out = np.empty(rowids.shape[0], np.uint32)
        view = out
        cdef RowidSlots table = self._table
        slots = table.array
        shift = table.shift
        with nogil:
            _find(slots, shift, rowids, view)
        return out

    def get(self, rowid):
        """Return the last change of one rowid, or ``NONE``."""
        return self.last_of(rowid)

    cdef int put_last(self, uint32_t rowid, uint32_t number) except -1:
        cdef:
            RowidSlots table
            uint64_t at, slot
        if number >= _NONE - 1:
            raise ValueError("a store takes fewer than 2**32 - 1 changes")
        self.reserve_rowids(1)
        table = self._table
        at = _home(rowid, table.shift)
        while True:
            slot = table.at[at]
            if slot == 0:
                self.count += 1
                break
            if <uint32_t>slot == rowid:
                break
            at = (at + 1) & table.mask
        kc_slot_store(&table.at[at], (<uint64_t>(number + 1) << 32) | rowid)
        return 0

    cdef uint32_t last_of(self, uint32_t rowid) noexcept nogil:
        """By the writer, or with the GIL."""
        cdef:
            const unsigned long long* slots = self._table.at
            uint64_t mask = self._table.mask
            uint64_t at = _home(rowid, self._table.shift), slot
        while True:
            slot = kc_slot_load(&slots[at])
            if slot == 0:
                return _NONE
            if <uint32_t>slot == rowid:
                return <uint32_t>(slot >> 32) - 1
            at = (at + 1) & mask
