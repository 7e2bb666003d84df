"""The payload of a record with the rows of a batch: docs/format-log.md, "Record payloads".

The same bytes as of ``tablet.store.records``, made in one piece.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.copy_cells cimport kc_take
from kudu_core._ext.batch.given_batch cimport GivenBatch, BatchColumn, cell_bytes, rows_of

cdef enum:
    HEAD_BYTES = 16
    SECTION_BYTES = 16
    COLUMN_HEAD_BYTES = 24
    UPDATE = 1
    DELETE = 2
    INSERT = 3


cdef bint _has(GivenBatch batch, int op, Py_ssize_t place) except -1:
    """Whether a section has the column: INSERT every one, UPDATE those that were given, DELETE the key's."""
    if op == INSERT:
        if not batch.columns[place].there:
            raise ValueError(f"column {place} of an insert is missing")
        return True
    if op == UPDATE:
        return batch.columns[place].given
    return place in batch.writer.keys


cdef int64_t _padded(int64_t size) noexcept nogil:
    return (size + 7) & ~<int64_t>7


def payload_of_batch(
    GivenBatch batch not None, tuple tablet_ids not None, const int32_t[::1] places, list sections not None
):
    """``places``: for each row of the batch a position in ``tablet_ids``; None where there is one tablet.
    ``sections``: of (operation, rows (n,) int64 or None for all)."""
    cdef:
        int64_t n, ids_bytes = _padded(4 * <int64_t>len(tablet_ids)), total = HEAD_BYTES + ids_bytes
        const int64_t* rows
        const int32_t* tablets = NULL
        Py_ssize_t i
        uint8_t* at
        uint32_t number
    if (places is None) != (len(tablet_ids) == 1):
        raise ValueError(f"{len(tablet_ids)} tablets, and rows are in one or in several")
    if places is not None:
        if places.shape[0] != batch.rows:
            raise ValueError(f"tablets of {places.shape[0]} rows of {batch.rows}")
        for i in range(batch.rows):
            if not 0 <= places[i] < len(tablet_ids):
                raise ValueError(f"no tablet {places[i]} of {len(tablet_ids)}")
        tablets = &places[0]
    for op, chosen in sections:
        if op not in (UPDATE, DELETE, INSERT):
            raise ValueError(f"operation {op}")
        rows = rows_of(batch, chosen, &n)
        total += SECTION_BYTES
        if tablets != NULL:
            total += _padded(4 * n)
        for i in range(batch.writer.count):
            if _has(batch, op, i):
                total += _measure(&batch.columns[i], rows, n)
    out = PyBytes_FromStringAndSize(NULL, total)
    at = <uint8_t*>PyBytes_AS_STRING(out)
    memset(at, 0, <size_t>total)
    number = <uint32_t>len(sections)
    memcpy(at, &number, 4)
    number = <uint32_t>len(tablet_ids)
    memcpy(at + 4, &number, 4)
    for i in range(len(tablet_ids)):
        number = tablet_ids[i]
        memcpy(at + HEAD_BYTES + 4 * i, &number, 4)
    at += HEAD_BYTES + ids_bytes
    for op, chosen in sections:
        rows = rows_of(batch, chosen, &n)
        at = _write_section(batch, at, op, rows, n, tablets)
    return out


cdef bint _nulls(const BatchColumn* column, const int64_t* rows, int64_t n) noexcept nogil:
    """Whether a cell of the rows is null."""
    cdef int64_t i
    if column.bits == NULL or rows == NULL:
        return column.bits != NULL
    for i in range(n):
        if not kc_bit(column.bits, rows[i]):
            return True
    return False


cdef int64_t _measure(const BatchColumn* column, const int64_t* rows, int64_t n) noexcept nogil:
    """Bytes of a column's head and buffers."""
    cdef int64_t total = COLUMN_HEAD_BYTES + _padded(cell_bytes(column, rows, n))
    if _nulls(column, rows, n):
        total += _padded((n + 7) >> 3)
    return total if column.width else total + _padded(4 * (n + 1))


cdef uint8_t* _write_section(
    GivenBatch batch, uint8_t* head, int op, const int64_t* rows, int64_t n, const int32_t* tablets
) except NULL:
    """A section; returns where the next one begins.  All is zeros before."""
    cdef:
        Py_ssize_t i
        uint16_t given = 0
        uint32_t number = <uint32_t>n
        uint8_t* body
    for i in range(batch.writer.count):
        given += _has(batch, op, i)
    head[0] = <uint8_t>op
    head[1] = tablets != NULL
    memcpy(head + 2, &given, 2)
    memcpy(head + 4, &number, 4)
    head += SECTION_BYTES
    body = head + COLUMN_HEAD_BYTES * given
    if tablets != NULL:
        for i in range(n):
            memcpy(body + 4 * i, &tablets[i if rows == NULL else rows[i]], 4)
        body += _padded(4 * n)
    for i in range(batch.writer.count):
        if _has(batch, op, i):
            body = _write_column(batch.writer._columns[i].id, &batch.columns[i], rows, n, head, body)
            head += COLUMN_HEAD_BYTES
    return body


cdef uint8_t* _write_column(
    uint32_t column_id, const BatchColumn* column, const int64_t* rows, int64_t n, uint8_t* head,
    uint8_t* body,
) noexcept nogil:
    """The head of a column and its buffers; returns where those of the next column begin."""
    cdef:
        int64_t i, row, cell, end = 0
        uint64_t size = <uint64_t>cell_bytes(column, rows, n), ends = 0
        int32_t place
        uint8_t* values
        bint nulls = _nulls(column, rows, n)
    memcpy(head, &column_id, 4)
    head[4] = <uint8_t>column.width
    head[5] = nulls
    memcpy(head + 8, &size, 8)
    if nulls:
        if rows == NULL:
            memcpy(body, column.bits, <size_t>((n + 7) >> 3))
        else:
            for i in range(n):
                body[i >> 3] |= <uint8_t>(kc_bit(column.bits, rows[i]) << (i & 7))
        body += _padded((n + 7) >> 3)
    if column.width:
        if rows == NULL:
            memcpy(body, column.values, size)
        else:
            kc_take(body, column.values, <uint64_t>-1, rows, n, column.width)
        return body + _padded(<int64_t>size)
    ends = 4 * (<uint64_t>n + 1)
    memcpy(head + 16, &ends, 8)
    values = body + _padded(<int64_t>ends)
    if rows == NULL:
        for i in range(n):
            place = column.offsets[i + 1] - column.offsets[0]
            memcpy(body + 4 * (i + 1), &place, 4)
        if size:
            memcpy(values, column.values + column.offsets[0], size)
    else:
        for i in range(n):
            row = rows[i]
            cell = column.offsets[row + 1] - column.offsets[row]
            if cell:
                memcpy(values + end, column.values + column.offsets[row], <size_t>cell)
            end += cell
            place = <int32_t>end
            memcpy(body + 4 * (i + 1), &place, 4)
    return values + _padded(<int64_t>size)
