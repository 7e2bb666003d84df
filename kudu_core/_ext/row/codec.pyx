"""Python values of one row to bytes and back, for calls that handle one row at a time.

The fast path beside ``common.types.keycodec``, ``common.types.values`` and ``tablet.store.records``: exact
built-in types (int, float, bool, str, bytes, date, datetime) that fit the column as they are.  Everything
else gives None, which tells the caller to take the general path, whose result or error then stands.

A *tag* says how a column's cell becomes a value (``TAGS``); a cell is the bytes of one value as they lie
in a column, little-endian, None where it is NULL.  Knows no schema, no file and no log.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDateTime_DATE_GET_HOUR,
    PyDateTime_DATE_GET_MICROSECOND,
    PyDateTime_DATE_GET_MINUTE,
    PyDateTime_DATE_GET_SECOND,
    PyDateTime_GET_DAY,
    PyDateTime_GET_MONTH,
    PyDateTime_GET_YEAR,
    date_new,
    datetime_new,
    import_datetime,
)
from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset
from kudu_core._ext.rules.decide cimport CALL_DELETE, CALL_INSERT

import datetime as _datetime

import numpy as np

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? 0xFFFFFFFFFFFFFFFF

import_datetime()

TAGS = {
    "other": OTHER,
    "signed": SIGNED,
    "unsigned": UNSIGNED,
    "float": FLOAT,
    "bool": BOOL,
    "text": TEXT,
    "bytes": BYTES,
    "date": DATE,
    "time": TIME,
    "time_utc": TIME_UTC,
}

MISSING = Ellipsis
"""The cell of a column that a row does not give."""

cdef:
    type _date_type = _datetime.date
    type _datetime_type = _datetime.datetime
    object _utc = _datetime.timezone.utc
    enum:
        MOST_COLUMNS = 32           # of a key
        KEY_ROOM = 1024             # bytes of a key; longer ones take the general path
        ROW_ROOM = 1 << 20          # bytes of a row, likewise
        COLUMN_BYTES = 64           # no column of one row takes more beyond its string
        FIRST_DAY = -719162         # 0001-01-01
        LAST_DAY = 2932896          # 9999-12-31
    int64_t DAY_US = 86400 * <int64_t>1000000


# ---------------------------------------------------------------------------------- cells to values

cdef inline void _civil(int64_t days, int* year, int* month, int* day) noexcept nogil:
    """After Howard Hinnant, chrono-compatible low-level date algorithms (public domain)."""
    cdef int64_t z = days + 719468, era, doe, yoe, doy, mp
    era = (z if z >= 0 else z - 146096) / 146097
    doe = z - era * 146097
    yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365
    doy = doe - (365 * yoe + yoe / 4 - yoe / 100)
    mp = (5 * doy + 2) / 153
    day[0] = <int>(doy - (153 * mp + 2) / 5 + 1)
    month[0] = <int>(mp + 3 if mp < 10 else mp - 9)
    year[0] = <int>(yoe + era * 400 + (1 if month[0] <= 2 else 0))


cdef inline int64_t _days(int64_t year, int64_t month, int64_t day) noexcept nogil:
    cdef int64_t era, yoe, doy
    year -= month <= 2
    era = year / 400            # years are 1 .. 9999, so never negative
    yoe = year - era * 400
    doy = (153 * (month - 3 if month > 2 else month + 9) + 2) / 5 + day - 1
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468


cdef inline int64_t _signed(const uint8_t* cell, Py_ssize_t size) noexcept nogil:
    cdef int64_t word = 0
    memcpy(&word, cell, <size_t>size)
    return (word << (64 - 8 * size)) >> (64 - 8 * size)


cdef object value_of(int tag, const uint8_t* cell, Py_ssize_t size, object decode):
    """The exact Python value of a cell that is not NULL; ``size`` fits the tag."""
    cdef:
        uint64_t word = 0
        int64_t number, days
        double real
        float single
        int year = 0, month = 0, day = 0
    if tag == SIGNED:
        return _signed(cell, size)
    if tag == TEXT:
        return PyUnicode_DecodeUTF8(<const char*>cell, size, "surrogateescape")
    if tag == FLOAT:
        if size == 8:
            memcpy(&real, cell, 8)
        else:
            memcpy(&single, cell, 4)
            real = single
        return real
    if tag == UNSIGNED:
        memcpy(&word, cell, <size_t>size)
        return word
    if tag == BOOL:
        return cell[0] != 0
    if tag == TIME or tag == TIME_UTC:
        number = _signed(cell, 8)
        days = number / DAY_US
        number -= days * DAY_US
        if number < 0:
            number += DAY_US
            days -= 1
        if FIRST_DAY <= days <= LAST_DAY:
            _civil(days, &year, &month, &day)
            return datetime_new(
                year, month, day, <int>(number / 3600000000), <int>(number / 60000000 % 60),
                <int>(number / 1000000 % 60), <int>(number % 1000000), _utc if tag == TIME_UTC else None,
            )
    elif tag == DATE:
        days = _signed(cell, 4)
        if FIRST_DAY <= days <= LAST_DAY:
            _civil(days, &year, &month, &day)
            return date_new(year, month, day)
    elif tag == BYTES:
        return PyBytes_FromStringAndSize(<const char*>cell, size)
    return decode(PyBytes_FromStringAndSize(<const char*>cell, size))


@cython.final
@cython.auto_pickle(False)
cdef class RowShape:
    """The columns of rows that a read returns: names, ids, and how their cells become values.

    ``decoders``: per column a function of a cell's bytes, for what the tag does not cover; its errors
    are the general path's.  ``defaults``: the value in rows that were stored before the column.
    """

    def __init__(self, names, ids, tags, decoders, defaults):
        cdef int32_t[::1] room
        cdef Py_ssize_t i
        self.names = tuple(names)
        self.ids = tuple(ids)
        self.places = {column_id: i for i, column_id in enumerate(self.ids)}
        self.decoders = tuple(decoders)
        self.defaults = tuple(defaults)
        self.count = len(self.names)
        if len(self.places) != len(self.ids):
            raise ValueError("a column is there twice")
        if not (len(self.ids) == len(tags) == len(self.decoders) == len(self.defaults) == self.count):
            raise ValueError("a shape has one entry per column of each kind")
        self._room = np.zeros(self.count + 1, np.int32)
        room = self._room
        self.tags = <int*>&room[0]
        for i in range(self.count):
            self.tags[i] = tags[i]

    def value(self, Py_ssize_t i, cell):
        """The Python value of a cell of column i: bytes, or None."""
        if i < 0 or i >= self.count:
            raise IndexError(f"no column {i} of {self.count}")
        if cell is None:
            return None
        return _checked_value(self, i, cell)

    def row(self, cells not None):
        """A dict of the columns' values; ``cells`` are bytes or None, in the shape's order.

        ``MISSING`` stands for a column that is not stored: it takes its default.
        """
        cdef:
            Py_ssize_t i
            dict out = {}
        if len(cells) != self.count:
            raise ValueError(f"{len(cells)} cells for {self.count} columns")
        for i in range(self.count):
            cell = cells[i]
            if cell is None:
                value = None
            elif cell is MISSING:
                value = self.defaults[i]
            else:
                value = _checked_value(self, i, cell)
            PyDict_SetItem(out, self.names[i], value)
        return out


cdef object _checked_value(RowShape shape, Py_ssize_t i, bytes cell):
    cdef:
        int tag = shape.tags[i]
        Py_ssize_t size = PyBytes_GET_SIZE(cell)
        bint fits = True
    if tag == SIGNED or tag == UNSIGNED:
        fits = size == 1 or size == 2 or size == 4 or size == 8
    elif tag == FLOAT:
        fits = size == 4 or size == 8
    elif tag == BOOL:
        fits = size == 1
    elif tag == DATE:
        fits = size == 4
    elif tag == TIME or tag == TIME_UTC:
        fits = size == 8
    if not fits:
        raise ValueError(f"a cell of {size} bytes in column {shape.names[i]!r}")
    return value_of(tag, <const uint8_t*>PyBytes_AS_STRING(cell), size, shape.decoders[i])


# ---------------------------------------------------------------------------------- values to cells

cdef bint _number_of(int tag, int width, object value, uint64_t* word) except -1:
    """Whether ``value`` is of the exact type and in range; ``word`` is then its two's complement."""
    cdef:
        int overflow = 0
        long long number
        double real
        float single
        int64_t low
    word[0] = 0
    if tag == SIGNED or tag == UNSIGNED:
        if type(value) is not int:
            return False
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            if overflow < 0 or tag == SIGNED or width < 8:
                return False
            try:
                word[0] = PyLong_AsUnsignedLongLong(value)
            except OverflowError:
                return False
            return True
        word[0] = <uint64_t>number
        if tag == UNSIGNED:
            return number >= 0 and (width == 8 or number >> (8 * width) == 0)
        if width == 8:
            return True
        low = <int64_t>1 << (8 * width - 1)
        return -low <= number < low
    if tag == FLOAT:
        if type(value) is not float:
            return False
        real = PyFloat_AS_DOUBLE(value)
        if width == 8:
            memcpy(word, &real, 8)
            return True
        single = <float>real
        if single != single or (single - single != 0 and real - real == 0):
            return False        # NaN, or finite and too large
        memcpy(word, &single, 4)
        return True
    if tag == BOOL:
        word[0] = value is True
        return type(value) is bool
    if tag == DATE:
        if type(value) is not _date_type:
            return False
        word[0] = <uint64_t>_days(
            PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value), PyDateTime_GET_DAY(value)
        )
        return True
    if tag == TIME or tag == TIME_UTC:
        if type(value) is not _datetime_type or value.tzinfo is not (_utc if tag == TIME_UTC else None):
            return False
        word[0] = <uint64_t>(
            _days(PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value), PyDateTime_GET_DAY(value)) * DAY_US
            + PyDateTime_DATE_GET_HOUR(value) * <int64_t>3600000000
            + PyDateTime_DATE_GET_MINUTE(value) * <int64_t>60000000
            + PyDateTime_DATE_GET_SECOND(value) * <int64_t>1000000
            + PyDateTime_DATE_GET_MICROSECOND(value)
        )
        return True
    return False


