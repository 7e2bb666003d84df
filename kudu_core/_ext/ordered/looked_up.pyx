"""Rows that are looked up by their keys, for an Arrow batch (``rows_of_keys``).

What reads of many keys would do for each rowset and tablet (bounds and bloom of all its keys, arrays for each
column) is done once for a call: here keys are looked for in one view after the other, in each rowset those
that lie within its bounds, some together, so that what they wait for in memory comes at the same time.

``NeedsGeneralPath`` and ``PageError`` mean that the general path must answer.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.base.bitpack cimport kc_mask
from kudu_core._ext.base.keybytes cimport kc_compare, key_bytes, key_count
from kudu_core._ext.base.status cimport BAD_VALUE, raise_needs_general_path
from kudu_core._ext.index.rowset_tree cimport BoundsTree
from kudu_core._ext.ordered.rows_of_keys cimport RowsOfKeys
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.ordered.sampled cimport is_sampled, sampled_bound, sampled_value, samples_of
from kudu_core._ext.pages.head cimport BLOCK_BITS, BLOCK_ROWS, Page
from kudu_core._ext.row.cells cimport Need, open_known
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.find cimport (
    STRING,
    cell_want,
    fetch_block,
    find_in_block,
    kc_fetch_bloom,
    kc_in_bloom,
)
from kudu_core._ext.row.scattered cimport refuse
from kudu_core._ext.row.view cimport MemoryPoints, PointView, RowsetPoints
from kudu_core._ext.search.cells cimport cell_number, cells_bound, order_cells
from kudu_core._ext.search.outcomes cimport ABSENT
from kudu_core._ext.search.sorted_strings cimport count_below

cdef enum:
    GROUP = 16                  # keys whose memory is fetched together
    CANDIDATES = 16             # rowsets whose blooms are fetched together
    ROWSETS_OF_A_KEY = 8        # where there are more, rowsets are asked for by each key


cdef struct Wanted:
    # The keys of a call: encoded, with their hashes, and which of them are looked for.
    const uint8_t* data
    const int64_t* offsets
    const uint64_t* hashes
    const int64_t* keys
    int64_t count


cdef inline const uint8_t* _key(const Wanted* wanted, int64_t at, int64_t* size) noexcept nogil:
    cdef int64_t key = wanted.keys[at]
    size[0] = wanted.offsets[key + 1] - wanted.offsets[key]
    return wanted.data + wanted.offsets[key]


cdef bint _ascend(const Wanted* wanted) noexcept nogil:
    """Whether the keys come in order."""
    cdef:
        int64_t i, size = 0, before_size = 0
        const uint8_t* key
        const uint8_t* before = NULL
    for i in range(wanted.count):
        key = _key(wanted, i, &size)
        if i and kc_compare(before, before_size, key, size) > 0:
            return False
        before, before_size = key, size
    return True


cdef int64_t _passed(
    const Wanted* wanted, int64_t lower, const uint8_t* bound, int64_t bound_size, bint above
) noexcept nogil:
    """How many of the keys, which ascend, are below the bound (``above``: not above it), at least so many."""
    cdef:
        int64_t upper = wanted.count, middle, size = 0
        const uint8_t* key
        int order
    while lower < upper:
        middle = (lower + upper) >> 1
        key = _key(wanted, middle, &size)
        order = kc_compare(key, size, bound, bound_size)
        if order < 0 or (above and order == 0):
            lower = middle + 1
        else:
            upper = middle
    return lower


@cython.final
@cython.auto_pickle(False)
cdef class LookedUp(RowsOfKeys):
    """The rows of keys at a snapshot, of the views that are asked one after the other."""

    def look_up(
        self,
        PointView view not None,
        const uint8_t[::1] data not None,
        const int64_t[::1] offsets not None,
        const uint64_t[::1] hashes not None,
        const int64_t[::1] wanted not None,
    ):
        """Take in the rows of some keys of the batch that have none yet.

        ``data``, ``offsets``: all encoded keys of the batch; ``hashes``: theirs; ``wanted``: which of them,
        best in the order of keys.

        Raises ``NeedsGeneralPath``, ``PageError``, and ValueError for keys that are not in the batch.
        """
        cdef:
            int64_t i, n = wanted.shape[0], count = key_count(data, offsets)
            Wanted keys
        if hashes.shape[0] != count or self._keys != count:
            raise ValueError(f"{hashes.shape[0]} hashes of {count} keys in a batch of {self._keys}")
        for i in range(n):
            if wanted[i] < 0 or wanted[i] >= count:
                raise ValueError(f"key {wanted[i]} of {count}")
        if n == 0:
            return
        self.make_room(n)
        keys.data, keys.offsets, keys.hashes = key_bytes(data), &offsets[0], &hashes[0]
        keys.keys, keys.count = &wanted[0], n
        for memory in view.memories:
            if (<MemoryPoints>memory).inserted._count:
                self._in_memory(memory, &keys)
        if view.bounds.count > ROWSETS_OF_A_KEY * n:
            self._key_by_key(view, &keys)
        else:
            self._rowset_by_rowset(view, &keys)

    cdef int _in_memory(self, MemoryPoints memory, const Wanted* wanted) except -1:
        """Look for all keys in rows in memory."""
        cdef:
            int64_t i, key, row, size = 0
            const uint8_t* at
            Source source
            int32_t number = -1
        for i in range(wanted.count):
            key = wanted.keys[i]
            if self._marks[key]:
                continue
            at = _key(wanted, i, &size)
            row = memory.find(at, size, wanted.hashes[key], self.snapshot)
            if row >= 0:
                if number < 0:
                    source = Source.__new__(Source)
                    source.memory = memory
                    number = self.add_source(source)
                self.take(number, key, row)
        return 0

    cdef int _rowset_by_rowset(self, PointView view, const Wanted* wanted) except -1:
        """Look in each rowset for the keys within its bounds."""
        cdef:
            BoundsTree bounds = view.bounds
            int64_t place, size = 0, lower = 0, upper = wanted.count
            const uint8_t* bound
            bint ordered = bounds.count > 1 and _ascend(wanted)
        for place in range(bounds.count):
            if ordered:         # first keys ascend
                bound = bounds.first(place, &size)
                lower = _passed(wanted, lower, bound, size, False)
                bound = bounds.last(place, &size)
                upper = _passed(wanted, lower, bound, size, True)
            if lower < upper:
                self._in_rowset(view.rowsets[place], wanted, lower, upper)
        return 0

    cdef int _key_by_key(self, PointView view, const Wanted* wanted) except -1:
        """Look for each key in the rowsets that have it within their bounds."""
        cdef:
            int64_t i, begun, ended, place, size = 0
            int64_t candidates[CANDIDATES]
            const uint8_t* key
            int k, count
        for i in range(wanted.count):
            key = _key(wanted, i, &size)
            begun, ended, place = view.bounds.begun(key, size), view.bounds.ended(key, size), 0
            while place >= 0 and not self._marks[wanted.keys[i]]:
                count = view._candidates(&place, begun, ended, candidates)
                if count > 1:
                    for k in range(count):
                        (<RowsetPoints>view.rowsets[candidates[k]]).file().fetch_bloom(
                            wanted.hashes[wanted.keys[i]]
                        )
                for k in range(count):
                    self._in_rowset(view.rowsets[candidates[k]], wanted, i, i + 1)
        return 0

    cdef int _in_rowset(
        self, RowsetPoints rowset, const Wanted* wanted, int64_t lower, int64_t upper
    ) except -1:
        """Look in a rowset for the keys of [lower, upper)."""
        cdef:
            PointFile file
            Source source
            int32_t number = -1
            int64_t places[GROUP]
            int64_t blocks[GROUP]
            int64_t i, row, key, size = 0
            int k, count
            const uint8_t* at
        if rowset.insert_ts > self.snapshot:
            return 0
        file = rowset.file()
        if file.closed or not file.can_find:
            raise_needs_general_path()
        file._busy += 1         # pages that the cache does not keep stay while this is counted
        try:
            i = lower
            while i < upper:
                count = 0
                if file.f.bloom != NULL:
                    for k in range(<int>min(upper - i, <int64_t>GROUP)):
                        kc_fetch_bloom(
                            file.f.bloom, file.f.bloom_blocks, wanted.hashes[wanted.keys[i + k]]
                        )
                while i < upper and count < GROUP:
                    key = wanted.keys[i]
                    if not self._marks[key] and (
                        file.f.bloom == NULL
                        or kc_in_bloom(file.f.bloom, file.f.bloom_blocks, wanted.hashes[key])
                    ):
                        at = _key(wanted, i, &size)
                        blocks[count] = count_below(&file.f.index, at, size, True) - 1
                        if blocks[count] >= 0:
                            fetch_block(&file.f, blocks[count], True)
                            places[count] = i
                            count += 1
                    i += 1
                for k in range(count):
                    fetch_block(&file.f, blocks[k], False)
                for k in range(count):
                    at = _key(wanted, places[k], &size)
                    row = self._find(file, blocks[k], at, size)
                    if row >= 0 and not self._marks[wanted.keys[places[k]]]:
                        if number < 0:
                            source = Source.__new__(Source)
                            source.rowset, source.file = rowset, file
                            number = self.add_source(source)
                        self.take(number, wanted.keys[places[k]], row)
        finally:
            file.idle()
        return 0

    cdef int64_t _find(self, PointFile file, int64_t block, const uint8_t* key, int64_t size) except -2:
        """The row of a key in a mini-block, or ``ABSENT``: as ``find_in_block``, with samples of deltas."""
        cdef:
            PointColumn column
            const Page* page
            const uint64_t* samples
            Need need
            int64_t at = 0, lower = 0, upper, pos = 0, found
            uint64_t want = 0, word = 0
            int k, status
            bint last
        if file.f.keys == 0 or file.f.columns[0].order == STRING:
            need.column = 0
            need.page = 0
            found = find_in_block(&file.f, block, key, size, &self._cells, &need, &at)
            while found < ABSENT:
                file._resolve(found, &need, at)
                found = find_in_block(&file.f, block, key, size, &self._cells, &need, &at)
            return found
        upper = min(file.f.rows - block * BLOCK_ROWS, <int64_t>BLOCK_ROWS)
        for k in range(file.f.keys):
            last = k + 1 == file.f.keys
            column = <PointColumn>file._keys[k]
            found = cell_want(&column.c, key, size, last, &pos, &want)
            if found == ABSENT:
                return ABSENT
            if found < 0:
                refuse(found, at)
            page = column.page(file, block >> (column.c.page_bits - BLOCK_BITS))
            status = open_known(&column.c, page, block, &self._cells, &at)
            samples = NULL
            if status == 0 and self._cells.block.count < upper:
                status = BAD_VALUE
            if status == 0 and is_sampled(column, page, &self._cells):
                samples = samples_of(column, block, &self._cells, &status, &at)
                self._cells.width = column.c.width
                self._cells.mask, self._cells.flip = kc_mask(8 * column.c.width), column.c.flip
            elif status == 0:
                status = order_cells(page, column.c.width, column.c.flip, &self._cells, &at)
            if status < 0:
                refuse(status, at)
            lower = self._bound(samples, lower, upper, want, False)
            if lower == upper:
                return ABSENT
            if not last:
                upper = self._bound(samples, lower, upper, want, True)
                if lower == upper:
                    return ABSENT
                continue
            if samples != NULL:
                word = (sampled_value(samples, &self._cells, lower) & self._cells.mask) ^ self._cells.flip
            else:
                status = cell_number(&self._cells, lower, &word)
                if status < 0:
                    refuse(status, at)
            if word != want:
                return ABSENT
        return block * BLOCK_ROWS + lower if pos == size else ABSENT

    cdef int64_t _bound(
        self, const uint64_t* samples, int64_t lower, int64_t upper, uint64_t want, bint above
    ) except -1:
        cdef int64_t found
        if samples != NULL:
            return sampled_bound(samples, &self._cells, lower, upper, want, above)
        found = cells_bound(&self._cells, lower, upper, want, above)
        if found < 0:
            refuse(found, 0)
        return found
