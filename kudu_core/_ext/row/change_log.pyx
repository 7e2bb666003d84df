"""Changes of rows in memory, one row at a time: appended, and asked what they make of a row.

``ChangePoints`` is a change log as single rows see it.  The changes of a row are a chain, from its newest
change back; a chain that is long is indexed by column when it is first walked.

What is read here runs with the GIL: it sees what the writer had finished between two steps.  Where it meets a
change that is just being appended it raises ``NeedsGeneralPath``: the general path must answer.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.index.rowid_map cimport RowidMap
from kudu_core._ext.row.overlay cimport NO_CHANGE, REDO_DELETE, REDO_REINSERT, UNKNOWN, Overlay, Store
from kudu_core._ext.row.overlay cimport memory_cell, overlay_of, visible_rows
from kudu_core._ext.row.shape cimport RowShape
from kudu_core._ext.search.numbers cimport lower_bound, places_below
from kudu_core._ext.base.status cimport raise_needs_general_path

import numpy as np

cdef enum:
    LONG_CHAIN = 16             # changes of a row that are walked before they are indexed
    HOT_BYTES = 512             # of an index, about, before its numbers

cdef object MISSING = Ellipsis  # as in ``row.shape``


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
    cdef uint32_t want = <uint32_t>limit if limit < NO_CHANGE else <uint32_t>NO_CHANGE
    return lower_bound(<const uint32_t*>ascending._values_at, ascending._count, want)


cdef int64_t _place_below(AppendColumn mine, AppendColumn numbers, int64_t limit) noexcept:
    """The last of ascending positions whose change is numbered below ``limit``; -1: none."""
    return places_below(
        <const uint32_t*>mine._values_at, mine._count, <const uint32_t*>numbers._values_at, limit
    ) - 1


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
        AppendColumn values not None, dict logs not None, log,
    ):
        """The log of one more column: which changes set it, of which rows, and to what.

        ``logs[column_id] = log`` with it, or neither: what one of them lacks, scans or look-ups would miss.
        """
        if numbers.width != 4 or rowids.width != 4:
            raise ValueError(f"change numbers of {numbers.width} bytes, rowids of {rowids.width}")
        if column_id in self.by_id or column_id in logs:
            raise ValueError(f"column {column_id} has a log")
        known = column_id, numbers, rowids, values
        try:
            logs[column_id], self.by_id[column_id] = log, known
            self.columns.append(known)
        except BaseException:
            logs.pop(column_id, None)
            self.by_id.pop(column_id, None)
            raise

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
        return overlay.said()

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
                place = lower_bound(at, numbers._count, chain[k])
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
            k = _place_below(mine, numbers, limit)
            if k >= 0:
                place = (<const uint32_t*>mine._values_at)[k]
                overlay.put(i, memory_cell(values, place, overlay.shape, i))
        return 0

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
                    place = lower_bound(at, numbers._count, number)
                    if place < numbers._count and at[place] == number:
                        return place
                steps += 1
                number = (<const uint32_t*>self.before._values_at)[number]
            if number == NO_CHANGE:
                return -1
        found = self._hot_row(row, last).updates.get(column_id)
        if found is None:
            return -1
        place = _place_below(<AppendColumn>found, numbers, limit)
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
        """Add the values that one change sets to what newer ones set."""
        cdef:
            AppendColumn numbers, values
            const uint32_t* at
            int64_t place
            Py_ssize_t i
        for column_id, numbers, _, values in self.columns:
            i = overlay.place(column_id)
            if i < 0:
                continue
            at = <const uint32_t*>numbers._values_at
            place = lower_bound(at, numbers._count, number)
            if place < numbers._count and at[place] == number:
                overlay.put(i, memory_cell(values, place, overlay.shape, i))
        return 0
