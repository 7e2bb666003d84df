"""Rows of a table as an Arrow batch: gathered cell by cell from wherever they lie.

``RowBatch`` is told of rows, one by one, and learns which of them live at the snapshot and what was changed
of them, as ``get`` does (``view``).  ``batch`` then writes their cells into buffers of Arrow's C data
interface, so that ten rows of a hundred tablets make one batch and no other object: a page, a delta or a
column in memory is looked at where it lies.  Rows are found in the order of keys (``few_in_order``) or by
their keys (``looked_up``).

It is the fast path beside ``rowset.scan``: ``NeedsGeneralPath`` and ``PageError`` mean that the general path
must answer.  Everything here runs with the GIL.  What is read is hostile.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.arrow_array cimport ArrowArray
from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.base.status cimport raise_needs_general_path
from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.pages.cell cimport Strings
from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.pages.holder cimport PageHolder
from kudu_core._ext.row.cells cimport fetch_cell, fetch_place, page_of, read_string
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.overlay cimport Overlay
from kudu_core._ext.ordered.arrow_batch cimport ArrowBatch, grown, padded, put_null
from kudu_core._ext.ordered.packed cimport FoundRow, packed_cells
from kudu_core._ext.ordered.sampled cimport read_sampled
from kudu_core._ext.row.scattered cimport refuse
from kudu_core._ext.row.shape cimport RowShape
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.search.cells cimport Cells

cdef enum:
    FIRST_ROWS = 16
    SMALL = 1 << 20             # bytes of buffers that lie in one piece
    COLUMNS_AHEAD = 2           # between the steps in which the memory of a column's cells is asked for


cdef int check_columns(RowShape shape, tuple widths, tuple bits) except -1:
    """ValueError unless there is a width and a kind for each column."""
    if len(widths) != shape.count or len(bits) != shape.count:
        raise ValueError(f"{len(widths)} widths and {len(bits)} kinds of {shape.count} columns")
    for width in widths:
        if width not in (0, 1, 2, 4, 8, 16):
            raise ValueError(f"cells of {width} bytes")
    return 0


cdef class _CellPlace:
    """The page of the cell that was read last, and the mini-block of it that is at hand."""

    cdef:
        PointFile file
        PointColumn column
        PageHolder holder       # of the page: counts that it is in use
        const Page* page
        int64_t number
        int64_t index           # of the mini-block, -1: none
        Cells cells
        Strings part

    cdef int go(self, PointFile file, PointColumn column, int64_t row) except -1:
        """To the page of a row."""
        cdef int64_t number = page_of(&column.c, row)
        if row < 0 or row >= file.f.rows:
            raise IndexError(f"no row {row} of {file.f.rows}")
        if file is self.file and column is self.column and number == self.number:
            return 0
        # A page that is held stays where it is until another one is loaded, which only happens here; one
        # that the cache does not keep stays while it is counted.
        self.leave()
        self.holder = file if column._holder is None else column._holder
        self.holder._busy += 1
        self.page = column.page(file, number)
        self.file, self.column, self.number = file, column, number
        return 0

    cdef int leave(self) except -1:
        """Let the page go."""
        holder, self.holder = self.holder, None
        self.file, self.column, self.number, self.index = None, None, -1, -1
        if holder is not None:
            (<PageHolder>holder).idle()
        return 0


@cython.auto_pickle(False)
cdef class RowBatch:
    """Rows that live at a snapshot, and what was changed of them."""

    def __init__(
        self, uint64_t snapshot, RowShape shape not None, tuple widths not None, tuple bits not None
    ):
        check_columns(shape, widths, bits)
        self.snapshot, self._shape, self._widths, self._bits = snapshot, shape, widths, bits
        self._sources, self._overlays, self._columns = [], [], []

    def __dealloc__(self):
        PyMem_RawFree(self._rows)
        PyMem_RawFree(self._found)

    cdef int make_room(self, Py_ssize_t more) except -1:
        """Have room for so many rows more."""
        if self.count + more > self._room:
            self._room = max(<Py_ssize_t>FIRST_ROWS, 2 * (self.count + more))
            self._rows = <int64_t*>grown(self._rows, self._room * <Py_ssize_t>sizeof(int64_t))
        return 0

    cdef int _find_runs(self) except -1:
        """Which rows are read like those before them: of the same file, with nothing laid over.  ``source``
        of each is where the run that it begins or belongs to ends."""
        cdef:
            Py_ssize_t row, first
            FoundRow* found
        PyMem_RawFree(self._found)
        self._found = NULL
        self._found = found = <FoundRow*>grown(NULL, (self.count + 1) * <Py_ssize_t>sizeof(FoundRow))
        first = self.count
        for row in range(self.count - 1, -1, -1):
            found[row].key, found[row].row, found[row].laid_over = row, self._rows[row], False
            if (
                row + 1 == self.count or self._overlays[row] is not None
                or self._overlays[row + 1] is not None or self._sources[row] is not self._sources[row + 1]
            ):
                first = row + 1
            found[row].source = <int32_t>first
        return 0

    cdef int64_t _size(self, Py_ssize_t i) except -1:
        """Of the values of a column; of strings 0."""
        return (self.count + 7) >> 3 if self._bits[i] else self.count * <int64_t>self._widths[i]

    cdef bint look(self, Source source, int64_t row) except -1:
        """Take a row in, for which there is room, if it lives."""
        cdef Overlay overlay = None
        if source.memory is not None:
            if row < 0 or row >= source.memory.inserted._count:
                raise IndexError(f"no row {row} of {source.memory.inserted._count}")
            overlay = source.memory.overlaid(row, self.snapshot, self._shape)
            columns = source.memory.columns_of(self._shape)
        else:
            if source.rowset.stores or source.rowset.max_insert_ts > self.snapshot:
                overlay = source.rowset.overlaid(source.file, row, self.snapshot, self._shape)
            columns = source.file.columns_of(self._shape)
        if overlay is not None:
            if overlay.lives == 0:
                return False
            if overlay.left == self._shape.count:
                overlay = None
        self._rows[self.count] = row
        self._sources.append(source)
        self._overlays.append(overlay)
        self._columns.append(columns)
        self.count += 1
        return True

    def batch(self, int64_t most_bytes):
        """The rows as an ``ArrowBatch``, whose strings take no more than ``most_bytes`` in a column.

        Raises ``NeedsGeneralPath``, also for longer strings, and ``PageError``.
        """
        cdef:
            ArrowBatch made = ArrowBatch.__new__(ArrowBatch)
            Py_ssize_t i, n = self._shape.count
            _CellPlace place = _CellPlace.__new__(_CellPlace)
            int width
            int64_t small = 0
        self._find_runs()
        for i in range(n):
            small += padded(self._size(i))
        made.begin(self.count, n, min(small, <int64_t>SMALL))
        try:
            for i in range(n):
                _fetch_columns(self, i)
                width = self._widths[i]
                if width:
                    _fixed(self, place, i, width, self._bits[i], made, made.column(i, 2))
                else:
                    _strings(self, place, i, most_bytes, made.column(i, 3))
        finally:
            place.leave()
        return made


cdef int _fetch_columns(RowBatch all_rows, Py_ssize_t i) except -1:
    """Ask for the memory of the first rows' cells in columns that come behind column i: of each column they
    lie somewhere else."""
    cdef:
        Py_ssize_t n = all_rows._shape.count, last
        list columns
    if not all_rows.count or (<Source>all_rows._sources[0]).memory is not None:
        return 0
    columns = all_rows._columns[0]
    last = all_rows._found[0].source - 1
    if i + 3 * COLUMNS_AHEAD < n and columns[i + 3 * COLUMNS_AHEAD] is not None:
        kc_fetch(<const uint8_t*><void*>columns[i + 3 * COLUMNS_AHEAD])
        kc_fetch(<const uint8_t*><void*>columns[i + 3 * COLUMNS_AHEAD] + 64)
    if i + 2 * COLUMNS_AHEAD < n and columns[i + 2 * COLUMNS_AHEAD] is not None:
        fetch_place(&(<PointColumn>columns[i + 2 * COLUMNS_AHEAD]).c, all_rows._rows[0])
    if i + COLUMNS_AHEAD < n and columns[i + COLUMNS_AHEAD] is not None:
        fetch_cell(&(<PointColumn>columns[i + COLUMNS_AHEAD]).c, all_rows._rows[0])
        fetch_cell(&(<PointColumn>columns[i + COLUMNS_AHEAD]).c, all_rows._rows[last])
    return 0


cdef object _given(RowBatch all_rows, Py_ssize_t row, Py_ssize_t i, bint* given):
    """The cell as bytes, None where it is null, if it is not read from its source: it was changed, or the
    source is older than the column."""
    cdef Overlay overlay = all_rows._overlays[row]
    given[0] = True
    if overlay is not None and overlay.has(i):
        return overlay.values[i]
    if (<list>all_rows._columns[row])[i] is None:
        return all_rows._shape.defaults[i]
    given[0] = False
    return None


cdef int _fixed(
    RowBatch all_rows, _CellPlace place, Py_ssize_t i, int width, bint bits, ArrowBatch made, ArrowArray* out
) except -1:
    """Write a column of fixed width."""
    cdef:
        int64_t size = all_rows._size(i)
        uint8_t* values = made.buffer(size)
        uint8_t cell[16]
        uint8_t* to
        Py_ssize_t row = 0, end
        bint given = False
        Source source
        int status
        int64_t at = 0
    out.buffers[1] = values
    if bits:
        memset(values, 0, <size_t>size)
    while row < all_rows.count:
        to = &cell[0] if bits else values + row * width
        found = _given(all_rows, row, i, &given)
        source = <Source>all_rows._sources[row]
        if given:
            status = found is None
            if not status:
                if PyBytes_GET_SIZE(<bytes>found) != width:
                    raise ValueError(f"a cell of {len(found)} bytes, {width} are wanted")
                memcpy(to, PyBytes_AS_STRING(<bytes>found), <size_t>width)
        elif source.memory is not None:
            column = (<list>all_rows._columns[row])[i]
            status = memory_fixed(<AppendColumn>column, all_rows._rows[row], width, to)
        else:
            place.go(source.file, <PointColumn>(<list>all_rows._columns[row])[i], all_rows._rows[row])
            if place.column.c.width != width or place.column.c.words.count:
                raise_needs_general_path()
            end = row
            if not bits:
                end = packed_cells(
                    &place.column.c, place.page, all_rows._found, row, all_rows._found[row].source, values
                )
            if end > row:
                row = end
                continue
            status = read_sampled(
                place.column, place.page, all_rows._rows[row], &place.cells, &place.index, to, &at
            )
            if status < 0:
                refuse(status, at)
        if status:
            memset(to, 0, <size_t>width)
            put_null(out, row)
        if bits and to[0]:
            values[row >> 3] |= <uint8_t>(1 << (row & 7))
        row += 1
    return 0


cdef int _strings(
    RowBatch all_rows, _CellPlace place, Py_ssize_t i, int64_t most_bytes, ArrowArray* out
) except -1:
    """Write a column of strings."""
    cdef:
        int32_t* ends = <int32_t*>grown(NULL, 4 * (all_rows.count + 1))
        uint8_t* data
        const uint8_t* start = NULL
        int64_t room = 16 * all_rows.count, end = 0, size
        Py_ssize_t row
        bint given = False
        Source source
        int status
    out.buffers[1] = ends
    out.buffers[2] = data = <uint8_t*>grown(NULL, room)
    ends[0] = 0
    for row in range(all_rows.count):
        size = 0
        found = _given(all_rows, row, i, &given)
        source = <Source>all_rows._sources[row]
        if given:
            status = found is None
            if not status:
                start = <const uint8_t*>PyBytes_AS_STRING(<bytes>found)
                size = PyBytes_GET_SIZE(<bytes>found)
        elif source.memory is not None:
            status = memory_string(
                <AppendColumn>(<list>all_rows._columns[row])[i], all_rows._rows[row], &start, &size
            )
        else:
            place.go(source.file, <PointColumn>(<list>all_rows._columns[row])[i], all_rows._rows[row])
            status = _stored_string(place, all_rows._rows[row], &start, &size)
        if status:
            put_null(out, row)
        # Those that follow will be as long as the first: what is too large is given up early.
        elif end + size > most_bytes or (row == 0 and size > most_bytes // all_rows.count):
            raise_needs_general_path()
        elif size:
            if end + size > room:
                room = 2 * (end + size)
                data = <uint8_t*>grown(data, room)
                out.buffers[2] = data
            memcpy(data + end, start, <size_t>size)
            end += size
        ends[row + 1] = <int32_t>end
    return 0


cdef int memory_fixed(AppendColumn column, int64_t row, int width, uint8_t* to) except -1:
    """Write a cell of a column in memory; 1 where it is null."""
    if column.width != width or row >= column._count:
        raise_needs_general_path()
    if column._first_null >= 0 and not kc_bit(column._bits_at, row):
        return 1
    memcpy(to, column._values_at + row * width, <size_t>width)
    return 0


cdef int memory_string(AppendColumn column, int64_t row, const uint8_t** start, int64_t* size) except -1:
    """Where a string in memory lies; 1 where it is null."""
    if column.width or row >= column._count:
        raise_needs_general_path()
    if column._first_null >= 0 and not kc_bit(column._bits_at, row):
        return 1
    start[0] = column._values_at + column._offsets_at[row]
    size[0] = column._offsets_at[row + 1] - column._offsets_at[row]
    return 0


cdef int _stored_string(
    _CellPlace place, int64_t row, const uint8_t** start, int64_t* size
) except -1:
    """Where a string of the file lies; 1 where it is null."""
    cdef:
        int64_t at = 0
        int status = read_string(
            &place.column.c, place.page, row, &place.cells, &place.part, &place.index, start, size, &at
        )
    if status < 0:
        refuse(status, at)
    return status
