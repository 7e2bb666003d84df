"""Find a key in a ``.rows`` file and read its cells where they lie, without decoding mini-blocks.

``PointFile`` has the columns of one open file, its key index and its bloom.  A look-up is: bloom, binary
search in the first keys of the mini-blocks, binary search by cells in the one mini-block that may hold the
key (``find.pxd``).  ``row`` makes a dict of one row's cells, ``cells`` gathers a column's cells of many rows.

It is the fast path beside ``cfile.readers.key_reader`` and ``cfile.columns.reader``: what it cannot do (an
encoding without cells, a page that the cache does not keep) raises ``NeedsGeneralPath``, stored bytes that
break their format raise ``PageError``; in both cases the caller asks the general path, whose answer or
error stands.  It knows no files, frames or codecs.  ``pages.holder`` says how long pages are held.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_SetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.files.cached_pages cimport GONE, CachedPage
from kudu_core._ext.pages.head cimport BLOCK_BITS, BLOCK_ROWS
from kudu_core._ext.row.ahead cimport NULL_CELL, UNUSUAL, Ahead, fetch_head, fetch_string, look_ahead
from kudu_core._ext.row.cells cimport Need, page_of
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.find cimport (
    MOST_KEY_COLUMNS,
    fetch_block,
    fetch_bloom_block,
    find_in_block,
    find_some,
    kc_in_bloom,
)
from kudu_core._ext.pages.holder cimport PageHolder
from kudu_core._ext.row.shape cimport RowShape, value_of
from kudu_core._ext.search.cells cimport Cells
from kudu_core._ext.search.outcomes cimport ABSENT, NEED_PAGE, NEEDS_GENERAL_PATH
from kudu_core._ext.search.sorted_strings cimport count_below, sorted_strings
from kudu_core._ext.base.status cimport raise_needs_general_path, raise_status

import numpy as np

cdef enum:
    TOGETHER = 16               # cells of a row that are looked for side by side


@cython.final
@cython.auto_pickle(False)
cdef class PointFile(PageHolder):
    """The columns, key index and bloom of one open file, for point reads.

    Parameters
    ----------
    columns : {id: PointColumn}
        Those that are there already; ``make`` adds to it.
    keys : [(PointColumn, order, width, bias)]
        The key columns in key order; order 0: a number of that many bytes in the key, whose stored
        value differs by the bit ``bias``; 1: a word of the dictionary; 2: a string (the only column).
        None where another encoding is needed: ``find`` then raises ``NeedsGeneralPath``.
    encoded : PointColumn or None
        Stored encoded keys; they are searched instead of the columns.
    index : (data uint8, offsets int64)
        First key of each mini-block.
    others : [PageHolder]
        Who holds pages of columns that are not in this file; closed with it.
    bloom : uint8 array, None for none, or a callable: each look-up asks it, until it has the array
    make : callable or None
        Makes the column of an id when a look-up first asks for it; None for one that is not stored.
    """

    def __init__(
        self, int64_t rows, dict columns not None, keys, PointColumn encoded, index, bloom, others=None,
        make=None,
    ):
        cdef:
            PointColumn column
            int k
        self._columns = columns
        self._others = [] if others is None else others     # the caller's: ``make`` may add one
        self._make = make
        self._keys = []
        self.f.rows = rows
        self.can_find = False
        if index is not None:
            self._index = sorted_strings(&self.f.index, index[0], index[1])
            if self.f.index.count != (rows + BLOCK_ROWS - 1) // BLOCK_ROWS:
                raise ValueError(f"{self.f.index.count} first keys of {rows} rows")
            if encoded is not None:
                self._keys.append(encoded)
                self.f.columns[0] = &encoded.c
            elif keys is not None and 0 < len(keys) <= MOST_KEY_COLUMNS:
                for k, (column, order, width, bias) in enumerate(keys):
                    column.c.order = order
                    column.c.key_width = width
                    column.c.flip = bias
                    self._keys.append(column)
                    self.f.columns[k] = &column.c
                self.f.keys = len(keys)
            self.can_find = bool(self._keys)
            for column in self._keys:
                if column.c.page_bits < BLOCK_BITS or column.c.page_count << column.c.page_bits < rows:
                    raise ValueError(f"keys in {column.c.page_count} pages of 1 << {column.c.page_bits} rows")
        self._late = bloom if callable(bloom) else None
        self._take_bloom(None if callable(bloom) else bloom)

    cdef int _take_bloom(self, bloom) except -1:
        cdef const uint8_t[::1] data = bloom
        if bloom is not None:
            if data.shape[0] == 0 or data.shape[0] % 32:
                raise ValueError(f"a bloom of {data.shape[0]} bytes")
            self._bloom, self._late = bloom, None
            self.f.bloom_blocks = <uint64_t>(data.shape[0] // 32)  # first: others look, without the GIL
            self.f.bloom = &data[0]
        return 0

    def may_contain(self, uint64_t hash):
        """Whether the bloom lets the key of that hash pass."""
        return self.f.bloom == NULL or kc_in_bloom(self.f.bloom, self.f.bloom_blocks, hash)

    def find(self, bytes key not None, uint64_t hash):
        """The row of an encoded key, -1 where the file does not have it.

        Raises ``NeedsGeneralPath`` or ``PageError``: ask the general path.
        """
        return self.find_row(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), hash, None)

    cdef int64_t find_row(
        self, const uint8_t* key, int64_t size, uint64_t hash, RowShape shape
    ) except -2:
        """As ``find``.  ``shape``: of the row that will be asked for then; None: of none."""
        cdef:
            Cells cells
            Need need
            int64_t at = 0, found, block
        if self.closed or not self.can_find:
            raise_needs_general_path()
        late = self._late
        if late is not None and self._bloom is None:
            self._take_bloom(late())
        # The bloom's answer, the mini-block and what a row of it needs come from memory side by side.
        self.fetch_bloom(hash)
        block = count_below(&self.f.index, key, size, True) - 1
        if block < 0:
            return ABSENT
        fetch_block(&self.f, block, True)
        if self.f.bloom != NULL and not kc_in_bloom(self.f.bloom, self.f.bloom_blocks, hash):
            return ABSENT
        if shape is not None:
            self._begin(self.columns_of(shape), block)
        need.column = need.page = 0
        found = find_in_block(&self.f, block, key, size, &cells, &need, &at)
        if found >= ABSENT:
            return found
        # Pages that the cache does not keep stay while this is counted.
        self._busy += 1
        try:
            while found < ABSENT:
                self._resolve(found, &need, at)
                found = find_in_block(&self.f, block, key, size, &cells, &need, &at)
            return found
        finally:
            self.idle()

    cdef void fetch_bloom(self, uint64_t hash) noexcept:
        """Ask for the memory that the bloom's answer for a key of that hash needs."""
        if self.f.bloom != NULL:
            fetch_bloom_block(self.f.bloom, self.f.bloom_blocks, hash)

    cdef int _resolve(self, int64_t status, const Need* need, int64_t at) except -1:
        """Load the page that a look-up lacks, or raise what stopped it."""
        if status == NEED_PAGE:
            (<PointColumn>self._keys[need.column]).page(self, need.page)
            return 0
        if status == NEEDS_GENERAL_PATH:
            raise_needs_general_path()
        return raise_status(status, at)

    def find_many(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] offsets not None,
        const uint64_t[::1] hashes not None,
    ):
        """The row of each encoded key, (n,) int64, -1 where the file does not have it.

        Raises as ``find``, and ValueError for offsets that leave the data.
        """
        cdef:
            Cells cells
            Need need
            int64_t at = 0, status = 0, i = 0, n = hashes.shape[0]
            const uint8_t* first = <const uint8_t*>&at
            int64_t[::1] out
        if offsets.shape[0] != n + 1:
            raise ValueError(f"{offsets.shape[0]} offsets of {n} keys")
        for i in range(n):
            if offsets[i] < 0 or offsets[i + 1] < offsets[i]:
                raise ValueError("offsets of keys descend")
        if offsets[n] > data.shape[0]:
            raise ValueError("offsets of keys leave the data")
        if self.closed or not self.can_find:
            raise_needs_general_path()
        result = np.empty(n, np.int64)
        if n == 0:
            return result
        out = result
        if data.shape[0]:
            first = &data[0]
        need.column = need.page = 0
        self._busy += 1
        try:
            i = 0
            while i < n:
                with nogil:
                    i = find_some(&self.f, first, offsets, hashes, out, i, &cells, &need, &status, &at)
                if status:
                    self._resolve(status, &need, at)
        finally:
            self.idle()
        return result

    def row(self, int64_t row, RowShape shape not None):
        """The row as a dict of the shape's columns; those that are not stored take their default.

        Raises ``NeedsGeneralPath``, ``PageError``, IndexError for a row that the file has not.
        """
        return self.row_of(row, shape)

    cdef dict row_of(self, int64_t row, RowShape shape):
        cdef:
            dict out
            Py_ssize_t i
            bint asked = False, there = False
            list columns
            Ahead ahead[TOGETHER]
            Ahead* cell
            PointColumn column
        if row < 0 or row >= self.f.rows:
            raise IndexError(f"no row {row} of {self.f.rows}")
        if self.closed:
            raise_needs_general_path()
        columns = self.columns_of(shape)
        out = PyDict_Copy(shape.empty)
        self._busy += 1         # pages stay where they are
        try:
            for i in range(shape.count):
                if i % TOGETHER == 0:
                    self._look_ahead(columns, i, row, ahead)
                    there = self._fetch_far(columns, i, row, ahead)
                cell = &ahead[i % TOGETHER]
                if columns[i] is None:
                    value = shape.defaults[i]
                elif cell.state != UNUSUAL:
                    column = <PointColumn>columns[i]
                    column.c.touched[page_of(&column.c, row)] = 1
                    if cell.state == NULL_CELL:
                        value = None
                    elif column.c.words.count:
                        value = column._word(cell.at, shape.tags[i], shape.decoders[i])
                    else:
                        value = value_of(shape.tags[i], cell.at, cell.size, shape.decoders[i])
                else:
                    if not asked and not there and (<PointColumn>columns[i]).lacks(row):
                        asked = True
                        self._ask(columns, i, row)
                    value = (<PointColumn>columns[i]).value(self, row, shape.tags[i], shape.decoders[i])
                PyDict_SetItem(out, shape.names[i], value)
        finally:
            self.idle()
        return out

    cdef void _begin(self, list columns, int64_t block) noexcept:
        """Ask for what says where cells of a mini-block lie, of as many columns as are looked for at once."""
        cdef:
            Py_ssize_t i
            PointColumn column
        for i in range(min(<Py_ssize_t>len(columns), <Py_ssize_t>TOGETHER)):
            if columns[i] is not None:
                column = <PointColumn>columns[i]
                if column.c.width:
                    kc_fetch(&column.c.opened[block])
                    kc_fetch(<const uint8_t*>&column.c.opened[block] + 64)
                kc_fetch(&column.c.pages[page_of(&column.c, block << BLOCK_BITS)])

    cdef int _look_ahead(self, list columns, Py_ssize_t first, int64_t row, Ahead* ahead) noexcept:
        """Find some cells of a row side by side, from column ``first`` on, but for columns of other files:
        these hold their pages themselves."""
        cdef:
            Py_ssize_t i, count = min(<Py_ssize_t>len(columns) - first, <Py_ssize_t>TOGETHER)
            PointColumn column
        for i in range(count):
            ahead[i].column = NULL
            if columns[first + i] is not None:
                column = <PointColumn>columns[first + i]
                if column._holder is None:
                    ahead[i].column = &column.c
        look_ahead(ahead, count, row)
        return 0

    cdef bint _fetch_far(self, list columns, Py_ssize_t first, int64_t row, const Ahead* ahead) noexcept:
        """Ask side by side for cells that were not found, whose pages are in the cache and not held; return
        whether it has the pages of all that were not found."""
        cdef:
            Py_ssize_t k, far = 0
            PyObject* found[TOGETHER]
            PyObject** places[TOGETHER]
            PyObject* entries[TOGETHER]
            PointColumn column
            CachedPage entry
            bint all_there = True
        for k in range(min(<Py_ssize_t>len(columns) - first, <Py_ssize_t>TOGETHER)):
            if ahead[k].state != UNUSUAL or columns[first + k] is None:
                continue
            column = <PointColumn>columns[first + k]
            if column.lacks(row):
                found[far], places[far] = <PyObject*>column, column.known_place(row)
                if places[far] == NULL:
                    return False
                kc_fetch(places[far])
                far += 1
        if far < 2:
            return False
        for k in range(far):
            kc_fetch(places[k][0])
        for k in range(far):
            entries[k] = (<PointColumn>found[k])._loader.entry(places[k])
            kc_fetch(entries[k])
        for k in range(far):
            if entries[k] != NULL:
                fetch_head(<void*>(<CachedPage>entries[k]).page)
        for k in range(far):
            all_there = all_there and entries[k] != NULL
            if entries[k] != NULL:
                entry = <CachedPage>entries[k]
                all_there = all_there and entry.state != GONE
                if PyBytes_CheckExact(entry.page):
                    fetch_string(&(<PointColumn>found[k]).c, row, entry.page)
        return all_there

    cdef int _ask(self, list columns, Py_ssize_t i, int64_t row) except -1:
        """Have the system read the pages of a row's cells side by side, from column ``i`` on.

        One after the other they would wait for the disk as often.  The first page that has to be fetched
        tells whether the system has them in memory.
        """
        cdef:
            bint if_cold = True
            list lacking = [c for c in columns[i:] if c is not None and (<PointColumn>c).lacks(row)]
        if len(lacking) < 2:
            return 0
        for column in lacking:
            found = (<PointColumn>column).ask(row, if_cold)
            if found is not None:
                if not found:
                    break
                if_cold = False
        return 0

    cdef object _column(self, column_id):
        """The column, or None: it is not stored."""
        found = self._columns.get(column_id)
        if found is None and self._make is not None:
            found = self._make(column_id)
            if found is not None:
                found = self._columns.setdefault(column_id, <PointColumn?>found)
        return found

    cdef list columns_of(self, RowShape shape):
        # One pair at a time under the GIL: a race costs a look-up more, no more.
        if self._shape is not shape:
            columns = [self._column(i) for i in shape.ids]
            self._shape = None
            self._shape_columns = columns
            self._shape = shape
            return columns
        return self._shape_columns

    def cells(self, column_ids not None, const int64_t[::1] rows not None):
        """Cells of single rows: of each column ``(values, offsets, validity)`` as a column has them.

        ``offsets`` (n + 1,) int32, None for fixed width; ``validity`` None where no cell is null.  None
        for a column that is not stored.  Raises as ``row``.
        """
        cdef:
            int64_t k, n = rows.shape[0]
            list out = []
        for k in range(n):
            if rows[k] < 0 or rows[k] >= self.f.rows:
                raise IndexError(f"no row {rows[k]} of {self.f.rows}")
        if self.closed:
            raise_needs_general_path()
        for column_id in column_ids:
            found = self._column(column_id)
            out.append(None if found is None else (<PointColumn>found).cells(self, rows))
        return out

    def close(self):
        """As ``PageHolder.close``, of the other files too."""
        cdef PageHolder other
        PageHolder.close(self)
        for other in list(self._others):
            other.close()
