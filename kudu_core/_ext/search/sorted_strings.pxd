# Ascending strings set up to be searched: sortedstrings.pyx.
from kudu_core._ext.search.cells cimport Sorted


cdef object sorted_strings(Sorted* out, data, offsets)
