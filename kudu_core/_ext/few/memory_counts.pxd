# What memory stores take, as it is counted between two measurements.
from libc.stdint cimport int64_t


cdef class MemoryCounts:
    cdef:
        public int64_t known
        """Bytes, at the last measurement."""
        public int64_t added
        """Bytes since then."""
        public int64_t step_bytes
        """So much has to be added before the flush lane is woken."""
        public int64_t slow_bytes
        """From here on writers are slowed down."""
        int64_t _unseen         # since the flush lane was last woken
        int64_t _unpaid         # of batches for which no writer was slowed yet
    cpdef bint count_bytes(self, int64_t nbytes, int64_t batch_bytes) noexcept
    cpdef int64_t estimate(self) noexcept
