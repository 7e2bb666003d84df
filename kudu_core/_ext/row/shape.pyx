"""Cells of rows that are read, as Python values.

A *tag* says how a column's cell becomes a value (``TAGS``).  A cell is the bytes of one value as they lie
in a column, little-endian, None where it is NULL.  A tag covers what is exact and common; other cells, and
those whose value Python's types do not hold, go through the general path's own function, whose error then
stands.

``RowShape`` has the columns of the rows that one read returns.  Knows no schema and no file.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport date_new, datetime_new, get_utc, import_datetime
from cpython.dict cimport PyDict_SetItem
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 largest)
    void* PyUnicode_DATA(object text)

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
    "raw": RAW,
}

MISSING = Ellipsis
"""The cell of a column that a row does not give."""

cdef:
    enum:
        FIRST_DAY = -719162         # 0001-01-01
        LAST_DAY = 2932896          # 9999-12-31
    int64_t DAY_US = 86400 * <int64_t>1000000
    uint64_t NOT_ASCII = 0x8080808080808080


cdef inline void _civil(int64_t days, int* year, int* month, int* day) noexcept nogil:
    """The date of a day since 1970.

    After Howard Hinnant, chrono-compatible low-level date algorithms (public domain).
    """
    cdef int64_t z = days + 719468, era, doe, yoe, doy, mp
    era = (z if z >= 0 else z - 146096) / 146097
    doe = z - era * 146097
    yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365
    doy = doe - (365 * yoe + yoe / 4 - yoe / 100)
    mp = (5 * doy + 2) / 153
    day[0] = <int>(doy - (153 * mp + 2) / 5 + 1)
    month[0] = <int>(mp + 3 if mp < 10 else mp - 9)
    year[0] = <int>(yoe + era * 400 + (1 if month[0] <= 2 else 0))


cdef inline int64_t _signed(const uint8_t* cell, Py_ssize_t size) noexcept nogil:
    cdef int64_t word = 0
    memcpy(&word, cell, <size_t>size)
    return (word << (64 - 8 * size)) >> (64 - 8 * size)


cdef inline object _text_of(const uint8_t* cell, Py_ssize_t size):
    """The string of a cell: of ASCII alone it is a copy, for which Python looks at each byte."""
    cdef:
        uint64_t seen = 0, word = 0
        Py_ssize_t i = 0
    while i + 8 <= size:
        memcpy(&word, cell + i, 8)
        seen |= word
        i += 8
    word = 0
    memcpy(&word, cell + i, <size_t>(size - i))
    if size < 2 or (seen | word) & NOT_ASCII:   # strings of one character are Python's own
        return PyUnicode_DecodeUTF8(<const char*>cell, size, "surrogateescape")
    text = PyUnicode_New(size, 127)
    memcpy(PyUnicode_DATA(text), cell, <size_t>size)
    return text


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
        return _text_of(cell, size)
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
                <int>(number / 1000000 % 60), <int>(number % 1000000), get_utc() if tag == TIME_UTC else None,
            )
    elif tag == DATE:
        days = _signed(cell, 4)
        if FIRST_DAY <= days <= LAST_DAY:
            _civil(days, &year, &month, &day)
            return date_new(year, month, day)
    elif tag == BYTES or tag == RAW:
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
        self.empty = dict.fromkeys(self.names)
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
    """As ``value_of``, of bytes whose size may not fit the tag."""
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
