"""A record batch of a few rows as cells, for the row path.

Of each column a cell is taken as it lies, where the column has exactly the type of the table's.  Everything
else gives None, which tells the caller to take the general path, whose result or error then stands: other
types, dictionaries, extension types, text that is not UTF-8, offsets that descend, NULL where none may be.

The batch comes through Arrow's C data interface, which does not say how long buffers are: who exports it has
had Arrow look at their ends (``RecordBatch.validate``).  What the general path reads in a cell is read here
too: ``common/types/foreign.py``.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, strcmp

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.row.row_writer cimport COLUMN_BYTES, ROW_ROOM, RowColumn, RowWriter
from kudu_core._ext.row.shape cimport BOOL, TEXT
from kudu_core._ext.rules.decide cimport CALL_DELETE, CALL_INSERT

cdef extern from *:
    """
    #include <stdint.h>
    /* Arrow's C data interface. */
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    """
    struct ArrowSchema:
        const char* format
        const char* name
        const char* metadata
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary

cdef extern from "Python.h":
    object PyUnicode_FromString(const char* text)
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)

cdef object MISSING = Ellipsis  # as in ``row.shape``
cdef int64_t MOST_BYTES = <int64_t>1 << 47      # what a process can address


def format_of(schema):
    """How a type is written in the C data interface: of what ``DataType.__arrow_c_schema__`` gives."""
    return <bytes>(<ArrowSchema*>PyCapsule_GetPointer(schema, "arrow_schema")).format


def cells_of_batch(
    RowWriter writer not None, tuple formats not None, schema, batch, int operation, Py_ssize_t room
):
    """As ``RowWriter.prepare_rows``, of what ``RecordBatch.__arrow_c_array__`` gives, once it was validated.

    ``formats``: of the schema's columns, as of ``format_of``.
    """
    cdef:
        ArrowSchema* fields = <ArrowSchema*>PyCapsule_GetPointer(schema, "arrow_schema")
        ArrowArray* columns = <ArrowArray*>PyCapsule_GetPointer(batch, "arrow_array")
        Py_ssize_t i, place, n = columns.n_children, count = columns.length
        PyObject* found
        list out, keys, cells
        bytes key
        int64_t left = room
    if len(formats) != writer.count:
        raise ValueError(f"{len(formats)} formats of {writer.count} columns")
    if strcmp(fields.format, b"+s") or fields.n_children != n or columns.offset or columns.buffers[0] != NULL:
        return None
    if operation != CALL_INSERT and (n == len(writer.keys)) != (operation == CALL_DELETE):
        return None             # a delete with values is an error, an update without them too
    out = [[MISSING] * writer.count for _ in range(count)]
    for i in range(n):
        try:
            name = PyUnicode_FromString(fields.children[i].name)
        except UnicodeDecodeError:
            return None
        found = PyDict_GetItem(writer._positions, name)
        if found == NULL:
            return None
        place = <object>found
        if count and out[0][place] is not MISSING:
            return None         # the column is there twice
        if not _take_column(
            &writer._columns[place], formats[place], fields.children[i], columns.children[i], out, place,
            &left,
        ):
            return None
    keys = []
    for cells in out:
        if not _fits(writer, cells, room) or (operation == CALL_INSERT and not writer.complete(cells)):
            return None
        key = writer._encoder.of_cells(cells, writer.keys)
        if key is None:
            return None
        keys.append(key)
    return (keys, out) if len(set(keys)) == count else None


cdef bint _fits(RowWriter writer, list cells, Py_ssize_t room) except -1:
    """Whether the row is not too large for the row path."""
    cdef Py_ssize_t i, total = 0
    for i in range(writer.count):
        if writer._columns[i].width == 0 and type(cells[i]) is bytes:
            total += len(<bytes>cells[i])
    return total < ROW_ROOM and total + COLUMN_BYTES * writer.count < room


cdef bint _take_column(
    const RowColumn* column, bytes format, const ArrowSchema* field, const ArrowArray* given, list rows,
    Py_ssize_t place, int64_t* left,
) except -1:
    """Put a column's cells into the rows; False: it is none that the row path takes.

    ``left``: so many bytes of strings, all together, may still be copied for it.
    """
    cdef:
        int64_t first = given.offset, row, count = len(rows), nulls = 0
        const int32_t* offsets
        const uint8_t* bits
        bint null
    if strcmp(field.format, format) or field.dictionary != NULL or field.metadata != NULL:
        return False            # metadata may say that it is an extension type
    if column.width > 8 or given.length != count or given.n_buffers != (3 if column.width == 0 else 2):
        return False
    if first < 0 or first > MOST_BYTES / 8 or given.buffers[1] == NULL:
        return False
    if column.width == 0:
        offsets = <const int32_t*>given.buffers[1] + first
        if not _ascend(offsets, count):
            return False
        left[0] -= offsets[count] - offsets[0]
        if left[0] <= 0:
            return False        # they go to files, and large ones had better not be copied before
    bits = <const uint8_t*>given.buffers[0]
    for row in range(count):
        null = bits != NULL and not kc_bit(bits, first + row)
        if null and not column.nullable:
            return False
        nulls += null
        cell = _cell(column, given, first + row, null)
        if cell is MISSING:
            return False
        rows[row][place] = cell
    return given.null_count < 0 or given.null_count == nulls


cdef bint _ascend(const int32_t* offsets, int64_t count) noexcept:
    """Whether all offsets of ``count`` cells stay between the first and the last; of the last Arrow has seen
    that it is in the data.  Before any cell is read: a wrong one may be made good by the next."""
    cdef int64_t row
    if offsets[0] < 0:
        return False
    for row in range(count):
        if offsets[row + 1] < offsets[row]:
            return False
    return True


cdef object _cell(const RowColumn* column, const ArrowArray* given, int64_t row, bint null):
    """One cell, None for NULL; ``MISSING``: the general path must say what it is."""
    cdef:
        uint8_t word[8]
        const uint8_t* values = <const uint8_t*>given.buffers[1]
        int32_t start, end
    if column.width == 0:
        start = (<const int32_t*>values)[row]
        end = (<const int32_t*>values)[row + 1]
        if null:
            return MISSING if end > start else None
        values = <const uint8_t*>given.buffers[2]
        if end > start and values == NULL:
            return MISSING
        if column.tag == TEXT and not _is_text(<const char*>values + start, end - start):
            return MISSING
        return PyBytes_FromStringAndSize(<const char*>values + start, end - start) if end > start else b""
    if column.tag == BOOL:
        word[0] = kc_bit(values, row)
    else:
        memcpy(word, values + row * column.width, <size_t>column.width)
    if not null:
        return PyBytes_FromStringAndSize(<char*>word, column.width)
    for row in range(column.width):
        if word[row]:
            return MISSING      # the general path keeps what lies under a NULL
    return None


cdef bint _is_text(const char* text, Py_ssize_t size) except -1:
    """Whether it is UTF-8."""
    cdef:
        Py_ssize_t i
        uint8_t any = 0
    for i in range(size):
        any |= <uint8_t>text[i]
    if any < 0x80:
        return True
    try:
        PyUnicode_DecodeUTF8(text, size, NULL)
    except UnicodeDecodeError:
        return False
    return True
