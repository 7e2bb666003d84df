"""Changes of rows in delta files, one row at a time.

``DeltaPoints`` is one open delta file: the rowids, times and operations of its entries, and which entries set
a column, are decoded once and held while the page cache keeps them, so that a row without entries costs one
search.  The values that entries set are read where they lie, as cells of a column.  ``ChangeFile`` is a delta
file of a rowset, which its statistics often keep from being opened.

What is read here runs with the GIL.  ``NeedsGeneralPath`` and ``PageError`` mean that the general path must
answer.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.pages.head cimport load64
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.pages.holder cimport Held, PageHolder
from kudu_core._ext.row.overlay cimport (
    NO_CHANGE,
    REDO_REINSERT,
    REDO_UPDATE,
    UNKNOWN,
    Overlay,
    Store,
    overlay_of,
)
from kudu_core._ext.row.shape cimport RowShape
from kudu_core._ext.search.numbers cimport lower_bound
from kudu_core._ext.base.status cimport raise_needs_general_path

import numpy as np

cdef uint64_t EIGHT_UPDATES = 0x0101010101010101


@cython.final
@cython.auto_pickle(False)
cdef class DecodedColumn(Held):
    """A column of a delta file, decoded as a whole: numbers of ``width`` bytes.

    ``load()`` gives the checked bytes and their place in the cache, (None, None) where the general path
    must read them.  ``remember(place, bytes)`` puts them, once they are held, into the cache, and says
    whether that has them: what it has not is not held.
    """

    cdef:
        object _load, _array, _remember
        const uint8_t* _data
        readonly int width
        int64_t _count
        bint _touched

    def __init__(self, load, int width, int64_t count, remember=None):
        if width not in (1, 4, 8) or count < 1:
            raise ValueError(f"{count} numbers of {width} bytes")
        self._load = load
        self._remember = remember
        self.width = width
        self._count = count

    cdef const uint8_t* at(self, PageHolder holder) except NULL:
        cdef const uint8_t[::1] view
        self._touched = True
        if self._data != NULL:
            return self._data
        array, place = self._load()
        if place is None or holder.closed:
            raise_needs_general_path()
        if self._data == NULL:              # nobody was faster
            view = array
            if view.shape[0] != self._count * self.width:
                raise ValueError(f"{view.shape[0]} bytes are not {self._count} numbers")
            self._array = array
            holder.hold(place, self, 0)
            self._data = &view[0]
            if self._remember is not None:
                kept = False
                try:
                    kept = self._remember(place, array)
                finally:
                    if not kept:                # else it would be held until the file closes
                        holder.give_up(place, self, 0)
                if self._data == NULL:
                    raise_needs_general_path()
        return self._data

    cdef int used(self, Py_ssize_t number) except -1:
        cdef bint was = self._touched
        self._touched = False
        return was

    cdef int let_go(self, Py_ssize_t number) except -1:
        self._data = NULL
        self._array = None
        return 0


@cython.final
@cython.auto_pickle(False)
cdef class DeltaPoints(PageHolder):
    """The entries of one open delta file, for point reads.

    Parameters
    ----------
    rowids, ops : DecodedColumn
        By entry, rowids ascending.
    times : DecodedColumn or None
        None: all entries have the time of their record.
    columns : [(id, DecodedColumn, PointColumn)]
        Per changed column the ordinals of its entries, ascending, and as many values.
    """

    cdef:
        DecodedColumn rowids, ops, times
        list columns
        dict _by_id

    def __init__(
        self, DecodedColumn rowids not None, DecodedColumn ops not None, DecodedColumn times, columns,
    ):
        cdef:
            DecodedColumn entries
            PointColumn values
        if rowids.width != 4 or ops.width != 1 or rowids._count != ops._count:
            raise ValueError("entries have a rowid of 4 bytes and an operation of 1")
        if times is not None and (times.width != 8 or times._count != rowids._count):
            raise ValueError("entries have a time of 8 bytes")
        self.rowids, self.ops, self.times = rowids, ops, times
        self.columns = []
        for column_id, entries, values in columns:
            if entries.width != 4 or entries._count > values.c.page_count << values.c.page_bits:
                raise ValueError(f"{entries._count} entries of {values.c.page_count} pages of values")
            self.columns.append((column_id, entries, values))
        self._by_id = {column_id: (entries, values) for column_id, entries, values in self.columns}

    def touched(self, const int64_t[::1] rows not None):
        """Which of the rows have an entry, (n,) bool.  Raises as ``ChangeFile``."""
        cdef:
            const uint32_t* at
            int64_t i, found
            uint8_t[::1] out
        if self.closed:
            raise_needs_general_path()
        at = <const uint32_t*>self.rowids.at(self)
        result = np.zeros(rows.shape[0], np.uint8)
        out = result
        for i in range(rows.shape[0]):
            if 0 <= rows[i] < NO_CHANGE:
                found = lower_bound(at, self.rowids._count, <uint32_t>rows[i])
                out[i] = found < self.rowids._count and at[found] == rows[i]
        return result.view(np.bool_)

    cdef int64_t relevant(
        self, int64_t first, const uint32_t* rowids, const uint64_t* times, uint64_t snapshot, bint undo
    ) noexcept nogil:
        """Where the entries end, from ``first`` on, that are of its row and that a snapshot takes.

        Times of REDO ascend, those of UNDO descend, so that they are the first; ``times`` NULL: all.
        """
        cdef:
            uint32_t row = rowids[first]
            int64_t lower = first + 1, upper = self.rowids._count, middle, step = 1
        while lower + step < upper and rowids[lower + step] == row:     # most rows have one entry or two
            lower += step
            step *= 2
        if lower + step < upper:
            upper = lower + step
        while lower < upper:
            middle = (lower + upper) >> 1
            if rowids[middle] == row:
                lower = middle + 1
            else:
                upper = middle
        if times == NULL:
            return lower
        upper, lower = lower, first
        while lower < upper:
            middle = (lower + upper) >> 1
            if (times[middle] > snapshot) if undo else (times[middle] <= snapshot):
                lower = middle + 1
            else:
                upper = middle
        return lower

    def newest(self, column_id, const int64_t[::1] rows not None, snapshot, bint undo):
        """What the file says last of single rows at a snapshot (None: all entries count).

        The rows of which it says something, (m,) int64 indexes into ``rows``, and the values it gives a
        column, as cells of ``PointFile.cells``; None where the file does not change the column.
        ``column_id`` None: (m,) uint8, 1 where an entry revives the row (UNDO: says that it was there), 0
        where one removes it.  Raises as ``ChangeFile``.
        """
        cdef:
            DecodedColumn positions = None
            PointColumn column = None
            const uint32_t* at
            const uint32_t* entries = NULL
            const uint64_t* times = NULL
            const uint8_t* ops = NULL
            int64_t i, k, first, end, count = self.rowids._count, m = 0
            uint64_t stamp = 0 if snapshot is None else snapshot
            int64_t[::1] out_which, out_places
            uint8_t[::1] out_lives
        if column_id is not None:
            log = self._by_id.get(column_id)
            if log is None:
                return None
            positions, column = <tuple>log
        if self.closed:
            raise_needs_general_path()
        at = <const uint32_t*>self.rowids.at(self)
        if snapshot is not None and self.times is not None:
            times = <const uint64_t*>self.times.at(self)
        if positions is not None:
            entries = <const uint32_t*>positions.at(self)
        else:
            ops = self.ops.at(self)
        if self.rowids._data != <const uint8_t*>at or (
            times != NULL and self.times._data != <const uint8_t*>times
        ):
            raise_needs_general_path()  # one load has pushed another out
        which, places = np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0], np.int64)
        lives = np.empty(rows.shape[0], np.uint8)
        out_which, out_places, out_lives = which, places, lives
        for i in range(rows.shape[0]):
            if not 0 <= rows[i] < NO_CHANGE:
                continue
            first = lower_bound(at, count, <uint32_t>rows[i])
            if first == count or at[first] != rows[i]:
                continue
            end = self.relevant(first, at, times, stamp, undo)
            if entries != NULL:
                k = lower_bound(entries, positions._count, <uint32_t>end) - 1
                if k >= 0 and entries[k] >= first:
                    out_which[m], out_places[m] = i, k
                    m += 1
                continue
            k = _last_life(ops, first, end)
            if k == -2:
                raise_needs_general_path()
            if k >= 0:
                out_which[m], out_lives[m] = i, ops[k] == REDO_REINSERT
                m += 1
        if positions is None:
            return which[:m], lives[:m]
        return which[:m], column.cells(self, places[:m])


cdef int64_t _last_life(const uint8_t* ops, int64_t first, int64_t end) noexcept nogil:
    """The last entry of a range that removes or revives its row: -1 none, -2 an operation that is none."""
    cdef int64_t k = end - 1
    while k >= first:
        if k - first >= 7 and load64(ops + k - 7) == EIGHT_UPDATES:
            k -= 8
            continue
        if ops[k] != REDO_UPDATE:
            return -2 if ops[k] > REDO_REINSERT or ops[k] == 0 else k
        k -= 1
    return -1


@cython.final
@cython.auto_pickle(False)
cdef class ChangeFile(Store):
    """A delta file of a rowset, with the statistics by which it is not even opened.

    ``open()`` gives its ``DeltaPoints``; ``undo``: entries lead backward and count above a snapshot, else
    at or below it; ``min_ts``, ``max_ts``: of all entries; ``columns``: ids of those that some entry
    sets, None: any; ``liveness``: whether an entry may remove or revive a row.
    """

    cdef:
        object _open
        DeltaPoints _points
        readonly bint undo
        uint64_t _min_ts, _max_ts
        tuple _columns
        bint _liveness

    def __init__(
        self, open, bint undo, uint64_t min_ts, uint64_t max_ts, tuple columns=None, bint liveness=True
    ):
        self._open = open
        self.undo = undo
        self._min_ts, self._max_ts = min_ts, max_ts
        self._columns = columns
        self._liveness = liveness

    def let_go(self):
        """Hold the file no longer; the next read opens it again."""
        self._points = None

    def row(self, int64_t row, uint64_t snapshot, RowShape shape not None):
        """As ``ChangePoints.row``."""
        cdef Overlay overlay = overlay_of(shape, snapshot)
        self.collect(row, overlay)
        return overlay.said()

    cdef int collect(self, int64_t row, Overlay overlay) except -1:
        cdef:
            DeltaPoints points
            const uint32_t* rowids
            const uint64_t* times = NULL
            const uint8_t* ops
            int64_t first, end, last, count
            uint64_t snapshot = overlay.snapshot
        if self._max_ts <= snapshot if self.undo else self._min_ts > snapshot:
            return 0
        if not (self._liveness and overlay.lives == UNKNOWN) and not self._wanted(overlay):
            return 0
        points = self._points
        if points is None or points.closed:
            points = self._points = self._open()
        rowids = <const uint32_t*>points.rowids.at(points)
        count = points.rowids._count
        first = lower_bound(rowids, count, <uint32_t>row)
        if first == count or rowids[first] != <uint32_t>row:
            return 0
        if points.times is not None and (
            self._min_ts <= snapshot if self.undo else self._max_ts > snapshot
        ):
            times = <const uint64_t*>points.times.at(points)
        # Two steps that may load pages: what the first one gave must still be held.
        ops = points.ops.at(points)
        if points.rowids._data != <const uint8_t*>rowids or (
            times != NULL and points.times._data != <const uint8_t*>times
        ):
            raise_needs_general_path()
        end = points.relevant(first, rowids, times, snapshot, self.undo)
        if end == first:
            return 0
        if overlay.lives == UNKNOWN:
            last = _last_life(ops, first, end)
            if last == -2:
                raise_needs_general_path()
            if last >= 0:
                overlay.lives = ops[last] == REDO_REINSERT
                if overlay.lives == 0:
                    return 0
        if overlay.left:
            self._cells(points, first, end, overlay)
        return 0

    cdef int _wanted(self, Overlay overlay) except -1:
        """Whether the file may set a column that still needs a value."""
        cdef object column_id
        if overlay.left == 0:
            return 0
        if self._columns is None:
            return 1
        for column_id in self._columns:
            if overlay.place(column_id) >= 0:
                return 1
        return 0

    cdef int _cells(self, DeltaPoints points, int64_t first, int64_t end, Overlay overlay) except -1:
        """The newest values among a row's entries first .. end - 1."""
        cdef:
            DecodedColumn entries
            PointColumn values
            const uint32_t* at
            int64_t found
            Py_ssize_t i
        for column_id, entries, values in points.columns:
            i = overlay.place(column_id)
            if i < 0:
                continue
            at = <const uint32_t*>entries.at(points)
            found = lower_bound(at, entries._count, <uint32_t>end) - 1
            if found >= 0 and at[found] >= <uint32_t>first:
                overlay.put(
                    i, values.value(points, found, overlay.shape.tags[i], overlay.shape.decoders[i])
                )
        return 0
