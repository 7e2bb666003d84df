"""What the memory stores of a table take, counted from write to write.

Each method is whole: it runs with the interpreter's lock and gives it to nobody, so the counters need no lock
of their own.  What is done when they have grown is ``kudu_core/tablet/maintain/memory_use.py``'s.
"""
cimport cython
from libc.stdint cimport int64_t


@cython.auto_pickle(False)
cdef class MemoryCounts:
    """Four sums of bytes."""

    cpdef bint count_bytes(self, int64_t nbytes, int64_t batch_bytes) noexcept:
        """Count what the stores take in, of a batch; whether that is so much by now that flushes should
        look."""
        self._unpaid += batch_bytes
        self.added += nbytes
        self._unseen += nbytes
        # Not at every write from there on: each call costs a switch to the flush lane.
        if self._unseen < self.step_bytes:
            return False
        self._unseen = 0
        return True

    def take_unpaid(self):
        """Bytes of batches since this was last asked."""
        cdef int64_t unpaid = self._unpaid
        self._unpaid = 0
        return unpaid

    cpdef int64_t estimate(self) noexcept:
        """Bytes at the last measurement, and those that were written since."""
        return self.known + self.added
