"""Find a key in a ``.rows`` file and read its cells where they lie, without decoding mini-blocks.

``PointFile`` has the columns of one open file, its key index and its bloom.  A look-up is: bloom, binary
search in the first keys of the mini-blocks, binary search by cells in the one mini-block that may hold the
key.  ``row`` makes a dict of one row's cells, ``cells`` gathers a column's cells of many rows.

It is the fast path beside ``cfile.readers.key_reader`` and ``cfile.columns.reader``: what it cannot do (an
encoding without cells, a page that the cache does not keep) raises ``NeedsGeneralPath``, stored bytes that
break their format raise ``PageError``; in both cases the caller asks the general path, whose answer or
error stands.  It knows no files, frames or codecs.  ``row.column`` says who holds the pages.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.pages.head cimport BLOCK_ROWS, Page, load32
from kudu_core._ext.search.cells cimport (
    ABSENT,
    NEEDS_GENERAL_PATH,
    NEED_PAGE,
    Cells,
    cell_number,
    cells_bound,
    count_below,
    find_string,
    kc_point_fetch,
    order_cells,
    word_code,
)
from kudu_core._ext.row.column cimport (
    Column,
    Need,
    Opened,
    PageHolder,
    PointColumn,
    kc_is_known,
    open_known,
)
from kudu_core._ext.row.codec cimport RowShape
from kudu_core._ext.search.sorted_strings cimport sorted_strings
from kudu_core._ext.base.status cimport BAD_VALUE, raise_needs_general_path, raise_status

import numpy as np

cdef extern from *:
    """
    static const unsigned kc_point_salt[8] = {
        0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU,
        0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U,
    };
    /* docs/format.md, "Rows files"; ``bloom`` has the fast form for batches. */
    static inline int kc_point_bloom(const unsigned char *filter, uint64_t blocks, uint64_t hash) {
        const unsigned char *block = filter + 32 * (((hash >> 32) * blocks) >> 32);
        unsigned found = 1;
        for (int i = 0; i < 8; i++) {
            unsigned word;
            memcpy(&word, block + 4 * i, 4);
            found &= word >> (((unsigned)hash * kc_point_salt[i]) >> 27);
        }
        return (int)(found & 1);
    }
    static inline void kc_point_fetch_bloom(const unsigned char *filter, uint64_t blocks, uint64_t hash) {
        __builtin_prefetch(filter + 32 * (((hash >> 32) * blocks) >> 32), 0, 3);
    }
    static inline uint64_t kc_point_big_endian(const unsigned char *p, int width) {
        uint64_t word = 0;
        for (int i = 0; i < width; i++) word = word << 8 | p[i];
        return word;
    }
    """
    bint kc_point_bloom(const uint8_t* filter, uint64_t blocks, uint64_t hash) noexcept nogil
    void kc_point_fetch_bloom(const uint8_t* filter, uint64_t blocks, uint64_t hash) noexcept nogil
    uint64_t kc_point_big_endian(const uint8_t* p, int width) noexcept nogil

cdef enum:
    GROUP = 16                  # probes whose bloom blocks are fetched together


# ------------------------------------------------------------------------------------ one key in a file

cdef inline const Page* _page(const Finder* finder, int k, int64_t block, Need* need) noexcept nogil:
    cdef Column* column = finder.columns[k]
    if column.pages[block >> 4].data == NULL:
        need.column = k
        need.page = block >> 4
        return NULL
    column.touched[block >> 4] = 1
    return &column.pages[block >> 4]


cdef int64_t _cell_want(
    const Column* column, const uint8_t* key, int64_t size, bint last, int64_t* pos, uint64_t* want
) noexcept nogil:
    """Cut one column's cell off an encoded key: the number to look for.  0, ABSENT or NEEDS_GENERAL_PATH."""
    cdef int64_t begin = pos[0], end, code
    if column.order == NUMBER:
        if size - begin < column.key_width:
            return ABSENT
        want[0] = kc_point_big_endian(key + begin, column.key_width)
        pos[0] = begin + column.key_width
        return 0
    end = size
    if not last:
        end = begin
        while end < size and key[end] != 0:
            end += 1
        if end + 1 >= size:
            return ABSENT
        if key[end + 1] != 0:
            return NEEDS_GENERAL_PATH  # a byte 00 inside the string
    code = word_code(&column.words, key + begin, end - begin)
    if code < 0:
        return ABSENT
    want[0] = <uint64_t>code
    pos[0] = end if last else end + 2
    return 0


