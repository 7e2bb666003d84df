"""What stores of changes make of one row at one snapshot: changes in memory, delta files.

The stores of a rowset are asked newest first; the first that names a column, or says whether the row
lives, is right, so an ``Overlay`` only takes what it does not have yet.  ``ChangePoints`` is a log in
memory.  ``ChangeFile`` is a delta file, whose rowids, times and ordinals of entries are decoded once and held
while the page cache keeps them (``DeltaPoints``), so that an untouched row costs one search.

Everything here runs with the GIL: what it sees of a store in memory is what the writer had finished between
two steps.  ``NeedsGeneralPath`` and ``PageError`` mean that the general path must answer.
"""
cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.pages.head cimport load64
from kudu_core._ext.row.column cimport Held, PageHolder, PointColumn
from kudu_core._ext.row.codec cimport RowShape, value_of
from kudu_core._ext.index.rowid_map cimport RowidMap
from kudu_core._ext.base.status cimport raise_needs_general_path

import numpy as np

cdef enum:
    REDO_UPDATE = 1             # as in ``delta_codes``; of UNDO entries: the old values,
    REDO_DELETE = 2             # absent before,
    REDO_REINSERT = 3           # present before

    LONG_CHAIN = 16             # changes of a row that are walked before they are indexed
    HOT_BYTES = 512             # of an index, about, before its numbers

cdef uint64_t EIGHT_UPDATES = 0x0101010101010101

cdef object MISSING = Ellipsis      # as in ``rowcodec``
cdef object _unset = object()


# ------------------------------------------------------------------------------- changes of one row

cdef class Overlay:
    """What the stores asked so far, newest first, make of one row."""

    cdef Py_ssize_t place(self, object column_id) except -2:
        """The column's position if it still needs a value, else -1."""
        cdef:
            PyObject* found = PyDict_GetItem(self.shape.places, column_id)
            Py_ssize_t i
        if found == NULL:
            return -1
        i = <object>found
        return i if self.values[i] is _unset else -1

    cdef int put(self, Py_ssize_t i, object value) except -1:
        self.values[i] = value
        self.left -= 1
        return 0

    cdef bint has(self, Py_ssize_t i) noexcept:
        """Whether some store names the column."""
        return self.values[i] is not _unset

    cdef bint settled(self) noexcept:
        """Whether older stores have nothing to add."""
        return self.lives == 0 or (self.left == 0 and self.lives == 1)


cdef Overlay overlay_of(RowShape shape, uint64_t snapshot):
    cdef Overlay out = Overlay.__new__(Overlay)
    out.shape = shape
    out.snapshot = snapshot
    out.values = [_unset] * shape.count
    out.left = shape.count
    out.lives = UNKNOWN
    return out


cdef object memory_cell(AppendColumn column, int64_t row, RowShape shape, Py_ssize_t i):
    """The Python value of a cell of a column in memory; ``row`` is below its count."""
    cdef int32_t lower
    if column._first_null >= 0 and not kc_bit(column._bits_at, row):
        return None
    if column.width:
        return value_of(
            shape.tags[i], column._values_at + row * column.width, column.width, shape.decoders[i]
        )
    lower = column._offsets_at[row]
    return value_of(
        shape.tags[i], column._values_at + lower, column._offsets_at[row + 1] - lower, shape.decoders[i]
    )


cdef int64_t visible_rows(AppendColumn stamps, uint64_t snapshot) noexcept:
    """How many of the ascending timestamps a snapshot sees."""
    cdef:
        const uint64_t* at = <const uint64_t*>stamps._values_at
        int64_t lower = 0, upper = stamps._count, middle
    if upper == 0 or at[upper - 1] <= snapshot:
        return upper
    while lower < upper:
        middle = (lower + upper) >> 1
        if at[middle] <= snapshot:
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef class Store:
    """Changes of the rows of one rowset."""

    def let_go(self):
        """Hold no file any longer."""

    cdef int collect(self, int64_t row, Overlay overlay) except -1:
        """Add what the store says of a row to what newer ones said."""
        raise NotImplementedError


@cython.final
@cython.auto_pickle(False)
cdef class HotRow:
    """The changes of a row that has many, by column: what a walk of its chain would find, searched."""

    def __cinit__(self):
        self.updates = {}
        self.lives = AppendColumn(4)


