# Writes of single rows, and of a few: few_writes.pyx.
from libc.stdint cimport uint64_t

from kudu_core._ext.few.row_writes cimport RowWrites
from kudu_core._ext.row.row_writer cimport RowWriter


cdef class FewWrites(RowWrites):
    cdef _decided_few(self, rows, RowWriter writer, int version, int call, bint ignores, uint64_t* ts)
    cdef uint64_t _log_few(
        self, rows, RowWriter writer, int version, int call, list inserts, list changes
    ) except? 0
    cdef _check_few(self, rows, allocated)