cdef bint _bytes_of(int tag, object value, const uint8_t** data, Py_ssize_t* size) except -1:
    """Whether ``value`` is exact text or bytes; ``data`` then points into it."""
    if tag == TEXT:
        if type(value) is not str:
            return False
        try:
            data[0] = <const uint8_t*>PyUnicode_AsUTF8AndSize(value, size)
        except UnicodeEncodeError:
            return False
        return True
    if tag == BYTES and type(value) is bytes:
        data[0] = <const uint8_t*>PyBytes_AS_STRING(value)
        size[0] = PyBytes_GET_SIZE(value)
        return True
    return False


cdef Py_ssize_t _encode_text(
    const uint8_t* data, Py_ssize_t size, bint last, uint8_t* out, Py_ssize_t room
) noexcept nogil:
    """Write the key bytes of a string; return how many, -1 where they do not fit."""
    cdef Py_ssize_t i, to = 0
    if last or memchr(data, 0, <size_t>size) == NULL:
        if size + 2 > room:
            return -1
        memcpy(out, data, <size_t>size)
        to = size
    else:
        if 2 * size + 2 > room:
            return -1
        for i in range(size):
            out[to] = data[i]
            to += 1
            if data[i] == 0:
                out[to] = 1
                to += 1
    if not last:
        out[to] = 0
        out[to + 1] = 0
        to += 2
    return to


