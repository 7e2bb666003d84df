# Writes into an open table, as those of one row and of a few share them.
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from kudu_core._ext.few.log_state cimport LogState
from kudu_core._ext.few.memory_counts cimport MemoryCounts
from kudu_core._ext.row.row_writer cimport RowWriter
from kudu_core._ext.row.view cimport MemoryPoints

cdef extern from *:
    """
    static PyObject* new_object(PyObject* type, PyObject* nothing, PyObject* names) {
        return ((PyTypeObject*)type)->tp_new((PyTypeObject*)type, nothing, names);
    }
    """
    object new_object(object type, object nothing, PyObject* names)

cdef enum:
    RECORD_KIND_WRITE = 1       # docs/format-log.md, "Log"
    UPDATE = 1                  # and "Record payloads"
    DELETE = 2
    INSERT = 3


cdef class RowWrites:
    cdef:
        object engine
        LogState log
        MemoryCounts memory
        Py_ssize_t ingest_bytes
        int64_t limit_bytes
        int64_t ingest_rows
        bint checks
        object result
        object no_memory
        # (schema, tablets, writer of rows, version, the tablet where there is one, router): one object, so
        # that no thread sees half of what another has put there.
        tuple known
    cdef tuple learn(self, schema, tablets)
    cdef wait(self, uint64_t ts)
    cdef note(self, Py_ssize_t size)
    cdef _decided(
        self, tablet, RowWriter writer, int version, int call, bint ignores, bytes key, list cells,
        uint64_t* ts
    )
    cdef _counted(self, uint64_t ts, int op)
    cdef uint64_t _insert(
        self, tablet, MemoryPoints active, RowWriter writer, int version, bytes key, uint64_t key_hash,
        list cells
    ) except? 0
    cdef uint64_t _change(
        self, home, tablet, RowWriter writer, int version, int op, row, list cells
    ) except? 0
    cdef _check(self, store, allocated)
