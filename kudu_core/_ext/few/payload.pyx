"""The payload of a record with a few rows, from their cells as ``row.row_writer`` makes them.

The same bytes as of ``tablet.store.records``: docs/format-log.md, "Record payloads".
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef object MISSING = Ellipsis  # as in ``row.shape``

cdef enum:
    PAYLOAD_BYTES = 16          # heads: of the payload, a section, a column
    SECTION_BYTES = 16
    COLUMN_HEAD_BYTES = 24
    MOST_BYTES = 1 << 30        # so that the offsets of a column stay far from their end


def payload_of_rows(
    tuple ids not None, tuple widths not None, tuple tablet_ids not None, list sections not None
):
    """The payload of a record with sections of some rows: docs/format-log.md, "Record payloads".

    ``ids`` and ``widths``: of the schema's columns.  ``sections``: (operation, cells of each row, for each
    row a position in ``tablet_ids``).  All rows of a section give the columns that its first row gives, and
    leave out those that are ``MISSING`` there.
    """
    cdef:
        Py_ssize_t i, total = PAYLOAD_BYTES + ((4 * len(tablet_ids) + 7) & ~7)
        bint one = len(tablet_ids) == 1
        uint8_t* at
        uint32_t number
        list rows, places
    if len(ids) != len(widths) or len(ids) > 0xFFFF:
        raise ValueError(f"{len(ids)} ids and {len(widths)} widths of columns")
    for _, rows, places in sections:
        total += _measure_section(widths, rows, places, one, len(tablet_ids))
    if total > MOST_BYTES:
        raise OverflowError(f"a payload of {total} bytes; a few rows have at most {MOST_BYTES}")
    out = PyBytes_FromStringAndSize(NULL, total)
    at = <uint8_t*>PyBytes_AS_STRING(out)
    memset(at, 0, <size_t>total)
    number = <uint32_t>len(sections)
    memcpy(at, &number, 4)
    number = <uint32_t>len(tablet_ids)
    memcpy(at + 4, &number, 4)
    for i in range(len(tablet_ids)):
        number = tablet_ids[i]
        memcpy(at + PAYLOAD_BYTES + 4 * i, &number, 4)
    at += PAYLOAD_BYTES + ((4 * len(tablet_ids) + 7) & ~7)
    for op, rows, places in sections:
        at = _write_section(ids, widths, at, op, rows, places, one)
    return out


cdef Py_ssize_t _measure_section(
    tuple widths, list rows, list places, bint one, Py_ssize_t tablets
) except -1:
    """Check the rows of a section; return the bytes that it takes."""
    cdef:
        Py_ssize_t i, size, count = len(rows), total = SECTION_BYTES
        int width
        bint nulls
        list first, cells
    if count == 0 or len(places) != count:
        raise ValueError(f"a section of {count} rows and {len(places)} positions")
    for place in places:
        if not 0 <= place < tablets:
            raise ValueError(f"no tablet {place} of {tablets}")
    for cells in rows:
        if len(cells) != len(widths):
            raise ValueError(f"{len(cells)} cells for {len(widths)} columns")
    if not one:
        total += (4 * count + 7) & ~7
    first = rows[0]
    for i in range(len(widths)):
        if first[i] is MISSING:
            continue
        width = widths[i]
        nulls, size = False, 0
        for cells in rows:
            cell = cells[i]
            if cell is None:
                nulls = True
                size += width
                continue
            if width and len(<bytes?>cell) != width:
                raise ValueError(f"a cell of {len(cell)} bytes in a column of width {width}")
            size += len(<bytes?>cell)
        total += COLUMN_HEAD_BYTES + ((size + 7) & ~7)
        if nulls:
            total += ((count + 7) // 8 + 7) & ~7
        if width == 0:
            total += (4 * (count + 1) + 7) & ~7
    return total


cdef uint8_t* _write_section(
    tuple ids, tuple widths, uint8_t* head, int op, list rows, list places, bint one
) except NULL:
    """The head of a section and its columns; return where the next one begins.  All is zeros before."""
    cdef:
        Py_ssize_t i, given = 0
        uint32_t number = <uint32_t>len(rows)
        list first = rows[0]
        uint8_t* body
    for i in range(len(widths)):
        given += first[i] is not MISSING
    head[0] = <uint8_t>op
    head[1] = not one
    head[2] = <uint8_t>given
    head[3] = <uint8_t>(given >> 8)
    memcpy(head + 4, &number, 4)
    head += SECTION_BYTES
    body = head + COLUMN_HEAD_BYTES * given
    if not one:
        for i in range(len(rows)):
            number = places[i]
            memcpy(body + 4 * i, &number, 4)
        body += (4 * len(rows) + 7) & ~7
    for i in range(len(widths)):
        if first[i] is not MISSING:
            body = _write_column(ids[i], widths[i], rows, i, head, body)
            head += COLUMN_HEAD_BYTES
    return body


cdef uint8_t* _write_column(
    uint32_t column_id, int width, list rows, Py_ssize_t place, uint8_t* head, uint8_t* body
) except NULL:
    """The head of a column and its buffers, of some rows; return where those of the next column begin."""
    cdef:
        Py_ssize_t i, count = len(rows)
        uint64_t size, ends = 0, bits = 0
        uint32_t end = 0
        uint8_t* bitmap = body
        uint8_t* offsets
        uint8_t* values
        list cells
    for cells in rows:
        if cells[place] is None:
            bits = 1
            break
    if bits:
        body += ((count + 7) // 8 + 7) & ~7
    offsets = body
    if width == 0:
        ends = 4 * (count + 1)
        body += (ends + 7) & ~<uint64_t>7
    values = body
    for i in range(count):
        cell = (<list>rows[i])[place]
        if cell is not None:
            size = PyBytes_GET_SIZE(cell)
            memcpy(values + end, PyBytes_AS_STRING(cell), <size_t>size)
            end += <uint32_t>size
            if bits:
                bitmap[i >> 3] |= <uint8_t>(1 << (i & 7))
        else:
            end += width
        if width == 0:
            memcpy(offsets + 4 * (i + 1), &end, 4)
    size = end
    memcpy(head, &column_id, 4)
    head[4] = <uint8_t>width
    head[5] = <uint8_t>bits
    memcpy(head + 8, &size, 8)
    memcpy(head + 16, &ends, 8)
    return body + ((size + 7) & ~<uint64_t>7)
