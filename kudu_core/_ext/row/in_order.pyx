"""Rows of several sources in the order of their keys, found one by one: a heap of places in files.

A scan that wants ten rows of two hundred files begins here: in each file one search finds the first row that
is not below a bound, and a heap says which file has the next key.  Of a file nothing is read before its first
possible key is the smallest of all, and of its rows only keys.  The cells are then gathered by row number.

Keys are read where they lie (``row.scattered``).  Where that cannot be done, and for rows in memory, which
do not lie in the order of keys, a source gives *lists*: rows and their encoded keys, some at a time.
Everything here runs with the GIL.  What is read is hostile: rows are found within their files whatever stored
bytes say, in no order where these lie.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kudu_core._ext.base.keybytes cimport kc_compare, key_bytes, key_count
from kudu_core._ext.base.status cimport raise_needs_general_path
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.scattered cimport FileKeys

import numpy as np

from kudu_core._ext.base.status import NeedsGeneralPath, PageError


@cython.final
@cython.auto_pickle(False)
cdef class _Source:
    """Where one source stands, and the key of the row there."""

    cdef:
        object lists            # an iterator, where rows come so
        PointFile file          # else
        int32_t number
        bint begun
        bint taken              # the row was handed out: the next one is to be found
        int64_t row
        object kept             # of a list: what the four below lie in
        const int64_t* rows
        const int64_t* ends
        const uint8_t* data
        Py_ssize_t at, count
        const uint8_t* key      # before it is begun: no key of the source is below it
        int64_t size
        uint8_t* room           # the key, where it is put together
        int64_t room_bytes
        object first            # keeps the first key

    def __dealloc__(self):
        PyMem_RawFree(self.room)

    cdef int take(self, FileKeys keys) except -1:
        """Stand on the row whose key was read."""
        cdef uint8_t* grown
        if keys.size > self.room_bytes:
            grown = <uint8_t*>PyMem_RawRealloc(self.room, <size_t>(2 * keys.size))
            if grown == NULL:
                raise MemoryError
            self.room, self.room_bytes = grown, 2 * keys.size
        if keys.size:
            memcpy(self.room, keys.key, <size_t>keys.size)
        self.key, self.size = self.room, keys.size
        return 0

    cdef bint next_list(self) except -1:
        """Stand on the first row of the next list; False: there is none."""
        cdef:
            const int64_t[::1] rows, ends
            const uint8_t[::1] data
        while True:
            found = next(self.lists, None)
            if found is None:
                return False
            rows, data, ends = found
            self.count = key_count(data, ends)
            if rows.shape[0] != self.count:
                raise ValueError(f"{rows.shape[0]} rows of {self.count} keys")
            if self.count:
                break
        self.kept = rows, data, ends
        self.rows, self.ends, self.data = &rows[0], &ends[0], key_bytes(data)
        self.at = 0
        self.stand()
        return True

    cdef void stand(self) noexcept:
        """The row and key of the current place of a list."""
        self.row = self.rows[self.at]
        self.key = self.data + self.ends[self.at]
        self.size = self.ends[self.at + 1] - self.ends[self.at]


@cython.final
@cython.auto_pickle(False)
cdef class RowsInOrder:
    """Rows with ``lower <= key < upper`` of some sources, in the order of their encoded keys.

    Parameters
    ----------
    first_keys : [bytes]
        Of each source a key that none of its keys is below.
    files : [object or None]
        Whose ``points``, a ``PointFile``, is asked for when the source is begun; None: it gives lists only.
    listed : (number of a source, row) -> iterator of (rows int64, data uint8, offsets int64)
        Its rows in the order of their keys, with the keys: from a row of the file on, or from ``lower`` on
        (-1).  Asked where there is no file, or where that raises ``NeedsGeneralPath`` or ``PageError``.
    lower, upper : bytes or None

    Equal keys come in the order of their sources.
    """

    cdef:
        list _sources
        list _files
        object _listed
        int32_t* _heap          # numbers of sources, the one with the smallest key first
        int32_t _count
        bytes _lower, _upper
        readonly int64_t begun
        FileKeys _keys
        bytes _last

    def __cinit__(self, *_):
        self._keys = FileKeys()
        self._last = b""

    def __init__(self, list first_keys not None, list files not None, listed, bytes lower, bytes upper):
        cdef:
            _Source source
            bytes first
            Py_ssize_t i, n = len(first_keys)
        if len(files) != n:
            raise ValueError(f"{n} first keys, {len(files)} files")
        self._files, self._listed, self._lower, self._upper = files, listed, lower, upper
        self._sources = []
        self._heap = <int32_t*>PyMem_RawMalloc((n + 1) * sizeof(int32_t))
        if self._heap == NULL:
            raise MemoryError
        for i in range(n):
            first = first_keys[i]
            source = _Source.__new__(_Source)
            if lower is not None and first < lower:
                first = lower
            source.number = <int32_t>i
            source.first = first
            source.key, source.size = <const uint8_t*>PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first)
            self._sources.append(source)
            self._heap[i] = <int32_t>i
        self._count = <int32_t>n
        for i in range(n // 2 - 1, -1, -1):
            self._sink(<int32_t>i)

    def __dealloc__(self):
        PyMem_RawFree(self._heap)

    @property
    def last_key(self):
        """The key of the last row of a ``take`` that had as many as were asked for; b"" before the first."""
        return self._last

    def take(self, Py_ssize_t count):
        """The next ``count`` rows, fewer only at the end: (source of each, int32; its row there, int64).

        Raises what ``listed`` raises.
        """
        cdef:
            int32_t[::1] out
            int64_t[::1] rows
            Py_ssize_t made = 0
            _Source source
            bint more
        if count < 0:
            raise ValueError(f"{count} rows")
        sources, row_numbers = np.empty(count, np.int32), np.empty(count, np.int64)
        out, rows = sources, row_numbers
        try:
            while made < count and self._count:
                source = self._sources[self._heap[0]]
                if source.begun and not source.taken:
                    if self._upper is not None and kc_compare(
                        source.key, source.size,
                        <const uint8_t*>PyBytes_AS_STRING(self._upper), PyBytes_GET_SIZE(self._upper),
                    ) >= 0:
                        self._count = 0     # no other key is smaller
                        break
                    out[made], rows[made] = source.number, source.row
                    made += 1
                    source.taken = True
                    if made == count:
                        self._last = (<const char*>source.key)[:source.size]
                    continue
                more = self._step(source) if source.begun else self._begin(source)
                if not more:
                    self._count -= 1
                    self._heap[0] = self._heap[self._count]
                self._sink(0)
        finally:
            self._keys.leave()
        return sources[:made], row_numbers[:made]

    # ---- the heap

    cdef bint _before(self, int32_t a, int32_t b) noexcept:
        cdef:
            _Source x = <_Source>self._sources[a]
            _Source y = <_Source>self._sources[b]
            int order = kc_compare(x.key, x.size, y.key, y.size)
        return order < 0 or (order == 0 and a < b)

    cdef void _sink(self, int32_t at) noexcept:
        """Restore the order of the heap below a place whose key has grown."""
        cdef int32_t child, moved = self._heap[at]
        while True:
            child = 2 * at + 1
            if child >= self._count:
                break
            if child + 1 < self._count and self._before(self._heap[child + 1], self._heap[child]):
                child += 1
            if not self._before(self._heap[child], moved):
                break
            self._heap[at] = self._heap[child]
            at = child
        self._heap[at] = moved

    # ---- sources

    cdef bint _begin(self, _Source source) except -1:
        """Find the first row of a source; False: it has none."""
        source.begun = True
        self.begun += 1
        file = self._files[source.number]
        if file is not None:
            try:
                source.file = file.points
                if source.file.closed or not source.file.can_find:
                    raise_needs_general_path()
                source.row = self._keys.seek(source.file, self._lower)
                if source.row >= source.file.f.rows:
                    return False
                self._keys.read(source.file, source.row)
                source.take(self._keys)
                return True
            except (NeedsGeneralPath, PageError):
                pass
        return self._list(source, -1)

    cdef bint _step(self, _Source source) except -1:
        """Find the next row of a source; False: there is none."""
        source.taken = False
        if source.lists is not None:
            source.at += 1
            if source.at == source.count:
                return source.next_list()
            source.stand()
            return True
        source.row += 1
        if source.row >= source.file.f.rows:
            return False
        try:
            if source.file.closed:
                raise_needs_general_path()
            self._keys.read(source.file, source.row)
            source.take(self._keys)
            return True
        except (NeedsGeneralPath, PageError):
            return self._list(source, source.row)

    cdef bint _list(self, _Source source, int64_t first) except -1:
        """Go on by lists: from a row on, or from the beginning (-1)."""
        self._keys.leave()
        source.file = None
        source.lists = iter(self._listed(source.number, first))
        return source.next_list()