@cython.final
@cython.auto_pickle(False)
cdef class KeyEncoder:
    """Keys of some columns, in key order: ``encode`` gives the bytes of ``common.types.keycodec``."""

    cdef:
        readonly Py_ssize_t count
        tuple _names
        int _tags[MOST_COLUMNS]
        int _widths[MOST_COLUMNS]

    def __init__(self, names, tags, widths):
        cdef Py_ssize_t i
        self._names = tuple(names)
        self.count = len(self._names)
        if self.count == 0 or not len(tags) == len(widths) == self.count:
            raise ValueError("a key has columns, each with a tag and a width")
        if self.count > MOST_COLUMNS:
            self.count = 0      # every key takes the general path
            return
        for i in range(self.count):
            self._tags[i] = tags[i]
            self._widths[i] = widths[i]

    def encode(self, key):
        """The encoded key, or None where the general path must say what the key is."""
        cdef:
            uint8_t room[KEY_ROOM]
            Py_ssize_t i, n, at = 0
            PyObject* found
        if type(key) is tuple:
            if len(<tuple>key) != self.count:
                return None
            for i in range(self.count):
                n = self._cell(i, (<tuple>key)[i], room + at, KEY_ROOM - at)
                if n < 0:
                    return None
                at += n
        elif type(key) is dict:
            if len(<dict>key) != self.count:
                return None
            for i in range(self.count):
                found = PyDict_GetItem(key, self._names[i])
                if found == NULL:
                    return None
                n = self._cell(i, <object>found, room + at, KEY_ROOM - at)
                if n < 0:
                    return None
                at += n
        elif self.count == 1:
            at = self._cell(0, key, room, KEY_ROOM)
        else:
            return None
        return None if at < 0 else PyBytes_FromStringAndSize(<char*>room, at)

    def encode_many(self, keys):
        """Encoded keys of a list or tuple: (data, (n + 1,) int64 offsets); None where one is not plain.

        Then each must go through ``encode`` and, where that gives None, the general path.
        """
        cdef:
            Py_ssize_t i, size, n = len(keys), at = 0, room = 32 * n + KEY_ROOM
            int64_t[::1] ends
            uint8_t[::1] view
            bytes key
        offsets = np.empty(n + 1, np.int64)
        data = np.empty(room, np.uint8)
        ends, view = offsets, data
        ends[0] = 0
        for i in range(n):
            key = self.encode(keys[i])
            if key is None:
                return None
            size = PyBytes_GET_SIZE(key)
            if at + size > room:
                room = 2 * (at + size)
                grown = np.empty(room, np.uint8)
                grown[:at] = data[:at]
                data = grown
                view = data
            memcpy(&view[at], PyBytes_AS_STRING(key), <size_t>size)
            at += size
            ends[i + 1] = at
        return data[:at], offsets

    cdef bytes of_row(self, dict row):
        """The key of a row that may have more columns; None as ``encode``."""
        cdef:
            uint8_t room[KEY_ROOM]
            Py_ssize_t i, n, at = 0
            PyObject* found
        for i in range(self.count):
            found = PyDict_GetItem(row, self._names[i])
            if found == NULL:
                return None
            n = self._cell(i, <object>found, room + at, KEY_ROOM - at)
            if n < 0:
                return None
            at += n
        return PyBytes_FromStringAndSize(<char*>room, at) if self.count else None

    cdef Py_ssize_t _cell(self, Py_ssize_t i, object value, uint8_t* out, Py_ssize_t room) except -2:
        """Write one cell; return its bytes, -1 for the general path."""
        cdef:
            int tag = self._tags[i], width = self._widths[i], k
            uint64_t word = 0
            const uint8_t* data = NULL
            Py_ssize_t size = 0
        if width:
            if width > 8 or width > room or not _number_of(tag, width, value, &word):
                return -1
            if tag != UNSIGNED:
                word ^= <uint64_t>1 << (8 * width - 1)
            for k in range(width):
                out[k] = <uint8_t>(word >> (8 * (width - 1 - k)))
            return width
        if not _bytes_of(tag, value, &data, &size):
            return -1
        return _encode_text(data, size, i == self.count - 1, out, room)