cdef int _add_once(AppendColumn ascending, uint32_t number) except -1:
    """Append a number unless it is there: another thread may have indexed the same changes meanwhile."""
    if ascending._count == 0 or (<const uint32_t*>ascending._values_at)[ascending._count - 1] < number:
        ascending.put_number(number)
    return 0


cdef int64_t _below(AppendColumn ascending, int64_t limit) noexcept:
    """How many of ascending numbers of 4 bytes are below ``limit``."""
    return _lower_bound(
        <const uint32_t*>ascending._values_at, ascending._count,
        <uint32_t>limit if limit < NO_CHANGE else <uint32_t>NO_CHANGE,
    )


@cython.final
@cython.auto_pickle(False)
cdef class ChangePoints(Store):
    """A ``ChangeLog``, one row at a time.

    Parameters
    ----------
    timestamps, rowids, ops, before : AppendColumn
        Of width 8, 4, 1 and 4: by change number.
    last : RowidMap
        Number of each row's last change.

    A row's chain of more than 16 changes is indexed by column when it is first walked, so that a hot row
    costs a search; ``nbytes`` is the memory of these indexes.
    """

    def __init__(
        self, AppendColumn timestamps not None, AppendColumn rowids not None, AppendColumn ops not None,
        AppendColumn before not None, RowidMap last not None,
    ):
        if timestamps.width != 8 or rowids.width != 4 or ops.width != 1 or before.width != 4:
            raise ValueError("changes have timestamps of 8 bytes, operations of 1, rowids and numbers of 4")
        self.timestamps, self.rowids, self.ops, self.before = timestamps, rowids, ops, before
        self.last = last
        self.columns = []
        self.by_id = {}
        self._hot = {}

    def add(
        self, column_id, AppendColumn numbers not None, AppendColumn rowids not None,
        AppendColumn values not None,
    ):
        """The log of one more column: which changes set it, of which rows, and to what."""
        if numbers.width != 4 or rowids.width != 4:
            raise ValueError(f"change numbers of {numbers.width} bytes, rowids of {rowids.width}")
        log = column_id, numbers, rowids, values
        self.columns.append(log)
        self.by_id[column_id] = log

    def reserve(self, int64_t n):
        """Make room for ``n`` changes, but for what they set columns to: appending them allocates nothing."""
        self.timestamps.reserve_rows(n)
        self.rowids.reserve_rows(n)
        self.ops.reserve_rows(n)
        self.before.reserve_rows(n)
        self.last.reserve_rowids(n)

    def append_rows(self, uint64_t ts, uint8_t op, const uint32_t[::1] rowids not None):
        """Append changes of one operation at one time, of no row twice; what they set columns to is there."""
        cdef:
            int64_t n = rowids.shape[0], first = self.timestamps._count
        if n == 0:
            return
        if first + n >= NO_CHANGE:
            raise ValueError("a store takes fewer than 2**32 - 1 changes")
        self.reserve(n)
        with nogil:
            memcpy(self.rowids._values_at + 4 * first, &rowids[0], 4 * n)
            self.rowids._count += n
            self.ops._put_numbers(op, 0, n)
            # In this order: whoever finds a change finds the one before it.
            self.last.last_of_rows(&rowids[0], n, <uint32_t*>(self.before._values_at + 4 * first))
            self.before._count += n
            if op >= REDO_DELETE:
                self.liveness += n
            self.last.put_rows(&rowids[0], <uint32_t>first, n)
            self.timestamps._put_numbers(ts, 0, n)      # last: from here on the changes exist

    def reserve_one(self, tuple ids not None, list cells not None):
        """Make room for ``append_one`` of this change, which then allocates nothing.

        Returns -1, or the position of a column that has no log yet.  OverflowError: a column is more than
        half full.
        """
        cdef:
            Py_ssize_t i, n = len(ids)
            AppendColumn numbers, rowids, values
        if len(cells) != n:
            raise ValueError(f"{len(cells)} cells of {n} columns")
        for i in range(n):
            if ids[i] is not None and cells[i] is not MISSING:
                log = self.by_id.get(ids[i])
                if log is None:
                    return i
                _, numbers, rowids, values = <tuple>log
                values.reserve_cell(cells[i])
                rowids.reserve_rows(1)
                numbers.reserve_rows(1)
        self.reserve(1)
        return -1

    def append_one(self, uint64_t ts, uint8_t op, uint32_t rowid, tuple ids not None, list cells not None):
        """Append one change; ``ts`` is not below any before it.

        ``ids``: column ids, None for cells that are not logged; ``cells``: as many, bytes, None for NULL, or
        ``MISSING``.  Every column has a log (``reserve_one``).
        """
        cdef:
            Py_ssize_t i, n = len(ids)
            AppendColumn numbers, rowids, values
            uint64_t number = <uint64_t>self.timestamps._count
        if len(cells) != n:
            raise ValueError(f"{len(cells)} cells of {n} columns")
        for i in range(n):
            if ids[i] is not None and cells[i] is not MISSING:
                _, numbers, rowids, values = <tuple>self.by_id[ids[i]]
                values.put_cell(cells[i])
                rowids.put_number(rowid)
                numbers.put_number(number)
        self.rowids.put_number(rowid)
        self.ops.put_number(op)
        # In this order: whoever finds the change finds the one before it.
        self.before.put_number(self.last.last_of(rowid))
        self.last.put_last(rowid, <uint32_t>number)
        if op >= REDO_DELETE:
            self.liveness += 1
        self.timestamps.put_number(ts)      # last: from here on the change exists

    def count_liveness(self, int64_t changes):
        """So many more changes remove or revive a row.  Called before they can be seen."""
        self.liveness += changes

    def touched(self, uint32_t row):
        """Whether a change of the row was ever appended."""
        return self.timestamps._count > 0 and self.last.last_of(row) != NO_CHANGE

    def row(self, uint32_t row, uint64_t snapshot, RowShape shape not None):
        """What the changes up to a snapshot leave of a row: (lives or None, {column position: value})."""
        cdef Overlay overlay = overlay_of(shape, snapshot)
        self.collect(row, overlay)
        return (
            None if overlay.lives == UNKNOWN else bool(overlay.lives),
            {i: value for i, value in enumerate(overlay.values) if value is not _unset},
        )

    cdef HotRow _hot_row(self, uint32_t row, uint32_t last):
        """All changes of a row up to ``last``, its newest."""
        cdef:
            HotRow hot = self._hot.get(row)
            AppendColumn numbers
            const uint32_t* before
            const uint32_t* at
            uint32_t number = last, first = 0
            int64_t place, count, k
            uint32_t[::1] chain
        if hot is None:
            hot = HotRow()
        elif hot.newest == last:
            return hot
        else:
            first = hot.newest + 1
        count = 0
        before = <const uint32_t*>self.before._values_at
        while number != NO_CHANGE and number >= first:
            if number >= self.before._count:
                raise_needs_general_path()  # the writer is just appending it
            count += 1
            number = before[number]
        chain = np.empty(count, np.uint32)
        number = last
        for k in range(count - 1, -1, -1):
            chain[k] = number
            number = before[number]
        for k in range(count):
            if self.ops._values_at[chain[k]] >= REDO_DELETE:
                _add_once(hot.lives, chain[k])
        for column_id, numbers, _, _ in self.columns:
            at = <const uint32_t*>numbers._values_at
            mine = hot.updates.get(column_id)
            for k in range(count):
                place = _lower_bound(at, numbers._count, chain[k])
                if place < numbers._count and at[place] == chain[k]:
                    if mine is None:
                        mine = hot.updates.setdefault(column_id, AppendColumn(4))
                        self.nbytes += HOT_BYTES
                    _add_once(<AppendColumn>mine, <uint32_t>place)
        hot.newest = last
        if self._hot.setdefault(row, hot) is hot:
            self.nbytes += 4 * count + HOT_BYTES * (first == 0)
        return hot

    cdef int _collect_hot(self, HotRow hot, int64_t limit, Overlay overlay) except -1:
        """``collect`` by search: the newest change below ``limit`` of each column."""
        cdef:
            AppendColumn numbers, values, mine
            int64_t k
            Py_ssize_t i
            uint32_t place
        if overlay.lives == UNKNOWN:
            k = _below(hot.lives, limit) - 1
            if k >= 0:
                number = (<const uint32_t*>hot.lives._values_at)[k]
                overlay.lives = self.ops._values_at[number] == REDO_REINSERT
                if overlay.lives == 0:
                    return 0
        for column_id, numbers, _, values in self.columns:
            i = overlay.place(column_id)
            found = hot.updates.get(column_id) if i >= 0 else None
            if found is None:
                continue
            mine = <AppendColumn>found
            k = self._place_below(mine, numbers, limit)
            if k >= 0:
                place = (<const uint32_t*>mine._values_at)[k]
                overlay.put(i, memory_cell(values, place, overlay.shape, i))
        return 0

    cdef int64_t _place_below(self, AppendColumn mine, AppendColumn numbers, int64_t limit) noexcept:
        """The last of ascending positions whose change is numbered below ``limit``; -1: none."""
        cdef:
            const uint32_t* places = <const uint32_t*>mine._values_at
            const uint32_t* at = <const uint32_t*>numbers._values_at
            int64_t lower = 0, upper = mine._count, middle
        if upper and at[places[upper - 1]] < limit:
            return upper - 1
        while lower < upper:
            middle = (lower + upper) >> 1
            if at[places[middle]] < limit:
                lower = middle + 1
            else:
                upper = middle
        return lower - 1

    cdef int collect(self, int64_t row, Overlay overlay) except -1:
        cdef:
            int64_t limit, steps = 0
            uint32_t number, last
            uint8_t op
        if self.timestamps._count == 0:
            return 0
        number = last = self.last.last_of(<uint32_t>row)
        if number == NO_CHANGE:
            return 0
        limit = visible_rows(self.timestamps, overlay.snapshot)
        if self._hot and <uint32_t>row in self._hot:
            return self._collect_hot(self._hot_row(<uint32_t>row, last), limit, overlay)
        while number != NO_CHANGE:
            if number >= self.before._count:
                raise_needs_general_path()  # the writer is just appending it
            if number < limit:
                op = self.ops._values_at[number]
                if op >= REDO_DELETE and overlay.lives == UNKNOWN:
                    overlay.lives = op == REDO_REINSERT
                    if op == REDO_DELETE:
                        return 0
                if op != REDO_DELETE and overlay.left:
                    self._cells(number, overlay)
                if overlay.left == 0 and (overlay.lives != UNKNOWN or self.liveness == 0):
                    return 0
            steps += 1
            if steps == LONG_CHAIN:
                return self._collect_hot(self._hot_row(<uint32_t>row, last), limit, overlay)
            number = (<const uint32_t*>self.before._values_at)[number]
        return 0

    cdef int64_t _newest(self, tuple log, uint32_t row, int64_t limit) except -2:
        """Position in a column's log of a row's newest update below ``limit``; -1: none."""
        cdef:
            AppendColumn numbers
            const uint32_t* at
            uint32_t number, last
            int64_t place, steps = 0
        column_id, numbers, _, _ = log
        number = last = self.last.last_of(row)
        if number == NO_CHANGE:
            return -1
        if not (self._hot and row in self._hot):
            at = <const uint32_t*>numbers._values_at
            while number != NO_CHANGE and steps < LONG_CHAIN:
                if number >= self.before._count:
                    raise_needs_general_path()
                if number < limit:
                    place = _lower_bound(at, numbers._count, number)
                    if place < numbers._count and at[place] == number:
                        return place
                steps += 1
                number = (<const uint32_t*>self.before._values_at)[number]
            if number == NO_CHANGE:
                return -1
        found = self._hot_row(row, last).updates.get(column_id)
        if found is None:
            return -1
        place = self._place_below(<AppendColumn>found, numbers, limit)
        return (<const uint32_t*>(<AppendColumn>found)._values_at)[place] if place >= 0 else -1

    cdef int64_t _newest_life(self, uint32_t row, int64_t limit) except -2:
        """Number of the newest change below ``limit`` that removes or revives a row; -1: none."""
        cdef:
            HotRow hot
            uint32_t number, last
            int64_t k, steps = 0
        number = last = self.last.last_of(row)
        if number == NO_CHANGE:
            return -1
        if not (self._hot and row in self._hot):
            while number != NO_CHANGE and steps < LONG_CHAIN:
                if number >= self.before._count:
                    raise_needs_general_path()
                if number < limit and self.ops._values_at[number] >= REDO_DELETE:
                    return number
                steps += 1
                number = (<const uint32_t*>self.before._values_at)[number]
            if number == NO_CHANGE:
                return -1
        hot = self._hot_row(row, last)
        k = _below(hot.lives, limit) - 1
        return (<const uint32_t*>hot.lives._values_at)[k] if k >= 0 else -1

    def newest(self, column_id, const int64_t[::1] rows not None, int64_t limit):
        """Which rows have an update of a column in the first ``limit`` changes, and the newest of each.

        (m,) int64 indexes into ``rows``, (m,) int64 positions in the column's log.  ``column_id`` None:
        removals and revivals, by number of change.  Raises ``NeedsGeneralPath`` while a writer appends one.
        """
        cdef:
            int64_t i, place, m = 0
            int64_t[::1] out_which, out_places
            tuple log = None
        which, places = np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0], np.int64)
        out_which, out_places = which, places
        if column_id is not None:
            log = self.by_id[column_id]
        for i in range(rows.shape[0]):
            if not 0 <= rows[i] < NO_CHANGE:
                continue
            if log is None:
                place = self._newest_life(<uint32_t>rows[i], limit)
            else:
                place = self._newest(log, <uint32_t>rows[i], limit)
            if place >= 0:
                out_which[m], out_places[m] = i, place
                m += 1
        return which[:m], places[:m]

    cdef int _cells(self, uint32_t number, Overlay overlay) except -1:
        cdef:
            AppendColumn numbers, values
            const uint32_t* at
            int64_t lower, upper, middle
            Py_ssize_t i
        for column_id, numbers, _, values in self.columns:
            i = overlay.place(column_id)
            if i < 0:
                continue
            at = <const uint32_t*>numbers._values_at
            lower, upper = 0, numbers._count
            while lower < upper:
                middle = (lower + upper) >> 1
                if at[middle] < number:
                    lower = middle + 1
                else:
                    upper = middle
            if lower < numbers._count and at[lower] == number:
                overlay.put(i, memory_cell(values, lower, overlay.shape, i))
        return 0