cdef int64_t _find_in_block(
    const Finder* finder,
    int64_t block,
    const uint8_t* key,
    int64_t size,
    Cells* cells,
    Need* need,
    int64_t* at,
) noexcept nogil:
    """The row of a key, ABSENT, NEED_PAGE, NEEDS_GENERAL_PATH or a status of the page in ``need``."""
    cdef:
        int64_t lower = 0, upper, pos = 0, status
        uint64_t want = 0, word = 0
        const Page* page
        int k
        bint last
    if block < 0:
        return ABSENT
    if finder.keys == 0 or finder.columns[0].order == STRING:
        page = _page(finder, 0, block, need)
        if page == NULL:
            return NEED_PAGE
        status = find_string(page, block & 15, key, size, at)
        return status if status < 0 else block * BLOCK_ROWS + status
    upper = finder.rows - block * BLOCK_ROWS
    if upper > BLOCK_ROWS:
        upper = BLOCK_ROWS
    for k in range(finder.keys):
        last = k == finder.keys - 1
        status = _cell_want(finder.columns[k], key, size, last, &pos, &want)
        if status < 0:
            return status
        page = _page(finder, k, block, need)
        if page == NULL:
            return NEED_PAGE
        status = open_known(finder.columns[k], page, block, cells, at)
        if status == 0:
            status = order_cells(page, finder.columns[k].width, finder.columns[k].flip, cells, at)
        if status == 0 and cells.block.count < upper:
            status = BAD_VALUE
        if status < 0:
            return status
        lower = cells_bound(cells, lower, upper, want, False)
        if lower < 0:
            return lower
        if lower == upper:
            return ABSENT
        if last:
            status = cell_number(cells, lower, &word)
            if status < 0:
                return status
            if word != want:
                return ABSENT
        else:
            upper = cells_bound(cells, lower, upper, want, True)
            if upper < 0:
                return upper
            if lower == upper:
                return ABSENT
    return block * BLOCK_ROWS + lower if pos == size else ABSENT


cdef void _fetch(const Finder* finder, int64_t block, bint places) noexcept nogil:
    """Ask for the memory that a search of the mini-block will read: what is known of it, then its cells."""
    cdef:
        int k, count = finder.keys if finder.keys else 1
        const Page* page
        const Opened* opened
        int64_t start
    for k in range(count):
        page = &finder.columns[k].pages[block >> 4]
        if page.data == NULL or (block & 15) >= page.blocks:
            continue
        opened = &finder.columns[k].opened[block]
        if places:
            kc_point_fetch(opened)
            kc_point_fetch(<const uint8_t*>opened + 64)
            if finder.columns[k].width == 0:
                kc_point_fetch(page.directory + 4 * (block & 15))
        elif kc_is_known(&opened.known):
            kc_point_fetch(opened.layout.packed)
            kc_point_fetch(opened.layout.packed + 64)
        elif finder.columns[k].width == 0:
            start = load32(page.directory + 4 * (block & 15))
            if start < page.size:
                kc_point_fetch(page.data + start)
                kc_point_fetch(page.data + start + 64)


cdef int64_t _find_some(
    const Finder* finder,
    const uint8_t* data,
    const int64_t[::1] offsets,
    const uint64_t[::1] hashes,
    int64_t[::1] out,
    int64_t first,
    Cells* cells,
    Need* need,
    int64_t* status,
    int64_t* at,
) noexcept nogil:
    """Look up probes from ``first`` on; stop at the first that cannot go on, with ``status`` set.

    In groups, step by step, so that their cache misses overlap.
    """
    cdef:
        int64_t n = hashes.shape[0], i, end
        int64_t blocks[GROUP]
    status[0] = 0
    while first < n:
        end = min(first + GROUP, n)
        if finder.bloom != NULL:
            for i in range(first, end):
                kc_point_fetch_bloom(finder.bloom, finder.bloom_blocks, hashes[i])
        for i in range(first, end):
            blocks[i - first] = -1
            if finder.bloom == NULL or kc_point_bloom(finder.bloom, finder.bloom_blocks, hashes[i]):
                blocks[i - first] = (
                    count_below(&finder.index, data + offsets[i], offsets[i + 1] - offsets[i], True) - 1
                )
                if blocks[i - first] >= 0:
                    _fetch(finder, blocks[i - first], True)
        for i in range(first, end):
            if blocks[i - first] >= 0:
                _fetch(finder, blocks[i - first], False)
        for i in range(first, end):
            out[i] = _find_in_block(
                finder, blocks[i - first], data + offsets[i], offsets[i + 1] - offsets[i], cells, need, at
            )
            if out[i] < ABSENT:
                status[0] = out[i]
                return i
        first = end
    return n


