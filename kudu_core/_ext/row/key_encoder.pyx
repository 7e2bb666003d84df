"""Keys of single rows, encoded as ``common.types.keycodec`` does it.

The fast way for keys of plain Python values (``plain.pxd``).  Everything else gives None, which tells the
caller to take the general path, whose result or error then stands.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport import_datetime
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy

from kudu_core._ext.row.plain cimport bytes_of, number_of
from kudu_core._ext.row.shape cimport UNSIGNED

import numpy as np

import_datetime()               # for ``plain.pxd``

cdef enum:
    KEY_ROOM = 1024             # bytes of a key; longer ones take the general path


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


cdef Py_ssize_t _encode_number(
    int tag, Py_ssize_t width, uint64_t word, uint8_t* out, Py_ssize_t room
) noexcept nogil:
    """Write the key bytes of a number of at most 8 bytes; return how many, -1 where they do not fit."""
    cdef Py_ssize_t k
    if width > room:
        return -1
    if tag != UNSIGNED:
        word ^= <uint64_t>1 << (8 * width - 1)
    for k in range(width):
        out[k] = <uint8_t>(word >> (8 * (width - 1 - k)))
    return width


@cython.final
@cython.auto_pickle(False)
cdef class KeyEncoder:
    """Keys of some columns, in key order: ``encode`` gives the bytes of ``common.types.keycodec``."""

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
            Py_ssize_t size
        if type(key) is dict:
            return self.of_row(key) if len(<dict>key) == self.count else None
        size = self._written(key, room)
        return None if size < 0 else PyBytes_FromStringAndSize(<char*>room, size)

    cdef Py_ssize_t _written(self, object key, uint8_t* out) except -2:
        """Write a key that is no dict, of at most ``KEY_ROOM`` bytes; return how many, -1 for None."""
        cdef Py_ssize_t i, n, at = 0
        if type(key) is tuple:
            if len(<tuple>key) != self.count:
                return -1
            for i in range(self.count):
                n = self._cell(i, (<tuple>key)[i], out + at, KEY_ROOM - at)
                if n < 0:
                    return -1
                at += n
            return at
        return self._cell(0, key, out, KEY_ROOM) if self.count == 1 else -1

    def encode_many(self, keys):
        """Encoded keys of a list or tuple: (data, (n + 1,) int64 offsets); None where one is not plain.

        Then each must go through ``encode`` and, where that gives None, the general path.
        """
        cdef:
            Py_ssize_t i, size, n = len(keys), at = 0, room = 32 * n + KEY_ROOM
            int64_t[::1] ends
            uint8_t[::1] view
            bytes encoded
        offsets = np.empty(n + 1, np.int64)
        data = np.empty(room, np.uint8)
        ends, view = offsets, data
        ends[0] = 0
        for i in range(n):
            if room - at < KEY_ROOM:
                room = 2 * (at + KEY_ROOM)
                grown = np.empty(room, np.uint8)
                grown[:at] = data[:at]
                data = grown
                view = data
            key = keys[i]
            if type(key) is dict:
                encoded = self.encode(key)
                size = -1 if encoded is None else PyBytes_GET_SIZE(encoded)
                if size > 0:
                    memcpy(&view[at], PyBytes_AS_STRING(encoded), <size_t>size)
            else:
                size = self._written(key, &view[at])
            if size < 0:
                return None
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

    cdef bytes of_cells(self, list cells, tuple places):
        """The key of a row whose cells lie as columns hold them, the key's at these places.

        None as ``encode``, also for a cell that is null, or missing.
        """
        cdef:
            uint8_t room[KEY_ROOM]
            Py_ssize_t i, n, size, at = 0
            const uint8_t* data
            uint64_t word
        if len(places) != self.count:
            return None
        for i in range(self.count):
            cell = cells[<Py_ssize_t>places[i]]
            if type(cell) is not bytes:
                return None
            size = PyBytes_GET_SIZE(cell)
            if self._widths[i] == 0:
                data = <const uint8_t*>PyBytes_AS_STRING(cell)
                n = _encode_text(data, size, i == self.count - 1, room + at, KEY_ROOM - at)
            elif size != self._widths[i] or size > 8:
                return None
            else:
                word = 0
                memcpy(&word, PyBytes_AS_STRING(cell), <size_t>size)
                n = _encode_number(self._tags[i], size, word, room + at, KEY_ROOM - at)
            if n < 0:
                return None
            at += n
        return PyBytes_FromStringAndSize(<char*>room, at) if self.count else None

    cdef Py_ssize_t _cell(self, Py_ssize_t i, object value, uint8_t* out, Py_ssize_t room) except -2:
        """Write one cell; return its bytes, -1 for the general path."""
        cdef:
            int tag = self._tags[i], width = self._widths[i]
            uint64_t word = 0
            const uint8_t* data = NULL
            Py_ssize_t size = 0
        if width:
            if width > 8 or not number_of(tag, width, value, &word):
                return -1
            return _encode_number(tag, width, word, out, room)
        if not bytes_of(tag, value, &data, &size):
            return -1
        return _encode_text(data, size, i == self.count - 1, out, room)
