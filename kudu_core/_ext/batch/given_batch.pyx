"""A record batch as columns of C, with its keys encoded and hashed.

A column is taken as it lies where it has exactly the type of the table's; only booleans are unpacked, and
bitmaps that do not begin at bit 0.  Everything else gives None, which tells the caller to take the general
path, whose result or error then stands: other types, dictionaries, extension types, decimals, text that is
not UTF-8, offsets that descend, NULL where none may be, a key that is there twice, keys of more than 16 KiB.

The batch comes through Arrow's C data interface, which does not say how long buffers are: who exports it has
had Arrow look at their ends (``RecordBatch.validate``).
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset, strcmp

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy, kc_bits_count
from kudu_core._ext.batch.given_arrays cimport ArrowArray, ArrowSchema
from kudu_core._ext.row.row_writer cimport RowColumn, RowWriter
from kudu_core._ext.row.shape cimport BOOL, TEXT
from kudu_core._ext.rules.decide cimport CALL_DELETE, CALL_INSERT

from kudu_core._ext.keys.hashing import murmur3
from kudu_core._ext.keys.keys import encode

import numpy as np

cdef extern from "Python.h":
    object PyUnicode_FromString(const char* text)
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)

cdef object MISSING = Ellipsis  # as in ``row.shape``
cdef object NO_BYTES = np.empty(0, np.uint8)

cdef enum:
    MOST_KEY_BYTES = 16 << 10   # as ``common.types.keycodec``

cdef int64_t MOST_BYTES = <int64_t>1 << 47      # what a process can address


def batch_of(
    RowWriter writer not None, tuple formats not None, tuple kinds not None, schema, batch, int operation,
    int64_t room,
):
    """An ``GivenBatch`` of what ``RecordBatch.__arrow_c_array__`` gives, once it was validated; None: the
    general path.

    Parameters
    ----------
    formats
        Of the schema's columns, as of ``arrow_rows.format_of``.
    kinds
        (place in the schema, kind, width) of the key columns, in key order, as ``keys.encode`` takes them.
    operation
        A ``CALL_``; with ``CALL_INSERT`` the columns are complete, else as they are given.
    room
        A column of so many bytes or more takes the general path.
    """
    cdef:
        const ArrowSchema* fields = <const ArrowSchema*>PyCapsule_GetPointer(schema, "arrow_schema")
        const ArrowArray* given = <const ArrowArray*>PyCapsule_GetPointer(batch, "arrow_array")
        Py_ssize_t i, place, n = given.n_children
        PyObject* found
        GivenBatch out
    if len(formats) != writer.count or len(kinds) != len(writer.keys):
        raise ValueError(f"{len(formats)} formats and {len(kinds)} key columns of {writer.count} columns")
    if strcmp(fields.format, b"+s") or fields.n_children != n or given.offset or given.buffers[0] != NULL:
        return None
    if operation != CALL_INSERT and (n == len(writer.keys)) != (operation == CALL_DELETE):
        return None             # a delete with values is an error, an update without them too
    if given.length <= 0:
        return None
    out = GivenBatch(writer, given.length)
    out._held.append((schema, batch))
    for i in range(n):
        try:
            name = PyUnicode_FromString(fields.children[i].name)
        except UnicodeDecodeError:
            return None
        found = PyDict_GetItem(writer._positions, name)
        if found == NULL:
            return None
        place = <object>found
        if out.columns[place].given:
            return None         # the column is there twice
        if not out._take(place, formats[place], fields.children[i], given.children[i], room):
            return None
    for place in writer.keys:
        if not out.columns[place].given:
            return None
    if operation == CALL_INSERT and not out.complete(room):
        return None
    return out if out._encode(kinds) else None


@cython.final
@cython.auto_pickle(False)
cdef class GivenBatch:
    """Rows of one call.  What the caller gave must not change while this lives."""

    def __init__(self, RowWriter writer not None, Py_ssize_t rows):
        cdef:
            uint8_t[::1] room
            Py_ssize_t i
        self.writer, self.rows = writer, rows
        self._held = []
        self._room = np.zeros((writer.count + 1) * sizeof(BatchColumn), np.uint8)
        room = self._room
        self.columns = <BatchColumn*>&room[0]
        for i in range(writer.count):
            self.columns[i].width = writer._columns[i].width

    def __len__(self):
        return self.rows

    cdef uint8_t* _scratch(self, Py_ssize_t size) except NULL:
        """Memory of the batch's own."""
        made = PyBytes_FromStringAndSize(NULL, max(size, 1))
        self._held.append(made)
        return <uint8_t*>PyBytes_AS_STRING(made)

    cpdef bint complete(self, int64_t room) except -1:
        """Fill the columns that were not given with their defaults; False: one has none, or is large."""
        cdef Py_ssize_t i
        for i in range(self.writer.count):
            if not self.columns[i].there:
                if self.writer.defaults[i] is MISSING or not self._fill(i, self.writer.defaults[i], room):
                    return False
        return True

    cdef bint _fill(self, Py_ssize_t place, object cell, int64_t room) except -1:
        """A column of equal cells: bytes, None for NULL; False: they are too large."""
        cdef:
            BatchColumn* column = &self.columns[place]
            int64_t i, n = self.rows, size = column.width if cell is None else PyBytes_GET_SIZE(cell)
            uint8_t* at
            int32_t* ends
            uint8_t* source = NULL if cell is None else <uint8_t*>PyBytes_AS_STRING(cell)
        if column.width > 16 or (size and n > room // size):
            return False
        at = self._scratch(n * size)
        if source == NULL:
            memset(at, 0, <size_t>(n * size))
        else:
            for i in range(n):
                memcpy(at + i * size, source, <size_t>size)
        column.values = at
        if column.width == 0:
            ends = <int32_t*>self._scratch(4 * (n + 1))
            for i in range(n + 1):
                ends[i] = <int32_t>(i * size)
            column.offsets = ends
        if source == NULL:
            at = self._scratch((n + 7) >> 3)
            memset(at, 0, <size_t>((n + 7) >> 3))
            column.bits = at
        column.there = True
        return True

    cdef bint _take(
        self, Py_ssize_t place, bytes format, const ArrowSchema* field, const ArrowArray* given, int64_t room
    ) except -1:
        """Look at a column and keep where it lies; False: it is none that is taken here."""
        cdef:
            const RowColumn* kind = &self.writer._columns[place]
            BatchColumn* column = &self.columns[place]
            int64_t i, size, first = given.offset, nulls = 0, n = self.rows
            const uint8_t* bits
            uint8_t* made
        if strcmp(field.format, format) or field.dictionary != NULL or field.metadata != NULL:
            return False        # metadata may say that it is an extension type
        if kind.width > 8 or given.length != n or given.n_buffers != (3 if kind.width == 0 else 2):
            return False
        if first < 0 or first > MOST_BYTES // 8:
            return False
        bits = <const uint8_t*>given.buffers[0]
        if bits != NULL:
            nulls = n - kc_bits_count(bits, first, n)
        if (nulls and not kind.nullable) or (given.null_count >= 0 and given.null_count != nulls):
            return False
        column.given = column.there = True
        if nulls == n:
            return self._fill(place, None, room)
        if given.buffers[1] == NULL:
            return False
        if nulls:
            made = self._scratch((n + 7) >> 3)
            memset(made, 0, <size_t>((n + 7) >> 3))
            kc_bits_copy(made, 0, bits, first, n)
            column.bits = made
        if kind.width == 0:
            column.offsets = <const int32_t*>given.buffers[1] + first
            column.values = <const uint8_t*>given.buffers[2]
            if not _ascend(column.offsets, n):
                return False
            size = column.offsets[n] - column.offsets[0]
            if size >= room or (size and column.values == NULL):
                return False
            return kind.tag != TEXT or _is_text(column.values, column.offsets, n)
        if n * kind.width >= room:
            return False
        if kind.tag == BOOL:
            made = self._scratch(n)
            for i in range(n):
                made[i] = kc_bit(<const uint8_t*>given.buffers[1], first + i)
            column.values = made
        else:
            column.values = <const uint8_t*>given.buffers[1] + first * kind.width
        return True

    cdef bint _encode(self, tuple kinds) except -1:
        """The keys, their hashes; False: one is too large, or there twice."""
        cdef:
            list parts = []
            Py_ssize_t place, n = self.rows
            const BatchColumn* column
            const int64_t[::1] ends
            const uint64_t[::1] hashes
        for place, kind, width in kinds:
            column = &self.columns[place]
            if width != column.width:
                raise ValueError(f"a key column of width {width} is {column.width} wide")
            if column.width:
                parts.append((kind, width, <uint8_t[:n * column.width]><uint8_t*>column.values, None))
                continue
            data = NO_BYTES
            if column.offsets[n]:
                data = <uint8_t[:column.offsets[n]]><uint8_t*>column.values
            parts.append((kind, 0, data, <int32_t[:n + 1]><int32_t*>column.offsets))
        self.data, self.offsets = encode(parts, n)
        ends = self.offsets
        if ends[n] > MOST_KEY_BYTES and not _keys_fit(&ends[0], n):
            return False
        self.hashes = hashes = murmur3(self.data, self.offsets)
        return _differ(&hashes[0], n)


cdef bint _ascend(const int32_t* offsets, int64_t n) noexcept nogil:
    """Whether all offsets stay between the first and the last; of the last Arrow has seen that it is in the
    data."""
    cdef:
        int64_t i
        bint wrong = offsets[0] < 0
    for i in range(n):
        wrong |= offsets[i + 1] < offsets[i]
    return not wrong


cdef bint _is_text(const uint8_t* data, const int32_t* offsets, int64_t n) except -1:
    """Whether all cells are UTF-8: their bytes together are, and none begins in the middle of a character."""
    cdef:
        int64_t i
        uint8_t any = 0
    for i in range(offsets[0], offsets[n]):
        any |= data[i]
    if any < 0x80:
        return True
    for i in range(n):
        if offsets[i] < offsets[n] and data[offsets[i]] & 0xC0 == 0x80:
            return False
    try:
        PyUnicode_DecodeUTF8(<const char*>data + offsets[0], offsets[n] - offsets[0], NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef bint _keys_fit(const int64_t* ends, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if ends[i + 1] - ends[i] > MOST_KEY_BYTES:
            return False
    return True


cdef bint _differ(const uint64_t* hashes, int64_t n) except -1:
    """Whether no hash is there twice.  Keys that differ with one hash are taken for equal: who asks again
    finds out."""
    cdef:
        uint64_t room = 64, mask, at, hash
        int64_t i
        uint64_t* slots
        bint differ = True
    while room < <uint64_t>n * 2:
        room *= 2
    mask = room - 1
    slots = <uint64_t*>PyMem_Calloc(<size_t>room, 8)
    if slots == NULL:
        raise MemoryError
    for i in range(n):
        hash = hashes[i] | 1    # 0 is an empty slot
        at = (hashes[i] >> 20) & mask
        while slots[at] != 0 and slots[at] != hash:
            at = (at + 1) & mask
        if slots[at] == hash:
            differ = False
            break
        slots[at] = hash
    PyMem_Free(slots)
    return differ


# ---- for the modules beside this one ----


cdef int64_t cell_bytes(const BatchColumn* column, const int64_t* rows, int64_t n) noexcept nogil:
    """Bytes of the cells of ``rows``, NULL: all ``n``."""
    cdef int64_t i, total = 0
    if column.width:
        return n * column.width
    if rows == NULL:
        return column.offsets[n] - column.offsets[0]
    for i in range(n):
        total += column.offsets[rows[i] + 1] - column.offsets[rows[i]]
    return total


cdef const int64_t* rows_of(GivenBatch batch, object rows, int64_t* n) except? NULL:
    """Rows of a batch, (n,) int64, which are checked; NULL: all of them."""
    cdef:
        const int64_t[::1] view
        int64_t i
    n[0] = batch.rows
    if rows is None:
        return NULL
    view = rows
    n[0] = view.shape[0]
    if n[0] == 0:
        raise ValueError("no rows")
    for i in range(n[0]):
        if not 0 <= view[i] < batch.rows:
            raise IndexError(f"no row {view[i]} of {batch.rows}")
    return &view[0]
