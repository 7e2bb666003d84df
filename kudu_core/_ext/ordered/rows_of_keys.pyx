"""Rows that were found for the keys of a call, as an Arrow batch that has a row for each key.

A ``RowsOfKeys`` is told of rows, one by one, and learns which of them live at the snapshot and what was
changed of them, as ``get`` does (``row.view``).  ``batch`` goes through the columns, and of each through the
rows as they were found, rowset by rowset: every cell is written where its key stands, so that nothing is put
in order or together afterwards.  Cells of keys that have no row are null.

It is the fast path beside ``table.read.points``: ``NeedsGeneralPath`` and ``PageError`` mean that the general
path must answer.  Everything runs with the GIL, others may have it between columns.  What is read is hostile.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.arrow_array cimport ArrowArray
from kudu_core._ext.base.status cimport raise_needs_general_path
from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.ordered.arrow_batch cimport ArrowBatch, grown, put_null
from kudu_core._ext.ordered.row_batch cimport check_columns, memory_fixed, memory_string
from kudu_core._ext.ordered.far_strings cimport FarStrings
from kudu_core._ext.ordered.asked_columns cimport as_bits, asked_column, check_places
from kudu_core._ext.ordered.packed cimport fetch_ahead, packed_cells
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.ordered.sampled cimport read_sampled
from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.pages.holder cimport PageHolder
from kudu_core._ext.row.cells cimport Span, page_of, read_fixed
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.overlay cimport Overlay
from kudu_core._ext.row.scattered cimport refuse
from kudu_core._ext.row.shape cimport RowShape

import numpy as np

cdef enum:
    SAMPLED_ROWS = 64           # of a rowset; of more, deltas are summed up mini-block by mini-block


@cython.auto_pickle(False)
cdef class RowsOfKeys:
    """Rows of some of ``keys`` keys that live at a snapshot, and what was changed of them."""

    def __init__(
        self, uint64_t snapshot, RowShape shape not None, tuple widths not None, tuple bits not None,
        Py_ssize_t keys,
    ):
        check_columns(shape, widths, bits)
        self.snapshot, self._shape, self._widths, self._bits = snapshot, shape, widths, bits
        self._keys = keys
        self._there = np.zeros(keys, np.uint8)
        self._marks = self._there
        self._sources, self._columns, self._overlays = [], [], {}

    def __dealloc__(self):
        PyMem_RawFree(self._found)

    @property
    def found(self):
        """(keys,) bool: which keys have a row."""
        return self._there.view(np.bool_)

    cdef int make_room(self, Py_ssize_t more) except -1:
        """Have room for so many rows more."""
        if self.count + more > self._room:
            self._found = <FoundRow*>grown(self._found, 2 * (self.count + more) * <int64_t>sizeof(FoundRow))
            self._room = 2 * (self.count + more)
        return 0

    cdef int32_t add_source(self, Source source) except -1:
        """The number of a source, whose rows come next."""
        if source.memory is not None:
            self._columns.append(source.memory.columns_of(self._shape))
        else:
            self._columns.append(source.file.columns_of(self._shape))
        self._sources.append(source)
        return <int32_t>(len(self._sources) - 1)

    cdef bint take(self, int32_t number, int64_t key, int64_t row) except -1:
        """Take in the row of a key, for which there is room, if it lives."""
        cdef:
            Source source = self._sources[number]
            Overlay overlay = None
            FoundRow* found = &self._found[self.count]
        if source.memory is not None:
            if row < 0 or row >= source.memory.inserted._count:
                raise IndexError(f"no row {row} of {source.memory.inserted._count}")
            overlay = source.memory.overlaid(row, self.snapshot, self._shape)
        else:
            if row < 0 or row >= source.file.f.rows:
                raise IndexError(f"no row {row} of {source.file.f.rows}")
            if source.rowset.stores or source.rowset.max_insert_ts > self.snapshot:
                overlay = source.rowset.overlaid(source.file, row, self.snapshot, self._shape)
        found.laid_over = False
        if overlay is not None:
            if overlay.lives == 0:
                return False
            if overlay.left < self._shape.count:
                self._overlays[key] = overlay
                found.laid_over = True
        found.key, found.row, found.source = key, row, number
        self._marks[key] = 1
        self.count += 1
        return True

    def batch(self, int64_t most_bytes, tuple places not None, list keys not None):
        """The rows as an ``ArrowBatch``, whose strings take no more than ``most_bytes`` in a column, with the
        columns of the keys, and behind all a bool: which keys have a row.

        ``places``: of each column in the batch; ``keys``: the others, each (place, width of a cell, 0 for
        strings; whether Arrow has it as bits; uint8 values; int32 offsets, of strings), one cell a key.

        Raises ``NeedsGeneralPath``, also for longer strings, ``PageError``; ValueError for wrong columns.
        """
        cdef:
            ArrowBatch made = ArrowBatch.__new__(ArrowBatch)
            Py_ssize_t i, columns = self._shape.count + len(keys)
        check_places(self._shape.count, places, keys)
        made.begin(self._keys, columns + 1)
        for i in range(self._shape.count):
            self._column(i, most_bytes, made.column(places[i], 2 if self._widths[i] else 3))
        for place, width, bits, values, offsets in keys:
            asked_column(made.column(place, 2 if width else 3), width, bits, values, offsets)
        as_bits(made.column(columns, 2), &self._marks[0] if self._keys else NULL)
        return made

    cdef int _column(self, Py_ssize_t i, int64_t most_bytes, ArrowArray* out) except -1:
        """Write a column."""
        cdef:
            uint8_t* values
            uint8_t* cells
            int width = self._widths[i]
        if self.count < self._keys:
            self._no_rows(out)
        if not width:
            self._strings(i, most_bytes, out)
        elif not self._bits[i]:
            out.buffers[1] = values = <uint8_t*>grown(NULL, self._keys * width)
            if self.count < self._keys:
                memset(values, 0, <size_t>(self._keys * width))
            self._fixed(i, width, values, out)
        else:
            cells = <uint8_t*>PyMem_RawCalloc(1, <size_t>(self._keys + 16))
            if cells == NULL:
                raise MemoryError
            try:
                self._fixed(i, width, cells, out)
                as_bits(out, cells)
            finally:
                PyMem_RawFree(cells)
        with nogil:             # for whoever waits
            pass

    cdef int _no_rows(self, ArrowArray* out) except -1:
        """The cells of keys without a row are null."""
        cdef Py_ssize_t key
        for key in range(self._keys):
            if not self._marks[key]:
                put_null(out, key)
        return 0

    cdef Py_ssize_t _alike(self, Py_ssize_t first) noexcept:
        """Where the rows end that are read like the first: of one source, with nothing laid over."""
        cdef Py_ssize_t end = first + 1
        if not self._found[first].laid_over:
            while (
                end < self.count and self._found[end].source == self._found[first].source
                and not self._found[end].laid_over
            ):
                end += 1
        return end

    cdef object _given(self, Py_ssize_t at, Py_ssize_t i, bint* given):
        """The cell as bytes, None where it is null, if it is not read from its source: it was changed, or the
        source is older than the column."""
        cdef Overlay overlay
        given[0] = True
        if self._found[at].laid_over:
            overlay = self._overlays[self._found[at].key]
            if overlay.has(i):
                return overlay.values[i]
        if (<list>self._columns[self._found[at].source])[i] is None:
            return self._shape.defaults[i]
        given[0] = False
        return None

    # ---- cells of fixed width ----

    cdef int _fixed(self, Py_ssize_t i, int width, uint8_t* values, ArrowArray* out) except -1:
        """Write the cells of a column, each where its key stands."""
        cdef:
            Py_ssize_t at = 0, end
            bint given = False
            Source source
            PointColumn column
            FoundRow* found
        while at < self.count:
            end = self._alike(at)
            cell = self._given(at, i, &given)
            source = <Source>self._sources[self._found[at].source]
            if given:
                if cell is not None and PyBytes_GET_SIZE(<bytes>cell) != width:
                    raise ValueError(f"a cell of {len(cell)} bytes, {width} are wanted")
                while at < end:
                    found = &self._found[at]
                    if cell is None:
                        memset(values + found.key * width, 0, <size_t>width)
                        put_null(out, found.key)
                    else:
                        memcpy(values + found.key * width, PyBytes_AS_STRING(<bytes>cell), <size_t>width)
                    at += 1
            elif source.memory is not None:
                while at < end:
                    found = &self._found[at]
                    if memory_fixed(
                        <AppendColumn>(<list>self._columns[found.source])[i], found.row, width,
                        values + found.key * width,
                    ):
                        memset(values + found.key * width, 0, <size_t>width)
                        put_null(out, found.key)
                    at += 1
            else:
                column = <PointColumn>(<list>self._columns[self._found[at].source])[i]
                if column.c.width != width or column.c.words.count:
                    raise_needs_general_path()
                self._file_fixed(source.file, column, at, end, values, out)
            at = end
        return 0

    cdef int _file_fixed(
        self, PointFile file, PointColumn column, Py_ssize_t first, Py_ssize_t end, uint8_t* values,
        ArrowArray* out,
    ) except -1:
        """The same of rows of one file; of a dictionary, the codes."""
        cdef:
            PageHolder holder = file if column._holder is None else column._holder
            const Page* page = NULL
            FoundRow* found
            int64_t number = -1, index = -1, at = 0
            Py_ssize_t k = first, last
            int status, width = column.c.width
            bint sampled = end - first <= SAMPLED_ROWS
        holder._busy += 1       # a page that the cache does not keep stays while it is counted
        try:
            while k < end:
                fetch_ahead(&column.c, self._found, k, end)
                found = &self._found[k]
                if page_of(&column.c, found.row) != number:
                    number = page_of(&column.c, found.row)
                    page = column.page(file, number)
                last = packed_cells(&column.c, page, self._found, k, end, values)
                if last > k:
                    k = last
                    continue
                k += 1
                if sampled:
                    status = read_sampled(
                        column, page, found.row, &self._cells, &index, values + found.key * width, &at
                    )
                else:
                    status = read_fixed(
                        &column.c, page, found.row, &self._cells, &index, values + found.key * width, &at
                    )
                if status < 0:
                    refuse(status, at)
                if status:
                    put_null(out, found.key)
        finally:
            holder.idle()
        return 0

    # ---- strings ----

    cdef int _strings(self, Py_ssize_t i, int64_t most_bytes, ArrowArray* out) except -1:
        """Write a column of strings: first find out where each lies, then copy them."""
        cdef:
            int32_t* ends = <int32_t*>grown(NULL, 4 * (self._keys + 1))
            uint8_t* data
            int64_t total = 0
            Py_ssize_t key
            list held = []
            Span* spans
            FarStrings far = FarStrings.__new__(FarStrings)
        out.buffers[1] = ends
        spans = <Span*>PyMem_RawCalloc(<size_t>(self._keys + 1), sizeof(Span))
        if spans == NULL:
            raise MemoryError
        try:
            self._find_strings(i, spans, held, far, out)
            # From here on no Python runs: nobody appends to a column in memory, which would move it.
            self._find_in_memory(i, spans, out)
            ends[0] = 0
            for key in range(self._keys):
                total += spans[key].size
                if total > most_bytes:
                    raise_needs_general_path()
                ends[key + 1] = <int32_t>total
            out.buffers[2] = data = <uint8_t*>grown(NULL, total)
            for key in range(self._keys):
                if spans[key].size:
                    memcpy(data + ends[key], spans[key].start, <size_t>spans[key].size)
        finally:
            PyMem_RawFree(spans)
            for holder in held:
                (<PageHolder>holder).idle()
        return 0

    cdef int _find_strings(
        self, Py_ssize_t i, Span* spans, list held, FarStrings far, ArrowArray* out
    ) except -1:
        """Where strings that are not in memory lie; ``held``: who is to be told when they were copied."""
        cdef:
            Py_ssize_t at = 0, end
            bint given = False
            Source source
            PointColumn column
            PageHolder holder
        while at < self.count:
            end = self._alike(at)
            cell = self._given(at, i, &given)
            source = <Source>self._sources[self._found[at].source]
            if given:
                while at < end:
                    if cell is None:
                        put_null(out, self._found[at].key)
                    else:           # the overlay or the shape keeps it
                        spans[self._found[at].key].start = <const uint8_t*>PyBytes_AS_STRING(<bytes>cell)
                        spans[self._found[at].key].size = PyBytes_GET_SIZE(<bytes>cell)
                    at += 1
            elif source.memory is None:
                column = <PointColumn>(<list>self._columns[self._found[at].source])[i]
                holder = source.file if column._holder is None else column._holder
                held.append(holder)
                holder._busy += 1
                far.find(source.file, column, self._found, at, end, spans, &self._cells, out)
            at = end
        return 0

    cdef int _find_in_memory(self, Py_ssize_t i, Span* spans, ArrowArray* out) except -1:
        """Where the strings of a column lie that are in memory."""
        cdef:
            Py_ssize_t at
            bint given = False
            FoundRow* found
            int32_t source = -1
            bint memory = False
        for at in range(self.count):
            found = &self._found[at]
            if found.source != source:
                source = found.source
                memory = (<Source>self._sources[source]).memory is not None
            if memory:
                self._given(at, i, &given)
                if not given and memory_string(
                    <AppendColumn>(<list>self._columns[source])[i], found.row, &spans[found.key].start,
                    &spans[found.key].size,
                ):
                    put_null(out, found.key)
        return 0