# ------------------------------------------------------------------------------------- delta files

@cython.final
@cython.auto_pickle(False)
cdef class DecodedColumn(Held):
    """A column of a delta file, decoded as a whole: numbers of ``width`` bytes.

    ``load()`` gives the checked bytes and their place in the cache, (None, None) where the general path
    must read them.  ``remember(place, bytes)`` puts them, when they are held, back into a cache that has
    dropped them meanwhile.
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
                self._remember(place, array)        # else it would be held until the file closes
                if self._data == NULL:
                    raise_needs_general_path()  # dropped again at once
        return self._data

    cdef int used(self, Py_ssize_t number) except -1:
        cdef bint was = self._touched
        self._touched = False
        return was

    cdef int let_go(self, Py_ssize_t number) except -1:
        self._data = NULL
        self._array = None
        return 0


cdef int64_t _lower_bound(const uint32_t* at, int64_t count, uint32_t want) noexcept nogil:
    """How many of the ascending numbers are below ``want``."""
    cdef:
        const uint32_t* base = at
        int64_t half
    if count == 0:
        return 0
    while count > 1:
        half = count >> 1
        if base[half - 1] < want:
            base += half
        count -= half
    return (base - at) + (base[0] < want)


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
            if entries.width != 4 or entries._count > 16384 * values.c.page_count:
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
                found = _lower_bound(at, self.rowids._count, <uint32_t>rows[i])
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
            first = _lower_bound(at, count, <uint32_t>rows[i])
            if first == count or at[first] != rows[i]:
                continue
            end = self.relevant(first, at, times, stamp, undo)
            if entries != NULL:
                k = _lower_bound(entries, positions._count, <uint32_t>end) - 1
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
        return (
            None if overlay.lives == UNKNOWN else bool(overlay.lives),
            {i: value for i, value in enumerate(overlay.values) if value is not _unset},
        )

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
        first = _lower_bound(rowids, count, <uint32_t>row)
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
            found = _lower_bound(at, entries._count, <uint32_t>end) - 1
            if found >= 0 and at[found] >= <uint32_t>first:
                overlay.put(
                    i, values.value(points, found, overlay.shape.tags[i], overlay.shape.decoders[i])
                )
        return 0
