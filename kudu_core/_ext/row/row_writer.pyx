"""One row that is written: a dict as cells of a schema's columns, and the payload of its record.

The fast way beside ``common.types.values`` and ``tablet.store.records``, for rows of plain Python values
(``plain.pxd``).  Everything else gives None, which tells the caller to take the general path, whose result or
error then stands.  Knows no file and no log.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport import_datetime
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.row.key_encoder cimport KeyEncoder
from kudu_core._ext.row.plain cimport bytes_of, number_of
from kudu_core._ext.rules.decide cimport CALL_DELETE, CALL_INSERT

import numpy as np

import_datetime()               # for ``plain.pxd``

cdef object MISSING = Ellipsis  # as in ``row.shape``

cdef enum:
    HEAD_BYTES = 24             # of a payload with one tablet: docs/format-log.md, "Record payloads"
    SECTION_BYTES = 16
    COLUMN_HEAD_BYTES = 24


@cython.final
@cython.auto_pickle(False)
cdef class RowWriter:
    """Rows given as dicts, as cells in the order of a schema's columns, and as a record's payload.

    ``columns``: (name, id, tag, width, nullable) in the schema's order; ``keys``: positions of the key
    columns, in key order; ``defaults``: the cell of an insert that does not give the column, ``MISSING``
    where every insert must.
    """

    def __init__(self, columns, keys, defaults):
        cdef:
            uint8_t[::1] room
            Py_ssize_t i
        self.count = len(columns)
        if self.count > 0xFFFF:
            raise ValueError(f"{self.count} columns; a record's section counts them in 16 bits")
        self._names = tuple(column[0] for column in columns)
        self.keys = tuple(keys)
        self.defaults = tuple(defaults)
        if len(self.defaults) != self.count:
            raise ValueError(f"{len(self.defaults)} defaults of {self.count} columns")
        self._positions = {name: i for i, name in enumerate(self._names)}
        self._room = np.zeros((self.count + 1) * sizeof(RowColumn), np.uint8)
        room = self._room
        self._columns = <RowColumn*>&room[0]
        for i, (_, id_, tag, width, nullable) in enumerate(columns):
            self._columns[i].id = id_
            self._columns[i].tag = tag
            self._columns[i].width = width
            self._columns[i].nullable = nullable
        self.ids = tuple(column[1] for column in columns)
        self.widths = tuple(column[3] for column in columns)
        self.value_ids = tuple(None if i in self.keys else column[1] for i, column in enumerate(columns))
        self._encoder = KeyEncoder(
            [columns[i][0] for i in self.keys],
            [columns[i][2] for i in self.keys],
            [columns[i][3] for i in self.keys],
        )

    cpdef tuple prepare(self, dict row, int operation, Py_ssize_t room):
        """One row for one operation, a ``CALL_``: (encoded key, cells), None for the general path.

        Cells of ``CALL_INSERT`` are complete, others as the row gives them.  So rows go to the general path
        that the operation refuses whatever is stored.
        """
        cdef:
            list cells
            bint only_key = len(row) == len(self.keys)
            bytes key
        if operation != CALL_INSERT and only_key != (operation == CALL_DELETE):
            return None         # a delete with values is an error, an update without them too
        cells = self.cells(row, room)
        if cells is None or (operation == CALL_INSERT and not self.complete(cells)):
            return None
        key = self._encoder.of_row(row)
        return None if key is None else (key, cells)

    def prepare_rows(self, list rows not None, int operation, Py_ssize_t room):
        """``prepare`` for rows of one call: (keys, cells of each row), None for the general path.

        So it is as well where they do not give all the same columns, and where a key is there twice.
        """
        cdef:
            Py_ssize_t i, given = -1, total = 0
            list keys = [], out = [], cells, first = None
            set seen = set()
            bytes key
        for row in rows:
            if type(row) is not dict or (given >= 0 and len(<dict>row) != given):
                return None
            given = len(<dict>row)
            if operation != CALL_INSERT and (given == len(self.keys)) != (operation == CALL_DELETE):
                return None
            cells = self.cells(row, room)
            if cells is None:
                return None
            if first is None:
                first = list(cells)
            for i in range(self.count):
                if (cells[i] is MISSING) != (first[i] is MISSING):
                    return None
                if type(cells[i]) is bytes:
                    total += len(<bytes>cells[i])
            if total >= room:
                return None         # they go to files: no record is made of them first
            if operation == CALL_INSERT and not self.complete(cells):
                return None
            key = self._encoder.of_row(row)
            if key is None or key in seen:
                return None
            seen.add(key)
            keys.append(key)
            out.append(cells)
        return keys, out

    cpdef complete(self, list cells):
        """Put defaults where a row gives nothing; False where a column has none."""
        cdef Py_ssize_t i
        if len(cells) != self.count:
            raise ValueError(f"{len(cells)} cells for {self.count} columns")
        for i in range(self.count):
            if cells[i] is MISSING:
                default = self.defaults[i]
                if default is MISSING:
                    return False
                cells[i] = default
        return True

    def cells(self, dict row not None, Py_ssize_t room):
        """The row's cells, ``MISSING`` where it does not give one; None for the general path.

        So it is for a row that takes ``room`` bytes or more in columns of its own.
        """
        cdef:
            list cells = [MISSING] * self.count
            Py_ssize_t i, size = 0, total = 0
            RowColumn* column
            uint64_t word = 0
            const uint8_t* data = NULL
            PyObject* found
        for name, value in row.items():
            found = PyDict_GetItem(self._positions, name)
            if found == NULL:
                return None
            i = <object>found
            column = &self._columns[i]
            if value is None:
                if not column.nullable:
                    return None
                cells[i] = None
            elif column.width:
                if column.width > 8 or not number_of(column.tag, column.width, value, &word):
                    return None
                cells[i] = PyBytes_FromStringAndSize(<char*>&word, column.width)
            else:
                if not bytes_of(column.tag, value, &data, &size):
                    return None
                total += size
                cells[i] = PyBytes_FromStringAndSize(<char*>data, size)
        return cells if total < ROW_ROOM and total + COLUMN_BYTES * self.count < room else None

    def payload(self, int op, uint32_t tablet_id, list cells not None):
        """The payload of a record with this one row: docs/format-log.md, "Record payloads".

        ``cells``: as of ``cells``; columns that are ``MISSING`` are left out.
        """
        cdef Py_ssize_t given = 0
        out = PyBytes_FromStringAndSize(NULL, self.measure(cells, &given))
        self.write_payload(<uint8_t*>PyBytes_AS_STRING(out), op, tablet_id, cells, given)
        return out

    cdef void write_payload(
        self, uint8_t* head, int op, uint32_t tablet_id, list cells, Py_ssize_t given
    ) noexcept:
        """``payload`` into room of the size that ``measure`` has said, with what it has found given."""
        cdef:
            Py_ssize_t i
            uint8_t* body
        memset(head, 0, HEAD_BYTES + SECTION_BYTES + COLUMN_HEAD_BYTES * <size_t>given)
        _write_heads(head, op, tablet_id, given)
        head += HEAD_BYTES + SECTION_BYTES
        body = head + COLUMN_HEAD_BYTES * given
        for i in range(self.count):
            cell = cells[i]
            if cell is not MISSING:
                body = _write_cell(&self._columns[i], cell, head, body)
                head += COLUMN_HEAD_BYTES

    cdef Py_ssize_t measure(self, list cells, Py_ssize_t* given) except -1:
        """Check the cells; return the bytes of the payload, and in ``given`` how many columns it has."""
        cdef:
            Py_ssize_t i, size, total = HEAD_BYTES + SECTION_BYTES
            int width
        if len(cells) != self.count:
            raise ValueError(f"{len(cells)} cells for {self.count} columns")
        for i in range(self.count):
            cell = cells[i]
            if cell is MISSING:
                continue
            given[0] += 1
            width = self._columns[i].width
            total += COLUMN_HEAD_BYTES
            if cell is None:
                total += 8 + ((width + 7) & ~7 if width else 8)
                continue
            size = len(<bytes?>cell)
            if width and size != width:
                raise ValueError(f"a cell of {size} bytes in a column of width {width}")
            total += ((size + 7) & ~7) + (0 if width else 8)
        return total


cdef void _write_heads(uint8_t* head, int op, uint32_t tablet_id, Py_ssize_t given) noexcept:
    """The heads of the payload and of its one section, of one row; all is zeros before."""
    cdef uint32_t one = 1
    memcpy(head, &one, 4)               # sections
    memcpy(head + 4, &one, 4)           # tablets
    memcpy(head + 16, &tablet_id, 4)
    head += HEAD_BYTES
    head[0] = <uint8_t>op
    head[2] = <uint8_t>given
    head[3] = <uint8_t>(given >> 8)
    memcpy(head + 4, &one, 4)           # rows


cdef uint8_t* _write_cell(const RowColumn* column, object cell, uint8_t* head, uint8_t* body) noexcept:
    """The head of a column and its buffers, of one row; return where those of the next column begin.

    The head is zeros before; what lies where the buffers come is not.
    """
    cdef:
        uint64_t size = column.width if cell is None else PyBytes_GET_SIZE(cell)
        uint64_t whole = (size + 7) & ~<uint64_t>7, ends = 8
        uint32_t end = <uint32_t>size
    memcpy(head, &column.id, 4)
    head[4] = <uint8_t>column.width
    head[5] = cell is None
    memcpy(head + 8, &size, 8)
    if cell is None:
        memset(body, 0, 8)              # the bitmap: one bit, 0
        body += 8
    if column.width == 0:
        memcpy(head + 16, &ends, 8)
        memset(body, 0, 4)
        memcpy(body + 4, &end, 4)
        body += 8
    if whole:
        memset(body + whole - 8, 0, 8)
        if cell is not None:
            memcpy(body, PyBytes_AS_STRING(cell), <size_t>size)
        elif whole > 8:
            memset(body, 0, <size_t>whole)
    return body + whole