# ------------------------------------------------------------------------------- one row to be written

cdef struct RowColumn:
    int tag
    int width
    uint32_t id
    bint nullable


@cython.final
@cython.auto_pickle(False)
cdef class RowWriter:
    """Rows given as dicts, as cells in the order of a schema's columns, and as a record's payload.

    ``columns``: (name, id, tag, width, nullable) in the schema's order; ``keys``: positions of the key
    columns, in key order; ``defaults``: the cell of an insert that does not give the column, ``MISSING``
    where every insert must.
    """

    cdef:
        readonly Py_ssize_t count
        dict _positions
        tuple _names
        readonly tuple keys
        readonly tuple defaults
        readonly tuple value_ids
        """By column its id, None for key columns."""
        readonly tuple widths
        KeyEncoder _encoder
        object _room
        RowColumn* _columns

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
        self.widths = tuple(column[3] for column in columns)
        self.value_ids = tuple(None if i in self.keys else column[1] for i, column in enumerate(columns))
        self._encoder = KeyEncoder(
            [columns[i][0] for i in self.keys],
            [columns[i][2] for i in self.keys],
            [columns[i][3] for i in self.keys],
        )

    def prepare(self, dict row not None, int operation, Py_ssize_t room):
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

    def complete(self, list cells not None):
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
                if column.width > 8 or not _number_of(column.tag, column.width, value, &word):
                    return None
                cells[i] = PyBytes_FromStringAndSize(<char*>&word, column.width)
            else:
                if not _bytes_of(column.tag, value, &data, &size):
                    return None
                total += size
                cells[i] = PyBytes_FromStringAndSize(<char*>data, size)
        return cells if total < ROW_ROOM and total + COLUMN_BYTES * self.count < room else None

    def payload(self, int op, uint32_t tablet_id, list cells not None):
        """The payload of a record with this one row: docs/format-log.md, "Record payloads".

        ``cells``: as of ``cells``; columns that are ``MISSING`` are left out.
        """
        cdef:
            Py_ssize_t i, size, given = 0, total = 24 + 16
            RowColumn* column
            uint8_t* head
            uint8_t* body
            uint32_t word
            uint64_t wide
        if len(cells) != self.count:
            raise ValueError(f"{len(cells)} cells for {self.count} columns")
        for i in range(self.count):
            cell = cells[i]
            if cell is MISSING:
                continue
            given += 1
            column = &self._columns[i]
            total += 24
            if cell is None:
                total += 8 + ((column.width + 7) & ~7 if column.width else 8)
                continue
            size = len(<bytes?>cell)
            if column.width and size != column.width:
                raise ValueError(f"a cell of {size} bytes in a column of width {column.width}")
            total += ((size + 7) & ~7) + (0 if column.width else 8)
        out = PyBytes_FromStringAndSize(NULL, total)
        head = <uint8_t*>PyBytes_AS_STRING(out)
        memset(head, 0, <size_t>total)
        word = 1
        memcpy(head, &word, 4)              # sections
        memcpy(head + 4, &word, 4)          # tablets
        memcpy(head + 16, &tablet_id, 4)
        head += 24
        head[0] = <uint8_t>op
        head[2] = <uint8_t>given
        head[3] = <uint8_t>(given >> 8)
        memcpy(head + 4, &word, 4)          # rows
        head += 16
        body = head + 24 * given
        for i in range(self.count):
            cell = cells[i]
            if cell is MISSING:
                continue
            column = &self._columns[i]
            memcpy(head, &column.id, 4)
            head[4] = <uint8_t>column.width
            head[5] = cell is None
            size = column.width if cell is None else PyBytes_GET_SIZE(cell)
            wide = <uint64_t>size
            memcpy(head + 8, &wide, 8)
            if cell is None:
                body += 8                   # the bitmap: one bit, 0
            if column.width == 0:
                wide = 8
                memcpy(head + 16, &wide, 8)
                word = <uint32_t>size
                memcpy(body + 4, &word, 4)
                body += 8
            if cell is not None:
                memcpy(body, PyBytes_AS_STRING(cell), <size_t>size)
            body += (size + 7) & ~7
            head += 24
        return out
