# The order of encoded keys, for kernels that search side by side: sort.pyx.
from kudu_core._ext.keys.compare cimport Keys


cdef object sorted_rows(const Keys* keys, Py_ssize_t n)
