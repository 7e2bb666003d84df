"""Rows of several sources in the order of their keys, found one by one: a heap of places in files.

A scan that wants ten rows of two hundred files begins here: in each file one search finds the first row that
is not below a bound, and a heap says which file has the next key.  Of a file nothing is read before its first
possible key is the smallest of all, and of its rows only keys.  The cells are then gathered by row number
(``row.scattered``, ``ordered.row_batch``).

The sources are files that a caller lists, or all rowsets of some views (``of_views``): of these the bounds
that a view has anyway say which of its rowsets is the next, so that one which is not reached costs nothing.

Keys are read where they lie (``file_keys``).  Where that cannot be done, and for rows in memory, which
do not lie in the order of keys, a source gives *lists*: rows and their encoded keys, some at a time.
Everything here runs with the GIL.  What is read is hostile: rows are found within their files whatever stored
bytes say, in no order where these lie.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.base.keybytes cimport kc_compare
from kudu_core._ext.base.status cimport raise_needs_general_path
from kudu_core._ext.index.rowset_tree cimport BoundsTree
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.overlay cimport visible_rows
from kudu_core._ext.ordered.file_keys cimport FileKeys
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.row.view cimport MemoryPoints, PointView, RowsetPoints
from kudu_core._ext.search.sorted_strings cimport count_below, kc_first_bytes

import numpy as np

from kudu_core._ext.base.status import NeedsGeneralPath, PageError

cdef enum:
    FIRST_ROOM = 16             # places of the heap
    MOST_SOURCES = 0x7FFFFFF0


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

    def __cinit__(self, *_):
        self._keys = FileKeys()
        self._last = b""
        self.sources = []
        self._ordered = True

    def __init__(self, list first_keys not None, list files not None, listed, bytes lower, bytes upper):
        cdef:
            Source source
            bytes first
            Py_ssize_t i, n = len(first_keys)
        if len(files) != n:
            raise ValueError(f"{n} first keys, {len(files)} files")
        self._files, self._listed, self._lower, self._upper = files, listed, lower, upper
        for i in range(n):
            first = first_keys[i]
            source = self._new()
            source.first = first
            self._stand_before(source, <const uint8_t*>PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first))
            self._put(source)

    @staticmethod
    def of_views(list views not None, uint64_t snapshot, listed, bytes lower, bytes upper, bint ordered):
        """Rows of all rowsets of ``PointView``s as a snapshot sees them, dead ones among them.

        ``listed(view, memory)`` gives lists of the rows in memory.  Files give none: where their keys cannot
        be read, ``take`` raises ``NeedsGeneralPath`` or ``PageError``.  Not ``ordered``: the rows of one
        rowset come after those of another, and of rowsets nothing is known before their turn.  If there are
        no bounds either, no key is read, and no file is opened for its keys: ``NeedsGeneralPath``.
        """
        cdef:
            RowsInOrder made = RowsInOrder([], [], None, lower, upper)
            PointView view
        for view in views:
            if view is None:
                raise TypeError("a view is missing")
        made._views, made.snapshot, made._in_memory, made._ordered = views, snapshot, listed, ordered
        made._keyless = not ordered and lower is None and upper is None
        return made

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
            Source source
            bint more
        if count < 0:
            raise ValueError(f"{count} rows")
        sources, row_numbers = np.empty(count, np.int32), np.empty(count, np.int64)
        out, rows = sources, row_numbers
        try:
            while made < count:
                if self._count == 0 or self._ordered:
                    self._fill()
                    if self._count == 0:
                        break
                source = self.sources[self._heap[0].number]
                if source.waiting is not None:
                    self._begin_waiting(source)
                    continue
                if source.begun and not source.taken:
                    if self._upper is not None and kc_compare(
                        source.key, source.size,
                        <const uint8_t*>PyBytes_AS_STRING(self._upper), PyBytes_GET_SIZE(self._upper),
                    ) >= 0:
                        if self._ordered:
                            self._count = 0     # no other key is smaller
                            break
                        self._leave_out()
                        continue
                    out[made], rows[made] = source.number, source.row
                    made += 1
                    source.taken = True
                    if made == count:
                        self._last = (<const char*>source.key)[:source.size]
                    continue
                more = self._step(source) if source.begun else self._begin(source)
                if more:
                    self._heap[0].head = kc_first_bytes(source.key, source.size)
                    self._sink(0)
                else:
                    self._leave_out()
        finally:
            self._keys.leave()
        return (sources, row_numbers) if made == count else (sources[:made], row_numbers[:made])

    # ---- the heap

    cdef Source _new(self):
        """A source more, with a number of its own."""
        cdef Source source = Source.__new__(Source)
        if len(self.sources) >= MOST_SOURCES:
            raise OverflowError("too many sources")
        source.number = <int32_t>len(self.sources)
        self.sources.append(source)
        return source

    cdef void _stand_before(self, Source source, const uint8_t* first, int64_t size) noexcept:
        """The source is not begun, and has no key below ``first``."""
        cdef:
            const uint8_t* lower
            int64_t lower_size
        source.key, source.size = first, size
        if self._lower is not None:
            lower, lower_size = <const uint8_t*>PyBytes_AS_STRING(self._lower), PyBytes_GET_SIZE(self._lower)
            if kc_compare(first, size, lower, lower_size) < 0:
                source.key, source.size = lower, lower_size

    cdef int _put(self, Source source) except -1:
        """Take a source into the heap."""
        cdef:
            Standing* grown
            int32_t at = self._count, parent
            Standing moved
        if self._count == self._room:
            grown = <Standing*>PyMem_RawRealloc(
                self._heap, <size_t>(2 * self._room + FIRST_ROOM) * sizeof(Standing)
            )
            if grown == NULL:
                raise MemoryError
            self._heap, self._room = grown, 2 * self._room + FIRST_ROOM
        moved.head, moved.number = kc_first_bytes(source.key, source.size), source.number
        self._count += 1
        while at:
            parent = (at - 1) >> 1
            if not self._before(moved, self._heap[parent]):
                break
            self._heap[at] = self._heap[parent]
            at = parent
        self._heap[at] = moved
        return 0

    cdef void _leave_out(self) noexcept:
        """The first source of the heap has no more rows."""
        self._count -= 1
        self._heap[0] = self._heap[self._count]
        self._sink(0)

    cdef bint _before(self, Standing a, Standing b) noexcept:
        cdef:
            Source x, y
            int order
        if a.head != b.head:
            return a.head < b.head
        x, y = <Source>self.sources[a.number], <Source>self.sources[b.number]
        order = kc_compare(x.key, x.size, y.key, y.size)
        return order < 0 or (order == 0 and a.number < b.number)

    cdef void _sink(self, int32_t at) noexcept:
        """Restore the order of the heap below a place whose key has grown."""
        cdef:
            int32_t child
            Standing moved = self._heap[at]
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

    # ---- views

    cdef int _fill(self) except -1:
        """Have what can come next in the heap: of views in the order of keys all of them, else the next that
        has anything."""
        cdef Py_ssize_t count
        if self._views is None:
            return 0
        if self._behind is not None and self._count == 0:
            self._put(self._behind)
            self._behind = None
        count = len(self._views)
        while self._turn < count and (self._ordered or self._count == 0):
            self._turn += 1         # first: one that cannot be read is not tried again
            self._add_view(self._turn - 1)
        return 0

    cdef int _add_view(self, Py_ssize_t number) except -1:
        """Take the stores of a view into the heap: those in memory, and one source for all others."""
        cdef:
            PointView view = <PointView>self._views[number]
            BoundsTree bounds = view.bounds
            MemoryPoints memory
            Source source
            Py_ssize_t i
            int64_t place, first_above = bounds.count, ended = 0
        for i in range(len(view.memories)):
            memory = view.memories[i]
            if memory.inserted._count and visible_rows(memory.inserted, self.snapshot):
                source = self._new()
                source.memory = memory
                source.lists = self._in_memory(number, i)
                self._stand_before(source, NULL, 0)
                self._put(source)
        if bounds.count == 0:
            return 0
        if self._upper is not None:
            first_above = count_below(
                &bounds._firsts, <const uint8_t*>PyBytes_AS_STRING(self._upper),
                PyBytes_GET_SIZE(self._upper), False,
            )
        if self._lower is not None:
            ended = bounds.ended(
                <const uint8_t*>PyBytes_AS_STRING(self._lower), PyBytes_GET_SIZE(self._lower)
            )
        place = bounds.next(0, first_above, ended)
        if place >= 0:
            source = self._new()
            source.waiting, source.first_above, source.ended = view, first_above, ended
            self._wait(source, place)
            self._put(source)
        return 0

    cdef int _wait(self, Source source, int64_t place) except -1:
        """The source stands for the rowsets of its view from ``place`` on."""
        cdef BoundsTree bounds = source.waiting.bounds
        source.place = place
        self._stand_before(
            source, bounds._firsts.data + bounds._firsts.ends[place],
            bounds._firsts.ends[place + 1] - bounds._firsts.ends[place],
        )
        return 0

    cdef int _begin_waiting(self, Source source) except -1:
        """Begin the rowset that the first source of the heap waits with."""
        cdef:
            PointView view = source.waiting
            RowsetPoints rowset = view.rowsets[source.place]
            int64_t place = view.bounds.next(source.place + 1, source.first_above, source.ended)
            Source begun = source
        if place < 0:
            source.waiting = None
            self._leave_out()
        else:
            begun = self._new()
            self._wait(source, place)
            if self._ordered:
                self._heap[0].head = kc_first_bytes(source.key, source.size)
                self._sink(0)
            else:
                self._behind = source
                self._leave_out()
        if rowset.insert_ts <= self.snapshot:
            begun.rowset = rowset
            if self._begin(begun):
                self._put(begun)
        return 0

    # ---- sources

    cdef bint _begin(self, Source source) except -1:
        """Find the first row of a source; False: it has none."""
        source.begun = True
        self.begun += 1
        if source.rowset is not None:
            if self._keyless and source.rowset._file is None:
                raise_needs_general_path()
            return self._find_first(source, source.rowset.file())
        if source.memory is not None:
            return source.next_list()
        file = self._files[source.number]
        if file is not None:
            try:
                return self._find_first(source, file.points)
            except (NeedsGeneralPath, PageError):
                pass
        return self._list(source, -1)

    cdef bint _find_first(self, Source source, PointFile file) except -1:
        """The same in a file."""
        source.file = file
        if file.closed or not file.can_find:
            raise_needs_general_path()
        if self._keyless:
            source.row, source.key, source.size = 0, NULL, 0
            return file.f.rows > 0
        source.row = self._keys.seek(file, self._lower)
        if source.row >= file.f.rows:
            return False
        self._keys.read(file, source.row)
        source.take(self._keys)
        return True

    cdef bint _step(self, Source source) except -1:
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
            if not self._keyless:
                self._keys.read(source.file, source.row)
                source.take(self._keys)
            return True
        except (NeedsGeneralPath, PageError):
            if source.rowset is not None:
                raise
            return self._list(source, source.row)

    cdef bint _list(self, Source source, int64_t first) except -1:
        """Go on by lists: from a row on, or from the beginning (-1)."""
        self._keys.leave()
        source.file = None
        source.lists = iter(self._listed(source.number, first))
        return source.next_list()