# ----------------------------------------------------------------------------------------- the classes

@cython.final
@cython.auto_pickle(False)
cdef class PointFile(PageHolder):
    """The columns, key index and bloom of one open file, for point reads.

    Parameters
    ----------
    columns : {id: PointColumn}
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
    bloom : uint8 array, or None for none
    """

    def __init__(
        self, int64_t rows, dict columns not None, keys, PointColumn encoded, index, bloom, others=(),
    ):
        cdef:
            const uint8_t[::1] data
            PointColumn column
            int k
        self._columns = columns
        self._others = list(others)
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
                self.can_find = True
            elif keys is not None and 0 < len(keys) <= MOST_KEY_COLUMNS:
                for k, (column, order, width, bias) in enumerate(keys):
                    column.c.order = order
                    column.c.key_width = width
                    column.c.flip = bias
                    self._keys.append(column)
                    self.f.columns[k] = &column.c
                self.f.keys = len(keys)
                self.can_find = True
        if bloom is not None:
            self._bloom = bloom
            data = bloom
            if data.shape[0] == 0 or data.shape[0] % 32:
                raise ValueError(f"a bloom of {data.shape[0]} bytes")
            self.f.bloom = &data[0]
            self.f.bloom_blocks = <uint64_t>(data.shape[0] // 32)

    def may_contain(self, uint64_t hash):
        """Whether the bloom lets the key of that hash pass."""
        return self.f.bloom == NULL or kc_point_bloom(self.f.bloom, self.f.bloom_blocks, hash)

    def find(self, bytes key not None, uint64_t hash):
        """The row of an encoded key, -1 where the file does not have it.

        Raises ``NeedsGeneralPath`` or ``PageError``: ask the general path.
        """
        return self.find_row(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), hash)

    cdef int64_t find_row(self, const uint8_t* key, int64_t size, uint64_t hash) except -2:
        cdef:
            Cells cells
            Need need
            int64_t at = 0, found, block
        if self.closed or not self.can_find:
            raise_needs_general_path()
        if self.f.bloom != NULL and not kc_point_bloom(self.f.bloom, self.f.bloom_blocks, hash):
            return ABSENT
        need.column = 0
        need.page = 0
        block = count_below(&self.f.index, key, size, True) - 1
        while True:
            found = _find_in_block(&self.f, block, key, size, &cells, &need, &at)
            if found >= ABSENT:
                return found
            self._resolve(found, &need, at)

    cdef void fetch_bloom(self, uint64_t hash) noexcept:
        """Ask for the memory that the bloom's answer for a key of that hash needs."""
        if self.f.bloom != NULL:
            kc_point_fetch_bloom(self.f.bloom, self.f.bloom_blocks, hash)

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
        need.column = 0
        need.page = 0
        self._busy += 1
        try:
            i = 0
            while i < n:
                with nogil:
                    i = _find_some(&self.f, first, offsets, hashes, out, i, &cells, &need, &status, &at)
                if status:
                    self._resolve(status, &need, at)
        finally:
            self.idle()
        return result

    def row(self, int64_t row, RowShape shape not None):
        """The row as a dict of the shape's columns; those that are not stored take their default.

        Raises ``NeedsGeneralPath``, ``PageError``, IndexError for a row that the file has not.
        """
        cdef:
            dict out = {}
            Py_ssize_t i
            list columns
        if row < 0 or row >= self.f.rows:
            raise IndexError(f"no row {row} of {self.f.rows}")
        if self.closed:
            raise_needs_general_path()
        columns = self.columns_of(shape)
        for i in range(shape.count):
            column = columns[i]
            if column is None:
                PyDict_SetItem(out, shape.names[i], shape.defaults[i])
            else:
                PyDict_SetItem(
                    out, shape.names[i],
                    (<PointColumn>column).value(self, row, shape.tags[i], shape.decoders[i]),
                )
        return out

    cdef list columns_of(self, RowShape shape):
        # One pair at a time under the GIL: a race costs a look-up more, no more.
        if self._shape is not shape:
            columns = [self._columns.get(i) for i in shape.ids]
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
            found = self._columns.get(column_id)
            out.append(None if found is None else (<PointColumn>found).cells(self, rows))
        return out

    def close(self):
        """As ``PageHolder.close``, of the other files too."""
        cdef PageHolder other
        PageHolder.close(self)
        for other in self._others:
            other.close()
